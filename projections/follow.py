"""Following a timeline: its changes as they are committed, by whichever process.

A follower reads and never writes: it folds what is new in memory, from where the timeline's rows
stand. Each process looks once for all of its followers whether anything was committed: with one
short query, many times a second while something happens, and less often while nothing does. Once a
second it looks whether the writers live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, select

from eventstore import EventStore
from eventstore.events import BranchSwitch, Erasure, RecordedEvent
from eventstore.forks import in_child
from eventstore.leases import without_writer
from eventstore.log import get_logger
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import get_stream
from eventstore.sql.watch import Watch
from projections import queries
from projections.engine import heads
from projections.engine.catch_up import fold_anew
from projections.engine.generations import IN_MEMORY, Generation, find_live, gone
from projections.engine.projection import Change, State
from projections.errors import GenerationGone, ProjectionFailed
from projections.models.timeline import TIMELINE
from projections.models.timeline_changes import (
    ItemChanged,
    TimelineChange,
    TimelineReset,
    TimelineUpdate,
    changes_of,
    item_changes,
)
from projections.models.timeline_items import TABLE, TimelineItem

__all__ = ["Follower", "Pulse", "Waits", "followed", "pulse_of"]

_PAGE = 500
_LOOKS = 10
_SHORTEST_S = 0.005
_LONGEST_S = 0.02
_WRITERS_S = 1.0  # between two looks whether writers live
_PATIENCE_S = 1.0
_SLOWER = 1.3  # times as long, after each look that found nothing

_log = get_logger("projections.follow")


class Follower:
    """One who follows a conversation's timeline.

    Attributes:
        version: Up to which everything was told.
        conversation_id: Whose timeline it is.
        behind: Whether there may be more than what was told last.
    """

    def __init__(self, store: EventStore, conversation_id: UUID, after: int) -> None:
        self.version = after
        self.conversation_id = conversation_id
        self._store = store
        self._state: State | None = None
        self._left = self.behind = False

    def news(self) -> list[TimelineUpdate]:
        """Return what has come since the last call, up to 500 events; nothing if nothing has.

        Where no event has, but the writer's process has ended, what it was doing is interrupted;
        with the version that was told last. Reads alone, in a transaction of its own.

        Raises:
            ConversationNotFound: No conversation has this id.
            ValueError: The conversation has not come to the version from which it is followed.
            ProjectionFailed: The timeline's fold raised.
        """
        updates = [] if self._state is not None else self._begin()
        state: State = self._state or {}
        with self._store.reading() as connection:
            events = read_page(connection, self.conversation_id, after=self.version, limit=_PAGE)
            left = bool(without_writer(connection, (self.conversation_id,))) if not events else None
        if left is not None and left != self._left:
            self._left = left
            updates += self._writer_changed(left)
        self.behind = len(events) == _PAGE
        for event in events:
            before = state
            state, changes = self._fold(state, event)
            if isinstance(event.data, Erasure) or _goes_back(event):
                updates.append(self._reset(event.version))
                self.behind = True
                break
            if told := tuple(changes_of(event, before, changes)):
                updates.append(TimelineUpdate(version=event.version, changes=told))
            self._state, self.version = state, event.version
        return updates

    def _fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        try:
            return TIMELINE.fold(state, event)
        except Exception as error:
            raise ProjectionFailed(TIMELINE.name, self.conversation_id, event.version) from error

    def _begin(self) -> list[TimelineUpdate]:
        for _ in range(_LOOKS):
            with suppress(GenerationGone), gone():
                return self._take_up()
        return self._take_up()

    def _take_up(self) -> list[TimelineUpdate]:
        """Begin where the timeline's rows stand, and tell what they have gained since."""
        cid, after = self.conversation_id, self.version
        with self._store.reading(snapshot=True) as connection:
            current = get_stream(connection, cid).version
            if not 0 <= after <= current:
                raise ValueError(
                    f"conversation {cid} has no version {after}: follow it from 0 to {current}"
                )
            live = find_live(connection, TIMELINE)
            found = {} if live is None else heads.read(connection, [live], cid)
            head = next(iter(found.values()), None)
            if head is None or live is None or head.version < after:
                state = TIMELINE.initial() if head is None else head.state
                at = 0 if head is None else head.version
                self._state = self._folded_to(connection, state, at, after)
                return []
            if after and _reset_between(connection, cid, after, head.version):
                changes: tuple[TimelineChange, ...] = (
                    TimelineReset(items=tuple(_items(connection, live, cid, 0))),
                )
            else:
                changes = tuple(item_changes(_items(connection, live, cid, after), after))
        self._state, self.version = head.state, head.version
        return [TimelineUpdate(version=head.version, changes=changes)] if changes else []

    def _folded_to(self, connection: Connection, state: State, at: int, version: int) -> State:
        while at < version:
            page = read_page(
                connection, self.conversation_id, after=at, before=version + 1, limit=_PAGE
            )
            if not page:
                break
            for event in page:
                state, _ = self._fold(state, event)
                at = event.version
        return state

    def _writer_changed(self, left: bool) -> list[TimelineUpdate]:
        """Tell what goes on that it is interrupted, or that it goes on after all."""
        _, items = self._anew(self.version)
        changes = tuple(
            ItemChanged(
                version=item.version,
                part=item.part,
                values={"status": "interrupted" if left else item.status},
            )
            for item in items
            if queries.goes_on(item)
        )
        return [TimelineUpdate(version=self.version, changes=changes)] if changes else []

    def _reset(self, version: int) -> TimelineUpdate:
        """Tell the whole timeline anew, and begin anew: something was erased, or has come back."""
        self._state, items = self._anew(version)
        self.version = version
        return TimelineUpdate(version=version, changes=(TimelineReset(items=tuple(items)),))

    def _anew(self, version: int) -> tuple[State, list[TimelineItem]]:
        """Return the fold's state at a version, and the items that are shown then, in order."""
        cid = self.conversation_id
        with self._store.reading(snapshot=True) as connection:
            copy = Generation(TIMELINE, IN_MEMORY, None)
            [fold] = fold_anew(connection, [copy], cid, before=version + 1)
        rows = fold.buffer.complete_rows(TABLE)
        items = (
            TimelineItem.from_row({"conversation_id": cid, **row})
            for row in rows
            if not row["inactive"]
        )
        return fold.state, sorted(items, key=lambda item: (item.version, item.part))


