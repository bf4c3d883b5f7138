"""Leases: which session writes to a conversation and until when; and the thread that renews them.

A lease tells others that a writer is alive; it protects nothing. Only the writer epoch keeps two
writers apart, so a lease that expires too early costs a writer its session, but no event. Times are
the server's on PostgreSQL and the machine's on SQLite.

One thread renews the leases of this process's open conversations, each three times within its
duration, in a transaction that does not wait for the disk. If a conversation is garbage-collected
without being closed, its lease ends at once for this process, and for others at the next renewal.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from eventstore.errors import ConversationInUse, EventStoreError
from eventstore.log import get_logger
from eventstore.processes import described, has_ended, identity
from eventstore.sql.backend import AnyConnection, Statement, backend_of, run_each
from eventstore.sql.streams import raise_writer_epoch
from eventstore.sql.transactions import Transactions
from eventstore.sql.types import escape, unescape

__all__ = [
    "KEEPER",
    "LEASE_S",
    "Keeper",
    "Lease",
    "begin",
    "claim",
    "give_back",
    "without_writer",
    "writer_of",
]


@dataclass(frozen=True, slots=True)
class Lease:
    """A session's claim to be writing to a conversation.

    Attributes:
        conversation_id: The conversation.
        session_id: The session.
        process: Identifies the process on its machine; empty if the platform has no such identity.
        who: A description of process and machine.
        since: When the session was opened.
        expires_at: When the lease expires unless it is renewed.
        live: Whether the lease was valid when it was read, and its process not known to have ended.
    """

    conversation_id: UUID
    session_id: str
    process: str
    who: str
    since: datetime
    expires_at: datetime
    live: bool


_OF = Statement(
    """
    SELECT conversation_id, session_id, process, who, since, expires_at
    FROM writer_leases WHERE conversation_id = ANY(:ids)
    """
)
_GIVE = """
    INSERT INTO writer_leases (conversation_id, session_id, process, who, since, expires_at)
    VALUES (:conversation_id, :session_id, :process, :who, :since, :expires_at)
    ON CONFLICT (conversation_id) DO
    """
_TAKE = Statement(
    f"""{_GIVE} UPDATE SET session_id = excluded.session_id, process = excluded.process,
        who = excluded.who, since = excluded.since, expires_at = excluded.expires_at
    """
)
_TAKE_FREE = Statement(f"{_GIVE} NOTHING")
_RENEW = Statement(
    """
    UPDATE writer_leases SET expires_at = :expires_at
    WHERE conversation_id = :conversation_id AND session_id = :session_id
    """
)
_LET_GO = Statement(
    """
    DELETE FROM writer_leases WHERE conversation_id = :conversation_id
        AND session_id = coalesce(:session_id, session_id)
    """
)


def lease_of(connection: AnyConnection, conversation_id: UUID) -> Lease | None:
    """Return the lease of a conversation's writer, or None."""
    return next(iter(leases_of(connection, (conversation_id,))), None)


def leases_of(connection: AnyConnection, conversation_ids: Collection[UUID]) -> list[Lease]:
    """Return the leases of these conversations' writers, in no particular order."""
    backend, rows = backend_of(connection), _OF.rows(connection, ids=list(conversation_ids))
    now = backend.now(connection) if rows else None
    found = []
    for stream, session_id, process, who, since, expires in rows:
        until = backend.to_time(expires)
        live = now is not None and until > now and not has_ended(process)
        began = backend.to_time(since)
        found.append(
            Lease(backend.to_id(stream), session_id, process, unescape(who), began, until, live)
        )
    return found


def take(
    connection: AnyConnection,
    conversation_id: UUID,
    session_id: str,
    lease_s: float,
    how: Statement = _TAKE,
) -> None:
    """Write this process's lease, valid for ``lease_s`` seconds, in place of any other.

    With ``_TAKE_FREE`` an existing lease stays.
    """
    backend = backend_of(connection)
    now = backend.now(connection)
    row = {
        "conversation_id": backend.from_id(conversation_id),
        "session_id": session_id,
        "process": identity(),
        "who": escape(described()),
        "since": backend.from_time(now),
        "expires_at": backend.from_time(now + timedelta(seconds=lease_s)),
    }
    run_each(connection, how.on(backend), [row])


def renew(connection: AnyConnection, sessions: Iterable[tuple[UUID, str, float]]) -> None:
    """Extend leases by their seconds from now; leases that others have taken stay unchanged."""
    backend = backend_of(connection)
    now = backend.now(connection)
    rows = [
        {
            "conversation_id": backend.from_id(conversation_id),
            "session_id": session_id,
            "expires_at": backend.from_time(now + timedelta(seconds=lease_s)),
        }
        for conversation_id, session_id, lease_s in sorted(sessions)
    ]
    run_each(connection, _RENEW.on(backend), rows)


def let_go(connection: AnyConnection, conversation_id: UUID, session_id: str | None = None) -> None:
    """Delete the lease of a session; without one, any session's."""
    backend = backend_of(connection)
    row = {"conversation_id": backend.from_id(conversation_id), "session_id": session_id}
    run_each(connection, _LET_GO.on(backend), [row])


LEASE_S = 30.0
"""The duration of a lease in seconds, unless it is renewed."""

_log = get_logger("eventstore")
_PATIENCE_MS = 1_000
_PARTS = 3


@dataclass(frozen=True, slots=True)
class _Kept:
    transactions: Transactions
    conversation_id: UUID
    session_id: str
    lease_s: float
    owner: weakref.ref[object]


