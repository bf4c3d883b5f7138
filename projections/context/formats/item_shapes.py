"""The output items of OpenAI's Responses in the form that a request accepts.

Source: the parameter types of OpenAI's Python SDK (3.52, 2026). A response has ``null`` for absent
fields, most of which a request rejects.
"""

from __future__ import annotations

from collections.abc import Mapping

from projections.context.formats.shapes import ObjectShape, texts, typed

__all__ = ["PARTS", "SHAPES"]

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
