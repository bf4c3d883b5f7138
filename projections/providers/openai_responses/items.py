"""The items of OpenAI's Responses in the form that a request accepts.

Rules: OpenAI's API reference "Create a model response", the fields of each input item (2026). A
response has fields that a request must not have, and ``null`` for absent fields, most of which a
request rejects. An item of an unknown type, or without a required input field, cannot be returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from projections.provider_actions import mention
from projections.providers.provider_limits import ITEM_IDS, ITEM_STARTS, LONGEST_ITEM_ID
from projections.providers.shapes import Misfit, ObjectShape, fitted, texts, typed

__all__ = [
    "OUTPUTS",
    "PARTS",
    "PLAIN",
    "SHAPES",
    "WORDS",
    "AnswerItems",
    "as_input",
    "is_needed",
    "message",
    "output_of",
    "settled",
    "text_of",
]


_TEXT, _NUMBER = (str, None), (int, None)


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


_DONE = _words("completed incomplete in_progress")


_CALLER = (typed("direct", {}), typed("program", texts("caller_id")))


_IN_TEXT = {"end_index": int, "start_index": int}


_ANNOTATIONS = (
    typed("file_citation", texts("file_id filename") | {"index": int}),
    typed("url_citation", texts("title url") | _IN_TEXT),
    typed("container_file_citation", texts("container_id file_id filename") | _IN_TEXT),
    typed("file_path", {"file_id": str, "index": int}),
)


PARTS: Mapping[str, ObjectShape] = {
    "output_text": typed("output_text", texts("text"), annotations=[_ANNOTATIONS]),
    "refusal": typed("refusal", texts("refusal")),
}


"""The parts of a message, by type; an ``output_text`` must have annotations, if only none."""


_PLACE = {"x": int, "y": int}


_KEYS = ([str], None)


_ACTIONS = (
    typed("click", {**_PLACE, "button": _words("left right wheel back forward")}, keys=_KEYS),
    typed("double_click", _PLACE, keys=_KEYS),
    typed("drag", {"path": [ObjectShape(_PLACE, {})]}, keys=_KEYS),
    typed("keypress", {"keys": [str]}),
    typed("move", _PLACE, keys=_KEYS),
    typed("screenshot", {}),
    typed("scroll", {**_PLACE, "scroll_x": int, "scroll_y": int}, keys=_KEYS),
    typed("type", texts("text")),
    typed("wait", {}),
)


_SKILL = ObjectShape(texts("description name path"), {})


_RUN = ObjectShape(
    {
        **texts("stderr stdout"),
        "outcome": (typed("timeout", {}), typed("exit", {"exit_code": int})),
    },
    {},
)


_RESULT = ObjectShape(
    {},
    {**texts("file_id filename text"), "attributes": (dict, None), "score": (float, int)},
)


_TOOL = ObjectShape(
    {"name": str, "input_schema": object}, {"annotations": object, "description": _TEXT}
)


_IMAGE_ERROR = ObjectShape(
    texts("message type"),
    {
        "code": _TEXT,
        "param": _TEXT,
        "moderation_details": ObjectShape(
            {"categories": [str], "moderation_stage": _words("input output unknown")}, {}
        ),
    },
)


_COUNTS = dict.fromkeys(("input_tokens", "output_tokens", "reasoning_tokens", "total_tokens"), int)


_CALLED = {"id": str, "caller": _CALLER, "namespace": str, "async": bool}


_ITEMS = (
    typed(
        "message",
        {"role": object, "content": object},
        id=str,
        status=_DONE,
        phase=_words("commentary final_answer"),
    ),
    typed(
        "reasoning",
        # The types require an id; encrypted items are accepted without one, as Codex sends them.
        {"summary": [typed("summary_text", texts("text"))]},
        id=str,
        content=[typed("reasoning_text", texts("text"))],
        encrypted_content=str,
        status=_DONE,
    ),
    typed(
        "function_call",
        dict.fromkeys(("call_id", "name", "arguments"), object),
        status=_DONE,
        **_CALLED,
    ),
    typed("custom_tool_call", dict.fromkeys(("call_id", "name", "input"), object), **_CALLED),
    typed(
        "web_search_call",
        {
            "id": str,
            "action": (
                typed("search", {}, query=str, queries=[str], sources=[typed("url", texts("url"))]),
                typed("open_page", {}, url=str),
                typed("find_in_page", texts("pattern url")),
            ),
            "status": _DONE | _words("searching failed"),
        },
    ),
    typed(
        "file_search_call",
        {"id": str, "queries": [str], "status": _DONE | _words("searching failed")},
        results=[_RESULT],
    ),
    typed(
        "code_interpreter_call",
        {
            **texts("id container_id"),
            "code": _TEXT,
            "outputs": ([(typed("logs", texts("logs")), typed("image", texts("url")))], None),
            "status": _DONE | _words("interpreting failed"),
        },
    ),
    typed(
        "image_generation_call",
        {**texts("id result"), "status": _words("in_progress completed generating failed")},
        action=_words("generate edit auto"),
        background=_words("transparent opaque auto"),
        error=_IMAGE_ERROR,
        output_format=_words("png webp jpeg gif svg"),
        quality=_words("low medium high xhigh max auto"),
        revised_prompt=str,
        size=str,
        svg_usage=ObjectShape({**_COUNTS, "model": str}, {}),
    ),
    typed(
        "computer_call",
        {
            **texts("id call_id"),
            "pending_safety_checks": [ObjectShape({"id": str}, {"code": _TEXT, "message": _TEXT})],
            "status": _DONE,
        },
        action=_ACTIONS,
        actions=[_ACTIONS],
    ),
    typed(
        "local_shell_call",
        {
            **texts("id call_id"),
            "action": typed(
                "exec",
                {"command": [str], "env": dict},
                timeout_ms=_NUMBER,
                user=_TEXT,
                working_directory=_TEXT,
            ),
            "status": _DONE,
        },
    ),
    typed(
        "shell_call",
        {
            "call_id": str,
            "action": ObjectShape(
                {"commands": [str]}, {"max_output_length": _NUMBER, "timeout_ms": _NUMBER}
            ),
        },
        id=str,
        caller=_CALLER,
        environment=(
            typed("local", {}, skills=[_SKILL]),
            typed("container_reference", texts("container_id")),
        ),
        status=_DONE,
    ),
    typed(
        "shell_call_output",
        {"call_id": str, "output": [_RUN]},
        id=str,
        caller=_CALLER,
        max_output_length=int,
        status=_DONE,
    ),
    typed(
        "apply_patch_call",
        {
            "call_id": str,
            "operation": (
                typed("create_file", texts("diff path")),
                typed("delete_file", texts("path")),
                typed("update_file", texts("diff path")),
            ),
            "status": _words("in_progress completed"),
        },
        id=str,
        caller=_CALLER,
    ),
    typed(
        "tool_search_call",
        {"arguments": object},
        id=str,
        call_id=str,
        execution=_words("server client"),
        status=_DONE,
    ),
    typed(
        "tool_search_output",
        {"tools": [dict]},
        id=str,
        call_id=str,
        execution=_words("server client"),
        status=_DONE,
    ),
    typed("mcp_list_tools", {**texts("id server_label"), "tools": [_TOOL]}, error=str),
    typed("mcp_approval_request", texts("id arguments name server_label")),
    typed(
        "mcp_call",
        texts("id arguments name server_label"),
        approval_request_id=str,
        error=(
            typed("mcp_protocol_error", {"code": int, "message": str}),
            typed("mcp_tool_execution_error", {"content": object}),
            typed("http_error", {"code": int, "message": str}),
        ),
        output=str,
        status=_DONE | _words("calling failed"),
    ),
    typed("program", texts("id call_id code fingerprint")),
    typed(
        "program_output",
        {**texts("id call_id result"), "status": _words("completed incomplete")},
    ),
    typed("compaction", texts("encrypted_content"), id=str),
)


SHAPES: Mapping[str, ObjectShape] = {min(each.required["type"]): each for each in _ITEMS}


"""The items that a model produces, by type.

