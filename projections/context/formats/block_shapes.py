"""The blocks of Anthropic's responses in the form that a request accepts.

The API rejects a request for a field that it does not know, that it misses, or whose value has
another type, at any depth. Source: the parameter types of Anthropic's Python SDK (2.11, 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["SHAPES", "Misfit", "Shape", "ShapeOfObject", "fitted"]

Json = dict[str, Any]

Shape = Any
"""A type, None, a set of texts, a list of one shape, a tuple of alternatives, or an object."""


@dataclass(frozen=True, slots=True)
class ShapeOfObject:
    """The fields of an object, those it must have and those it may have."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]


class Misfit(ValueError):
    """A value has another shape."""


def fitted(value: Any, shape: Shape) -> Any:
    """Return a value without the fields that its shape lacks, or that are null against it.

    Raises:
        Misfit: It has another shape.
    """
    match shape:
        case ShapeOfObject():
            return _object(value, shape)
        case [*inner] if isinstance(shape, tuple):
            return _any_of(value, inner)
        case [inner] if type(value) is list:
            return [fitted(each, inner) for each in value]
        case frozenset() if isinstance(value, str) and value in shape:
            return value
        case None if value is None:
            return value
        case type() if shape is object or type(value) is shape:
            return value
    raise Misfit


def _any_of(value: Any, shapes: list[Shape]) -> Any:
    for shape in shapes:
        try:
            return fitted(value, shape)
        except Misfit:
            continue
    raise Misfit


def _object(value: Any, shape: ShapeOfObject) -> Json:
    if not isinstance(value, dict) or not shape.required.keys() <= value.keys():
        raise Misfit
    found = {}
    for key, each in value.items():
        if key in shape.required:
            found[key] = fitted(each, shape.required[key])
        elif key in shape.optional:
            try:
                found[key] = fitted(each, shape.optional[key])
            except Misfit:
                if each is not None and key not in _LEFT_OUT:
                    raise
    return found


_LEFT_OUT = frozenset({"caller", "citations", "id", "toolset_name"})
"""The fields without which a block says the same; they are left out if they do not fit."""


def _of(kind: str, required: Mapping[str, Shape], **optional: Shape) -> ShapeOfObject:
    """Return the shape of an object with this ``type``."""
    return ShapeOfObject({"type": frozenset({kind}), **required}, optional)


def _texts(names: str) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), str)


_TEXT, _NUMBER = (str, None), (int, None)
_DOCUMENT = {"cited_text": str, "document_index": int, "document_title": _TEXT}
_CITATIONS = (
    _of("char_location", _DOCUMENT | {"start_char_index": int, "end_char_index": int}),
    _of("page_location", _DOCUMENT | {"start_page_number": int, "end_page_number": int}),
    _of(
        "content_block_location",
        _DOCUMENT | {"start_block_index": int, "end_block_index": int},
    ),
    _of("web_search_result_location", _texts("cited_text encrypted_index url") | {"title": _TEXT}),
    _of(
        "search_result_location",
        {
            **_texts("cited_text source"),
            **dict.fromkeys(("search_result_index", "start_block_index", "end_block_index"), int),
            "title": _TEXT,
        },
    ),
)
_CALLER = (
    _of("direct", {}),
    _of("code_execution_20250825", _texts("tool_id")),
    _of("code_execution_20260120", _texts("tool_id")),
)
_TEXT_BLOCK = _of("text", _texts("text"), citations=([_CITATIONS], None))
_FAILURES = "invalid_tool_input unavailable too_many_requests"
_RAN = {"return_code": int, "stderr": str}


def _failure(tool: str, codes: str, **optional: Shape) -> ShapeOfObject:
    return _of(f"{tool}_tool_result_error", {"error_code": frozenset(codes.split())}, **optional)


def _result(tool: str, *contents: Shape, **optional: Shape) -> ShapeOfObject:
    return _of(f"{tool}_tool_result", {"content": contents, "tool_use_id": str}, **optional)


_IMAGE = _of(
    "image",
    {
        "source": (
            _of(
                "base64",
                {
                    "data": str,
                    "media_type": frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"}),
                },
            ),
            _of("url", _texts("url")),
            _of("file", _texts("file_id")),
        )
    },
    transformations=(
        ShapeOfObject({}, {"oversized_image": frozenset({"downsize", "error"})}),
        None,
    ),
)
_PAGE = _of(
    "document",
    {
        "source": (
            _of("base64", {"data": str, "media_type": frozenset({"application/pdf"})}),
            _of("text", {"data": str, "media_type": frozenset({"text/plain"})}),
            _of("content", {"content": (str, [(_TEXT_BLOCK, _IMAGE)])}),
            _of("url", _texts("url")),
            _of("file", _texts("file_id")),
        )
    },
    citations=(ShapeOfObject({}, {"enabled": bool}), None),
    context=_TEXT,
    title=_TEXT,
)
_TOOL = (
    _of("tool_reference", _texts("name")),
    _of("mcp_tool_reference", _texts("name server_name")),
    _of("mcp_toolset_reference", _texts("server_name")),
)
_LISTED = ShapeOfObject({"name": str, "input_schema": dict}, {"description": _TEXT})
_MODEL = ShapeOfObject({"model": str}, {})
_SERVER_TOOLS = frozenset(
    {
        *("advisor", "bash_code_execution", "code_execution", "text_editor_code_execution"),
        *("tool_search_tool_bm25", "tool_search_tool_regex", "web_fetch", "web_search"),
    }
)

