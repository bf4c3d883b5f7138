"""Leases: which session writes to a conversation and until when; and the thread that renews them.

A lease tells others that a writer is alive; it protects nothing. Only the writer epoch keeps two
writers apart, so a lease that expires too early costs a writer its session, but no event. Times are
the server's on PostgreSQL and the machine's on SQLite.

One thread renews the leases of this process's open conversations, each three times within its
duration, in a transaction that does not wait for the disk; it also looks for sessions that were
dropped in a reference cycle. If a conversation is garbage-collected without being closed, or closed
while the database is unreachable, its lease ends at once for this process, and for others as soon
as the thread has ended it in the database.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.errors import ConversationInUse, EventStoreError
from eventstore.owners import Owner
from eventstore.processes import described, has_ended, identity
from eventstore.sql.backend import AnyConnection, Statement, backend_of, run_each
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import raise_writer_epoch
from eventstore.sql.transactions import Transactions
from eventstore.sql.types import escape, unescape
from eventstore.telemetry.log import get_logger

__all__ = [
    "ENDS_S",
    "KEEPER",
    "LEASE_S",
    "Keeper",
    "Lease",
    "begin",
    "claim",
    "give_back",
    "leases_of",
    "without_writer",
    "writer_of",
    "writers",
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

ENDS_S = 10.0
"""How long an opening waits for a session of this process that is being closed, in seconds."""

_log = get_logger("eventstore")
_PATIENCE_MS = 1_000
_PARTS = 3
_AGAIN_S = 0.5
_REMEMBERED_S = 60.0
_COLLECTED_S = 1.0
_SEARCHED_S = 60.0  # the longest time between two searches while sessions are idle
_SETTLES_S = 0.2  # how long a session that was collected needs to begin to end, in its event loop


@dataclass(slots=True)
class _LocalSession:
    """A session of this process, and what the keeper does about its lease.

    It is renewed until its session has ``ended``: then the lease must go. If the store was closed
    (``quiet``), the thread does neither, and the lease expires by itself. Until ``until`` the
    keeper knows whether the session is over, whatever the table says.
    """

    transactions: Transactions
    conversation_id: UUID
    session_id: str
    lease_s: float
    owner: weakref.ref[object]
    ended: bool = False
    quiet: bool = False
    until: float = 0.0
    unwritten: bool = False
    """Whether events of the ended session are not written: the lease expires but is not deleted,
    so that others see that work was left open."""
    leaves_until: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, or was dropped without being closed."""
        return self.ended or self.owner() is None


