"""PostgreSQL: its SQL, its values and its transactions (see `eventstore.sql.postgresql`)."""

from __future__ import annotations

import re
import select
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from datetime import UTC, datetime
from itertools import chain as concatenated
from types import MappingProxyType
from typing import Any, Unpack
from uuid import UUID

import psycopg
from psycopg import IsolationLevel, Pipeline
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import ProgrammingError

from eventstore.errors import ErrorType, Traceback
from eventstore.sql.backend import (
    EVENT_COLUMNS,
    READABLE_TIME,
    AnyConnection,
    Backend,
    Bound,
    Columns,
    DriverConnection,
    FeedOrder,
    Pooled,
    Rows,
    TransactionOptions,
    cursor,
    raw_of,
    run_each,
)
from eventstore.sql.sessions import BRIEF
from eventstore.sql.steps import AppendStep

__all__ = ["EACH", "PIPELINES", "POSTGRESQL", "OnPostgresql", "settings"]


EACH = "eventstore_each_transaction"


"""Key in a connection's ``info``: the first statement of each transaction, behind a pooler."""


PIPELINES = Pipeline.is_supported()


"""Whether the driver's library can send several statements at once."""


class OnPostgresql:
    """A transaction on PostgreSQL, whose driver begins it with the first statement."""

    __slots__ = (
        "_at_hand",
        "_autocommit",
        "_before",
        "_isolation",
        "_pipeline",
        "_pipelined",
        "_pooled",
        "_settings",
    )

    def __init__(
        self,
        at_hand: Pooled,
        *,
        isolation: IsolationLevel | None = None,
        pipelined: bool = False,
        settings: Sequence[str] = (),
        autocommit: bool = False,
    ) -> None:
        self._at_hand = at_hand
        self._isolation = isolation
        self._pipelined = pipelined
        self._settings = settings
        self._autocommit = autocommit
        self._before: IsolationLevel | None = None
        self._pipeline: AbstractContextManager[Pipeline] | None = None
        self._pooled: Any = None

    def __enter__(self) -> DriverConnection:
        """Take a connection, and apply the settings of this transaction."""
        try:
            return self._begin()
        except BaseException:
            self._give_up()
            raise

    def _begin(self) -> DriverConnection:
        self._pooled = self._at_hand.take()
        raw: psycopg.Connection[Any] = self._pooled.dbapi_connection
        if self._isolation is not None:
            self._before = raw.isolation_level
            raw.isolation_level = self._isolation
        first = self._pooled.info.get(EACH)
        if first is not None:
            # The settings need a transaction, and a pooler may not support pipelines.
            self._autocommit = self._pipelined = False
            raw.execute(first)
        own = self._at_hand.speaks_for
        if own:
            self._pipelined = self._pipelined or (self._autocommit and PIPELINES and first is None)
            self._autocommit = False
        if self._pipelined:
            pipeline = raw.pipeline()
            pipeline.__enter__()  # Python exits it if the next line is not reached.
            self._pipeline = pipeline
        for each in (*own, *self._settings):
            raw.execute(each)
        if self._autocommit:
            raw.autocommit = True
        return DriverConnection(raw, self._at_hand.backend, self._at_hand.keys)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Commit, or roll back on an error."""
        if error is not None:
            self._give_up()
            return
        try:
            self._pooled.dbapi_connection.commit()
            self._end_pipeline()
            self._as_it_was(self._pooled.dbapi_connection)
        except BaseException:
            self._give_up()
            raise
        pooled, self._pooled = self._pooled, None
        self._at_hand.put_back(pooled)

    def _end_pipeline(self) -> None:
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            pipeline.__exit__(None, None, None)

    def _as_it_was(self, raw: psycopg.Connection[Any]) -> None:
        if self._isolation is not None:
            raw.rollback()
            raw.isolation_level = self._before
        if self._autocommit:
            raw.autocommit = False

    def _give_up(self) -> None:
        """Return the connection to the pool, which rolls back; discard a broken one."""
        pooled = self._pooled
        if pooled is None:
            return
        with suppress(psycopg.Error):  # The failure is already known.
            self._end_pipeline()
        self._pooled = None
        raw = pooled.dbapi_connection
        with suppress(psycopg.Error):  # If the connection was lost, it is closed.
            self._as_it_was(raw)
        if raw.closed:
            pooled.invalidate()
        pooled.close()


def settings(
    *, durable: bool = True, patience_ms: int | None = None, brief: bool = False
) -> Sequence[str]:
    """Return the statement that applies these settings on PostgreSQL; none if none is needed.

    A ``brief`` transaction only runs statements; the server ends it early if its process stops.
    """
    chosen = [] if durable else ["set_config('synchronous_commit', 'off', true)"]
    if brief:
        chosen.append(BRIEF)
    if patience_ms is not None:
        chosen.append(f"set_config('lock_timeout', '{patience_ms}', true)")
    return (f"SELECT {', '.join(chosen)}",) if chosen else ()


def _sql(statement: str) -> str:
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", statement.replace("%", "%%"))


# The events' place in the feed. `tx_id` never decreases within a stream: a transaction that began
# first may lock the stream last, and the feed would return its events before those they follow.
# `+ 0` rules out the feed's index: on a new table the planner rates it as good as the primary key,
# and would scan all events at every append until the server has analysed the table.
_FEED_PLACE = """
    (SELECT max(epoch) FROM store_epochs) AS epoch,
    GREATEST(pg_current_xact_id(), (
        SELECT last.tx_id FROM events AS last
        WHERE last.conversation_id = stream.conversation_id AND last.version = {known_version}
        AND last.epoch + 0 = (SELECT max(epoch) FROM store_epochs))) AS tx_id
    """


_MOVE_ONE = f"""
    WITH moved AS (
        UPDATE conversations AS stream
        SET version = :version, chain = :heads, last_active_at = :now
        WHERE conversation_id = :stream AND version = :known_version AND chain = :known_heads
            AND writer_epoch = :known_epoch
        RETURNING 1 AS step, conversation_id, {_FEED_PLACE.format(known_version=":known_version")}
    )
    """  # noqa: S608 - built from constants of this module


# Nothing waits here, so two groups cannot wait for each other.
_MOVE_MANY = f"""
    WITH given AS (
        SELECT * FROM unnest(
            (:stream)::uuid[], (:version)::bigint[], (:known_version)::bigint[],
            (:known_epoch)::bigint[]
        ) WITH ORDINALITY AS given (conversation_id, version, known_version, known_epoch, step)
    ), locked AS (
        SELECT conversation_id FROM conversations JOIN given USING (conversation_id)
        FOR UPDATE OF conversations SKIP LOCKED
    ), moved AS (
        UPDATE conversations AS stream
        SET version = given.version, chain = substr(:heads, given.step::int * 32 - 31, 32),
            last_active_at = :now
        FROM given JOIN locked USING (conversation_id)
        WHERE stream.conversation_id = given.conversation_id
            AND stream.version = given.known_version
            AND stream.chain = substr(:known_heads, given.step::int * 32 - 31, 32)
            AND stream.writer_epoch = given.known_epoch
        RETURNING given.step, stream.conversation_id,
            {_FEED_PLACE.format(known_version="given.known_version")}
    )
    """  # noqa: S608 - built from constants of this module


# JSON contains no raw control characters, so U+001E can separate texts. The order of insertion is
# the order of positions, and so the order of the feed within a transaction.
_INSERT = """
    INSERT INTO events (conversation_id, version, event_id, type, schema_version, recorded_at,
        data, meta, salt, data_digest, chain, epoch, tx_id)
    SELECT moved.conversation_id, given.version, given.event_id, given.type,
        given.schema_version, :now, given.data::json, given.meta::json,
        substr(:salts, given.n::int * 16 - 15, 16), substr(:digests, given.n::int * 32 - 31, 32),
        substr(:chains, given.n::int * 32 - 31, 32), moved.epoch, moved.tx_id
    FROM unnest(
        (:steps)::int[], (:versions)::bigint[], (:ids)::uuid[], (:types)::text[],
        (:schema_versions)::int[], string_to_array(:data, chr(30)), string_to_array(:meta, chr(30))
    ) WITH ORDINALITY AS given (step, version, event_id, type, schema_version, data, meta, n)
    JOIN moved USING (step)
    ORDER BY given.n
    RETURNING conversation_id::text, position
    """


_POSTGRESQL_ONE = _sql(_MOVE_ONE + _INSERT)


_POSTGRESQL_MANY = _sql(_MOVE_MANY + _INSERT)


_TAKE_LOCK = _sql(
    """
    WITH taken AS (
        SELECT 1 FROM conversations WHERE conversation_id = :conversation_id
        FOR UPDATE SKIP LOCKED
    )
    SELECT NOT EXISTS (SELECT FROM taken)
        AND EXISTS (SELECT FROM conversations WHERE conversation_id = :conversation_id)
    """
)


# Keyed by the version table's OID, so that stores in two schemas do not wait for each other.
_SCHEMA = """hashtextextended('eventstore', coalesce(to_regclass('eventstore_version')::oid::bigint,
    hashtext(current_setting('search_path'))))"""


_MATCHING = """
    SELECT count(*) FROM unnest(%s::uuid[], %s::bigint[], %s::bytea[])
        AS wanted (stream, place, mark)
    JOIN events ON conversation_id = stream AND version = place AND chain = mark
    """


# All transactions of older epochs have ended; in the current epoch, xmin is the limit.
_SAFE = """
    (epoch < (SELECT max(epoch) FROM store_epochs)
     OR tx_id < pg_snapshot_xmin(pg_current_snapshot()))
