"""Following a timeline: its changes as any process commits them.

A follower reads and never writes: starting from the timeline's rows, it folds new events in memory.
Each process polls once for all of its followers: see `projections.pulse`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore import EventStore
from eventstore.database import get_stream, metadata_for, read_page
from eventstore.events import BranchSwitch, Erasure, RecordedEvent
from eventstore.leases import without_writer
from projections import queries
from projections.engine import heads
from projections.engine.catch_up import fold_from_start
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
from projections.pulse import Pulse

__all__ = ["Follower", "Waits", "followed"]

_PAGE = 500
_LOOKS = 10


class Follower:
    """A follower of a conversation's timeline.

    Attributes:
        version: The version up to which all changes were reported.
        conversation_id: The conversation.
        behind: Whether there may be more changes than were last reported.
    """

    def __init__(self, store: EventStore, conversation_id: UUID, after: int) -> None:
        self.version = after
        self.conversation_id = conversation_id
        self._store = store
        self._state: State | None = None
        self._left = self.behind = False

    def news(self) -> list[TimelineUpdate]:
        """Return the changes since the last call, from up to 500 events; empty if there are none.

        If there is no new event but the writer's process has ended, the running items become
        interrupted, in an update that repeats the last version. Only reads, in its own transaction.

        Raises:
            ConversationNotFound: No conversation has this id, or it was purged since.
            ValueError: The conversation has not reached the version from which it is followed.
            ProjectionFailed: The timeline's fold raised.
        """
        updates = [] if self._state is not None else self._begin()
        state: State = self._state or {}
        with self._store.reading() as connection:
            events = read_page(connection, self.conversation_id, after=self.version, limit=_PAGE)
            left = None if events else self._left_alone(connection)
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
            if news := tuple(changes_of(event, before, changes)):
                updates.append(TimelineUpdate(version=event.version, changes=news))
            self._state, self.version = state, event.version
        return updates

    def _left_alone(self, connection: Connection) -> bool:
        """Whether the writer's process has ended; raise if the conversation was purged."""
        get_stream(connection, self.conversation_id)
        return bool(without_writer(connection, (self.conversation_id,)))

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
        """Begin at the version of the timeline's rows, and report their changes since ``after``."""
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
        """Report running items as interrupted, or as running again if the writer is back."""
        _, items = self._fold_at(self.version)
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
        """Send the whole timeline again and restart: events were erased, or a branch is back."""
        self._state, items = self._fold_at(version)
        self.version = version
        return TimelineUpdate(version=version, changes=(TimelineReset(items=tuple(items)),))

    def _fold_at(self, version: int) -> tuple[State, list[TimelineItem]]:
        """Return the fold's state at a version, and the items shown at that version, in order."""
        cid = self.conversation_id
        with self._store.reading(snapshot=True) as connection:
            copy = Generation(TIMELINE, IN_MEMORY, None)
            [fold] = fold_from_start(connection, [copy], cid, before=version + 1)
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
    """Whether older items may have disappeared or reappeared between two versions."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = select(events.c.version).where(
        events.c.conversation_id == conversation_id,
        events.c.version > after,
        events.c.version <= until,
        events.c.type.in_((Erasure.type, BranchSwitch.type)),
    )
    return connection.execute(query.limit(1)).first() is not None


class Waits:
    """When a follower's next heartbeat is due, and when its timeout has passed.

    Raises:
        ValueError: Heartbeats would follow each other without a pause.
    """

    def __init__(self, heartbeat_s: float | None, timeout_s: float | None) -> None:
        if heartbeat_s is not None and not heartbeat_s > 0:
            raise ValueError(f"heartbeat_s must be above 0, or None for none: {heartbeat_s!r}")
        self._heartbeat_s, self._timeout_s = heartbeat_s, timeout_s
        self.notify()

    def notify(self) -> None:
        """Restart both waits: a change was just reported."""
        self._news_at = self._beat_at = time.monotonic()

    def beat(self) -> None:
        """Restart the wait for the next heartbeat."""
        self._beat_at = time.monotonic()

    @property
    def left_s(self) -> float | None:
        """How long to wait now, in seconds; None to wait without a limit."""
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
        """Whether the timeout has passed without a change."""
        if self._timeout_s is None:
            return False
        return time.monotonic() >= self._news_at + self._timeout_s


def followed(
    follower: Follower, first: list[TimelineUpdate], pulse: Pulse, waits: Waits
) -> Generator[TimelineUpdate, None, None]:
    """Yield a follower's updates as they arrive, and heartbeats while there are none."""
    woken = threading.Event()
    yield from first
    with pulse.joined(follower.conversation_id, woken.set):
        while True:
            woken.clear()
            before = follower.version
            yield from follower.news()
            if follower.version != before:
                waits.notify()
            if not follower.behind and not woken.wait(waits.left_s):
                if waits.over:
                    return
                waits.beat()
                yield TimelineUpdate(version=follower.version)
