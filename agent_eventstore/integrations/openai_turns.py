"""The turns of a session: what the user said, which tools were called, what the answers have used.

In the shapes of the SDK's `AdvancedSQLiteSession`. A turn begins with each message of the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from agent_eventstore.integrations.openai_history import live_events
from agent_eventstore.integrations.openai_items import items_in
from eventstore import EventStore
from eventstore.events import UserMessage
from eventstore.events.codec import loads_json
from projections import Views

__all__ = ["by_turn", "said_in", "tool_usage", "turn_usage", "turns_of"]

_SHOWN = 100  # characters of a message


def by_turn(items: Iterable[Any]) -> dict[int, list[dict[str, str | None]]]:
    """Return of each item its type and its tool, by turn."""
    found: dict[int, list[dict[str, str | None]]] = {}
    for turn, item in _numbered(items):
        found.setdefault(turn, []).append({"type": _type(item), "tool_name": _tool(item)})
    return found


def tool_usage(items: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Return how often each tool was called in each turn: name, count, turn.

    A search for tools counts by its outputs where the turn has no call of it.
    """
    counts: Counter[tuple[int, str]] = Counter()
    searches: Counter[int] = Counter()
    for turn, item in _numbered(items):
        kind = _type(item)
        if kind.endswith("_call") or kind == "mcp_approval_request":
            counts[turn, _tool(item) or kind] += 1
        searches[turn] += kind == "tool_search_output"
    for turn, outputs in searches.items():
        if outputs and not counts[turn, "tool_search"]:
            counts[turn, "tool_search"] = outputs
    return [(name, count, turn) for (turn, name), count in counts.items() if count]


def _numbered(items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    turn = 0
    for item in items:
        turn += item.get("role") == "user"
        yield turn, item


def turns_of(store: EventStore, stream: UUID) -> list[dict[str, Any]]:
    """Return the turns of a conversation: number, what the user said, when, and the version."""
    found: list[dict[str, Any]] = []
    times = {each.version: each.recorded_at for each in store.read(stream)}
    for event in reversed(list(live_events(store, stream))):
        for item in items_in(event):
            if isinstance(item, dict) and item.get("role") == "user":
                content = item.get("content")
                said = said_in(content)
                found.append(
                    {
                        "turn": len(found) + 1,
                        "content": said if len(said) <= _SHOWN else f"{said[:_SHOWN]}...",
                        "full_content": content,
                        "timestamp": times[event.version].isoformat(),
                        "can_branch": True,
                        "version": event.version,
                    }
                )
    return found


def turn_usage(store: EventStore, stream: UUID) -> dict[int, dict[str, Any]]:
    """Return the tokens of the calls of a conversation, by turn."""
    turns = dict[str, int]()
    events = list(live_events(store, stream))
    for event in reversed(events):
        if event.type == UserMessage.type:
            turns.setdefault(str(loads_json(event.meta).get("turn")), len(turns) + 1)
    found: dict[int, dict[str, Any]] = {}
    views = Views(store)
    for row in views.usage(by="turn", conversation_id=stream) if events else ():
        turn = turns.get((row.key or "").rpartition("/")[2])
        if turn is not None and row.total_tokens is not None:
            found[turn] = {
                "requests": row.calls,
                "input_tokens": row.prompt_tokens or 0,
                "output_tokens": row.completion_tokens or 0,
                "total_tokens": row.total_tokens or 0,
                "input_tokens_details": {"cached_tokens": row.cached_prompt_tokens},
                "output_tokens_details": {"reasoning_tokens": row.reasoning_tokens},
            }
    return found


def said_in(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(each.get("text", "")) for each in parts if isinstance(each, dict))


def _type(item: Any) -> str:
    return str(item.get("role") or item.get("type") or "other")


def _tool(item: Any) -> str | None:
    kind, name, space = str(item.get("type")), item.get("name"), item.get("namespace")
    if name and space and space != name:  # the SDK names what it defers after itself
        return f"{space}.{name}"
    if kind.startswith("mcp_") and item.get("server_label"):
        return f"{item['server_label']}.{name}" if name else str(item["server_label"])
    if name is None and kind.startswith("tool_search"):
        return "tool_search"
    return name or (kind if kind.endswith("_call") else None)
