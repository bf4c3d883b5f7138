"""Which workers are alive, and which conversations each of them folds.

Each worker has a row in ``projection_workers``, and renews it by the database's clock. The live
ones that keep the same projections divide the conversations evenly among them, by the
conversations' ids; when one dies, the others divide its share once its row is `GONE_S` old. Workers
that count differently for a moment may fold the same conversation: one finds that its head has
moved, and discards what it folded.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self
from uuid import UUID, uuid4
from zlib import crc32

from sqlalchemy import Connection, CursorResult, text

from eventstore import EventStore
from eventstore.database import backend_of
from eventstore.errors import ErrorType, StatementRefused, StoreUnavailable, Traceback
from projections.engine.projection import Projection

__all__ = ["EVERYTHING", "GONE_S", "Membership", "WorkShare", "WorkerStatus", "workers_of"]

GONE_S = 10
"""Seconds after which a worker that has not renewed its row counts as dead."""
_RENEW_S = 2.0

Task = Literal["follow", "rebuild"]

_RENEW = """
    INSERT INTO projection_workers (worker_id, task, host, process_id, started_at, seen_at)
    VALUES (:worker_id, :task, :host, :process_id, {clock}, {clock})
    ON CONFLICT (worker_id) DO UPDATE SET seen_at = {clock}
"""
_ALIVE = """
    SELECT worker_id, task, host, process_id, started_at, seen_at FROM projection_workers
    WHERE seen_at > {clock} - :gone ORDER BY task, started_at, worker_id
"""
_LEAVE = """
    DELETE FROM projection_workers WHERE worker_id = :worker_id OR seen_at <= {clock} - :gone
"""


@dataclass(frozen=True, slots=True)
class WorkShare:
    """A part of all conversations: the one with this number, from 0, of ``count``."""

    number: int = 0
    count: int = 1

    def has(self, conversation_id: UUID) -> bool:
        """Whether the conversation is in the share; similar ids may be in different ones."""
        return crc32(conversation_id.bytes) * self.count >> 32 == self.number


EVERYTHING = WorkShare()


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that is alive: what it does and where, and which of how many shares it has."""

    task: str
    host: str
    process_id: int
    started_at: datetime
    seen_at: datetime
    share: int
    shares: int


class Membership:
    """A worker's row among those of the same task, while it runs.

    Args:
        store: The store.
        task: What the worker does.
        projections: For which projections; only workers for the same ones share the work.
    """

    def __init__(self, store: EventStore, task: Task, projections: Iterable[Projection]) -> None:
        names = " ".join(sorted(f"{each.name}:{each.version}" for each in projections))
        self._store = store
        self._id = str(uuid4())
        self._row = {
            "worker_id": self._id,
            "task": f"{task} {crc32(names.encode()):08x}",
            "host": socket.gethostname(),
            "process_id": os.getpid(),
        }
        self._due_at = 0.0
        self.share = EVERYTHING

    def renew(self) -> WorkShare:
        """Renew the row if that is due, and return the worker's share, in order of their starts.

        Raises:
            StoreUnavailable: The database cannot be written.
        """
        if time.monotonic() >= self._due_at:
            with self._store.writing(durable=False) as connection:
                _run(connection, _RENEW, **self._row)
                alive = [
                    row.worker_id
                    for row in _run(connection, _ALIVE, gone=GONE_S)
                    if row.task == self._row["task"]
                ]
            self.share = WorkShare(alive.index(self._id), len(alive))
            self._due_at = time.monotonic() + _RENEW_S
        return self.share

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Delete the row, so that the others need not wait, and those of the dead."""
        unavailable = suppress(StoreUnavailable, StatementRefused)
        with unavailable, self._store.writing(durable=False) as connection:
            _run(connection, _LEAVE, worker_id=self._id, gone=GONE_S)


def workers_of(connection: Connection) -> tuple[WorkerStatus, ...]:
    """Return the workers that are alive, by task."""
    rows = _run(connection, _ALIVE, gone=GONE_S).all()
    tasks = [row.task for row in rows]
    return tuple(
        WorkerStatus(
            row.task.split()[0],
            row.host,
            row.process_id,
            datetime.fromtimestamp(row.started_at, UTC),
            datetime.fromtimestamp(row.seen_at, UTC),
            share=place - tasks.index(row.task) + 1,
            shares=tasks.count(row.task),
        )
        for place, row in enumerate(rows)
    )


def _run(connection: Connection, statement: str, **values: object) -> CursorResult[Any]:
    return connection.execute(text(statement.format(clock=backend_of(connection).clock_s)), values)
