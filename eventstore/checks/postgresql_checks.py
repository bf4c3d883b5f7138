"""Checks of a PostgreSQL server: durability settings, headroom, sizes, row-level security."""

from __future__ import annotations

import re

from sqlalchemy import Connection, text

from eventstore.checks import Check, Checker, Status, name_of
from eventstore.sql.backend import backend_of
from eventstore.sql.distribute import REFUSE_CHANGE
from eventstore.sql.migrate import ENCODINGS, revision_script
from eventstore.sql.rights import relations
from eventstore.sql.row_security import is_complete, is_secured, unsecured
from eventstore.store import EventStore

__all__ = ["CHECKS", "COLUMNS", "ON_NODES", "wrong_triggers"]

COLUMNS = text(
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = current_schema()"
)
"""The columns of every table; SQLAlchemy's reflection does not know ``xid8``."""
_FOUND_TRIGGERS = text(
    """
    SELECT tgname, prosrc, pg_get_triggerdef(pg_trigger.oid), tgenabled
    FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE tgrelid IN (to_regclass('events'), to_regclass('purges')) AND NOT tgisinternal
    """
)
_LACKING_IN_PARTITIONS = text(
    """
    SELECT DISTINCT part.inhrelid::regclass::text, whole.tgname
    FROM pg_inherits AS part JOIN pg_trigger AS whole ON whole.tgrelid = part.inhparent
    WHERE part.inhparent = to_regclass('events') AND NOT whole.tgisinternal
        AND NOT EXISTS (SELECT FROM pg_trigger AS own WHERE own.tgrelid = part.inhrelid
            AND own.tgname = whole.tgname AND own.tgfoid = whole.tgfoid
            AND own.tgtype = whole.tgtype AND own.tgenabled = 'A')
    """
)

# The two triggers of rows; those of statements are the whole table's alone.
_LACKING_IN_SHARDS = text(
    """
    SELECT shardid::text FROM run_command_on_shards('events', $$
        SELECT count(*) FROM pg_trigger WHERE tgrelid = '%s'::regclass AND (
            tgname LIKE 'events_refuse_change%%' AND tgenabled = 'A'
            OR tgname LIKE 'events_place%%' AND tgenabled = 'O') $$)
    WHERE NOT success OR result <> '2'
    """
)
_NODES = text(
    """
    SELECT nodename || ':' || nodeport, success, result
    FROM run_command_on_all_nodes($$SELECT string_agg(name, ', ' ORDER BY name) FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'$$)
    JOIN pg_dist_node USING (nodeid)
    """
)

_NEEDED = ("fsync", "full_page_writes", "synchronous_commit")
_SETTINGS = text(
    "SELECT name, setting FROM pg_settings WHERE name = ANY(:names) ORDER BY name"
).bindparams(names=[*_NEEDED, "autovacuum", "server_encoding", "server_version"])
_CONNECTIONS = text(
    """
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
    """
)
_AGE = text(
    """
    SELECT age(datfrozenxid), current_setting('autovacuum_freeze_max_age')::int
    FROM pg_database WHERE datname = current_database()
    """
)
_EPOCH = text(
    """
    SELECT last.system_identifier = now.system_identifier::text, last.epoch
    FROM pg_control_system() AS now,
        (SELECT epoch, system_identifier FROM store_epochs ORDER BY epoch DESC LIMIT 1) AS last
    """
)
_SIZES = text(
    """
    SELECT whole.relname, CAST(sum(pg_table_size(part.oid)) AS bigint),
        CAST(sum(pg_indexes_size(part.oid)) AS bigint)
    FROM pg_class AS part
    JOIN pg_class AS whole ON whole.oid = coalesce(pg_partition_root(part.oid), part.oid)
    WHERE part.relkind = 'r' AND part.relnamespace = quote_ident(current_schema())::regnamespace
    GROUP BY whole.relname ORDER BY whole.relname
    """
)
_SIZES_ON_NODES = text(
    """
    SELECT relname, citus_table_size(logicalrelid),
        citus_total_relation_size(logicalrelid) - citus_table_size(logicalrelid)
    FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
    WHERE relnamespace = quote_ident(current_schema())::regnamespace ORDER BY relname
    """
)
_CONCERNED = text("SELECT row_security_active('conversations')")
_STORE_CONNECTIONS = 10  # at most, of a store opened with the defaults
_WRAPAROUND = 1_000_000_000


def wrong_triggers(connection: Connection) -> set[str]:
    """Return the names of triggers that are missing, differ from the migrations' or do not fire."""
    is_distributed = backend_of(connection).is_distributed
    function = REFUSE_CHANGE if is_distributed else revision_script("0005")["POSTGRESQL_FUNCTION"]
    _, *triggers = revision_script("0001")["POSTGRESQL_TRIGGERS"]
    right = set()
    for name, source, definition, enabled in connection.execute(_FOUND_TRIGGERS):
        expected = next((each for each in triggers if name_of(each) == name), "")
        same = _words(expected) == _words(definition) and source == function.split("$$")[1]
        if same and enabled == "A":
            right.add(name)
    if is_distributed:
        lacking = {f"those of {node}" for (node,) in connection.execute(_LACKING_IN_SHARDS)}
        return {name_of(each) for each in triggers} - right | lacking
    lacking = {f"{name} of {part}" for part, name in connection.execute(_LACKING_IN_PARTITIONS)}
    return {name_of(each) for each in triggers} - right | lacking


def _words(statement: str) -> list[str]:
    """Return a statement's words, sorted: the server writes UPDATE OR DELETE in its own order."""
    return sorted(re.sub(r"\bON \w+\.", "ON ", statement).replace("()", "").split())


