"""Where a conversation is forked: at the beginning of a turn, which is shared whole or not at all.

What a fork needs to know of what lies before is read from the newest events there, so that forking
a long conversation takes no longer than forking a short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eventstore import EventStore
from eventstore.events import ConversationStart, ModeSwitch, RecordedEvent, ToolPolicy
from eventstore.events.values import Mode
from eventstore.ids import StreamId

__all__ = ["ForkPoint", "fork_point"]

_PAGES = (16, 256, 2_000)
"""Events that are read until a turn is found: most are short."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork begins, and how its parent stands there.

    Attributes:
        before: The first version that is not shared.
        mode: The mode that the conversation is in.
        turn: The number of the next turn; None if that was too far back to be found.
        tool_policy: Which tools the conversation may use, as its start says.
    """

    before: int
    mode: Mode | None
    turn: int | None
    tool_policy: ToolPolicy | None


def fork_point(store: EventStore, source: StreamId, before: int | None) -> ForkPoint:
    """Return where the turn begins that a version is in; the version itself if it is in none.

    Args:
        store: Where the conversation is.
        source: The conversation.
        before: The version, such as that of a user message; None is the end.

    Raises:
        ConversationNotFound: No conversation has this id.
    """
    end = store.get(source).version + 1
    upper = end if before is None else min(before, end)
    mode: Mode | None = None
    last, seen = 0, 0
    policy = _policy(store, source)
    for event in _newest(store, source, upper):
        seen, mode = seen + 1, mode or _mode(event)
        last = max(last, event.meta.turn or 0)
        if event.type == "turn_start":
            return ForkPoint(event.version, event.meta.mode or mode, event.meta.turn, policy)
        if event.type == "turn_end":
            return ForkPoint(before or end, mode, event.meta.turn and last + 1, policy)
    return ForkPoint(before or end, mode, last + 1 if seen < sum(_PAGES) else None, policy)


def _newest(store: EventStore, source: StreamId, before: int) -> Iterator[RecordedEvent]:
    for size in _PAGES:
        for event in store.read(source, before=before, backward=True, limit=size):
            before = event.version
            yield event


def _mode(event: RecordedEvent) -> Mode | None:
    if isinstance(event.data, ModeSwitch | ConversationStart) and event.data.mode is not None:
        return event.data.mode
    return event.meta.mode


def _policy(store: EventStore, source: StreamId) -> ToolPolicy | None:
    first = next(store.read(source, limit=1), None)
    data = None if first is None else first.data
    return data.tool_policy if isinstance(data, ConversationStart) else None