class Keeper:
    """Renews leases while their owners live; one for the whole process."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child: its parent's conversations are not its own."""
        self._kept: dict[str, _Kept] = {}
        self._changed = threading.Condition()
        self._renewal = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(
        self,
        transactions: Transactions,
        conversation_id: UUID,
        session_id: str,
        lease_s: float,
        owner: object,
    ) -> None:
        """Renew a session's lease until `release`, or until ``owner`` is garbage-collected."""
        kept = _Kept(transactions, conversation_id, session_id, lease_s, weakref.ref(owner))
        with self._changed:
            self._kept[session_id] = kept
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renewing, name="eventstore-leases", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def release(self, session_id: str) -> None:
        """Stop renewing a lease and delete it; a failure is logged, and the lease expires.

        Uses its own transaction, which does not wait for the disk.
        """
        with self._changed:
            kept = self._kept.pop(session_id, None)
        if kept is not None:
            self._let_go(kept)

    def forget(self, transactions: Transactions) -> None:
        """Stop renewing the leases of a closed store; they expire.

        A renewal in progress finishes first and returns its connection.
        """
        with self._changed:
            for kept in list(self._kept.values()):
                if kept.transactions.engine.pool is transactions.engine.pool:
                    del self._kept[kept.session_id]
        with self._renewal:
            pass

    def is_dropped(self, session_id: str) -> bool:
        """Whether a session of this process was garbage-collected without being closed."""
        with self._changed:
            kept = self._kept.get(session_id)
        return kept is not None and kept.owner() is None

    def renew(self) -> None:
        """Renew all leases now, and end the leases of owners that are gone."""
        with self._changed:
            gone = [each.session_id for each in self._kept.values() if each.owner() is None]
            engines = {each.transactions.engine for each in self._kept.values()}
        for engine in engines:
            with self._renewal:
                with self._changed:
                    all_kept = list(self._kept.values())
                mine = [each for each in all_kept if each.transactions.engine is engine]
                if mine:
                    self._renew(mine[0].transactions, mine)
        with self._changed:
            for session_id in gone:
                self._kept.pop(session_id, None)

    def _renew(self, transactions: Transactions, kept: Iterable[_Kept]) -> None:
        # A dropped session may have left work open, so its lease expires but is not deleted.
        sessions = [
            (each.conversation_id, each.session_id, each.lease_s if each.owner() else 0.0)
            for each in kept
        ]
        try:
            with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
                renew(connection, sessions)
        except EventStoreError as error:
            _log.warning("leases not renewed", leases=len(sessions), why=str(error))

    def _let_go(self, kept: _Kept) -> None:
        try:
            with kept.transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
                let_go(connection, kept.conversation_id, kept.session_id)
        except EventStoreError as error:
            told = str(kept.conversation_id)
            _log.warning("lease not released", conversation_id=told, why=str(error))

    def _renewing(self) -> None:
        process, due = os.getpid(), 0.0
        while process == os.getpid():
            with self._changed:
                if not self._kept:
                    self._thread = None
                    return
                every = min(each.lease_s for each in self._kept.values()) / _PARTS
                due = due if due else time.monotonic() + every
                due = min(due, time.monotonic() + every)
                if (left := due - time.monotonic()) > 0:
                    self._changed.wait(left)
                    continue
            due = 0.0
            try:
                self.renew()
            except Exception:
                _log.warning("leases not renewed", exc_info=True)


KEEPER = Keeper()
"""This process's keeper."""

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=KEEPER.begin_anew)


def writer_of(connection: AnyConnection, conversation_id: UUID) -> Lease | None:
    """Return the lease of a conversation's writer, or None, in the caller's transaction."""
    lease = lease_of(connection, conversation_id)
    if lease is None or not KEEPER.is_dropped(lease.session_id):
        return lease
    return replace(lease, live=False)


def without_writer(connection: AnyConnection, conversation_ids: Collection[UUID]) -> set[UUID]:
    """Return those of these conversations whose writer has died and left them open."""
    leases = leases_of(connection, conversation_ids)
    return {
        each.conversation_id
        for each in leases
        if not each.live or KEEPER.is_dropped(each.session_id)
    }


def claim(
    transactions: Transactions,
    conversation_id: UUID,
    *,
    session_id: str | None = None,
    lease_s: float = LEASE_S,
    take_over: bool = False,
) -> int:
    """Fence all earlier writers unless one is alive, and return the new writer's epoch.

    One transaction. With ``session_id`` the new writer gets a lease, which `KEEPER` must renew.

    Raises:
        ConversationInUse: A writer is alive and ``take_over`` is false; nothing was changed.
        ConversationNotFound: No conversation has this id.
    """
    with transactions._on_driver(write=True) as connection:
        epoch = raise_writer_epoch(connection, conversation_id)
        held = writer_of(connection, conversation_id)
        if held is not None and held.live and not take_over:
            who = f"this {held.who}" if held.process == (identity() or None) else held.who
            raise ConversationInUse(conversation_id, who, held.since, held.expires_at)
        if session_id is not None:
            take(connection, conversation_id, session_id, lease_s)
        elif held is not None:
            let_go(connection, conversation_id)
    return epoch


def begin(
    transactions: Transactions, conversation_id: UUID, session_id: str, lease_s: float = LEASE_S
) -> None:
    """Take the lease of a conversation that has just started, unless another session opened it.

    Uses its own transaction; a failure is only logged, because nothing depends on the lease.
    """
    try:
        with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
            take(connection, conversation_id, session_id, lease_s, _TAKE_FREE)
    except EventStoreError as error:
        _log.warning("no lease taken", conversation_id=str(conversation_id), why=str(error))


def give_back(transactions: Transactions, conversation_id: UUID, session_id: str) -> None:
    """Delete the lease of a session that failed to open, in a separate transaction."""
    with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
        let_go(connection, conversation_id, session_id)