class Keeper:
    """Renews leases while their sessions live; one for the whole process.

    A session that has ended lets go of its lease, even if the database is unreachable at that
    moment: the next opening in this process takes over at once, and the thread deletes the lease
    as soon as the server answers.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as in a forked child: its parent's conversations are not its own."""
        self._sessions: dict[str, _LocalSession] = {}
        self._over: dict[str, float] = {}
        self._collected = -_COLLECTED_S
        self._search_at = math.inf
        self._search_every = self._search_least = _COLLECTED_S
        self._changed = threading.Condition()
        self._renewal = threading.Lock()
        self._thread: threading.Thread | None = None
        self._hurry = False

    def keep(
        self,
        transactions: Transactions,
        conversation_id: UUID,
        session_id: str,
        lease_s: float,
        owner: object,
    ) -> None:
        """Renew a session's lease until `release`, or until ``owner`` is garbage-collected."""
        watched = weakref.ref(owner, self._dropped)
        session = _LocalSession(transactions, conversation_id, session_id, lease_s, watched)
        with self._changed:
            self._sessions[session_id] = session
            self._search_every = self._search_least
            self._search_at = min(self._search_at, time.monotonic() + self._search_least)
            self._wake()

    def _wake(self) -> None:
        """Have the thread look again; call with the lock held."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._renewing, name="eventstore-leases", daemon=True
            )
            self._thread.start()
        self._changed.notify()

    def _dropped(self, _: object) -> None:
        """Have the lease of a garbage-collected session expire at once, for other processes too."""
        with self._changed:  # reentrant: a collection may begin at any point
            self._hurry = True
            self._changed.notify()

    def release(self, session_id: str, *, unwritten: bool = False) -> None:
        """End a session's lease: stop renewing it and delete it, or let it expire if ``unwritten``.

        Uses its own transaction, which does not wait for the disk. A failure is logged, and the
        thread tries again until the lease has expired by itself.
        """
        with self._changed:
            session = self._sessions.get(session_id)
            if session is None:
                return
            if not session.ended:
                session.until = time.monotonic() + session.lease_s
            session.ended, session.unwritten, session.leaves_until = True, unwritten, 0.0
            if unwritten:  # by the thread that renews, so that no renewal comes after it
                self._hurry = True
                self._wake()
                return
        let_go = self._let_go(session)
        with self._changed:
            if let_go:
                self._settled(session)
            else:
                self._wake()

    def _settled(self, session: _LocalSession) -> None:
        """Remember for a while that a session's lease was ended; call with the lock held.

        Whoever has just read the lease, before it was ended, must not take the session for alive.
        """
        now = time.monotonic()
        self._sessions.pop(session.session_id, None)
        self._over.pop(session.session_id, None)
        self._over[session.session_id] = now + _REMEMBERED_S
        while (oldest := next(iter(self._over))) and self._over[oldest] <= now:
            del self._over[oldest]

    def abandon(
        self, transactions: Transactions, conversation_id: UUID, session_id: str, lease_s: float
    ) -> None:
        """End the lease of a session that failed to open, if it has one; see `release`.

        It may have taken over work that another session left open, so its lease expires.
        """
        self.keep(transactions, conversation_id, session_id, lease_s, self)
        self.release(session_id, unwritten=True)

    def forget(self, transactions: Transactions) -> None:
        """Stop renewing the leases of a closed store; they expire.

        A renewal in progress finishes first and returns its connection.
        """
        with self._changed:
            for session in self._sessions.values():
                if session.transactions.engine.pool is transactions.engine.pool:
                    session.until = time.monotonic() + session.lease_s
                    session.quiet = True
        with self._renewal:
            pass

    def is_dropped(self, session_id: str) -> bool:
        """Whether a session of this process has ended, or was garbage-collected unclosed."""
        with self._changed:
            session = self._sessions.get(session_id)
            return session_id in self._over if session is None else session.is_over

    def leave(self, session_id: str, seconds: float) -> None:
        """Expect that a session ends within these seconds: openings wait for it that long."""
        with self._changed:
            session = self._sessions.get(session_id)
            if session is not None and not session.ended:
                session.leaves_until = time.monotonic() + seconds

    def extend(self, session_id: str, owner: object, seconds: float) -> None:
        """Renew a lease for as long as ``owner`` lives instead; see `leave` for the seconds.

        Does nothing if the lease has ended.
        """
        with self._changed:
            session = self._sessions.get(session_id)
            if session is not None and not session.ended:
                session.owner = weakref.ref(owner, self._dropped)
                session.leaves_until = time.monotonic() + seconds

    def is_leaving(self, session_id: str) -> bool:
        """Whether a session of this process is about to end; see `leave`."""
        with self._changed:
            session = self._sessions.get(session_id)
        return session is not None and session.leaves_until > time.monotonic()

    def collect(self, session_id: str) -> bool:
        """Collect garbage if a session is of this process; return whether it may end by that.

        A server that drops a generator when its client leaves often leaves it in a reference cycle
        with the exception of the cancellation: the session in it is over, but lives until the next
        collection, which an idle process may not make for minutes. At most once per second.
        """
        with self._changed:
            now = time.monotonic()
            if session_id not in self._sessions or now < self._collected + _COLLECTED_S:
                return session_id in self._sessions and now < self._collected + _SETTLES_S
            self._collected = now
        gc.collect()
        with self._changed:
            self._collected = time.monotonic()
        return True

    def _is_to_search(self) -> bool:
        """Whether it is time to `search`; call with the lock held."""
        return (
            time.monotonic() >= self._search_at
            and gc.isenabled()
            and any(not each.is_over for each in self._open())
        )

    def search(self) -> None:
        """Collect garbage, for the sake of other processes; see `collect`.

        Only this process can end a session that it has dropped in a reference cycle, and another
        one cannot ask it to. The thread does this while a session has work open: every second, but
        with at most one fiftieth of a processor; and while sessions are idle, less and less often.
        """
        before = time.thread_time()
        gc.collect()
        took = time.thread_time() - before
        with self._changed:
            working = any(
                not each.ended and getattr(each.owner(), "is_working", False)
                for each in self._sessions.values()
            )
            self._collected = time.monotonic()
            self._search_least = max(_COLLECTED_S, 50 * took)
            seldom = min(2 * self._search_every, _SEARCHED_S)
            self._search_every = max(self._search_least, 0.0 if working else seldom)
            self._search_at = self._collected + self._search_every

    def renew(self) -> None:
        """Renew all leases now, and end the leases of sessions that are over."""
        done: list[_LocalSession] = []
        with self._changed:
            self._hurry = False
            engines = {each.transactions.engine for each in self._open()}
        for engine in engines:
            with self._renewal:
                with self._changed:
                    mine = [each for each in self._open() if each.transactions.engine is engine]
                    over = [each for each in mine if each.is_over]
                if mine and self._renew(mine[0].transactions, mine, over):
                    done += over
        with self._changed:
            for each in done:
                self._settled(each)
            now = time.monotonic()
            for each in [*self._sessions.values()]:
                if each.is_over and not each.ended:  # its lease still has to be ended
                    each.ended, each.unwritten, each.until = True, True, now + each.lease_s
                if (each.ended or each.quiet) and each.until <= now:
                    self._settled(each)

    def _open(self) -> list[_LocalSession]:
        return [each for each in self._sessions.values() if not each.quiet]

    def _renew(
        self,
        transactions: Transactions,
        current: Sequence[_LocalSession],
        over: Sequence[_LocalSession],
    ) -> bool:
        # A dropped session may have left work open, so its lease expires but is not deleted.
        ended = {each.session_id for each in over}
        sessions = [
            (
                each.conversation_id,
                each.session_id,
                0.0 if each.session_id in ended else each.lease_s,
            )
            for each in current
        ]
        try:
            with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
                renew(connection, sessions)
                for each in over:
                    if each.ended and not each.unwritten:
                        let_go(connection, each.conversation_id, each.session_id)
        except EventStoreError as error:
            _log.warning("leases not renewed", leases=len(sessions), why=str(error))
            return False
        return True

    def _let_go(self, session: _LocalSession) -> bool:
        try:
            with session.transactions._driver_transaction(
                write=True, durable=False, patience_ms=_PATIENCE_MS
            ) as connection:
                let_go(connection, session.conversation_id, session.session_id)
        except EventStoreError as error:
            conversation_id = str(session.conversation_id)
            _log.warning("lease not released", conversation_id=conversation_id, why=str(error))
            return False
        return True

    def _renewing(self) -> None:
        process, due = os.getpid(), 0.0
        while process == os.getpid():
            with self._changed:
                if not self._sessions:
                    self._thread = None
                    return
                every = min(each.lease_s for each in self._sessions.values()) / _PARTS
                if any(each.is_over and not each.quiet for each in self._sessions.values()):
                    every = min(every, _AGAIN_S)
                due = due if due else time.monotonic() + every
                due = min(due, time.monotonic() + every)
                left = due - time.monotonic()
                search = self._is_to_search()
                if not self._hurry and not search and left > 0:
                    self._changed.wait(min(left, _COLLECTED_S))
                    continue
            if search:
                self.search()
                continue
            due = 0.0
            try:
                self.renew()
            except Exception:
                _log.warning("leases not renewed", exc_info=True)


KEEPER = Keeper()
"""This process's keeper."""