"""


_PLACE = "(epoch, tx_id, position)"


_CURSOR = "(:epoch, (:tx_id)::text::xid8, :position)"


# Plain `ORDER BY tx_id` would sort by the selected text, in which 10 comes before 9.
_UP, _DOWN = (f"epoch {order}, events.tx_id {order}, position {order}" for order in ("ASC", "DESC"))


_FEED = FeedOrder(
    prefix="p2",
    place=("epoch", "tx_id", "position"),
    new_place=MappingProxyType(
        {"epoch": "(SELECT max(epoch) FROM store_epochs)", "tx_id": "pg_current_xact_id()"}
    ),
    page=_sql(
        f"SELECT {EVENT_COLUMNS}, epoch, tx_id::text, position FROM events "  # noqa: S608 - constants
        f"WHERE {_PLACE} >= {_CURSOR} AND {_SAFE} ORDER BY {_UP} LIMIT :page_size"
    ),
    end=f"SELECT epoch, tx_id::text, position, chain FROM events WHERE {_SAFE} "  # noqa: S608 - as above
    f"ORDER BY {_DOWN} LIMIT 1",
    # Includes events that are not yet safe to pass: their conversations are behind too.
    behind=_sql(
        f"SELECT conversation_id, epoch, tx_id::text, position, chain, {_SAFE} FROM events "  # noqa: S608 - as above
        f"WHERE {_PLACE} > {_CURSOR} ORDER BY {_UP} LIMIT :page_size"
    ),
    at=_sql(
        f"SELECT epoch, tx_id::text, position, chain FROM events WHERE {_PLACE} = {_CURSOR}"  # noqa: S608 - as above
    ),
    gained=_sql(f"SELECT DISTINCT conversation_id FROM events WHERE {_PLACE} > {_CURSOR}"),  # noqa: S608 - as above
    # The newest event is enough once all transactions below it have ended. Until then one of them
    # may still commit events before it, so every end of a transaction counts.
    newest=f"""
        SELECT (epoch, tx_id, position)::text,
            CASE WHEN epoch = (SELECT max(epoch) FROM store_epochs)
                AND tx_id >= pg_snapshot_xmin(pg_current_snapshot())
            THEN pg_current_snapshot()::text END
        FROM events ORDER BY {_DOWN} LIMIT 1
        """,  # noqa: S608 - as above
    lag=f"""
        SELECT count(*), min({READABLE_TIME}) FROM events
        WHERE epoch = (SELECT max(epoch) FROM store_epochs)
            AND tx_id >= pg_snapshot_xmin(pg_current_snapshot())
        """,  # noqa: S608 - as above
    # Leaves out the session's current statement: it may quote a payload.
    holder="""
        SELECT pid, application_name, usename, datname, state, xact_start, NULL
        FROM pg_stat_activity WHERE backend_xid = pg_snapshot_xmin(pg_current_snapshot())::xid
        UNION ALL
        SELECT NULL, NULL, owner, database, 'prepared', prepared, gid
        FROM pg_prepared_xacts WHERE transaction = pg_snapshot_xmin(pg_current_snapshot())::xid
        """,
    follows="SELECT pg_is_in_recovery()",
)


def _same(value: Any) -> Any:
    return value


class _Postgresql(Backend):
    name = "postgresql"
    mark = "%s"
    locks_all = False
    secures_rows = True
    has_standbys = True
    has_partitions = True
    for_update = "FOR UPDATE"
    json_object = "json_build_object"
    snapshot = MappingProxyType({"isolation_level": "REPEATABLE READ"})
    table_exists = "SELECT to_regclass(quote_ident(%(name)s)) IS NOT NULL"
    # A tenth of the usual sample takes a quarter of the time, and is enough for a new table.
    clock_s = "CAST(extract(epoch FROM clock_timestamp()) AS bigint)"
    analyse = ("SET LOCAL default_statistics_target = 10", "ANALYZE {}")
    encoding = "SHOW server_encoding"
    lock_schema: Sequence[str] = (f"SELECT pg_advisory_xact_lock({_SCHEMA})",)
    keep_schema = f"SELECT pg_advisory_xact_lock_shared({_SCHEMA})"
    drop_beside = "DROP FUNCTION IF EXISTS {}()"
    fresh_s = 1.0
    feed = _FEED
    from_id = to_id = from_time = staticmethod(_same)
    to_time = staticmethod(lambda moment: moment.astimezone(UTC))
    from_digest = staticmethod(lambda digest: UUID(bytes=digest))
    to_digest = staticmethod(lambda stored: stored.bytes)
    array = staticmethod(lambda values: list(values))

    def is_silent(self, raw: Any) -> bool:
        if not hasattr(select, "poll"):
            return True
        waiting = select.poll()
        waiting.register(raw.fileno(), select.POLLIN)
        return not waiting.poll(0)

    def sql(self, statement: str) -> str:
        return _sql(statement)

    def as_stored(self, column: str) -> str:
        if column == "recorded_at":
            return READABLE_TIME
        return f"{column}::text" if column in ("data", "meta") else column

    def reading(self, connection: AnyConnection) -> Any:
        # Binary values are cheaper to encode and decode.
        # SQLAlchemy's wrapper of an asynchronous driver has no binary cursors.
        adapted = isinstance(connection, Connection) and connection.dialect.is_async
        return cursor(connection) if adapted else raw_of(connection).cursor(binary=True)

    def transaction(self, at_hand: Pooled, **options: Unpack[TransactionOptions]) -> OnPostgresql:
        write, snapshot = options.get("write", False), options.get("snapshot", False)
        return OnPostgresql(
            at_hand,
            isolation=IsolationLevel.REPEATABLE_READ if snapshot else None,
            pipelined=options.get("pipelined", False) and PIPELINES,
            settings=self.first(at_hand, options),
            # Each query sees what is committed anyway: save BEGIN and COMMIT.
            autocommit=not (write or snapshot or options.get("patience_ms")),
        )

    def first(self, at_hand: Pooled, options: TransactionOptions) -> Sequence[str]:
        """Return the first statements of a transaction of the driver's."""
        write, durable = options.get("write", False), options.get("durable", True)
        return settings(
            durable=durable or not write,
            patience_ms=options.get("patience_ms"),
            brief=write and durable,
        )

    def settings(self, *, durable: bool, patience_ms: int | None, usual_ms: int) -> Sequence[str]:
        return settings(durable=durable, patience_ms=patience_ms)

    def now(self, connection: AnyConnection) -> datetime:
        [(now,)] = cursor(connection).execute("SELECT clock_timestamp()").fetchall()
        found: datetime = self.to_time(now)
        return found

    def statement(self, at_hand: Pooled, *, patience_ms: int | None = None) -> OnPostgresql:
        return OnPostgresql(at_hand, autocommit=True)

    def advance(self, cur: Any, steps: Sequence[AppendStep], *, wait: bool = True) -> None:
        # One statement, which is atomic by itself.
        parameters, alone = _events(steps), wait and len(steps) == 1
        if alone:
            known, head = steps[0].known, steps[0].head
            parameters |= {
                "stream": head.stream,
                "version": head.version,
                "heads": head.chain,
                "known_version": known.version,
                "known_heads": known.chain,
                "known_epoch": known.epoch,
            }
        else:
            parameters |= {
                "stream": _array([step.head.stream for step in steps]),
                "version": _array([str(step.head.version) for step in steps]),
                "heads": b"".join([step.head.chain for step in steps]),
                "known_version": _array([str(step.known.version) for step in steps]),
                "known_heads": b"".join([step.known.chain for step in steps]),
                "known_epoch": _array([str(step.known.epoch) for step in steps]),
            }
        cur.execute(_POSTGRESQL_ONE if alone else _POSTGRESQL_MANY, parameters)
        positions: dict[str, list[int]] = {}
        for stream, position in cur.fetchall():
            positions.setdefault(stream, []).append(position)
        for step in steps:
            step.positions = positions.get(step.head.stream)

    def pin(self, connection: AnyConnection, conversation_id: UUID) -> None:
        """Nothing to do: it cannot move."""

    def is_locked(self, cur: Any, conversation_id: UUID) -> bool:
        cur.execute(_TAKE_LOCK, {"conversation_id": conversation_id})
        return bool(cur.fetchone()[0])

    def lock(
        self, connection: AnyConnection, table: str, keys: Sequence[str], *, exclusive: bool
    ) -> None:
        function = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
        # Keyed by the table's OID too, so that stores in two schemas do not wait for each other.
        locks = (
            f"SELECT {function}(hashtextextended(key, '{table}'::regclass::oid::bigint)) "  # noqa: S608 - names
            "FROM unnest(%s::text[]) AS key"
        )
        run_each(connection, locks, [[list(keys)]])

    def count_matching(self, cur: Any, places: Sequence[tuple[Any, int, bytes | None]]) -> int:
        columns = [list(column) for column in zip(*places, strict=True)] or [[], [], []]
        cur.execute(_MATCHING, columns)
        return int(cur.fetchone()[0])

    def insert(
        self, table: str, columns: Columns, rows: Rows, *, otherwise: str = "DO NOTHING"
    ) -> Bound:
        # One statement for all rows: they are locked in the given order.
        arrays = ", ".join(f"%s::{kind}[]" for kind in columns.values())
        sql = (
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) "  # noqa: S608 - names
            f"ON CONFLICT {otherwise}"
        )
        values = zip(*rows, strict=True)
        return Bound(sql, [[_column(*each) for each in zip(columns.values(), values, strict=True)]])

    def load(
        self, cur: Any, table: str, columns: Columns, rows: Rows, *, triggers: bool = False
    ) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        with cur.copy(f'COPY "{table}" ({names}) FROM STDIN (FORMAT BINARY)') as copy:
            # Takes half the time of text, for which the driver looks up the type of each value.
            copy.set_types([*columns.values()])
            for row in rows:
                copy.write_row(row)

    def query(
        self, engine: Engine, statement: str, *, limit: int, timeout_s: float
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run it in a READ ONLY transaction with a timeout, which is rolled back."""
        with engine.connect() as connection:
            transaction = connection.begin()
            try:
                connection.execute(text("SET TRANSACTION READ ONLY"))
                connection.execute(text(f"SET LOCAL statement_timeout = {int(1_000 * timeout_s)}"))
                with closing(connection.connection.cursor()) as run:
                    # Only a query can be declared. In the binary format a text is one statement,
                    # so that none can follow that ends the transaction.
                    declared = f"DECLARE one_query NO SCROLL CURSOR FOR {statement}"
                    run.execute(declared.encode(), binary=True)  # type: ignore[call-arg]
                    run.execute(f"FETCH {int(limit)} FROM one_query")
                    return [column[0] for column in run.description or ()], list(run.fetchall())
            finally:
                transaction.rollback()

    def empty(self, connection: Connection, table: str) -> None:
        """Nothing to do: a drop does not read the rows."""

    def point_view(self, connection: Connection, name: str, query: str) -> None:
        # The view keeps its grants and dependent objects unless its columns have changed; then it
        # is dropped and created again, which fails if other objects depend on it.
        with suppress(ProgrammingError), connection.begin_nested():
            connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {name} AS {query}")
            return
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")

    def fills(self, table: str, columns: Sequence[str], query: str) -> Sequence[str]:
        names = ", ".join(f"new.{column}" for column in columns)
        fill = f"SELECT {', '.join(columns)} INTO {names} FROM ({query}) AS given; RETURN new"  # noqa: S608 - names
        function = f"CREATE FUNCTION {table}_beside() RETURNS trigger LANGUAGE plpgsql"
        trigger = f"CREATE TRIGGER {table}_filled BEFORE INSERT ON {table}"
        return (
            f"{function} AS $$ BEGIN {fill}; END $$",
            f"{trigger} FOR EACH ROW EXECUTE FUNCTION {table}_beside()",
        )


POSTGRESQL = _Postgresql()


def _column(kind: str, values: Sequence[Any]) -> str:
    render = _quoted if kind == "text" else _unquoted
    return _array(["NULL" if each is None else render(each) for each in values])


def _unquoted(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _events(steps: Sequence[AppendStep]) -> dict[str, Any]:
    events = [event for step in steps for event in step.events]
    numbers = concatenated.from_iterable(
        [str(number)] * len(step.events) for number, step in enumerate(steps, start=1)
    )
    versions = concatenated.from_iterable(
        range(step.known.version + 1, step.head.version + 1) for step in steps
    )
    return {
        "now": steps[0].now,
        "steps": _array(numbers),
        "versions": _array(map(str, versions)),
        "ids": _array([event.id_text for event in events]),
        "types": _array([_quoted(event.data.type) for event in events]),
        "schema_versions": _array([str(event.data.schema_version) for event in events]),
        "data": "\x1e".join([event.text for event in events]),
        "meta": "\x1e".join([event.meta_text for event in events]),
        "salts": b"".join([event.salt for event in events]),
        "digests": b"".join([event.digest for event in events]),
        "chains": b"".join([chain for step in steps for chain in step.chains]),
    }


def _array(values: Iterable[str]) -> str:
    """Return an array in PostgreSQL's text form; the driver takes ten times as long for a list."""
    return "{" + ",".join(values) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
