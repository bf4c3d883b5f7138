"""Leases: which session writes to a conversation, and until when that is known; and their renewal.

A lease tells others that a writer lives; it protects nothing. Two writers are kept apart by the
writer's epoch alone, so that a lease which ran out too early costs a writer its session, and no
event. Times are the server's on PostgreSQL, and the machine's on SQLite, which has no other.

One thread renews the leases of this process's open conversations, each three times within its time,
in a transaction that need not wait for the disk. A conversation that was dropped without being
closed loses its lease at once for this process, and for others at the next round.
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
    """A session's word that it writes to a conversation.

    Attributes:
        conversation_id: The conversation.
        session_id: The session.
        process: What tells the process from all others of its machine; empty if nothing does.
        who: Process and machine, in words.
        since: When the session was opened.
        expires_at: Until when the word stands, unless it is renewed.
        live: Whether it stood when it was read, and the process was not known to have ended.
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
    """Return the lease of a conversation's writer; None if none was left, or none ever given."""
    return next(iter(leases_of(connection, (conversation_id,))), None)


def leases_of(connection: AnyConnection, conversation_ids: Collection[UUID]) -> list[Lease]:
    """Return the leases of these conversations' writers, in no order; none where there is none."""
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
    """Write this process's lease that stands for some seconds from now, in place of any other.

    With ``_TAKE_FREE`` another one stays.
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
    """Let leases stand for so many seconds from now; those of others stay as they are."""
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
    """Delete the lease of a session, or whosever it is."""
    backend = backend_of(connection)
    row = {"conversation_id": backend.from_id(conversation_id), "session_id": session_id}
    run_each(connection, _LET_GO.on(backend), [row])


LEASE_S = 30.0
"""How long a lease stands, in seconds, unless it is renewed."""

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
        """Keep nothing, as in a forked child: what its parent has opened is not its own."""
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
        """Renew a session's lease from now on, until `release` or until nobody has ``owner``."""
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
        """Renew a lease no more, and delete it; what fails is logged, and the lease runs out.

        A transaction of its own, which need not wait for the disk.
        """
        with self._changed:
            kept = self._kept.pop(session_id, None)
        if kept is not None:
            self._let_go(kept)

    def forget(self, transactions: Transactions) -> None:
        """Renew no lease of a database that is closed; they run out.

        A renewal that is under way comes to its end first, and gives its connection back.
        """
        with self._changed:
            for kept in list(self._kept.values()):
                if kept.transactions.engine.pool is transactions.engine.pool:
                    del self._kept[kept.session_id]
        with self._renewal:
            pass

    def is_dropped(self, session_id: str) -> bool:
        """Whether a session of this process was never closed, and nobody has it any more."""
        with self._changed:
            kept = self._kept.get(session_id)
        return kept is not None and kept.owner() is None

    def renew(self) -> None:
        """Renew all leases now, and end those whose owners are gone."""
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
        # Whoever was dropped may have left something open, so that their lease ends, and stays.
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
            _log.warning("lease not given back", conversation_id=told, why=str(error))

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
"""The one of this process."""

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=KEEPER.begin_anew)


def writer_of(connection: AnyConnection, conversation_id: UUID) -> Lease | None:
    """Return the lease of a conversation's writer, in the caller's transaction; None if none."""
    lease = lease_of(connection, conversation_id)
    if lease is None or not KEEPER.is_dropped(lease.session_id):
        return lease
    return replace(lease, live=False)


def without_writer(connection: AnyConnection, conversation_ids: Collection[UUID]) -> set[UUID]:
    """Return which of these conversations a writer has left open and does not live any more."""
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
    """Fence all earlier writers, unless one of them lives, and return the new one's epoch.

    One transaction. With ``session_id`` the new writer gets a lease, to be renewed by `KEEPER`.

    Raises:
        ConversationInUse: A writer lives, and is not to be taken over; nothing was changed.
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
    """Take the lease of a conversation that has just begun, unless somebody has opened it since.

    A transaction of its own; what fails is logged, as nothing depends on it.
    """
    try:
        with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
            take(connection, conversation_id, session_id, lease_s, _TAKE_FREE)
    except EventStoreError as error:
        _log.warning("no lease taken", conversation_id=str(conversation_id), why=str(error))


def give_back(transactions: Transactions, conversation_id: UUID, session_id: str) -> None:
    """Delete the lease of a session that did not come about, in a transaction of its own."""
    with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
        let_go(connection, conversation_id, session_id)
