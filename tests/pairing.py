"""Whether everything in a request that belongs together stands in it together.

Written from the providers' rules, and knows nothing of the code that writes requests. OpenAI's
guides "Function calling", "Reasoning models", "Shell", "Computer use", "MCP and connectors" and
"Programmatic tool calling"; Anthropic's "Server tools", "Programmatic tool calling", "Tool search
tool" and "MCP connector" (all 2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["leaked", "unpaired_blocks", "unpaired_items"]

Json = Mapping[str, Any]

_ANSWERED_BY = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}
_SECRETS = ("encrypted_content", "encrypted_index", "encrypted_stdout", "signature", "fingerprint")
_SHORTEST_SECRET = 12


def unpaired_items(items: Sequence[Json]) -> list[str]:
    """Return which items of a Responses input lack what they belong to."""
    calls = Counter(
        (_ANSWERED_BY[i["type"]], i.get("call_id")) for i in items if i["type"] in _ANSWERED_BY
    )
    outputs = Counter(
        (i["type"], i["id"] if i["type"] == "local_shell_call_output" else i.get("call_id"))
        for i in items
        if i["type"] in _ANSWERED_BY.values()
    )
    callers = [_program(item) for item in items if _program(item) is not None]
    open_calls = calls - outputs
    problems = [
        f"{call} of {name!r} is missing"
        for call, name in open_calls
        if not (call == "program_output" and name in callers)
    ]
    problems += [f"{output} of {name!r} answers nothing" for output, name in outputs - calls]
    for place, item in enumerate(items):
        problems += [f"item {place}: {one}" for one in _out_of_place(item, place, items)]
    return problems


def _program(item: Json) -> Any:
    caller = item.get("caller")
    return caller.get("caller_id") if caller and caller.get("type") == "program" else None


def _out_of_place(item: Json, place: int, items: Sequence[Json]) -> Iterator[str]:
    before, after = items[:place], items[place + 1 :]
    if (program := _program(item)) is not None:
        programs = [one["call_id"] for one in before if one["type"] == "program"]
        if program not in programs:
            yield f"its caller {program!r} does not stand before"
    request = item.get("approval_request_id")
    requests = [one["id"] for one in before if one["type"] == "mcp_approval_request"]
    if request is not None and request not in requests:
        yield f"the request {request!r} for approval does not stand before"
    if item["type"] == "reasoning":
        following = next((one for one in after if one["type"] != "reasoning"), {"type": "nothing"})
        if following.get("role") in ("user", "system", "developer") or (
            following["type"] == "nothing" or following["type"].endswith("_output")
        ):
            yield f"reasoning is followed by {following['type']}"
        if not item.get("encrypted_content"):
            yield "reasoning that only the server could know"


def unpaired_blocks(messages: Sequence[Json], *, paused: bool = False) -> list[str]:
    """Return which blocks of a Messages request lack what they belong to.

    Args:
        messages: The messages.
        paused: Whether the last answer stopped to be gone on with.
    """
    problems: list[str] = []
    waiting: list[str] = []  # of the server, in this turn
    used: set[str] = set()
    asked: list[str] = []  # of the client, in the last message
    for place, message in enumerate(messages):
        blocks = message["content"]
        where = f"message {place}"
        if message["role"] == "user":
            answers = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
            if sorted(answers) != sorted(asked):
                problems.append(f"{where}: results {answers} for calls {asked}")
            if len(answers) < len(blocks):
                problems += [f"{where}: the turn ends with {one!r} open" for one in waiting]
                waiting, used = [], set()
            asked = []
            continue
        if asked:
            problems.append(f"{where}: comes before the results of {asked}")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            problems += [f"{where}: {one}" for one in _block(block, waiting, used)]
    last = messages[-1]["role"]
    if last == "assistant" and not paused:
        problems += [f"nobody will answer {one!r}" for one in waiting]
    return problems + ([f"no results of {asked}"] if asked else [])


def _block(block: Json, waiting: list[str], used: set[str]) -> Iterator[str]:
    caller = (block.get("caller") or {}).get("tool_id")
    if caller is not None and caller not in used:
        yield f"the caller {caller!r} does not stand before"
    if block["type"] in ("server_tool_use", "mcp_tool_use"):
        if block["id"] in used:
            yield f"the id {block['id']!r} again"
        used.add(block["id"])
        waiting.append(block["id"])
    elif "tool_use_id" in block:
        if block["tool_use_id"] not in waiting:
            yield f"{block['type']} answers nothing"
        else:
            waiting.remove(block["tool_use_id"])


def leaked(body: Json, raw: Any) -> list[str]:
    """Return what of an answer's items an assistant's text tells: secrets, ids, or their JSON."""
    hidden = {*_hidden(raw)}
    problems = []
    for text in _assistant_texts(body):
        problems += [f"{secret[:30]!r} is told in text" for secret in hidden if secret in text]
        if '"type":' in text:
            problems.append(f"JSON is told in text: {text[:80]!r}")
    return problems


def _hidden(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            named = key == "id" or key in _SECRETS
            if named and isinstance(inner, str) and len(inner) >= _SHORTEST_SECRET:
                yield inner
            yield from _hidden(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _hidden(inner)


def _assistant_texts(body: Json) -> Iterator[str]:
    for message in (*body.get("messages", ()), *body.get("input", ())):
        if message.get("role") != "assistant":
            continue
        content = message.get("content") or message.get("parts") or ""
        if isinstance(content, str):
            yield content
        else:
            yield from (str(part["text"]) for part in content if "text" in part)
