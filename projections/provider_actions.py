"""Text for the actions of a provider's own tools, where its items cannot be sent or are not shown.

Other providers do not know these items, and a model that sees their JSON repeats it. Each item
therefore becomes one short line: the action, its input and its result. Ciphertext, ids and image
bytes are never included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["legible", "mention"]

_LONGEST = 300  # characters of a line of foreign text
_MOST = 8  # names in a list
_BLANKS = re.compile(r"\s+")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_BYTES = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/_=-]{256,}", re.ASCII)  # base64
_OPAQUE = ("data", "encrypted_content", "encrypted_index", "encrypted_stdout", "signature")


def mention(raw: Any) -> str:
    """Return an item or a content block as a line of text; empty if it has no content."""
    if not isinstance(raw, dict):
        return "" if raw is None else "[other content]"
    kind = raw.get("type")
    if kind == "text" and isinstance(raw.get("text"), str):
        return str(raw["text"])
    tell = _WORDS.get(kind) if isinstance(kind, str) else None
    if tell is not None:
        return tell(raw)
    if isinstance(kind, str) and _KIND.fullmatch(kind):
        return _results(raw) if kind.endswith("_tool_result") else f"[{kind}]"
    return "[other content]"


def legible(value: Any) -> Any:
    """Return a JSON value without data in base64, which a model cannot read: only its size."""
    if isinstance(value, str):
        return f"[{len(value)} characters of data]" if _BYTES.fullmatch(value) else value
    if isinstance(value, dict):
        return {key: legible(item) for key, item in value.items()}
    return [*map(legible, value)] if isinstance(value, list | tuple) else value


def _line(head: str, *values: Any) -> str:
    """Return one bracketed line."""
    words = " ".join(filter(None, (_value_text(each) for each in values)))
    return f"[{head}: {words}]" if words else f"[{head}]"


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(
            f"{key}: {inner}"
            for key, item in value.items()
            if key not in _OPAQUE and not _is_id(key) and (inner := _value_text(item))
        )
    elif isinstance(value, list | tuple):
        value = _listed(_value_text(item) for item in value[: _MOST + 1])
    text = "" if value is None else _BLANKS.sub(" ", str(value)).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _is_id(key: object) -> bool:
    return str(key) == "id" or str(key).endswith("_id")


def _listed(values: Iterable[str]) -> str:
    present = [value for value in values if value]
    return ", ".join([*present[:_MOST], *(["…"] if len(present) > _MOST else ())])


def _names(entries: Any) -> list[Any]:
    """Return each entry's title, name or URL."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            keys = ("title", "name", "tool_name", "filename", "server_label", "url")
            found.append(next((entry[key] for key in keys if entry.get(key)), None))
    return [name for name in found if name]


def _search(raw: dict[str, Any]) -> str:
    action = raw.get("action")
    action = action if isinstance(action, dict) else {}
    query = action.get("query") or action.get("queries") or action.get("pattern")
    if action.get("type") == "open_page":
        return _line("page opened", action.get("url"))
    if action.get("pattern"):
        return _line("page searched", query, action.get("url"))
    return _line("web search", query)


def _code(raw: dict[str, Any]) -> str:
    outputs = raw.get("outputs")
    logs = (
        [each.get("logs") for each in outputs if isinstance(each, dict) and each.get("logs")]
        if isinstance(outputs, list)
        else []
    )
    return "\n".join([_line("code run", raw.get("code")), *(_line("output", log) for log in logs)])


def _mcp_call(raw: dict[str, Any]) -> str:
    line = _line(
        f"MCP {_value_text(raw.get('server_label'))} {_value_text(raw.get('name'))}".strip()
    )
    came = raw.get("error") or raw.get("output")
    return "\n".join(filter(None, (line, came and _line("output", came))))


def _shell(raw: dict[str, Any]) -> str:
    action = raw.get("action")
    action = action if isinstance(action, dict) else {}
    return _line("shell", action.get("commands") or action.get("command"))


def _shell_output(raw: dict[str, Any]) -> str:
    outputs = raw.get("output")
    if not isinstance(outputs, list):
        return _line("output", outputs)
    texts = [
        f"{each.get('stdout') or ''} {each.get('stderr') or ''}"
        for each in outputs
        if isinstance(each, dict)
    ]
    return _line("output", " ".join(texts))


def _patch(raw: dict[str, Any]) -> str:
    operation = raw.get("operation")
    operation = operation if isinstance(operation, dict) else {}
    kind = _value_text(operation.get("type")).replace("_", " ")
    return _line("patch", f"{kind} {_value_text(operation.get('path'))}")


def _server_use(raw: dict[str, Any]) -> str:
    given = raw.get("input")
    values = list(given.values()) if isinstance(given, dict) else [given]
    server = raw.get("server_name")
    name = _value_text(raw.get("name")) or "tool"
    return _line(f"MCP {_value_text(server)} {name}" if server else name, *values)


def _results(raw: dict[str, Any]) -> str:
    """Return the result of an Anthropic server tool."""
    content = raw.get("content")
    if isinstance(content, list):
        texts = [each.get("text") for each in content if isinstance(each, dict)]
        return _line("result", *(filter(None, texts) if any(texts) else [_names(content)]))
    if not isinstance(content, dict):
        return _line("result", content)
    if content.get("error_code"):
        return _line("failed", content["error_code"])
    names = _names(content.get("tool_references")) or None
    keys = ("stdout", "stderr", "text", "title", "url")
    return _line("result", names, *(content.get(key) for key in keys))


def _field(head: str, *keys: str) -> Callable[[dict[str, Any]], str]:
    return lambda raw: _line(head, *(raw.get(key) for key in keys))


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "web_search_call": _search,
    "file_search_call": _field("file search", "queries"),
    "code_interpreter_call": _code,
    "image_generation_call": _field("image made", "revised_prompt"),
    "mcp_call": _mcp_call,
    "mcp_list_tools": lambda raw: _line(
        f"tools of {_value_text(raw.get('server_label'))}", _names(raw.get("tools"))
    ),
    "mcp_approval_request": _field("approval asked for", "server_label", "name"),
    "mcp_approval_response": lambda raw: _line(
        "approval", "given" if raw.get("approve") is True else "refused"
    ),
    "shell_call": _shell,
    "local_shell_call": _shell,
    "shell_call_output": _shell_output,
    "local_shell_call_output": _shell_output,
    "apply_patch_call": _patch,
    "apply_patch_call_output": _field("patch", "status"),
    "computer_call": lambda raw: _line("computer", raw.get("action") or raw.get("actions")),
    "computer_call_output": _field("screenshot"),
    "executable_code": _field("code run", "code"),
    "code_execution_result": _field("output", "output"),
    "tool_search_call": _field("tool search", "arguments"),
    "tool_search_output": lambda raw: _line("tools found", _names(raw.get("tools"))),
    "program": _field("program", "code"),
    "program_output": _field("output", "result"),
    "compaction": _field("earlier messages were compacted", "content"),
    "server_tool_use": _server_use,
    "mcp_tool_use": _server_use,
    "container_upload": _field("file uploaded"),
}
