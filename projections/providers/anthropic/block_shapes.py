"""The blocks of Anthropic's responses in the form that a request accepts.

Source: the parameter types of Anthropic's Python SDK (2.11, 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from projections.context.payload_messages import INVALID
from projections.provider_actions import mention
from projections.providers.shapes import Misfit, ObjectShape, Shape, fitted, texts, typed

__all__ = ["SHAPES", "as_inputs", "paired"]


_TEXT, _NUMBER = (str, None), (int, None)


_DOCUMENT = {"cited_text": str, "document_index": int, "document_title": _TEXT}


_CITATIONS = (
    typed("char_location", _DOCUMENT | {"start_char_index": int, "end_char_index": int}),
    typed("page_location", _DOCUMENT | {"start_page_number": int, "end_page_number": int}),
    typed(
        "content_block_location",
        _DOCUMENT | {"start_block_index": int, "end_block_index": int},
    ),
    typed("web_search_result_location", texts("cited_text encrypted_index url") | {"title": _TEXT}),
    typed(
        "search_result_location",
        {
            **texts("cited_text source"),
            **dict.fromkeys(("search_result_index", "start_block_index", "end_block_index"), int),
            "title": _TEXT,
        },
    ),
)


_CALLER = (
    typed("direct", {}),
    typed("code_execution_20250825", texts("tool_id")),
    typed("code_execution_20260120", texts("tool_id")),
)


_TEXT_BLOCK = typed("text", texts("text"), citations=([_CITATIONS], None))


_FAILURES = "invalid_tool_input unavailable too_many_requests"


_RAN = {"return_code": int, "stderr": str}


def _failure(tool: str, codes: str, **optional: Shape) -> ObjectShape:
    return typed(f"{tool}_tool_result_error", {"error_code": frozenset(codes.split())}, **optional)


def _result(tool: str, *contents: Shape, **optional: Shape) -> ObjectShape:
    return typed(f"{tool}_tool_result", {"content": contents, "tool_use_id": str}, **optional)


_IMAGE = typed(
    "image",
    {
        "source": (
            typed(
                "base64",
                {
                    "data": str,
                    "media_type": frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"}),
                },
            ),
            typed("url", texts("url")),
            typed("file", texts("file_id")),
        )
    },
    transformations=(
        ObjectShape({}, {"oversized_image": frozenset({"downsize", "error"})}),
        None,
    ),
)


_PAGE = typed(
    "document",
    {
        "source": (
            typed("base64", {"data": str, "media_type": frozenset({"application/pdf"})}),
            typed("text", {"data": str, "media_type": frozenset({"text/plain"})}),
            typed("content", {"content": (str, [(_TEXT_BLOCK, _IMAGE)])}),
            typed("url", texts("url")),
            typed("file", texts("file_id")),
        )
    },
    citations=(ObjectShape({}, {"enabled": bool}), None),
    context=_TEXT,
    title=_TEXT,
)


_TOOL = (
    typed("tool_reference", texts("name")),
    typed("mcp_tool_reference", texts("name server_name")),
    typed("mcp_toolset_reference", texts("server_name")),
)


_LISTED = ObjectShape({"name": str, "input_schema": dict}, {"description": _TEXT})


_MODEL = ObjectShape({"model": str}, {})


_SERVER_TOOLS = frozenset(
    {
        *("advisor", "bash_code_execution", "code_execution", "text_editor_code_execution"),
        *("tool_search_tool_bm25", "tool_search_tool_regex", "web_fetch", "web_search"),
    }
)


_BLOCKS = (
    _TEXT_BLOCK,
    typed("thinking", texts("thinking signature")),
    typed("redacted_thinking", texts("data")),
    typed("tool_use", {}, id=str, name=object, input=object, caller=_CALLER, toolset_name=_TEXT),
    typed("server_tool_use", {"id": str, "name": _SERVER_TOOLS, "input": dict}, caller=_CALLER),
    typed("mcp_tool_use", {"id": str, "name": str, "input": dict, "server_name": str}),
    typed(
        "mcp_tool_result",
        {"tool_use_id": str, "content": (str, [_TEXT_BLOCK]), "is_error": bool},
    ),
    _result(
        "web_search",
        [typed("web_search_result", texts("encrypted_content title url"), page_age=_TEXT)],
        _failure("web_search", f"{_FAILURES} max_uses_exceeded query_too_long request_too_large"),
        caller=_CALLER,
    ),
    _result(
        "web_fetch",
        typed("web_fetch_result", {"content": _PAGE, "url": str}, retrieved_at=_TEXT),
        _failure(
            "web_fetch",
            f"{_FAILURES} url_too_long url_not_allowed url_not_in_prior_context url_not_accessible"
            " unsupported_content_type max_uses_exceeded content_too_large",
        ),
        caller=_CALLER,
    ),
    _result(
        "code_execution",
        typed(
            "code_execution_result",
            {**_RAN, "stdout": str, "content": [typed("code_execution_output", texts("file_id"))]},
        ),
        typed(
            "encrypted_code_execution_result",
            {
                **_RAN,
                "encrypted_stdout": str,
                "content": [typed("code_execution_output", texts("file_id"))],
            },
        ),
        _failure("code_execution", f"{_FAILURES} execution_time_exceeded"),
    ),
    _result(
        "bash_code_execution",
        typed(
            "bash_code_execution_result",
            {
                **_RAN,
                "stdout": str,
                "content": [typed("bash_code_execution_output", texts("file_id"))],
            },
        ),
        _failure(
            "bash_code_execution", f"{_FAILURES} execution_time_exceeded output_file_too_large"
        ),
    ),
    _result(
        "text_editor_code_execution",
        typed(
            "text_editor_code_execution_view_result",
            {"content": str, "file_type": frozenset({"text", "image", "pdf"})},
            **dict.fromkeys(("num_lines", "start_line", "total_lines"), _NUMBER),
        ),
        typed("text_editor_code_execution_create_result", {"is_file_update": bool}),
        typed(
            "text_editor_code_execution_str_replace_result",
            {},
            lines=([str], None),
            **dict.fromkeys(("new_lines", "new_start", "old_lines", "old_start"), _NUMBER),
        ),
        _failure(
            "text_editor_code_execution",
            f"{_FAILURES} execution_time_exceeded file_not_found",
            error_message=_TEXT,
        ),
    ),
    _result(
        "tool_search",
        typed(
            "tool_search_tool_search_result",
            {"tool_references": [typed("tool_reference", texts("tool_name"))]},
        ),
        _failure("tool_search", f"{_FAILURES} execution_time_exceeded", error_message=_TEXT),
    ),
    _result(
        "advisor",
        typed("advisor_result", texts("text"), stop_reason=_TEXT),
        typed("advisor_redacted_result", texts("encrypted_content"), stop_reason=_TEXT),
        _failure(
            "advisor",
            "max_uses_exceeded prompt_too_long too_many_requests overloaded unavailable"
            " execution_time_exceeded model_not_found",
        ),
    ),
    typed("container_upload", texts("file_id")),
    typed(
        "compaction",
        texts("content"),
        encrypted_content=_TEXT,
        signature=_TEXT,
        tool_changes=(
            [
                (
                    typed(
                        "tool_addition",
                        {"tool": (*_TOOL, typed("tool_definition", {"definition": dict}))},
                    ),
                    typed("tool_removal", {"tool": _TOOL}),
                )
            ],
            None,
        ),
    ),
    typed("fallback", {"from": _MODEL, "to": _MODEL}, trigger=object),
    typed("mcp_tool_listing", {"mcp_server_name": str, "tools": [_LISTED]}),
)


SHAPES: Mapping[str, ObjectShape] = {min(each.required["type"]): each for each in _BLOCKS}


"""The blocks of responses that a request may contain, by type.

