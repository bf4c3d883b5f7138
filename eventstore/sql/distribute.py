"""Spreading a store over the servers of distributed PostgreSQL: `eventstore db distribute`."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from eventstore.errors import NotWritable
from eventstore.sql.backend import CHOSEN, backend_of
from eventstore.sql.citus import CITUS
from eventstore.sql.distributed import (
    FIRST,
    HAS_CITUS,
    IS_DISTRIBUTED,
    ON_COORDINATOR,
    ONE_CONNECTION,
    place,
    run_ddl,
)
from eventstore.sql.migrate import VERSION_TABLE, schema_lock
from eventstore.sql.rights import relations
from eventstore.sql.row_security import is_secured, secure_all, unsecure
from eventstore.sql.schema import derived_tables, metadata_for
from eventstore.telemetry.log import masked

__all__ = ["DEFAULT_SHARDS", "MOST_SHARDS", "REFUSE_CHANGE", "distribute", "require_distributed"]

DEFAULT_SHARDS = 32
"""Citus's own default."""
MOST_SHARDS = 1_024

REFUSE_CHANGE = """
CREATE OR REPLACE FUNCTION events_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_receipt constant boolean := TG_TABLE_NAME ~ '^purges(_[0-9]+)?$';
    kept record;
    beside text;
    is_allowed boolean;
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') AND NOT is_receipt THEN
        beside := format('%I.%I', TG_TABLE_SCHEMA,
            CASE TG_OP WHEN 'DELETE' THEN 'purges' ELSE 'erased_versions' END);
        IF TG_TABLE_NAME <> 'events' THEN
            EXECUTE format('SELECT %I.eventstore_alongside($1, $2)', TG_TABLE_SCHEMA)
                INTO beside USING beside, OLD.conversation_id;
            -- The copy of a shard that is being split is not known yet: what was allowed where the
            -- rows are arrives here by replication.
            IF to_regclass(beside) IS NULL AND (SELECT backend_type FROM pg_stat_activity
                WHERE pid = pg_backend_pid()) = 'logical replication worker' THEN
                RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
            END IF;
        END IF;
    END IF;
    IF TG_OP = 'DELETE' AND NOT is_receipt THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE conversation_id = $1
            AND $2 BETWEEN first_position AND last_position)', beside)
            INTO is_allowed USING OLD.conversation_id, OLD.position;
        IF is_allowed THEN
            RETURN OLD;
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND NOT is_receipt THEN
        kept := OLD;
        kept.data := NULL;
        kept.salt := NULL;
        IF NEW.data IS NULL AND NEW.salt IS NULL AND NEW::text = kept::text THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE conversation_id = $1
                AND $2 BETWEEN first_version AND last_version)', beside)
                INTO is_allowed USING OLD.conversation_id, OLD.version;
            IF is_allowed THEN
                RETURN NEW;
            END IF;
        END IF;
    END IF;
    RAISE EXCEPTION '% are immutable: % refused',
        CASE WHEN is_receipt THEN 'purges' ELSE 'events' END, TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END
$$
"""
"""The function of the triggers that keep events immutable, in shards too."""

# Transaction ids belong to a server, so each server has an epoch of its own: a number made from its
# identifier, above all those that a store on one server has counted.
_FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION eventstore_epoch() RETURNS integer LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT ('x' || substr(md5(system_identifier::text), 1, 8))::bit(32)::bigint::bit(30)::integer
        | 1073741824 FROM pg_control_system()
$$
""",
    """
CREATE OR REPLACE FUNCTION eventstore_alongside(name text, conversation uuid)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('%I.%I', nspname, relname || '_'
        || get_shard_id_for_distribution_column(pg_class.oid, conversation))
    FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
    WHERE pg_class.oid = name::regclass
$$
""",
    """
CREATE OR REPLACE FUNCTION events_place() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known xid8;
BEGIN
    EXECUTE format('SELECT %I.eventstore_epoch()', TG_TABLE_SCHEMA) INTO NEW.epoch;
    EXECUTE format('SELECT tx_id FROM %I.%I
        WHERE conversation_id = $1 AND version = $2 AND epoch + 0 = $3',
        TG_TABLE_SCHEMA, TG_TABLE_NAME)
        INTO known USING NEW.conversation_id, NEW.version - 1, NEW.epoch;
    NEW.tx_id := GREATEST(pg_current_xact_id(), known);
    RETURN NEW;
