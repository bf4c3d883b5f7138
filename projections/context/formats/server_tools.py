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

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from projections.context.content import INVALID
from projections.context.formats.block_shapes import SHAPES
from projections.context.formats.shapes import Misfit, fitted
from projections.engine.mentions import mention

__all__ = ["as_inputs", "paired"]

Json = dict[str, Any]
Said = tuple[str, Sequence[Json]]
"""A role, and its blocks."""

_USES = frozenset({"server_tool_use", "mcp_tool_use"})
_WORDS: Json = {}
"""Stands for a block that becomes words."""


def as_inputs(blocks: Iterable[Json]) -> list[Json]:
    """Return the blocks of an answer as input, without empty ones.

    The API rejects a request for a block that does not fit. Such a block becomes a text, and so
    does its counterpart: the use of a server's tool, or its result.
    """
    held = [(block, _as_input(block)) for block in blocks]
    apart = {_tie(block) for block, found in held if found is _WORDS} - {None}
    found = [
        _in_words(block) if found is _WORDS or _tie(block) in apart else found
        for block, found in held
    ]
    return [block for block in found if block is not None]


def _as_input(block: Json) -> Json | None:
    """Return a block as input, `_WORDS` if it does not fit, or None if it is empty."""
    kind = told if isinstance(told := block.get("type"), str) else ""
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
    said = mention(block)
    return {"type": "text", "text": said} if said else None


def _are_texts(block: Json) -> bool:
    return all(_is_text(block.get(name)) for name in ("thinking", "signature"))


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


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