Name and arguments of a call come from its message; the parts of a message are fitted one by one.
"""


Json = dict[str, Any]


PLAIN = frozenset({"message", "function_call", "reasoning"})


"""Items that texts and calls express completely, unless something in them is encrypted."""


def is_needed(item: Json) -> bool:
    """Whether an item has anything that text and calls cannot express."""
    telling = ("encrypted_content", "phase", "caller", "namespace")
    kind = item.get("type")
    known = isinstance(kind, str) and kind in PLAIN
    return not known or any(item.get(key) for key in telling)


def as_input(item: Json) -> Json | None:
    """Return an output item as an input item, or None if it cannot be sent back."""
    kind = item.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if kind == "code_interpreter_call":
        item = {"code": None, "outputs": None, **item}
    try:
        lean_item: Json = fitted(item, shape)
    except Misfit:
        return None
    return _message(lean_item) if kind == "message" else lean_item


def _message(item: Json) -> Json:
    """Return the whole message; if it has no id from the server, a message of its text."""
    parts = _input_parts(item["content"]) if isinstance(item["content"], list) else item["content"]
    if isinstance(parts, list) and {"id", "status"} <= item.keys():
        return {**item, "role": "assistant", "content": parts}
    if isinstance(parts, list):
        parts = text_of({"type": "message", "content": parts})
    rest = {key: value for key, value in item.items() if key not in ("id", "status")}
    return {**rest, "role": "assistant", "content": parts if isinstance(parts, str) else ""}


def text_of(item: Json) -> str:
    """Return the text of a message's item; empty for any other item."""
    content = item["content"] if item["type"] == "message" else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _input_parts(content: list[Any]) -> list[Json]:
    """Return the parts of a message that input has, with their annotations."""
    found = []
    for part in content:
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if kind not in PARTS:
            continue
        try:
            lean = fitted(part, PARTS[kind])
        except Misfit:
            continue
        if kind == "output_text":
            lean.setdefault("annotations", [])
        found.append(lean)
    return found


