"""A database that looks distributed and is on one PostgreSQL server: what runs without Citus.

The tables are divided by hash, and their partitions are named as shards are (``events_102029``), so
that triggers and policies run where rows are and see such names. Citus's tables and functions that
the product uses are there under their own names. What Citus refuses is not refused here: that is
for the run on Citus itself, and for `tests.failures.test_distributed_statements`.
"""

from __future__ import annotations

import os

from sqlalchemy import text

from eventstore import EventStore
from eventstore.database import distribute, schema_lock
from eventstore.sql.partitions import _divide

__all__ = ["SETTINGS_ON_SHIM", "SHARDS", "distribute_on_shim"]

SHARDS = int(os.environ.get("EVENTSTORE_TEST_SHARDS", "0"))
"""Into how many shards the tables of all tests are divided; 0 for none."""

SETTINGS_ON_SHIM = {"autovacuum": "off"} if SHARDS else {}
"""Settings of the tests' server: analysing hundreds of tables, it would hold the feed back."""

_OWNED = text(
    """
    SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind = 'r'
        AND attname = 'conversation_id' ORDER BY relname
    """
)
_SHIM = """
SET LOCAL allow_system_table_mods = on;

CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid oid, partmethod "char");
CREATE TABLE pg_catalog.pg_dist_shard (shardid bigint, logicalrelid oid, count int, remainder int);
CREATE TABLE pg_catalog.pg_dist_node (nodeid int, groupid int, nodename text, nodeport int,
    noderole text, isactive boolean, shouldhaveshards boolean);
INSERT INTO pg_dist_node VALUES (1, 0, 'localhost', 0, 'primary', true, true);
CREATE TABLE pg_catalog.pg_dist_local_group (groupid int);
INSERT INTO pg_dist_local_group VALUES (0);
CREATE SEQUENCE pg_catalog.pg_dist_shardid_seq START 102008;
GRANT SELECT ON pg_dist_partition, pg_dist_shard, pg_dist_node, pg_dist_local_group TO PUBLIC;

CREATE FUNCTION pg_catalog.create_reference_table(name text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pg_dist_partition VALUES (name::regclass, 'n')
$$;

CREATE FUNCTION pg_catalog.truncate_local_data_after_distributing_table(name text) RETURNS void
LANGUAGE sql AS '';

CREATE FUNCTION pg_catalog.create_distributed_table(
    name text, distribution_column text, colocate_with text DEFAULT 'default') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    shards int;
    before text := quote_ident(name || '_before');
    definitions text[];
    each record;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = name::regclass) = 'r' THEN
        SELECT array_agg(pg_get_triggerdef(oid)) INTO definitions
            FROM pg_trigger WHERE tgrelid = name::regclass AND NOT tgisinternal;
        SELECT max(count) INTO shards
            FROM pg_dist_shard WHERE logicalrelid = colocate_with::regclass;
        EXECUTE format('ALTER TABLE %I RENAME TO %s', name, before);
        EXECUTE format('CREATE TABLE %I (LIKE %s INCLUDING ALL) PARTITION BY HASH (%I)',
            name, before, distribution_column);
        FOR number IN 0 .. shards - 1 LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES WITH
                (MODULUS %s, REMAINDER %s)', name || '_p' || number, name, shards, number);
        END LOOP;
        EXECUTE format('INSERT INTO %I SELECT * FROM %s', name, before);
        EXECUTE format('DROP TABLE %s', before);
        FOREACH before IN ARRAY coalesce(definitions, '{}') LOOP
            EXECUTE before;
        END LOOP;
    END IF;
    INSERT INTO pg_dist_partition VALUES (name::regclass, 'h');
    FOR each IN
        SELECT inhrelid::regclass AS part,
            regexp_match(pg_get_expr(relpartbound, pg_class.oid), '(\\d+), remainder (\\d+)') AS at
        FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = name::regclass
    LOOP
        INSERT INTO pg_dist_shard VALUES (
            nextval('pg_catalog.pg_dist_shardid_seq'), name::regclass, each.at[1]::int,
            each.at[2]::int);
        EXECUTE format('ALTER TABLE %s RENAME TO %I', each.part,
            name || '_' || currval('pg_catalog.pg_dist_shardid_seq'));
    END LOOP;
END
$$;

CREATE FUNCTION pg_catalog.get_shard_id_for_distribution_column(name regclass, value uuid)
RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT shardid FROM pg_dist_shard
    WHERE logicalrelid = name AND satisfies_hash_partition(name::oid, count, remainder, value)
$$;

CREATE FUNCTION pg_catalog.lock_shard_metadata(mode int, shards bigint[]) RETURNS void
LANGUAGE sql AS '';

CREATE FUNCTION pg_catalog.run_command_on_all_nodes(command text)
RETURNS TABLE (nodeid int, success boolean, result text) LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE command INTO answer;
    RETURN QUERY SELECT 1, true, answer;
END
$$;

-- Shards have the rights, and the policies, of their table.
CREATE FUNCTION pg_catalog.shim_follow() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    each text;
BEGIN
    IF current_setting('shim.follows', true) = 'on' THEN
        RETURN;
    END IF;
    PERFORM set_config('shim.follows', 'on', true);
    FOR each IN
        WITH parts AS (
            SELECT whole.oid AS whole, part.oid AS part, part.oid::regclass AS name,
                whole.relacl, part.relacl AS own, whole.relrowsecurity, part.relrowsecurity AS is_on
            FROM pg_dist_shard JOIN pg_class AS whole ON whole.oid = logicalrelid
            JOIN pg_inherits ON inhparent = whole.oid JOIN pg_class AS part ON part.oid = inhrelid
        )
        SELECT DISTINCT format('ALTER TABLE %s %s ROW LEVEL SECURITY', name,
            CASE WHEN relrowsecurity THEN 'ENABLE' ELSE 'DISABLE' END)
        FROM parts WHERE relrowsecurity <> is_on
        UNION ALL SELECT DISTINCT format('CREATE POLICY %I ON %s %s USING (%s) %s', polname, name,
            CASE polcmd WHEN 'r' THEN 'FOR SELECT' ELSE '' END, pg_get_expr(polqual, polrelid),
            'WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')')
        FROM parts JOIN pg_policy AS p ON polrelid = whole WHERE NOT EXISTS (
            SELECT FROM pg_policy AS own WHERE own.polrelid = part AND own.polname = p.polname)
        UNION ALL SELECT DISTINCT format('DROP POLICY %I ON %s', polname, name)
        FROM parts JOIN pg_policy AS p ON polrelid = part WHERE NOT EXISTS (
            SELECT FROM pg_policy AS own WHERE own.polrelid = whole AND own.polname = p.polname)
        UNION ALL SELECT DISTINCT format('GRANT %s ON %s TO %I', privilege_type, name,
            pg_get_userbyid(grantee))
        FROM parts, aclexplode(relacl) AS a WHERE grantee <> 0 AND NOT EXISTS (
            SELECT FROM aclexplode(own) AS has
            WHERE has.grantee = a.grantee AND has.privilege_type = a.privilege_type)
    LOOP
        EXECUTE each;
    END LOOP;
    PERFORM set_config('shim.follows', 'off', true);
END
$$;

CREATE EVENT TRIGGER shim_follows ON ddl_command_end
    WHEN TAG IN ('GRANT', 'ALTER TABLE', 'CREATE POLICY', 'DROP POLICY')
    EXECUTE FUNCTION shim_follow();
"""


def distribute_on_shim(store: EventStore, shards: int) -> None:
    """Give the store's database the shim, and distribute the store."""
    with store.writing() as connection:
        connection.exec_driver_sql(_SHIM.replace("%", "%%"))
    with schema_lock(store.engine) as connection:
        for name in connection.execute(_OWNED).scalars().all():
            _divide(connection, name, shards)
    distribute(store.engine, shards)
