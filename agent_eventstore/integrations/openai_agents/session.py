"""`EventStoreSession`: an OpenAI Agents SDK session in the store; the extra ``openai-agents``.

The SDK reads back exactly the items that it wrote, in the same order. The adapter records them as
the catalogue's events, so that timeline, usage, tool audit, messages[], search and `verify` work on
them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, takewhile
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from agents.memory import SessionSettings
from agents.memory import session as sdk
from agents.memory.session_settings import coerce_session_settings

from agent_eventstore.integrations.conversation_events import events_after, newest_events, store_of
from agent_eventstore.integrations.openai_agents.end import SessionTail
from agent_eventstore.integrations.openai_agents.events import OpenAIItems
from agent_eventstore.integrations.openai_agents.history import (
    CLEARED,
    LiveItem,
    forget,
    is_of,
    live_items,
    newest_items,
)
from agent_eventstore.integrations.openai_agents.items import ItemWriter, items_in
from agent_eventstore.integrations.openai_agents.usage import RunUsage
from agent_eventstore.transcripts.response_items import grouped
from eventstore import AsyncEventStore, EventStore, NewEvent
from eventstore.database import EventText
from eventstore.events import AssistantMessage, Meta, Retraction, TokenUsage, VersionRange
from eventstore.events.codec import dumps_json
from eventstore.owners import Owned
from eventstore.threads import in_thread
from projections.providers.parser import text
from projections.version_ranges import joined

__all__ = ["EventStoreSession", "Settling", "pop_newest", "replace_all", "replace_newest"]

_PACKAGE = __name__.rpartition(".")[0]
_METHODS = ("get_items", "add_items", "pop_item", "clear_session")
"""The methods of the SDK's protocol, which a product's subclass may replace."""


def _beside(store: EventStore, stream: UUID, gone: Sequence[LiveItem]) -> list[LiveItem]:
    """Return the items before the oldest withdrawn one, in its event: they are to stay."""
    if not gone or not gone[0].place:
        return []
    first = gone[0]
    [event] = events_after(store, stream, first.version - 1, before=first.version + 1)
    items = enumerate(items_in(event)[: first.place])
    return [first._replace(place=place, item=item) for place, item in items]


class Earlier(NamedTuple):
    """An event whose items are recorded again: its metadata with its time, and its model calls."""

    meta: Meta
    calls: Sequence[str]

    @classmethod
    def of(cls, store: EventStore, stream: UUID, items: Sequence[LiveItem]) -> dict[int, Earlier]:
        """Return the events of items by version."""
        ranges = _ranges_of(items)
        if not ranges:
            return {}
        first, last = ranges[0].first, ranges[-1].last
        known = {
            each.version: each for each in store.read(stream, after=first - 1, before=last + 1)
        }
        found: dict[int, Earlier] = {}
        for version, own_ranges in {item.version: item.replaces for item in items}.items():
            event = known[version]
            own = [
                event,
                *(known[v] for each in own_ranges for v in range(each.first, each.last + 1)),
            ]
            calls = (
                each.data.llm_call_id or f"v{each.version}"
                for each in own
                if isinstance(each.data, AssistantMessage)
            )
            meta = event.meta.model_copy(update={"occurred_at": event.occurred_at})
            found[version] = cls(meta, tuple(calls))
        return found


def _sources(before: Sequence[LiveItem], items: Sequence[Any]) -> list[LiveItem | None]:
    """Return for each item the earlier one that it equals, if any; each earlier one once."""
    known: dict[str, deque[LiveItem]] = defaultdict(deque)
    for each in before:
        known[dumps_json(each.item)].append(each)
    found = (known.get(dumps_json(item)) for item in items)
    return [queue.popleft() if queue else None for queue in found]


def _replacing(
    writer: ItemWriter,
    before: Sequence[LiveItem],
    items: Sequence[Any],
    reason: str,
    earlier: dict[int, Earlier],
) -> list[NewEvent]:
    """Return the events that withdraw whole events, and append the items that follow now.

    Args:
        writer: Where they are appended.
        before: The items of the withdrawn events.
        items: The items that follow; those that equal earlier ones are recorded again.
        reason: The reason of the retraction.
        earlier: The withdrawn events by version.
    """
    sources = _sources(before, items)
    again = {each.version for each in sources if each}
    events: list[NewEvent] = []
    if lost := [each for each in before if each.version not in again]:
        events.append(writer.place(Retraction(versions=_ranges_of(lost), reason=reason)))
    if not again:
        return events + writer.events(items)
    pairs = zip((each and each.version for each in sources), items, strict=True)
    runs = [
        (version, [item for _, item in run])
        for version, run in groupby(pairs, lambda pair: pair[0])
    ]
    remaining = _ranges_of([each for each in before if each.version in again])
    replaced_by = VersionRange.of(_places_of(runs, writer.version + 2))
    events.append(
        writer.place(Retraction(versions=remaining, reason=reason, replaced_by=replaced_by))
    )
    turn: int | None = None
    turns: list[int | None] = []
    for version, _ in reversed(runs):  # what is inserted before them is in the turn that follows
        turn = earlier[version].meta.turn if version else turn
        turns.append(turn)
    for (version, run), turn in zip(runs, reversed(turns), strict=True):
        if version is not None:
            events += writer.events_again(run, *earlier[version])
        else:
            events += (
                writer.events(run) if turn is None else writer.events_again(run, Meta(turn=turn))
            )
    return events


def _places_of(
    runs: Sequence[tuple[int | None, Sequence[Any]]], first: int
) -> list[tuple[int, int]]:
    """Return the versions at which runs of items are recorded again, from a first one on."""
    found: list[tuple[int, int]] = []
    for version, run in runs:
        size = len(list(grouped(run)))
        if version is not None:
            found.append((first, first + size - 1))
        first += size
    return joined(found)


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
    ranges = [(each.first, each.last) for item in items for each in item.replaces]
    return VersionRange.of(joined(own + ranges))


def pop_newest(store: EventStore, end: SessionTail, *, erase: bool) -> Any:
    """Withdraw the newest item and return it; None if there is none."""
    popped: list[LiveItem] = []
    staying: list[LiveItem] = []
    earlier: dict[int, Earlier] = {}

    def find() -> set[int]:
        popped[:] = live_items(store, end.id, 1)
        staying[:] = _beside(store, end.id, popped)
        earlier.update(Earlier.of(store, end.id, staying))
        return _versions_of(popped)

    def withdrawing(writer: ItemWriter) -> list[NewEvent]:
        if not erase:
            find()
        items = [each.item for each in staying]
        return _replacing(writer, [*staying, *popped], items, "pop_item", earlier)

    if erase:
        end.erase(find, withdrawing, "pop_item")
        forget(store, end.id)
    else:
        end.append(withdrawing)
    return popped[0].item if popped else None


def replace_all(store: EventStore, end: SessionTail, items: Sequence[Any], *, erase: bool) -> None:
    """Withdraw all items, and add others."""

    def replaced(writer: ItemWriter) -> list[NewEvent]:
        live = [] if erase else live_items(store, end.id)
        earlier = Earlier.of(store, end.id, live if items else ())
        return _replacing(writer, live, items, CLEARED, earlier)

    if erase and newest_events(store, end.id, 1):
        end.erase(lambda: None, replaced, CLEARED)
        forget(store, end.id)
    else:
        end.append(replaced)


def replace_newest(
    store: EventStore,
    end: SessionTail,
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
        staying = _beside(store, end.id, wanted)
        before = [*staying, *wanted]
        items = [*(each.item for each in staying), *output]
        earlier = Earlier.of(store, end.id, before)
        return _replacing(writer, [*expired, *before], items, "compaction", earlier)

    end.append(replaced)
    return found


class Settling:
    """The events of a recorded run that the session's items do not replace yet.

    Args:
        run: The metadata of the run's events.
        after: The version after which the run records.
    """

    def __init__(self, run: Meta, after: int) -> None:
        self.after = after
        self._run = run
        self._recorded: set[int] = set()

    def events(
        self,
        items: Sequence[Any],
        recorded: Iterable[EventText],
        writer: ItemWriter,
        usage: TokenUsage | None,
    ) -> list[NewEvent]:
        """Return the events of new items, some of which were ``recorded`` during the run.

        ``usage`` is that of the last answer, in case it was not recorded.
        """
        known = [
            (event.version, _kind(item))
            for event in recorded
            if event.version not in self._recorded and is_of(self._run, event)
            for item in items_in(event)
        ]
        events: list[NewEvent] = []
        new: list[Any] = []
        new_items: list[tuple[Any, int]] = []
        for item in items:
            found = next((each for each in known if each[1] == _kind(item)), None)
            if found is None:
                events += _telling(new_items, writer)
                new.append(item)
            else:
                events += writer.events(new)
                known.remove(found)
                new_items.append((item, found[0]))
            (new_items if found is None else new).clear()
        return [*events, *_telling(new_items, writer), *writer.events(new, usage)]

    def left(
        self, recorded: Sequence[EventText], writer: ItemWriter, *, blocked: bool
    ) -> list[NewEvent]:
        """Return the events that settle recorded events without an item when the run ends.

        If a tool raised, the runner leaves out the calls of the other tools: their results get
        their call back. If a guardrail ``blocked`` the run, the events without an item are
        withdrawn.
        """
        own = [event for event in recorded if is_of(self._run, event)]
        untold = [each for each in own if each.version not in self._recorded and items_in(each)]
        if blocked and untold:
            gone = VersionRange.of((each.version, each.version) for each in untold)
            return [writer.place(Retraction(versions=gone, reason="guardrail"))]
        calls = {
            item["call_id"]: item
            for event in own
            if event.version in self._recorded
            for item in items_in(event)
            if isinstance(item, dict) and item.get("type") == "function_call"
        }
        remaining = [
            (item, event.version)
            for event in untold
            for result in items_in(event)
            if (call := calls.get(result.get("call_id"))) is not None
            for item in (call, result)
        ]
        return _telling(remaining, writer)

    def note(self, appended: Iterable[NewEvent]) -> None:
        """Note which recorded events the appended items replace."""
        for event in appended:
            if isinstance(event.data, OpenAIItems):
                self._recorded.update(each.first for each in event.data.replaces)


def _telling(items: Sequence[tuple[Any, int]], writer: ItemWriter) -> list[NewEvent]:
    if not items:
        return []
    versions = VersionRange.of((v, v) for v in sorted({v for _, v in items}))
    return [writer.place(OpenAIItems(items=tuple(item for item, _ in items), replaces=versions))]


def _kind(item: Any) -> tuple[str, Any]:
    """Return the key by which an item and its recorded event are matched."""
    if not isinstance(item, dict):
        return "", None
    return text(item.get("type")) or text(item.get("role")), item.get("call_id")


T = TypeVar("T")


class EventStoreSession:
    """A session whose items are events of the conversation with the key ``session_id``.

    After items were read, adding to them is refused if another writer has added, popped, cleared
    or erased items since; it is possible after reading again. Tasks and threads may share an
    object; their calls run one at a time.

    Args:
        session_id: The conversation's key or id; its first item creates the conversation.
        store: The store; it stays open.
        tenant_id: The conversation's tenant.
        user_id: The conversation's user.
        session_settings: The SDK's settings: ``limit`` is the most items that `get_items` returns.
        erase: Whether popped and cleared items are erased too; otherwise they are withdrawn and
            stay in the log.
    """

    def __init__(
        self,
        session_id: str,
        store: EventStore | AsyncEventStore,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        erase: bool = False,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self.store = store_of(store)
        self.owner = Owned(tenant_id=tenant_id, user_id=user_id)
        self.erase = erase
        self._usage = RunUsage()
        self._end = SessionTail(self.store, session_id, self.owner)
        self._settling: Settling | None = None
        self._lock = threading.RLock()

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        """Return the newest items in order: ``limit``, or else the settings' number, or all."""
        return await self._run(self._get, self._most(limit))

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        """Append items, in one transaction.

        Raises:
            WrongExpectedVersion: Another writer has changed the items that this object has read.
            InvalidEvent: An item is not JSON, or is larger than an event may be.
        """
        if items:
            usage = self._usage.since(wrapper)
            await self._run(self._add, list(items), usage)

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        """Withdraw the newest item and return it; None if the session has none."""
        return await self._run(self._pop)

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Withdraw all items; other events, such as the conversation's title, stay."""
        await self._run(self._replace_all, ())

    def close(self) -> None:
        """Do nothing, as `SQLiteSession` may be closed: the store is yours, and stays open."""

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        """Replace all items, in one transaction; for the SDK's compaction.

        Not in a product's subclass with methods of its own, which the SDK then calls instead.
        """
        if not self._has_own_methods():
            return False
        await self._run(self._replace_all, items)
        return True

    @classmethod
    def _has_own_methods(cls) -> bool:
        """Whether items are read and written by this package, not by methods of a subclass."""
        return all(getattr(cls, name).__module__.startswith(_PACKAGE) for name in _METHODS)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> Any:
        """Return the newest items, and a function that replaces the last of them if unchanged.

        None where `_atomic_replace_items` does nothing.
        """
        if not self._has_own_methods():
            return None
        live = await self._run(live_items, self.store, self.id, limit + 1)
        complete, live = len(live) <= limit, live[max(len(live) - limit, 0) :]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            wanted = live[start:]
            return bool(wanted) and await self._run(
                replace_newest, self.store, self._end, wanted, output, prune_prefix
            )

        return sdk._CompactionSnapshot([each.item for each in live], complete, replace_suffix)

    def attach(self, run: Meta) -> None:
        """Start matching new items with the events that a run records."""
        with self._lock:
            self._end.run = run
            self._end.move()
            newest = newest_events(self.store, self.id, 1)
            self._settling = Settling(run, newest[0].version if newest else 0)

    def detach(self, *, blocked: bool) -> None:
        """Settle a run's recorded events that have no item; withdraw what a guardrail blocked."""
        with self._lock:
            settling, self._settling = self._settling, None
            self._end.move()
            try:
                if settling is not None:
                    recorded = [*events_after(self.store, self.id, settling.after)]
                    self._end.append(lambda end: settling.left(recorded, end, blocked=blocked))
            finally:
                self._end.run = None
                self._end.move()

    @property
    def id(self) -> Any:
        """The conversation's id."""
        return self._end.id

    async def _run(self, work: Callable[..., T], *given: Any) -> T:
        """Run blocking work in a thread; it finishes even if the caller is cancelled."""

        def locked() -> T:
            with self._lock:
                return work(*given)

        return await in_thread(locked)

    def _most(self, limit: int | None) -> int | None:
        """Return the number of items to read, by default the settings' limit; None for all."""
        limit = self.session_settings.limit if limit is None else limit
        return None if limit is None or limit < 0 else limit

    def _get(self, limit: int | None) -> list[Any]:
        items, self._end.seen = newest_items(self.store, self.id, limit)
        return items

    def _add(self, items: list[Any], usage: Any) -> None:
        if (settling := self._settling) is None:
            self._end.append(lambda writer: writer.events(items, usage), compare=True)
            return

        def settled(writer: ItemWriter) -> list[NewEvent]:
            recorded = events_after(self.store, self.id, settling.after)
            return settling.events(items, recorded, writer, usage)

        settling.note(self._end.append(settled, compare=True))

    def _pop(self) -> Any:
        return pop_newest(self.store, self._end, erase=self.erase)

    def _replace_all(self, items: Sequence[Any]) -> None:
        replace_all(self.store, self._end, items, erase=self.erase)