The id, name and input of a ``tool_use`` come from its message. ``cache_control`` is decided for
each request.
"""


Json = dict[str, Any]


RoleBlocks = tuple[str, Sequence[Json]]


"""A role, and its blocks."""


_USES = frozenset({"server_tool_use", "mcp_tool_use"})


_WORDS: Json = {}


"""Stands for a block that becomes words."""


def as_inputs(blocks: Iterable[Json]) -> list[Json]:
    """Return the blocks of an answer as input, without empty ones.

    The API rejects a request for a block that does not fit. Such a block becomes a text, and so
    does its counterpart: the use of a server's tool, or its result.
    """
    converted = [(block, _as_input(block)) for block in blocks]
    apart = {_tie(block) for block, found in converted if found is _WORDS} - {None}
    found = [
        _in_words(block) if found is _WORDS or _tie(block) in apart else found
        for block, found in converted
    ]
    return [block for block in found if block is not None]


def _as_input(block: Json) -> Json | None:
    """Return a block as input, `_WORDS` if it does not fit, or None if it is empty."""
    kind = type_field if isinstance(type_field := block.get("type"), str) else ""
    if kind in _USES and not isinstance(block.get("input"), dict):
        block = {**block, "input": {INVALID: str(block.get("input") or "")}}
    if kind == "thinking" and not (block.get("signature") and _are_texts(block)):
        return None
    if kind == "text" and not (_is_text(text := block.get("text")) and text.strip()):
        return None
    if kind == "compaction" and not block.get("content"):
        return None  # it failed, and replaces nothing
    try:
        fitting: Json = fitted(block, SHAPES.get(kind))
    except Misfit:
        return _WORDS
    return fitting


def _tie(block: Json) -> str | None:
    """Return the id that ties the use of a server's tool to its result, or None."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    name = block.get("id") if kind in _USES else block.get("tool_use_id")
    return name if _is_text(name) else None


