"""One thread that notifies all followers of a store when their conversations gain events.

It polls with one short query: many times a second while the store is busy, less often while it is
idle. Once a second it checks whether the writers are alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Engine, select

from eventstore.database import Watch, metadata_for
from eventstore.leases import without_writer
from eventstore.processes import in_child
from eventstore.telemetry.log import get_logger

__all__ = ["Pulse", "pulse_of"]

_SHORTEST_S = 0.005
_LONGEST_S = 0.02
_WRITERS_S = 1.0  # between two checks whether writers are alive
_PATIENCE_S = 1.0
_SLOWER = 1.3  # factor of the interval after each poll that found nothing

_log = get_logger("projections.pulse")


class Pulse:
    """Notifies the followers of one store when their conversations gain events.

    One thread polls for all followers, for as long as there are any.
    """

    def __init__(self, engine: Engine) -> None:
        # A weak reference: a strong one would keep alive the engine that is its own key.
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
        """Join for the duration of the block; see `join`."""
        me = self.join(conversation_id, wake)
        try:
            yield
        finally:
            self.leave(me)

    def join(self, conversation_id: UUID, wake: Callable[[], None]) -> object:
        """Call ``wake``, in a thread, whenever the conversation may have gained events.

        Returns:
            A token to pass to `leave`.
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
        """Stop the calls; the last follower to leave waits up to a second for the thread to end."""
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
                    left = self._notified_by_writers(engine, wakes, left)
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
            # Followers query the database themselves, and get the error where it is handled.
            _log.warning("followers cannot check for events", reason=str(error))
            found = {}
        moved = {cid for cid, _ in wakes if new or found.get(cid) != known.get(cid) or not found}
        known.clear()
        known.update(found)
        for cid, wake in wakes:
            if cid in moved:
                wake()
        return bool(moved)

    def _notified_by_writers(
        self, engine: Engine, wakes: list[tuple[UUID, Callable[[], None]]], before: set[UUID]
    ) -> set[UUID]:
        """Wake the followers whose writer has gone or returned; return those without a writer."""
        try:
            with engine.begin() as connection:
                left = without_writer(connection, {cid for cid, _ in wakes})
        except Exception as error:
            _log.warning("followers cannot check writers", reason=str(error))
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
    """Return the pulse that all followers of a store share, whatever owner it is bound to."""
    with _MAKING:
        if engine not in _PULSES:
            _PULSES[engine] = Pulse(engine)
        return _PULSES[engine]