END
$$
""",
    # It takes the lock that a move waits for, as a statement that changes rows does (5 is SHARE).
    # Whoever had to wait for a split finds another shard afterwards.
    """
CREATE OR REPLACE FUNCTION eventstore_pin(name regclass, conversation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pinned bigint;
    shard bigint;
BEGIN
    LOOP
        SELECT get_shard_id_for_distribution_column(name, conversation) INTO shard
            FROM pg_class WHERE oid = name;
        EXIT WHEN shard = pinned;
        PERFORM lock_shard_metadata(5, ARRAY[shard]);
        pinned := shard;
    END LOOP;
END
$$
""",
    REFUSE_CHANGE,
)
_PLACE = """
CREATE TRIGGER events_place BEFORE INSERT ON events
FOR EACH ROW EXECUTE FUNCTION events_place()
"""
# A statement's trigger of a shard would keep Citus itself from emptying it.
_TRIGGERS = text(
    """
    SELECT tgrelid::regclass::text, quote_ident(tgname), pg_get_triggerdef(oid), tgenabled::text
    FROM pg_trigger WHERE tgrelid = ANY(ARRAY['events', 'purges']::regclass[]) AND NOT tgisinternal
    ORDER BY tgname
    """
)


def distribute(engine: Engine, shards: int = DEFAULT_SHARDS) -> None:
    """Spread the store's tables over the servers, in one transaction.

    Copies all rows to their shards, and deletes them here. Nobody else can read or write meanwhile.

    Args:
        engine: An engine on the coordinator, with a login that owns the tables.
        shards: Into how many shards each table is divided.

    Raises:
        NotWritable: The database has no Citus, or the store is distributed already.
        StoreUnavailable: The database cannot be reached or written.
    """
    url = masked(engine.url)
    if backend_of(engine).locks_all:
        raise NotWritable(url, "SQLite is one file: use PostgreSQL with Citus")
    with schema_lock(engine, patience_ms=0) as connection:
        if not connection.exec_driver_sql(HAS_CITUS).scalar_one():
            reason = "the database has no Citus: run CREATE EXTENSION citus, and add its nodes"
            raise NotWritable(url, reason)
        if connection.exec_driver_sql(IS_DISTRIBUTED).one()[0]:
            reason = "the store is distributed already: Citus itself moves and splits its shards"
            raise NotWritable(url, reason)
        _distribute(connection, shards)
    setattr(engine.dialect, CHOSEN, CITUS)


def require_distributed(engine: Engine) -> None:
    """Distribute an empty store; return if the store is distributed already.

    Raises:
        NotWritable: It has conversations: ``eventstore db distribute`` copies them. Or see
            `distribute`.
    """
    if backend_of(engine).is_distributed:
        return
    with engine.connect() as connection:
        is_used = connection.exec_driver_sql("SELECT 1 FROM conversations LIMIT 1").first()
    if is_used:
        reason = "the store has conversations and is not distributed: run eventstore db distribute"
        raise NotWritable(masked(engine.url), reason)
    distribute(engine)


def _distribute(connection: Connection, shards: int) -> None:
    tables = metadata_for(connection.dialect.name).tables
    names = sorted({*tables, VERSION_TABLE, *derived_tables(connection)})
    for each in ONE_CONNECTION:
        run_ddl(connection, each)
    was_secured = is_secured(connection)
    of_owners = [name for names in relations(connection) for name in names]
    if was_secured:
        unsecure(connection, of_owners)
    triggers = connection.execute(_TRIGGERS).all()
    for table, trigger, _, _ in triggers:
        run_ddl(connection, f"DROP TRIGGER {trigger} ON {table}")
    for function in _FUNCTIONS:
        run_ddl(connection, function)
    run_ddl(connection, f"SET LOCAL citus.shard_count = {int(shards)}")
    for name in sorted(names, key=lambda name: name != FIRST):
        place(connection, name)
    for name in names:
        if name not in ON_COORDINATOR:
            run_ddl(connection, f"SELECT truncate_local_data_after_distributing_table('{name}')")
    for table, trigger, definition, enabled in triggers:
        run_ddl(connection, definition)
        if enabled == "A":
            run_ddl(connection, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")
    run_ddl(connection, _PLACE)
    if was_secured:
        secure_all(connection, of_owners, on_shards=True)
