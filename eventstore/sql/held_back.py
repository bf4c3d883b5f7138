"""What the feed does not hand out yet, and whose transaction it waits for.

On PostgreSQL an event is handed out once every transaction that began before its own has ended (see
`eventstore.sql.feed`), so that one transaction left open holds back the feed of the whole server.
Here it is found and named. On SQLite nothing is ever held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from eventstore.sql.dialect import AnyConnection, cursor, dialect_of

__all__ = ["HeldBack", "Holder", "held_back"]

_EVENTS = """
    SELECT count(*), min(recorded_at) FROM events
    WHERE epoch = (SELECT max(epoch) FROM store_epochs)
        AND tx_id >= pg_snapshot_xmin(pg_current_snapshot())
"""
# The statement that a session runs is left out: it may quote a payload.
_HOLDER = """
    SELECT pid, application_name, usename, datname, state, xact_start, NULL
    FROM pg_stat_activity WHERE backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid
    UNION ALL
    SELECT NULL, NULL, owner, database, 'prepared', prepared, gid
    FROM pg_prepared_xacts WHERE transaction = pg_snapshot_xmin(pg_current_snapshot())::xid
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """The oldest transaction that has written and not ended, and the session that it belongs to.

    A prepared transaction (``prepared`` is its name) has no session. ``seconds`` is its age.
    """

    pid: int | None
    application_name: str | None
    user: str | None
    database: str | None
    state: str | None
    seconds: float
    prepared: str | None

    @property
    def said(self) -> str:
        """The holder in words."""
        who = f"process {self.pid}" if self.pid else f"the prepared transaction {self.prepared!r}"
        facts = (
            self.application_name,
            self.state if self.pid else None,
            f"user {self.user}",
            f"database {self.database}",
        )
        return f"{who} ({', '.join(fact for fact in facts if fact)}), for {self.seconds:,.1f} s"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Committed events that the feed does not hand out yet.

    ``seconds`` is how long ago the oldest of them was recorded. ``holder`` is also known while it
    holds no event back; it is None if there is none, or if the login may not see other sessions.
    """

    events: int
    seconds: float
    holder: Holder | None

    @property
    def said(self) -> str:
        """What is held back and by whom, in words."""
        if not self.events:
            return "every committed event is handed out"
        by = self.holder.said if self.holder else "a session that this login may not look at"
        events = "1 event" if self.events == 1 else f"{self.events:,} events"
        return f"{events} held back, the oldest for {self.seconds:,.1f} s, by {by}"


def held_back(connection: AnyConnection) -> HeldBack:
    """Return what the feed holds back now, in the caller's transaction."""
    if dialect_of(connection).is_sqlite:
        return HeldBack(0, 0.0, None)
    now, run = datetime.now(UTC), cursor(connection)
    [(events, oldest)] = run.execute(_EVENTS).fetchall()
    found = run.execute(_HOLDER).fetchone()
    run.close()
    holder = None
    if found is not None:
        pid, application, user, database, state, began, prepared = found
        holder = Holder(pid, application, user, database, state, _seconds(began, now), prepared)
    return HeldBack(events, _seconds(oldest, now), holder)


def _seconds(since: datetime | None, now: datetime) -> float:
    return max(0.0, round((now - since).total_seconds(), 3)) if since else 0.0
