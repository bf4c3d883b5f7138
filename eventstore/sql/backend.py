"""What the two databases are to this project: one `Backend` each, behind which their SQL differs.

Appending, reading and folding talk to the driver's own cursor, because a SQLAlchemy connection and
its results cost more than the database does. Their statements are written once, as PostgreSQL takes
them, with ``:name`` parameters; `Backend.sql` makes each what its database understands. What cannot
be said once is a method here, with its SQL in `eventstore.sql.sqlite` and
`eventstore.sql.postgresql`. Engine, pool, URL, schema and queries that are not hot are
SQLAlchemy's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack
from uuid import UUID

from sqlalchemy import Connection

from eventstore.sealing import OPTION, Keyring
from eventstore.sql.types import escape, unescape

__all__ = [
    "BACKENDS",
    "EVENT_COLUMNS",
    "AnyConnection",
    "Asked",
    "Backend",
    "Bound",
    "Columns",
    "DriverConnection",
    "FeedOrder",
    "Pooled",
    "Rows",
    "Statement",
    "backend_named",
    "backend_of",
    "cursor",
    "has_table",
    "keys_of",
    "raw_of",
    "run_each",
    "text_in",
    "text_out",
]


Columns = Mapping[str, str]
"""PostgreSQL's types of columns, by their names."""

Rows = Sequence[tuple[Any, ...]]
"""Values of columns, as the driver takes them."""


class Asked(TypedDict, total=False):
    """What a transaction on the driver's connection is to be like.

    Attributes:
        write: Hold SQLite's write lock from the first moment.
        durable: Whether the commit waits for the disk, as by default; without, a power cut may undo
            it as a whole.
        snapshot: Whether all queries see the database as it was at the first.
        pipelined: Whether PostgreSQL is sent a statement together with the next one whose rows are
            fetched, or with the commit; it fails there. Saves a round trip for each.
        patience_ms: How long to wait for a lock at most, if less long than the store does.
    """

    write: bool
    durable: bool
    snapshot: bool
    pipelined: bool
    patience_ms: int | None


class Pooled(Protocol):
    """A store's connections, as a transaction needs them: `eventstore.sql.at_hand.AtHand`."""

    backend: Backend
    keys: Keyring | None
    turn: Any
    """Held by the thread that writes to SQLite."""
    here: Any
    """``inside`` has the transactions that this thread is in, on SQLite."""
    speaks_for: bytes | None
    """What each transaction says first on PostgreSQL: whose rows it is to be shown."""

    def take(self) -> Any:
        """Return a pooled connection."""

    def put_back(self, pooled: Any) -> None:
        """Keep a connection that has no transaction open, or return it to the pool."""


@dataclass(frozen=True, slots=True)
class FeedOrder:
    """The order in which the feed hands out events, and the queries that go by it.

    Attributes:
        prefix: What a cursor begins with.
        place: The columns of an event's place, which are the parameters of these queries.
        page: Events from a place on, with their place.
        end: The place after which nothing is safe to pass, and the chain there.
        behind: Conversations after a place, with place, chain, and whether that is safe to pass.
        at: The place itself and its chain, if an event stands there.
        gained: Every conversation after a place.
        newest: Something that changes whenever one of these might answer otherwise.
        lag: How many committed events are not handed out yet, and since when.
        holder: The transaction that they wait for.
        follows: Whether the database follows another one, and may not have come so far.
    """

    prefix: str
    place: tuple[str, ...]
    page: str
    end: str
    behind: str
    at: str
    gained: str
    newest: str
    lag: str
    holder: str
    follows: str


