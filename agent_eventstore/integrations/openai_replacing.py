"""Withdraw the newest items of a session, or all, or replace them with others.

Each change is one transaction. With ``erase``, it also erases the items that it withdraws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from agent_eventstore.integrations.conversation_events import events_after, newest_events
from agent_eventstore.integrations.openai_cache import forget
from agent_eventstore.integrations.openai_end import SessionEnd
from agent_eventstore.integrations.openai_history import CLEARED, LiveItem, live_items
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.integrations.openai_writing import ItemWriter
from eventstore import EventStore, NewEvent
from eventstore.events import AssistantMessage, Retraction, VersionRange
from eventstore.events.codec import loads_json
from projections.engine.folding import joined

__all__ = ["pop_newest", "replace_all", "replace_newest"]


class Staying(NamedTuple):
    """The items of an event that stay although its last ones are withdrawn.

    ``calls`` are the model calls of the answers among them: written again, they are no new calls.
    """

    items: Sequence[Any] = ()
    calls: Sequence[str] = ()

    @classmethod
    def beside(cls, store: EventStore, stream: UUID, gone: Sequence[LiveItem]) -> Staying:
        """Return the items before the oldest withdrawn one, in its event."""
        if not gone or not gone[0].place:
            return cls()
        first = gone[0]
        spans = [(first.version, first.version), *((each.first, each.last) for each in first.told)]
        event, *told = [
            each
            for begin, last in spans
            for each in events_after(store, stream, begin - 1, before=last + 1)
        ]
        calls = (
            loads_json(each.text).get("llm_call_id") or f"v{each.version}"
            for each in (event, *told)
            if each.type == AssistantMessage.type and each.text
        )
        return cls(items_in(event)[: first.place], tuple(calls))

    def events(self, writer: ItemWriter) -> Iterator[NewEvent]:
        """Yield the events that hold the items again."""
        calls = iter(self.calls)
        for event in writer.events(self.items):
            data = event.data
            if isinstance(data, AssistantMessage):
                data = data.model_copy(update={"llm_call_id": next(calls, None)})
            yield replace(event, data=data)


def _replacing(
    writer: ItemWriter,
    gone: Sequence[LiveItem],
    items: Sequence[Any],
    reason: str,
    staying: Staying,
    *,
    also: Sequence[LiveItem] = (),
) -> list[NewEvent]:
    """Return the events that withdraw the newest live items and append others.

    The items of the same event that stay are written again. ``also`` are older items to withdraw
    with them; they must be whole events.
    """
    events: list[NewEvent] = []
    if gone:
        withdrawn = _ranges_of([*also, *gone])
        events.append(writer.place(Retraction(versions=withdrawn, reason=reason)))
        events += staying.events(writer)
    return events + writer.events(items)


def _outdated(live: Sequence[LiveItem], prune: Callable[[Any], bool]) -> list[LiveItem]:
    """Return the oldest items that may be pruned, as long as they are whole events."""
    expired = list(takewhile(lambda each: prune(each.item), live))
    left = {each.version for each in live[len(expired) :]}
    return [each for each in expired if each.version not in left]


def _versions_of(items: Sequence[LiveItem]) -> set[int]:
    """Return the versions of items and of the recorded events that they replace."""
    ranges = _ranges_of(items)
    return {version for each in ranges for version in range(each.first, each.last + 1)}


def _ranges_of(items: Sequence[LiveItem]) -> tuple[VersionRange, ...]:
    """Return the versions of items and of the events that they replace, for a retraction."""
    own = [(item.version, item.version) for item in items]
    told = [(each.first, each.last) for item in items for each in item.told]
    return VersionRange.of(joined(own + told))


def pop_newest(store: EventStore, end: SessionEnd, *, erase: bool) -> Any:
    """Withdraw the newest item and return it; None if there is none."""
    popped: list[LiveItem] = []
    staying = Staying()

    def find() -> set[int]:
        nonlocal staying
        popped[:] = live_items(store, end.id, 1)
        staying = Staying.beside(store, end.id, popped)
        return _versions_of(popped)

    def withdrawing(writer: ItemWriter) -> list[NewEvent]:
        if not erase:
            find()
        return _replacing(writer, popped, (), "pop_item", staying)

    if erase:
        end.erase(find, withdrawing, "pop_item")
        forget(store, end.id)
    else:
        end.append(withdrawing)
    return popped[0].item if popped else None


def replace_all(store: EventStore, end: SessionEnd, items: Sequence[Any], *, erase: bool) -> None:
    """Withdraw all items, and add others."""

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        live = [] if erase else live_items(store, end.id)
        return _replacing(writer, live, items, CLEARED, Staying())

    if erase and newest_events(store, end.id, 1):
        end.erase(lambda: None, replaced, CLEARED)
        forget(store, end.id)
    else:
        end.append(replaced)


def replace_newest(
    store: EventStore,
    end: SessionEnd,
    wanted: Sequence[LiveItem],
    output: Sequence[Any],
    prune: Callable[[Any], bool] | None,
) -> bool:
    """Replace the newest items, in one transaction; return False if they have changed.

    Args:
        store: The store.
        end: The session's end.
        wanted: The newest items, as they were read.
        output: The items that replace them.
        prune: Whether an older item is to be withdrawn too; called for the oldest ones.
    """
    found = True

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        nonlocal found
        live = live_items(store, end.id, None if prune else len(wanted))
        found = live[-len(wanted) :] == list(wanted)
        if not found:
            return []
        expired = () if prune is None else _outdated(live[: -len(wanted)], prune)
        staying = Staying.beside(store, end.id, wanted)
        return _replacing(writer, wanted, output, "compaction", staying, also=expired)

    end.append(replaced)
    return found