_BLOCKS = (
    _TEXT_BLOCK,
    _of("thinking", _texts("thinking signature")),
    _of("redacted_thinking", _texts("data")),
    _of("tool_use", {}, id=str, name=object, input=object, caller=_CALLER, toolset_name=_TEXT),
    _of("server_tool_use", {"id": str, "name": _SERVER_TOOLS, "input": dict}, caller=_CALLER),
    _of("mcp_tool_use", {"id": str, "name": str, "input": dict, "server_name": str}),
    _result("mcp", str, [_TEXT_BLOCK], is_error=bool),
    _result(
        "web_search",
        [_of("web_search_result", _texts("encrypted_content title url"), page_age=_TEXT)],
        _failure("web_search", f"{_FAILURES} max_uses_exceeded query_too_long request_too_large"),
        caller=_CALLER,
    ),
    _result(
        "web_fetch",
        _of("web_fetch_result", {"content": _PAGE, "url": str}, retrieved_at=_TEXT),
        _failure(
            "web_fetch",
            f"{_FAILURES} url_too_long url_not_allowed url_not_in_prior_context url_not_accessible"
            " unsupported_content_type max_uses_exceeded content_too_large",
        ),
        caller=_CALLER,
    ),
    _result(
        "code_execution",
        _of(
            "code_execution_result",
            {**_RAN, "stdout": str, "content": [_of("code_execution_output", _texts("file_id"))]},
        ),
        _of(
            "encrypted_code_execution_result",
            {
                **_RAN,
                "encrypted_stdout": str,
                "content": [_of("code_execution_output", _texts("file_id"))],
            },
        ),
        _failure("code_execution", f"{_FAILURES} execution_time_exceeded"),
    ),
    _result(
        "bash_code_execution",
        _of(
            "bash_code_execution_result",
            {
                **_RAN,
                "stdout": str,
                "content": [_of("bash_code_execution_output", _texts("file_id"))],
            },
        ),
        _failure(
            "bash_code_execution", f"{_FAILURES} execution_time_exceeded output_file_too_large"
        ),
    ),
    _result(
        "text_editor_code_execution",
        _of(
            "text_editor_code_execution_view_result",
            {"content": str, "file_type": frozenset({"text", "image", "pdf"})},
            **dict.fromkeys(("num_lines", "start_line", "total_lines"), _NUMBER),
        ),
        _of("text_editor_code_execution_create_result", {"is_file_update": bool}),
        _of(
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
        _of(
            "tool_search_tool_search_result",
            {"tool_references": [_of("tool_reference", _texts("tool_name"))]},
        ),
        _failure("tool_search", f"{_FAILURES} execution_time_exceeded", error_message=_TEXT),
    ),
    _result(
        "advisor",
        _of("advisor_result", _texts("text"), stop_reason=_TEXT),
        _of("advisor_redacted_result", _texts("encrypted_content"), stop_reason=_TEXT),
        _failure(
            "advisor",
            "max_uses_exceeded prompt_too_long too_many_requests overloaded unavailable"
            " execution_time_exceeded model_not_found",
        ),
    ),
    _of("container_upload", _texts("file_id")),
    _of(
        "compaction",
        _texts("content"),
        encrypted_content=_TEXT,
        signature=_TEXT,
        tool_changes=(
            [
                (
                    _of(
                        "tool_addition",
                        {"tool": (*_TOOL, _of("tool_definition", {"definition": dict}))},
                    ),
                    _of("tool_removal", {"tool": _TOOL}),
                )
            ],
            None,
        ),
    ),
    _of("fallback", {"from": _MODEL, "to": _MODEL}, trigger=object),
    _of("mcp_tool_listing", {"mcp_server_name": str, "tools": [_LISTED]}),
)

SHAPES: Mapping[str, ShapeOfObject] = {min(each.required["type"]): each for each in _BLOCKS}
"""The blocks of responses that a request may contain, by type.

The id, name and input of a ``tool_use`` come from its message. ``cache_control`` is decided for
each request.
"""