class Backend(ABC):
    """A database and its driver: how values are bound, and the SQL that is its own."""

    name: str
    """SQLAlchemy's name for it."""
    mark: str
    """What stands for a parameter without a name."""
    locks_all: bool
    """Whether a writer locks the whole database, and not only the streams that it writes to."""
    secures_rows: bool
    """Whether it can show a login one owner's rows alone: see `eventstore.sql.row_security`."""
    for_update: str
    """What locks the rows that a query finds."""
    json_object: str
    """The function that makes a JSON object of keys and values."""
    snapshot: Mapping[str, str]
    """Execution options of SQLAlchemy's with which a transaction sees one state throughout."""
    table_exists: str
    """The query that says whether there is a table ``:name``."""
    analyse: Sequence[str]
    """What tells the planner of a table that was filled at once."""
    encoding: str
    """The query that says how the database keeps text."""
    lock_schema: str
    """What keeps others from changing the schema until the transaction ends; empty for nothing."""
    keep_schema: str
    """What keeps others from changing it, and lets them do the same; empty for nothing."""
    drop_beside: str
    """What drops that which stands beside a table: see `projections.engine.projection`."""
    fresh_s: float
    """How long a connection may rest, in seconds, without being tested before it is used again."""
    feed: FeedOrder
    from_id: Callable[[UUID], Any]
    to_id: Callable[[Any], UUID]
    from_time: Callable[[datetime], Any]
    to_time: Callable[[Any], datetime]
    from_digest: Callable[[bytes], Any]
    to_digest: Callable[[Any], bytes]
    array: Callable[[Sequence[Any]], Any]
    """How a statement gets many values as one parameter, for ``= ANY(:name)``."""

    @abstractmethod
    def sql(self, statement: str) -> str:
        """Return a statement of PostgreSQL's with ``:name`` parameters as the driver takes it."""

    @abstractmethod
    def as_stored(self, column: str) -> str:
        """Return the SQL of a column's value, whatever was put into it; for a verification."""

    @abstractmethod
    def reading(self, connection: AnyConnection) -> Any:
        """Return a cursor for many rows, in the connection's transaction."""

    @abstractmethod
    def transaction(
        self, at_hand: Pooled, **asked: Unpack[Asked]
    ) -> AbstractContextManager[DriverConnection]:
        """Return a context manager: a connection in a transaction, committed at the block's end."""

    @abstractmethod
    def settings(self, *, durable: bool, patience_ms: int | None) -> str:
        """Return the statement with which SQLAlchemy's transactions begin; empty for none."""

    @abstractmethod
    def now(self, connection: AnyConnection) -> datetime:
        """Return the time of all that share the database; on SQLite that is the machine's."""

    @abstractmethod
    def statement(
        self, at_hand: Pooled, *, patience_ms: int | None = None
    ) -> AbstractContextManager[DriverConnection]:
        """Return a durable `transaction` for a single statement that writes.

        On PostgreSQL it is its own transaction, which saves the round trips of BEGIN and COMMIT;
        then ``patience_ms`` is for SQLite alone.
        """

    @abstractmethod
    def advance(self, cur: Any, steps: Sequence[Any], *, wait: bool = True) -> None:
        """Write the steps whose streams are still at their known heads, in the transaction.

        All steps (`eventstore.sql.steps.Step`) are of one time and of different streams. Each
        learns the positions of its events. On PostgreSQL a single step waits for whoever has locked
        its stream, unless told not to; of many, those whose streams are locked are not taken, so
        that the others do not wait for them.
        """

    @abstractmethod
    def is_locked(self, cur: Any, conversation_id: UUID) -> bool:
        """Whether somebody else writes to a stream now; if not, its row is locked, without waiting.

        On SQLite nobody else writes while the caller's transaction does.
        """

    @abstractmethod
    def lock(
        self, connection: AnyConnection, table: str, keys: Sequence[str], *, exclusive: bool
    ) -> None:
        """Lock keys that a table's users agree on, until the transaction ends; none on SQLite."""

    @abstractmethod
    def count_standing(self, cur: Any, places: Sequence[tuple[Any, int, bytes | None]]) -> int:
        """Return how many of these streams have an event of this version and chain."""

    @abstractmethod
    def insert(
        self, table: str, columns: Columns, rows: Rows, *, otherwise: str = "DO NOTHING"
    ) -> Bound:
        """Return the statement that inserts those of many rows that are not there yet, in order.

        Args:
            table: Its name.
            columns: PostgreSQL's type of each, by name.
            rows: Values as the driver takes them, but for digests, which are bytes.
            otherwise: What becomes of those that are there, as SQL after ``ON CONFLICT``.
        """

    @abstractmethod
    def load(
        self, cur: Any, table: str, columns: Columns, rows: Rows, *, triggers: bool = False
    ) -> None:
        """Insert many new rows at once, as the driver takes them; arguments as of `insert`.

        ``triggers`` tells that the table has some, which may pass all of these rows over.
        """

    @abstractmethod
    def empty(self, connection: Connection, table: str) -> None:
        """Delete the rows and triggers of a table that is to be dropped, if that is cheaper so."""

    @abstractmethod
    def point_view(self, connection: Connection, name: str, query: str) -> None:
        """Make a view, whose name is quoted, show a query from now on."""

    @abstractmethod
    def fills(self, table: str, columns: Sequence[str], query: str) -> Sequence[str]:
        """Return the SQL of a trigger that sets columns of each ``new`` row to a query's."""


