"""The results of calls as output items of OpenAI's Responses, each in the form its call demands.

Rules: OpenAI's API reference "Create a model response" and the guides "Shell", "Apply patch",
"Computer use", "Tool search" and "MCP and connectors" (all 2026).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from projections.context.formats.item_pairs import OUTPUTS

__all__ = ["output_of"]

Json = dict[str, Any]

_WENT_WELL = "success"
_UNANSWERED = frozenset({"missing", "withdrawn", "not_shown", "not_started", "outcome_unknown"})


def output_of(call: Json, text: str, outcome: str, parts: Sequence[Json] | None) -> Json | None:
    """Return what answers a call, or None if its result has no form there.

    Args:
        call: The call's item.
        text: The result in words.
        outcome: What became of the call.
        parts: The result as parts of input, if some of it is not text.
    """
    kind = call["type"]
    if kind == "mcp_approval_request":
        return _approval(call, text, outcome)
    head = {"type": OUTPUTS[kind], "call_id": call["call_id"]}
    caller = {"caller": call["caller"]} if "caller" in call else {}
    match kind:
        case "computer_call":
            return _screenshot(head, call, parts, outcome)
        case "local_shell_call":
            # Its output has no other id than that of the call.
            return {"type": head["type"], "id": call["call_id"], "output": text}
        case "shell_call":
            return {**head, **caller, "output": _ran(text, outcome)}
        case "apply_patch_call":
            status = "completed" if outcome == _WENT_WELL else "failed"
            return {**head, **caller, "status": status, "output": text}
        case "tool_search_call":
            return {**head, "execution": "client", "status": "completed", "tools": _tools(text)}
    return {**head, **caller, "output": list(parts) if parts else text}


def _screenshot(head: Json, call: Json, parts: Sequence[Json] | None, outcome: str) -> Json | None:
    image = next((part for part in parts or () if part["type"] == "input_image"), None)
    if image is None:
        return None
    shot = {"type": "computer_screenshot", "image_url": image["image_url"]}
    # A product that has acted has taken note of what the action was checked for.
    checks = call.get("pending_safety_checks") if outcome == _WENT_WELL else None
    return {**head, "output": shot, **({"acknowledged_safety_checks": checks} if checks else {})}


def _ran(text: str, outcome: str) -> list[Json]:
    """Return what a shell has put out: as the product tells it, or as one command's output."""
    told = _parsed(text)
    if isinstance(told, dict):
        told = told.get("output")
    fields = {"stdout", "stderr", "outcome"}
    if isinstance(told, list) and told:
        runs = [each for each in told if isinstance(each, dict) and fields <= each.keys()]
        if len(runs) == len(told):
            return [{key: run[key] for key in sorted(fields)} for run in runs]
    ended = {"type": "exit", "exit_code": 0 if outcome == _WENT_WELL else 1}
    return [{"stdout": text, "stderr": "", "outcome": ended}]


def _tools(text: str) -> list[Json]:
    """Return the tools that a search has found: their declarations, if the result holds any."""
    told = _parsed(text)
    if isinstance(told, dict):
        told = told.get("tools")
    found = told if isinstance(told, list) else []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("type"), str)]


def _approval(call: Json, text: str, outcome: str) -> Json | None:
    """Return the answer to a request for approval; nothing but a clear yes approves."""
    if outcome in _UNANSWERED:
        return None
    told = _parsed(text)
    given = told.get("approve") is True if isinstance(told, dict) else told is True
    reason = {} if given or not text or told is False else {"reason": text}
    return {
        "type": "mcp_approval_response",
        "approval_request_id": call["id"],
        "approve": given and outcome == _WENT_WELL,
        **reason,
    }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