WORDS = "words"


"""The type of the entry that replaces an item that cannot be returned; it has a ``text``."""


OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}


_CALLS = {output: call for call, output in OUTPUTS.items()}


_STEM = re.compile(r"[A-Za-z]+")


@dataclass(slots=True)
class AnswerItems:
    """The items of one response, or one item of any other row.

    Attributes:
        items: The items.
        version: The version of their row.
        results: The results that have no output item, as text by ``call_id``.
    """

    items: list[Json]
    version: int = 0
    results: dict[str, str] = field(default_factory=dict)


def message(role: str, content: str | list[Json], **fields: Any) -> Json:
    """Return a message as an input item."""
    return {"type": "message", "role": role, "content": content, **fields}


def settled(answers: Iterable[AnswerItems]) -> list[Json]:
    """Return the items of all answers, without those that lack their counterpart."""
    pending = [
        replace(
            answer,
            items=[each for each in map(_with_own_id, answer.items) if each.get("content") != ""],
        )
        for answer in answers
    ]
    lost = _lost([item for answer in pending for item in answer.items])
    taken: set[str] = set()
    renamed: dict[str, str] = {}
    found: list[Json] = []
    for answer in pending:
        broken = any(id(item) in lost or item["type"] == WORDS for item in answer.items)
        remaining = replace(answer, items=list(_in_words(answer, lost)))
        if broken or not _is_whole(remaining.items, taken):
            remaining.items = list(_bare(remaining, renamed))
        remaining.items = [_asking(item, renamed) for item in remaining.items]
        remaining.items = [
            item for n, item in enumerate(remaining.items) if _leads_on(remaining.items, n)
        ]
        taken |= set(_ids(remaining.items))
        found += remaining.items
    return _tied(found)


