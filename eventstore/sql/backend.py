"""The interface to the two databases: one `Backend` each, which hides the differences in SQL.

Appending, reading and folding use the driver's own cursor, because a SQLAlchemy connection and its
results cost more than the database itself. Their statements are written once, in PostgreSQL's
dialect with ``:name`` parameters; `Backend.sql` translates them for each driver. Statements that
cannot be shared are methods here, with their SQL in `eventstore.sql.sqlite` and
`eventstore.sql.postgresql`. SQLAlchemy provides engine, pool, URL, schema and the queries that are
not hot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypedDict, Unpack
from uuid import UUID

from sqlalchemy import Connection, Engine

from eventstore.security.sealing import OPTION, Keyring
from eventstore.sql.types import escape, unescape

__all__ = [
    "BACKENDS",
    "CHOSEN",
    "EVENT_COLUMNS",
    "READABLE_TIME",
    "STREAM_COLUMNS",
    "STREAM_PAYLOAD",
    "AnyConnection",
    "Backend",
    "Bound",
    "Columns",
    "DriverConnection",
    "FeedOrder",
    "Nodes",
    "Pooled",
    "Rows",
    "Statement",
    "TransactionOptions",
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
"""PostgreSQL's column types, by column name."""

Rows = Sequence[tuple[Any, ...]]
"""Rows of column values, in the driver's types."""


class TransactionOptions(TypedDict, total=False):
    """Options of a transaction on the driver's connection.

    Attributes:
        write: Hold SQLite's write lock from the start.
        durable: Whether the commit waits for the disk (the default); otherwise a power cut may undo
            the whole transaction.
        snapshot: Whether all queries see the database as of the first one.
        pipelined: Whether statements are sent to PostgreSQL together with the next one whose rows
            are fetched, or with the commit; errors surface there. Saves a round trip each.
        patience_ms: How long to wait for a lock, if shorter than the store's own limit.
    """

    write: bool
    durable: bool
    snapshot: bool
    pipelined: bool
    patience_ms: int | None


class Pooled(Protocol):
    """A store's connections as transactions use them, see `connection_cache.ConnectionCache`."""

    keys: Keyring | None
    turn: Any
    """Held by the thread that writes to SQLite."""
    here: Any
    """``inside`` holds this thread's open SQLite transactions."""
    speaks_for: Sequence[str]
    """The first statements of each transaction under row-level security, which name its owner."""

    @property
    def backend(self) -> Backend:
        """The backend of its connections."""

    @property
    def patience_ms(self) -> int:
        """How long its connections wait for a lock; 0 means no limit."""

    def take(self) -> Any:
        """Return a pooled connection."""

    def put_back(self, pooled: Any) -> None:
        """Keep a connection that has no transaction open, or return it to the pool."""


@dataclass(frozen=True, slots=True)
class FeedOrder:
    """The order in which the feed returns events, and its queries.

    Attributes:
        prefix: The prefix of a cursor.
        place: The columns of an event's place, which are the parameters of these queries.
        new_place: The SQL of those that an INSERT has to name.
        page: Events from a place on, with their place.
        end: The last place that is safe to pass, and the chain there.
        behind: Conversations after a place, with place, chain, and whether it is safe to pass.
        at: The place itself and its chain, if it holds an event.
        gained: Every conversation after a place.
        newest: A value that changes whenever the result of one of these queries may change.
        lag: How many committed events are not returned yet, and since when.
        holder: The transaction that holds them back.
        follows: Whether the database is a replica, which may lag behind.
    """

    prefix: str
    place: tuple[str, ...]
    new_place: Mapping[str, str]
    page: str
    end: str
    behind: str
    at: str
    gained: str
    newest: str
    lag: str
    holder: str
    follows: str