EVENT_COLUMNS = """position, conversation_id, version, event_id, type, schema_version, recorded_at,
    data::text, meta::text, data_digest, chain"""
"""The columns of an event row, in the order in which `eventstore.sql.read` decodes them."""

BACKENDS: dict[str, Backend] = {}
"""By SQLAlchemy's name; `eventstore.sql.engines` enters all that there are."""


def backend_named(name: str) -> Backend:
    """Return the backend of SQLAlchemy's name for it."""
    return BACKENDS[name]


def backend_of(connection: AnyConnection) -> Backend:
    """Return the backend of a connection."""
    if isinstance(connection, DriverConnection):
        return connection.backend
    return BACKENDS[connection.dialect.name]


class Statement:
    """A SQL statement with ``:name`` parameters, as PostgreSQL takes it."""

    __slots__ = ("_by_backend", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._by_backend: dict[Backend, str] = {}

    def on(self, backend: Backend) -> str:
        """Return the text for a database's driver."""
        found = self._by_backend.get(backend)
        if found is None:
            found = self._by_backend[backend] = backend.sql(self._text)
        return found

    def rows(self, connection: AnyConnection, **values: Any) -> list[Any]:
        """Return what it finds in the connection's transaction, as the driver gives it.

        A `UUID` or a list, of ids or other values, is handed in as it is; all else as it is stored.
        """
        backend = backend_of(connection)
        bound = {name: _bound(backend, value) for name, value in values.items()}
        return fetch(connection, self.on(backend), bound)


def _bound(backend: Backend, value: Any) -> Any:
    if isinstance(value, list):
        return backend.array([_bound(backend, each) for each in value])
    return backend.from_id(value) if isinstance(value, UUID) else value


@dataclass(frozen=True, slots=True)
class DriverConnection:
    """A driver's connection in a transaction, without SQLAlchemy's own around it."""

    raw: Any
    backend: Backend
    keys: Keyring | None = None


AnyConnection = Connection | DriverConnection
"""What the functions of appending and reading take: a caller's connection, or the fast one."""


def keys_of(connection: AnyConnection) -> Keyring | None:
    """Return the keyring of the store that a connection belongs to, if it has one."""
    if isinstance(connection, DriverConnection):
        return connection.keys
    found: Keyring | None = connection.get_execution_options().get(OPTION)
    return found


def raw_of(connection: AnyConnection) -> Any:
    """Return the driver's connection."""
    return connection.raw if isinstance(connection, DriverConnection) else connection.connection


def cursor(connection: AnyConnection) -> Any:
    """Return a cursor of the driver itself, within the connection's transaction."""
    return raw_of(connection).cursor()


def fetch(connection: AnyConnection, sql: str, bound: Any = ()) -> list[Any]:
    """Return the rows of a query in the driver's own SQL, within the connection's transaction."""
    run = cursor(connection)
    run.execute(sql, bound)
    rows: list[Any] = run.fetchall()
    run.close()
    return rows


def run_each(connection: AnyConnection, sql: str, rows: Sequence[Any]) -> int:
    """Run a statement with each of these rows' parameters; return how many rows it has changed."""
    run = cursor(connection)
    if len(rows) == 1:  # Many cost PostgreSQL's driver a round trip more.
        run.execute(sql, rows[0])
    else:
        run.executemany(sql, rows)
    changed: int = run.rowcount
    run.close()
    return changed


def has_table(connection: AnyConnection, name: str) -> bool:
    """Whether a table exists: a replica may follow a primary that has not made it."""
    [(found,)] = fetch(connection, backend_of(connection).table_exists, {"name": name})
    return bool(found)


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement, and its parameters for each time that it is to run, as the driver takes them."""

    sql: str
    rows: Sequence[Any]

    def run(self, connection: AnyConnection) -> int:
        """Run it, in the caller's transaction; return how many rows it has changed."""
        return run_each(connection, self.sql, self.rows)


def text_in(value: str | None) -> str | None:
    """Return an optional text as it is stored."""
    return None if value is None else escape(value)


def text_out(value: str | None) -> str | None:
    """Return an optional text as it was given."""
    return None if value is None else unescape(value)