def server(store: EventStore) -> Check:
    """Whether commits survive a crash, the encoding holds any text, and autovacuum runs."""
    with store.reading() as connection:
        found: dict[str, str] = {row.name: row.setting for row in connection.execute(_SETTINGS)}
    off = [name for name in _NEEDED if found[name] == "off"]
    if off:
        finding = f"off: {', '.join(off)}; acknowledged events may be lost"
        advice = "turn them on in postgresql.conf, for the role or for the database"
        return Check("server", "problem", finding, advice, found)
    if (encoding := found["server_encoding"]) not in ENCODINGS:
        finding = f"the encoding {encoding} lacks characters: texts that contain them are refused"
        advice = "restore a dump of this database into one created with ENCODING 'UTF8'"
        return Check("server", "problem", finding, advice, found)
    if found["autovacuum"] == "off":
        finding = "autovacuum is off: tables bloat and query plans degrade"
        return Check("server", "warning", finding, "turn it on, or run VACUUM ANALYZE daily", found)
    return Check("server", "ok", f"version {found['server_version']}, commits durable", "", found)


def nodes(store: EventStore) -> Check:
    """Whether every server of a distributed store answers and commits durably."""
    with store.reading() as connection:
        found = connection.execute(_NODES).all()
    wrong = [f"{name}: {off} off" for name, success, off in found if success and off]
    silent = [f"{name} does not answer" for name, success, _ in found if not success]
    if wrong or silent:
        advice = "events on them cannot be reached or may be lost: see docs/scale.md"
        return Check("nodes", "problem", "; ".join(silent + wrong), advice)
    return Check("nodes", "ok", f"{len(found)} servers answer, commits durable")


def connections(store: EventStore) -> Check:
    """Whether there is room for the connections of another store."""
    with store.reading() as connection:
        used, most = connection.execute(_CONNECTIONS).one()
    finding = f"{used} of {most} in use; a store takes up to {_STORE_CONNECTIONS} by default"
    details = {"used": used, "most": most}
    if used + _STORE_CONNECTIONS > most:
        advice = "raise max_connections, lower pool_size, or put a pooler in front"
        return Check("connections", "warning", finding, advice, details)
    return Check("connections", "ok", finding, details=details)


def wraparound(store: EventStore) -> Check:
    """How far the oldest transaction id is from being frozen."""
    with store.reading() as connection:
        age, limit = connection.execute(_AGE).one()
    finding = f"the oldest transaction id has age {age:,}; autovacuum freezes at {limit:,}"
    status: Status = "ok"
    if age > 2 * limit:
        status = "problem" if age > _WRAPAROUND else "warning"
    advice = "" if status == "ok" else "find what holds vacuum back, then run VACUUM (FREEZE)"
    return Check("wraparound", status, finding, advice, {"age": age, "limit": limit})


def epoch(store: EventStore) -> Check:
    """Whether the feed's epoch belongs to this cluster, and not to one it was restored from."""
    with store.reading() as connection:
        row = connection.execute(_EPOCH).first()
    if row is None:
        finding = "the feed has no epoch: store_epochs is empty"
        return Check("epoch", "problem", finding, "restore the row from a backup")
    same, number = row
    if same:
        return Check("epoch", "ok", f"epoch {number} of the feed is this cluster's")
    finding = f"epoch {number} belongs to another cluster: the feed may hold events back"
    advice = "connect with write access, which begins a new epoch: eventstore db upgrade"
    return Check("epoch", "problem", finding, advice)


def size(store: EventStore) -> Check:
    """How large the database and its tables are."""
    with store.reading() as connection:
        is_distributed = backend_of(connection).is_distributed
        rows = connection.execute(_SIZES_ON_NODES if is_distributed else _SIZES).all()
        total = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    by_table = {name: {"table_bytes": own, "index_bytes": index} for name, own, index in rows}
    if is_distributed:
        total = sum(sum(sizes.values()) for sizes in by_table.values())
    largest = sorted(by_table.items(), key=lambda pair: -sum(pair[1].values()))[:3]
    parts = [f"{name} {sum(sizes.values()) / 2**20:.1f} MB" for name, sizes in largest]
    finding = f"{total / 2**20:.1f} MB; largest: {', '.join(parts)}"
    return Check("size", "ok", finding, details={"bytes": total, "tables": by_table})


def row_security(store: EventStore) -> Check:
    """Whether logins see only one owner's rows, and whether any table lacks the policy."""
    with store.reading() as connection:
        on = is_secured(connection)
        tables, _ = relations(connection)
        open_to_all = unsecured(connection, tables) if on else []
        concerned = bool(connection.execute(_CONCERNED).scalar())
        complete = not on or is_complete(connection)
    details = {"on": on, "unsecured": open_to_all, "login_is_concerned": concerned}
    if not complete:
        finding = "on, as an older version turned it on: an owner's login cannot erase or purge"
        advice = "as the tables' owner, run: eventstore db secure"
        return Check("row security", "problem", finding, advice, details)
    if open_to_all:
        finding = f"on, but not for: {', '.join(open_to_all)}"
        advice = "as the tables' owner, run: eventstore db secure"
        return Check("row security", "problem", finding, advice, details)
    if on and concerned:
        finding = "on, and this login sees nothing until an owner is named"
        advice = "check as the tables' owner or as a role with BYPASSRLS"
        return Check("row security", "warning", finding, advice, details)
    finding = "on: logins see only their owner's rows" if on else "off: every login sees all rows"
    return Check("row security", "ok", finding, details=details)


CHECKS: tuple[tuple[str, Checker], ...] = (
    ("server", server),
    ("connections", connections),
    ("wraparound", wraparound),
    ("epoch", epoch),
    ("size", size),
    ("row security", row_security),
)
ON_NODES: tuple[tuple[str, Checker], ...] = (("nodes", nodes),)
"""The checks of a distributed store, besides the others."""