def _with_own_id(item: Json) -> Json:
    """Return the item without an id that the server would refuse, or with one in its form.

    Proxies and other servers give ids of their own, and keep the form of the rest.
    """
    wire_id, kind = item.get("id"), item["type"]
    form = ITEM_IDS.get(kind)
    if form is None or "id" not in item or kind == WORDS:
        return item
    if isinstance(wire_id, str) and len(wire_id) <= LONGEST_ITEM_ID and form.fullmatch(wire_id):
        return item
    item = {key: value for key, value in item.items() if key != "id"}
    if "id" in SHAPES[kind].required:
        digest = sha256(str(wire_id).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return {**item, "id": f"{ITEM_STARTS[kind]}_{digest}"}
    if kind == "message" and isinstance(item["content"], list):
        return _plain(item)
    return item


def _plain(item: Json) -> Json:
    """Return a message of a response as one without an id, whose content is a text."""
    parts = (part.get("text") or part.get("refusal") or "" for part in item["content"])
    phase = {"phase": item["phase"]} if "phase" in item else {}
    return message("assistant", "".join(parts), **phase)


def _key(item: Json) -> Any:
    """Return the id that ties an output to its call; a server may send any type."""
    return item.get("call_id") or (
        item.get("id") if item["type"] == "local_shell_call_output" else None
    )


def _lost(items: Sequence[Json]) -> set[int]:
    """Return the identities (``id()``) of the items that have no counterpart."""
    waiting: dict[tuple[str, Any], list[Json]] = {}
    matched: set[int] = set()
    for item in items:
        kind, key = item["type"], _key(item)
        if not isinstance(key, str | None):
            continue
        if kind in OUTPUTS:
            waiting.setdefault((kind, key), []).append(item)
        elif kind in _CALLS and (calls := waiting.get((_CALLS[kind], key))):
            matched |= {id(calls.pop(0)), id(item)}
    either = OUTPUTS.keys() | _CALLS.keys()
    lost = {id(item) for item in items if item["type"] in either and id(item) not in matched}
    callers = {_caller(item) for item in items if id(item) not in lost}
    at_work = {
        id(item)
        for item in items
        if item["type"] == "program" and isinstance(item["call_id"], str) and _key(item) in callers
    }
    asking = [item for item in items if item["type"] == "mcp_approval_request"]
    requests = [item.get("id") for item in asking if isinstance(item.get("id"), str)]
    lost |= {id(item) for item in asking if item.get("id") not in requests}
    return (lost - at_work) | {
        id(item)
        for item in items
        if item["type"] == "mcp_approval_response"
        and item.get("approval_request_id") not in requests
    }


def _caller(item: Json) -> str | None:
    """Return the id of an item's caller; "", which no item has, if it is not a text."""
    caller = item.get("caller")
    found = caller.get("caller_id") if isinstance(caller, dict) else None
    return found if isinstance(found, str | None) else ""


def _in_words(answer: AnswerItems, lost: set[int]) -> Iterable[Json]:
    for item in answer.items:
        if item["type"] == WORDS:
            text = item["text"]
        elif id(item) not in lost:
            yield item
            continue
        else:
            key = _key(item)
            description = "" if item["type"] in _CALLS else mention(item)
            result = answer.results.get(key) if isinstance(key, str) else None
            text = "\n".join(filter(None, (description, result)))
        if text:
            yield message("assistant", text)


def _ids(items: Iterable[Json]) -> Iterable[str]:
    return [
        item["id"] for item in items if isinstance(item.get("id"), str) and item["type"] in SHAPES
    ]


def _is_whole(items: Sequence[Json], taken: set[str]) -> bool:
    """Whether an answer can be returned unchanged: reasoning encrypted, ids used only once."""
    own = list(_ids(items))
    return (
        all(item.get("encrypted_content") for item in items if item["type"] == "reasoning")
        and len({*own}) == len(own)
        and taken.isdisjoint(own)
    )


def _bare(answer: AnswerItems, renamed: dict[str, str]) -> Iterable[Json]:
    """Yield the items without reasoning and without the ids of the response."""
    for place, item in enumerate(answer.items):
        if item["type"] == "reasoning":
            continue
        if item["type"] == "message" and isinstance(item["content"], list) and "id" in item:
            if (plain := _plain(item))["content"]:
                yield plain
            continue
        if item["type"] in SHAPES and "id" in item:
            item = dict(item)
            given = item.pop("id")
            if "id" in SHAPES[item["type"]].required:
                stem = _STEM.match(given) if isinstance(given, str) else None
                item["id"] = f"{stem[0] if stem else 'item'}_{answer.version}_{place}"
                if isinstance(given, str):
                    renamed[given] = item["id"]
        yield item


def _leads_on(items: Sequence[Json], place: int) -> bool:
    """Whether an item is not reasoning, or is followed by an item that is not reasoning."""
    return any(item["type"] != "reasoning" for item in items[place:])


def _asking(item: Json, renamed: dict[str, str]) -> Json:
    """Return an item that names its approval request by the id that the request has here."""
    request = item.get("approval_request_id")
    here = renamed.get(request) if isinstance(request, str) else None
    return item if here is None else {**item, "approval_request_id": here}


def _tied(items: Sequence[Json]) -> list[Json]:
    """Return the items without references to items that are not among them."""
    programs = {item["call_id"] for item in items if item["type"] == "program"}
    requests = {item["id"] for item in items if item["type"] == "mcp_approval_request"}
    known = {"caller": programs, "approval_request_id": requests}
    return [
        {
            key: value
            for key, value in item.items()
            if key not in known or _named(key, item) in (None, *known[key])
        }
        for item in items
    ]


def _named(key: str, item: Json) -> Any:
    return _caller(item) if key == "caller" else item[key]


_WENT_WELL = "success"


_UNANSWERED = frozenset({"missing", "withdrawn", "not_shown", "not_started", "outcome_unknown"})


def output_of(call: Json, text: str, outcome: str, parts: Sequence[Json] | None) -> Json | None:
    """Return the item that answers a call, or None if its result cannot be an item.

    Args:
        call: The item of the call.
        text: The result as text.
        outcome: The outcome of the call.
        parts: The result as input parts, if some of it is not text.
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
            # This output has no ``call_id``: its ``id`` is the id of the call.
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
    # A product that has carried out the action has acknowledged its safety checks.
    checks = call.get("pending_safety_checks") if outcome == _WENT_WELL else None
    return {**head, "output": shot, **({"acknowledged_safety_checks": checks} if checks else {})}


def _ran(text: str, outcome: str) -> list[Json]:
    """Return a shell's outputs: those that the product lists, or the text as a single output."""
    parsed = _parsed(text)
    if isinstance(parsed, dict):
        parsed = parsed.get("output")
    fields = {"stdout", "stderr", "outcome"}
    if isinstance(parsed, list) and parsed:
        runs = [each for each in parsed if isinstance(each, dict) and fields <= each.keys()]
        if len(runs) == len(parsed):
            return [{key: run[key] for key in sorted(fields)} for run in runs]
    ended = {"type": "exit", "exit_code": 0 if outcome == _WENT_WELL else 1}
    return [{"stdout": text, "stderr": "", "outcome": ended}]


def _tools(text: str) -> list[Json]:
    """Return the declarations of the tools that a search found, if the result contains any."""
    parsed = _parsed(text)
    if isinstance(parsed, dict):
        parsed = parsed.get("tools")
    found = parsed if isinstance(parsed, list) else []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("type"), str)]


def _approval(call: Json, text: str, outcome: str) -> Json | None:
    """Return the answer to an approval request; only an explicit yes approves."""
    if outcome in _UNANSWERED:
        return None
    parsed = _parsed(text)
    given = parsed.get("approve") is True if isinstance(parsed, dict) else parsed is True
    reason = {} if given or not text or parsed is False else {"reason": text}
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