if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=KEEPER.reset)


def writer_of(connection: AnyConnection, conversation_id: UUID) -> Lease | None:
    """Return the lease of a conversation's writer, or None, in the caller's transaction."""
    lease = lease_of(connection, conversation_id)
    return None if lease is None else _unless_dropped(lease)


def _unless_dropped(lease: Lease) -> Lease:
    """Return a lease, which is not live if its session was dropped in this process."""
    return replace(lease, live=False) if KEEPER.is_dropped(lease.session_id) else lease


def writers(connection: Connection, owner: Owner, limit: int) -> list[Lease]:
    """Return the leases of an owner's conversations, those opened last first."""
    dialect = connection.dialect.name
    leases = metadata_for(dialect).tables["writer_leases"].c
    query = owner.limit_by_id(select(leases.conversation_id), leases.conversation_id, dialect)
    query = query.order_by(leases.since.desc(), leases.conversation_id).limit(limit)
    found = leases_of(connection, connection.execute(query).scalars().all())
    found.sort(key=lambda lease: (lease.since, lease.conversation_id.int), reverse=True)
    return [_unless_dropped(each) for each in found]


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

    One transaction, which may be repeated. With ``session_id`` the new writer gets a lease, which
    `KEEPER` must renew.

    Raises:
        ConversationInUse: A writer is alive and ``take_over`` is false; nothing was changed.
        ConversationNotFound: No conversation has this id.
    """
    with transactions._driver_transaction(write=True) as connection:
        epoch = raise_writer_epoch(connection, conversation_id)
        lease = writer_of(connection, conversation_id)
        own = lease is not None and lease.session_id == session_id  # an earlier attempt, committed
        if lease is not None and lease.live and not own and not take_over:
            leaves = KEEPER.is_leaving(lease.session_id)
            who = f"this {lease.who}" if lease.process == (identity() or None) else lease.who
            raise ConversationInUse(
                conversation_id,
                who,
                lease.since,
                lease.expires_at,
                session_id=lease.session_id,
                leaving=leaves,
            )
        if session_id is not None:
            take(connection, conversation_id, session_id, lease_s)
        elif lease is not None:
            let_go(connection, conversation_id)
    return epoch


def begin(
    transactions: Transactions, conversation_id: UUID, session_id: str, lease_s: float = LEASE_S
) -> None:
    """Take the lease of a conversation that has just started, unless another session opened it.

    Uses its own transaction; a failure is only logged, because nothing depends on the lease.
    """
    try:
        with transactions._driver_transaction(
            write=True, durable=False, patience_ms=_PATIENCE_MS
        ) as connection:
            take(connection, conversation_id, session_id, lease_s, _TAKE_FREE)
    except EventStoreError as error:
        _log.warning("no lease taken", conversation_id=str(conversation_id), why=str(error))


def give_back(transactions: Transactions, conversation_id: UUID, session_id: str) -> None:
    """Delete the lease of a session that failed to open, in a separate transaction."""
    with transactions.writing(durable=False, patience_ms=_PATIENCE_MS) as connection:
        let_go(connection, conversation_id, session_id)