def _in_words(block: Json) -> Json | None:
    description = mention(block)
    return {"type": "text", "text": description} if description else None


def _are_texts(block: Json) -> bool:
    return all(_is_text(block.get(name)) for name in ("thinking", "signature"))


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


_Open = dict[Any, tuple[int, Json]]


"""The unanswered uses of a turn, by id: the position of the entry, and the block."""


def paired(messages: Iterable[RoleBlocks], *, paused: bool = False) -> list[tuple[str, list[Json]]]:
    """Return the messages without blocks that lack their counterpart.

    Args:
        messages: Roles and blocks, one entry for each row.
        paused: Whether the last entry is an answer that the model is to continue.
    """
    turns = [(role, list(blocks)) for role, blocks in messages]
    turn: _Open = {}
    seen: set[Any] = set()
    lost: set[int] = set()
    for place, (role, blocks) in enumerate(turns):
        if role != "assistant":
            if any(block["type"] != "tool_result" for block in blocks):
                lost |= {id(use) for _, use in turn.values()}
                turn = {}
            continue
        for block in blocks:
            lost |= _take(turn, seen, place, block)
    lost |= _left_open(turn, turns, paused)
    complete = [
        (role, [block for block in blocks if id(block) not in lost]) for role, blocks in turns
    ]
    return _tied([entry for entry in complete if entry[1]])


def _take(turn: _Open, seen: set[Any], place: int, block: Json) -> set[int]:
    """Add a block to the turn; return its ``id()`` if it does not belong there."""
    if block["type"] in _USES:
        name = block.get("id")
        if not _is_text(name) or name in seen:
            return {id(block)}
        seen.add(name)
        turn[name] = place, block
    elif block["type"].endswith("_tool_result"):
        name = block.get("tool_use_id")
        if not _is_text(name) or turn.pop(name, None) is None:
            return {id(block)}
    return set()


def _left_open(turn: _Open, turns: Sequence[tuple[str, list[Json]]], paused: bool) -> set[int]:
    """Return the ``id()`` of each open use that the server will not answer any more."""
    answers = [place for place, (role, _) in enumerate(turns) if role == "assistant"]
    if not turn or not answers:
        return set()
    last = answers[-1]
    if last == len(turns) - 1 and not paused:
        return {id(use) for _, use in turn.values()}
    calling = [
        block["caller"].get("tool_id")
        for block in turns[last][1]
        if isinstance(block.get("caller"), dict)
    ]
    return {
        id(use)
        for name, (place, use) in turn.items()
        if place != last and name not in calling and not paused
    }


def _tied(messages: Sequence[tuple[str, list[Json]]]) -> list[tuple[str, list[Json]]]:
    """Return the messages, with ``caller`` only if it names an earlier use in the same turn."""
    found: list[tuple[str, list[Json]]] = []
    used: set[Any] = set()
    for role, blocks in messages:
        if role != "assistant":
            if any(block["type"] != "tool_result" for block in blocks):
                used = set()
            found.append((role, blocks))
            continue
        ordered = []
        for block in blocks:
            used |= {block.get("id")} if block["type"] in _USES else set()
            caller = block.get("caller")
            if isinstance(caller, dict) and caller.get("tool_id", caller) not in (*used, caller):
                block = {key: value for key, value in block.items() if key != "caller"}
            ordered.append(block)
        found.append((role, ordered))
    return found