class Nodes(Protocol):
    """The servers that a store is spread over."""

    def members(self) -> Any:
        """Return a value that changes whenever a server is added or removed."""

    def borders(self) -> Sequence[tuple[int, int] | None]:
        """Ask every server for its epoch and the first transaction that may not have ended.

        None stands for a server that did not answer.
        """

    def holders(self) -> Sequence[tuple[Any, ...]]:
        """Return the rows of `FeedOrder.holder`, from every server that answers."""

    def select(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a query over all servers, each in a snapshot taken now.

        Those of several servers come in any order, and a limit may apply to each.
        """


class Backend(ABC):
    """A database and its driver: how values are bound, and the SQL specific to it."""

    name: str
    """SQLAlchemy's name for the database."""
    mark: str
    """The placeholder of a positional parameter."""
    locks_all: bool
    """Whether a writer locks the whole database instead of the streams that it writes to."""
    secures_rows: bool
    """Whether it can limit a login to one owner's rows: see `eventstore.sql.row_security`."""
    has_standbys: bool
    """Whether a server can stream to standbys."""
    is_distributed: bool = False
    """Whether rows are spread over servers: see `eventstore.sql.distributed`."""
    has_partitions: bool
    """Whether tables can be divided: see `eventstore.sql.partitions`."""
    for_update: str
    """The clause that locks the rows of a query."""
    json_object: str
    """The function that builds a JSON object from keys and values."""
    snapshot: Mapping[str, str]
    """SQLAlchemy execution options for a transaction that sees one state throughout."""
    table_exists: str
    """The query whether a table ``:name`` exists."""
    clock_s: str
    """The expression for the database's time in whole seconds since 1970."""
    analyse: Sequence[str]
    """Statements that update the planner's statistics of a bulk-loaded table."""
    encoding: str
    """The query for the database's text encoding."""
    lock_schema: Sequence[str]
    """The statements that lock the schema exclusively until the transaction ends."""
    keep_schema: str
    """The statement that locks the schema in shared mode until the transaction ends, or empty."""
    drop_beside: str
    """The statement that drops a table's companion: see `projections.engine.projection`."""
    fresh_s: float
    """How long a connection may be idle, in seconds, before it must be tested."""
    feed: FeedOrder
    from_id: Callable[[UUID], Any]
    to_id: Callable[[Any], UUID]
    from_time: Callable[[datetime], Any]
    to_time: Callable[[Any], datetime]
    from_digest: Callable[[bytes], Any]
    to_digest: Callable[[Any], bytes]
    array: Callable[[Sequence[Any]], Any]
    """Converts many values to one parameter, for ``= ANY(:name)``."""

    def is_silent(self, raw: Any) -> bool:
        """Whether an idle connection has received nothing: a server that stops says goodbye."""
        return True

    @abstractmethod
    def sql(self, statement: str) -> str:
        """Translate a PostgreSQL statement with ``:name`` parameters for the driver."""

    @abstractmethod
    def as_stored(self, column: str) -> str:
        """Return the SQL for a column's value, whatever it holds; for verification."""

    @abstractmethod
    def reading(self, connection: AnyConnection) -> Any:
        """Return a cursor for many rows, in the connection's transaction."""

    @abstractmethod
    def transaction(
        self, at_hand: Pooled, **options: Unpack[TransactionOptions]
    ) -> AbstractContextManager[DriverConnection]:
        """Return a context manager for a connection in a transaction, committed at its end."""

    @abstractmethod
    def settings(self, *, durable: bool, patience_ms: int | None, usual_ms: int) -> Sequence[str]:
        """Return the first statements of SQLAlchemy's writing transactions.

        ``usual_ms`` is how long connections wait for a lock without ``patience_ms``.
        """

    def set_local(self, values: Mapping[str, str]) -> Sequence[str]:
        """Return the statements that set PostgreSQL's settings for a transaction, from literals."""
        chosen = (f"set_config('{name}', {value}, true)" for name, value in values.items())
        return (f"SELECT {', '.join(chosen)}",)

    @abstractmethod
    def now(self, connection: AnyConnection) -> datetime:
        """Return the time shared by all users of the database; on SQLite, the machine's."""

    @abstractmethod
    def statement(
        self, at_hand: Pooled, *, patience_ms: int | None = None
    ) -> AbstractContextManager[DriverConnection]:
        """Return a durable `transaction` for a single statement that writes.

        On PostgreSQL the statement is its own transaction, which saves the round trips of BEGIN and
        COMMIT, and ``patience_ms`` only applies to SQLite.
        """

    @abstractmethod
    def advance(self, cur: Any, steps: Sequence[Any], *, wait: bool = True) -> None:
        """Write the steps whose streams are still at their known heads, in the transaction.

        All steps (`steps.AppendStep`) have the same time and different streams. Sets the
        positions of each step's events. On PostgreSQL a single step waits for its stream's lock,
        unless ``wait`` is false; of several steps, those with locked streams are skipped, so that
        the others do not wait.
        """

    def nodes(self, connection: AnyConnection) -> Nodes | None:
        """Return the servers that a distributed store is spread over; None for any other."""
        return None

    @abstractmethod
    def pin(self, connection: AnyConnection, conversation_id: UUID) -> None:
        """Keep a conversation on its server until the transaction ends.

        Call it before you lock rows of the conversation, which a transaction relies on later: if
        its shard moved in between, the lock would be on rows that nobody uses any more. No-op on a
        single server.
        """

    @abstractmethod
    def is_locked(self, cur: Any, conversation_id: UUID) -> bool:
        """Whether another transaction has locked a stream; if not, lock its row, without waiting.

        On SQLite no other transaction writes while the caller's does.
        """

    @abstractmethod
    def lock(
        self, connection: AnyConnection, table: str, keys: Sequence[str], *, exclusive: bool
    ) -> None:
        """Lock keys that a table's users agree on until the transaction ends; no-op on SQLite."""

    @abstractmethod
    def count_matching(self, cur: Any, places: Sequence[tuple[Any, int, bytes | None]]) -> int:
        """Return how many of these streams have an event of this version and chain."""

    @abstractmethod
    def insert(
        self, table: str, columns: Columns, rows: Rows, *, otherwise: str = "DO NOTHING"
    ) -> Bound:
        """Return the statement that inserts rows, in order, except those that already exist.

        Args:
            table: The table's name.
            columns: PostgreSQL's column types, by name.
            rows: Values in the driver's types, except digests, which are bytes.
            otherwise: What to do with existing rows, as SQL after ``ON CONFLICT``.
        """

    @abstractmethod
    def load(
        self, cur: Any, table: str, columns: Columns, rows: Rows, *, triggers: bool = False
    ) -> None:
        """Bulk-insert new rows, in the driver's types; for the arguments see `insert`.

        ``triggers`` says that the table has triggers, though they may ignore all of these rows.
        """

    @abstractmethod
    def query(
        self, engine: Engine, statement: str, *, limit: int, timeout_s: float
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns and first rows of one query, which must only read."""

    @abstractmethod
    def empty(self, connection: Connection, table: str) -> None:
        """Delete the rows and triggers of a table before it is dropped, if that is cheaper."""

    @abstractmethod
    def point_view(self, connection: Connection, name: str, query: str) -> None:
        """Point a view, whose name is already quoted, at a query."""

    @abstractmethod
    def fills(self, table: str, columns: Sequence[str], query: str) -> Sequence[str]:
        """Return the SQL of a trigger that sets columns of each ``new`` row from a query."""


READABLE_TIME = """CASE
    WHEN recorded_at >= '0001-01-01' AND recorded_at < '10000-01-01' THEN recorded_at END"""
"""An event's time on PostgreSQL; NULL if Python has no such time, since its driver would refuse the
whole page and not name the event. SQLite's times are texts, so there it is the column itself."""
_ERASED = """EXISTS (
        SELECT 1 FROM erased_versions WHERE erased_versions.conversation_id = {}
        AND events.version BETWEEN first_version AND last_version)"""


def _payload(stream: str, first: str = "") -> str:
    erased = f"{first}{_ERASED.format(stream)}"
    return f"CASE WHEN salt IS NULL OR ({erased}) THEN NULL ELSE data::text END"


def _columns(payload: str) -> str:
    return f"""position, conversation_id, version, event_id, type, schema_version,
    {READABLE_TIME} AS recorded_at, {payload} AS data, meta::text, data_digest, chain"""


# The first test is evaluated once a statement: without erasures, events cost nothing more.
STREAM_PAYLOAD = _payload(
    ":conversation_id",
    "EXISTS (SELECT 1 FROM erased_versions WHERE conversation_id = :conversation_id) AND ",
)
"""A payload in a query for the events of ``:conversation_id`` alone: NULL once it is erased, also
if someone has put another in its place."""
STREAM_COLUMNS = _columns(STREAM_PAYLOAD)
"""`EVENT_COLUMNS` in a query for the events of ``:conversation_id`` alone."""
EVENT_COLUMNS = _columns(_payload("events.conversation_id"))
"""The columns of an event row, in the order in which `eventstore.sql.read` decodes them."""

CHOSEN = "eventstore_backend"
"""The attribute of an engine's dialect with its backend, if that is not the one of its name."""

BACKENDS: dict[str, Backend] = {}
"""Backends by SQLAlchemy's name; `eventstore.sql.engines` registers all of them."""


def backend_named(name: str) -> Backend:
    """Return the backend with SQLAlchemy's name for it."""
    return BACKENDS[name]


def backend_of(connection: AnyConnection | Engine) -> Backend:
    """Return the backend of a connection or an engine.

    An engine that has connected to a distributed store has the backend for that.
    """
    if isinstance(connection, DriverConnection):
        return connection.backend
    dialect = connection.dialect
    found: Backend | None = getattr(dialect, CHOSEN, None)
    return BACKENDS[dialect.name] if found is None else found


class Statement:
    """A SQL statement with ``:name`` parameters, in PostgreSQL's dialect."""

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
        """Return the rows it finds in the connection's transaction, in the driver's types.

        Pass a `UUID`, or a list of ids or other values, as it is; all other values as stored.
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
    """A driver's connection in a transaction, without SQLAlchemy's wrapper."""

    raw: Any
    backend: Backend
    keys: Keyring | None = None


AnyConnection = Connection | DriverConnection
"""What the functions for appending and reading accept: a SQLAlchemy or a driver's connection."""


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
    """Return the rows of a query in the driver's SQL, within the connection's transaction."""
    run = cursor(connection)
    run.execute(sql, bound)
    rows: list[Any] = run.fetchall()
    run.close()
    return rows


def run_each(connection: AnyConnection, sql: str, rows: Sequence[Any]) -> int:
    """Run a statement with the parameters of each row; return how many rows it changed."""
    run = cursor(connection)
    if len(rows) == 1:  # `executemany` costs an extra round trip to PostgreSQL.
        run.execute(sql, rows[0])
    else:
        run.executemany(sql, rows)
    changed: int = run.rowcount
    run.close()
    return changed


def has_table(connection: AnyConnection, name: str) -> bool:
    """Whether a table exists: a replica's primary may not have created it."""
    [(found,)] = fetch(connection, backend_of(connection).table_exists, {"name": name})
    return bool(found)


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement and the parameters of each of its runs, in the driver's types."""

    sql: str
    rows: Sequence[Any]

    def run(self, connection: AnyConnection) -> int:
        """Run it in the caller's transaction; return how many rows it changed."""
        return run_each(connection, self.sql, self.rows)


def text_in(value: str | None) -> str | None:
    """Return an optional text as it is stored."""
    return None if value is None else escape(value)


def text_out(value: str | None) -> str | None:
    """Return an optional text as it was before `text_in`."""
    return None if value is None else unescape(value)