def _items(
    connection: Connection, live: Generation, conversation_id: UUID, after: int
) -> list[TimelineItem]:
    with queries.readable(TIMELINE.name):
        return queries.timeline(connection, live, conversation_id, after=after, limit=None)


def _goes_back(event: RecordedEvent) -> bool:
    return isinstance(event.data, BranchSwitch) and bool(event.data.restored)


def _reset_between(connection: Connection, conversation_id: UUID, after: int, until: int) -> bool:
    """Whether older items may have gone or come back between two versions."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = select(events.c.version).where(
        events.c.conversation_id == conversation_id,
        events.c.version > after,
        events.c.version <= until,
        events.c.type.in_((Erasure.type, BranchSwitch.type)),
    )
    return connection.execute(query.limit(1)).first() is not None


class Pulse:
    """Tells followers of one store that their conversations have gained events.

    One thread looks for all of them, while there are any.
    """

    def __init__(self, engine: Engine) -> None:
        # No reference of its own, which would keep what it is found by.
        self._engine = ref(engine)
        self._begin()
        in_child(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[object, tuple[UUID, Callable[[], None]]] = {}
        self._joined = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def joined(self, conversation_id: UUID, wake: Callable[[], None]) -> Iterator[None]:
        """Do what `join` does until the block ends."""
        me = self.join(conversation_id, wake)
        try:
            yield
        finally:
            self.leave(me)

    def join(self, conversation_id: UUID, wake: Callable[[], None]) -> object:
        """Have a function called, in a thread, whenever the conversation may have gained events.

        Returns:
            What `leave` takes.
        """
        me = object()
        with self._lock:
            self._wakes[me] = conversation_id, wake
            self._joined.set()
            if self._thread is None:
                name = "eventstore-followers"
                self._thread = threading.Thread(target=self._look, name=name, daemon=True)
                self._thread.start()
        return me

    def leave(self, me: object) -> None:
        """End it; the last one waits until the thread has let go of the database."""
        with self._lock:
            self._wakes.pop(me, None)
            thread = None if self._wakes else self._thread
        self._joined.set()
        if thread is not None:
            thread.join(_PATIENCE_S)

    def _look(self) -> None:
        engine, rest_s = self._engine(), _SHORTEST_S
        if engine is None:
            return
        with Watch(engine) as watch:
            known: dict[UUID, int] = {}
            left: set[UUID] = set()
            due = 0.0
            while True:
                with self._lock:
                    wakes = list(self._wakes.values())
                    new = self._joined.is_set()
                    self._joined.clear()
                    if not wakes:
                        self._thread = None
                        return
                moved = self._looked(engine, watch, wakes, known, new=new)
                if time.monotonic() >= due:
                    left = self._told_of_writers(engine, wakes, left)
                    due = time.monotonic() + _WRITERS_S
                rest_s = _SHORTEST_S if moved else min(rest_s * _SLOWER, _LONGEST_S)
                self._joined.wait(rest_s)

    def _looked(
        self,
        engine: Engine,
        watch: Watch,
        wakes: list[tuple[UUID, Callable[[], None]]],
        known: dict[UUID, int],
        *,
        new: bool,
    ) -> bool:
        try:
            if not watch.moved() and not new:
                return False
            found = _versions(engine, {cid for cid, _ in wakes})
        except Exception as error:
            # Those who follow ask the database themselves, and meet the error where it is handled.
            _log.warning("followers cannot look", reason=str(error))
            found = {}
        moved = {cid for cid, _ in wakes if new or found.get(cid) != known.get(cid) or not found}
        known.clear()
        known.update(found)
        for cid, wake in wakes:
            if cid in moved:
                wake()
        return bool(moved)

    def _told_of_writers(
        self, engine: Engine, wakes: list[tuple[UUID, Callable[[], None]]], before: set[UUID]
    ) -> set[UUID]:
        """Wake those whose writer has gone or come since then; return who is left without one."""
        try:
            with engine.begin() as connection:
                left = without_writer(connection, {cid for cid, _ in wakes})
        except Exception as error:
            _log.warning("followers cannot look for writers", reason=str(error))
            return before
        for cid, wake in wakes:
            if (cid in left) != (cid in before):
                wake()
        return left


def _versions(engine: Engine, conversations: set[UUID]) -> dict[UUID, int]:
    with engine.begin() as connection:
        streams = metadata_for(connection.dialect.name).tables["conversations"]
        query = select(streams.c.conversation_id, streams.c.version)
        rows = connection.execute(query.where(streams.c.conversation_id.in_(conversations)))
        return {row[0]: row[1] for row in rows}


_PULSES: WeakKeyDictionary[Engine, Pulse] = WeakKeyDictionary()
_MAKING = threading.Lock()


def pulse_of(engine: Engine) -> Pulse:
    """Return the pulse that all followers of a store share, whichever owners it is bound to."""
    with _MAKING:
        if engine not in _PULSES:
            _PULSES[engine] = Pulse(engine)
        return _PULSES[engine]


class Waits:
    """When a follower's next heartbeat is due, and when it has waited long enough for news."""

    def __init__(self, heartbeat_s: float | None, timeout_s: float | None) -> None:
        self._heartbeat_s, self._timeout_s = heartbeat_s, timeout_s
        self.told()

    def told(self) -> None:
        """Begin to wait: something was told just now."""
        self._news_at = self._beat_at = time.monotonic()

    def beat(self) -> None:
        """Begin to wait for the next heartbeat."""
        self._beat_at = time.monotonic()

    @property
    def left_s(self) -> float | None:
        """How long to wait now, in seconds; None for as long as it takes."""
        due = [
            at + after
            for at, after in (
                (self._beat_at, self._heartbeat_s),
                (self._news_at, self._timeout_s),
            )
            if after is not None
        ]
        return max(0.0, min(due) - time.monotonic()) if due else None

    @property
    def over(self) -> bool:
        """Whether there was no news for so long that following ends."""
        if self._timeout_s is None:
            return False
        return time.monotonic() >= self._news_at + self._timeout_s


def followed(
    follower: Follower, first: list[TimelineUpdate], pulse: Pulse, waits: Waits
) -> Generator[TimelineUpdate, None, None]:
    """Yield a follower's updates as they come, then heartbeats while there are none."""
    woken = threading.Event()
    yield from first
    with pulse.joined(follower.conversation_id, woken.set):
        while True:
            woken.clear()
            before = follower.version
            yield from follower.news()
            if follower.version != before:
                waits.told()
            if not follower.behind and not woken.wait(waits.left_s):
                if waits.over:
                    return
                waits.beat()
                yield TimelineUpdate(version=follower.version)
