"""Which blocks of Anthropic's Messages may be sent in one request, each with its counterpart.

Rules: Anthropic's guides "Server tools" (with "Mixing server tools and client tools in one turn"),
"Programmatic tool calling", "Tool search tool", "MCP connector" and "Extended thinking" (all 2026).

- The use of a server tool, or of a tool of an MCP server, is followed by its result in the same
  turn of the assistant. User messages that contain only tool results do not end that turn.
- A use may be open if the server is still to answer: at the end of a request, after results of the
  client's tools, or if the model has paused. Any other message ends the turn, and a use that is
  then open is rejected.
- ``caller.tool_id`` names an earlier use in the same turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from projections.engine.mentions import mention

__all__ = ["FIELDS", "as_input", "paired"]

Json = dict[str, Any]
Said = tuple[str, Sequence[Json]]
"""A role, and its blocks."""

_USES = frozenset({"server_tool_use", "mcp_tool_use"})
_NONE = frozenset[str](), frozenset[str]()


def _fields(required: str, optional: str = "") -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(required.split()), frozenset(("type", *required.split(), *optional.split()))


FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "text": _fields("text", "citations"),
    "tool_use": _fields("", "id name input caller toolset_name"),
    "thinking": _fields("thinking signature"),
    "redacted_thinking": _fields("data"),
    "server_tool_use": _fields("name input", "id caller"),
    "mcp_tool_use": _fields("name input server_name", "id"),
    "mcp_tool_result": _fields("", "tool_use_id content is_error"),
    "web_search_tool_result": _fields("content", "tool_use_id caller"),
    "web_fetch_tool_result": _fields("content", "tool_use_id caller"),
    "code_execution_tool_result": _fields("content", "tool_use_id"),
    "bash_code_execution_tool_result": _fields("content", "tool_use_id"),
    "text_editor_code_execution_tool_result": _fields("content", "tool_use_id"),
    "tool_search_tool_result": _fields("content", "tool_use_id"),
    "advisor_tool_result": _fields("content", "tool_use_id"),
    "container_upload": _fields("file_id"),
    "compaction": _fields("", "content encrypted_content signature tool_changes"),
    "fallback": _fields("from to", "trigger"),
    "mcp_tool_listing": _fields("mcp_server_name tools"),
}
"""The types of response blocks that a request may contain: the required fields, and all fields.

A call's id, name and input come from its message; uses and results without an id are `paired` with
nothing. ``cache_control`` is decided for each request.
"""

_TEXTS = ("data", "file_id", "mcp_server_name", "name", "server_name")


def as_input(block: Json) -> Json | None:
    """Return a block as input, as a text if it is not accepted, or None if it is empty.

    The API rejects a request for a field that it does not know, or that it misses.
    """
    kind = told if isinstance(told := block.get("type"), str) else ""
    if kind in _USES and not isinstance(block.get("input"), dict):
        block = {**block, "input": {"_raw": str(block.get("input") or "")}}
    if kind == "thinking" and not (block.get("signature") and _is_text(block.get("thinking"))):
        return None
    if kind == "text" and not (_is_text(text := block.get("text")) and text.strip()):
        return None
    required, fields = FIELDS.get(kind, _NONE)
    if not fields or not _has(block, required):
        said = mention(block)
        return {"type": "text", "text": said} if said else None
    if not block.keys() <= fields:
        block = {key: value for key, value in block.items() if key in fields}
    if isinstance(cited := block.get("citations"), list):
        return {**block, "citations": [_citation(each) for each in cited]}
    return block


def _has(block: Json, required: frozenset[str]) -> bool:
    """Whether a block has its required fields, and ids and names are texts."""
    told = (block.get(name) for name in required if name in _TEXTS)
    return required <= block.keys() and all(map(_is_text, told))


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def _citation(citation: Any) -> Any:
    """Return a citation without ``file_id``, which only responses have."""
    if not isinstance(citation, dict):
        return citation
    return {key: value for key, value in citation.items() if key != "file_id"}


_Open = dict[Any, tuple[int, Json]]
"""The unanswered uses of a turn, by id: the position of the entry, and the block."""


def paired(said: Iterable[Said], *, paused: bool = False) -> list[tuple[str, list[Json]]]:
    """Return the messages without blocks that lack their counterpart.

    Args:
        said: Roles and blocks, one entry for each row.
        paused: Whether the last entry is an answer that the model is to continue.
    """
    held = [(role, list(blocks)) for role, blocks in said]
    turn: _Open = {}
    seen: set[Any] = set()
    lost: set[int] = set()
    for place, (role, blocks) in enumerate(held):
        if role != "assistant":
            if any(block["type"] != "tool_result" for block in blocks):
                lost |= {id(use) for _, use in turn.values()}
                turn = {}
            continue
        for block in blocks:
            lost |= _take(turn, seen, place, block)
    lost |= _left_open(turn, held, paused)
    kept = [(role, [block for block in blocks if id(block) not in lost]) for role, blocks in held]
    return _tied([entry for entry in kept if entry[1]])


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


def _left_open(turn: _Open, held: Sequence[tuple[str, list[Json]]], paused: bool) -> set[int]:
    """Return the ``id()`` of each open use that the server will not answer any more."""
    answers = [place for place, (role, _) in enumerate(held) if role == "assistant"]
    if not turn or not answers:
        return set()
    last = answers[-1]
    if last == len(held) - 1 and not paused:
        return {id(use) for _, use in turn.values()}
    calling = [
        block["caller"].get("tool_id")
        for block in held[last][1]
        if isinstance(block.get("caller"), dict)
    ]
    return {
        id(use)
        for name, (place, use) in turn.items()
        if place != last and name not in calling and not paused
    }


def _tied(said: Sequence[tuple[str, list[Json]]]) -> list[tuple[str, list[Json]]]:
    """Return the messages, with ``caller`` only if it names an earlier use in the same turn."""
    found: list[tuple[str, list[Json]]] = []
    used: set[Any] = set()
    for role, blocks in said:
        if role != "assistant":
            if any(block["type"] != "tool_result" for block in blocks):
                used = set()
            found.append((role, blocks))
            continue
        kept = []
        for block in blocks:
            used |= {block.get("id")} if block["type"] in _USES else set()
            caller = block.get("caller")
            if isinstance(caller, dict) and caller.get("tool_id", caller) not in (*used, caller):
                block = {key: value for key, value in block.items() if key != "caller"}
            kept.append(block)
        found.append((role, kept))
    return found
