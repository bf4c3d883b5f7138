"""Row-level security on PostgreSQL: the database itself limits a login to one owner's rows.

Each transaction of a store that is bound to an owner names that owner; a transaction that names
none sees nothing. The tables' owner, superusers and roles with BYPASSRLS are exempt: they are for
maintenance. Tables created later get their policy in the transaction that creates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, text

from eventstore.errors import NotWritable, OwnerMismatch
from eventstore.sql.backend import Backend, backend_of
from eventstore.sql.distributed import run_ddl
from eventstore.sql.sessions import literal
from eventstore.sql.types import escape
from eventstore.telemetry.log import masked

__all__ = [
    "OWNER",
    "is_complete",
    "is_limited",
    "is_secured",
    "require_forks_visible",
    "secure",
    "secure_all",
    "secure_new",
    "speaks_for",
    "unsecure",
    "unsecured",
]

OWNER = "eventstore_owner"
"""The execution option of an engine's variant: the first statement of each transaction."""

_POLICY = "eventstore_owner"
_TENANT, _USER = "eventstore.tenant_id", "eventstore.user_id"
_RETIRED = "retired_keys"
_LEAST_VERSION = 15_00_00  # the first with views that use the reader's own rights


def _is(column: str, setting: str, nobody: str) -> str:
    current = f"current_setting('{setting}', true)"
    return (
        f"CASE left({current}, 1) WHEN '+' THEN {column} = substr({current}, 2) "
        f"WHEN '-' THEN {nobody} ELSE false END"
    )


_OWN = f"({_is('tenant_id', _TENANT, 'tenant_id IS NULL')}) AND ({_is('user_id', _USER, 'true')})"
_OF_OWN = (
    "EXISTS (SELECT FROM conversations AS own WHERE own.conversation_id = {table}.conversation_id)"
)
_OF_OWN_ON_SHARD = "eventstore_is_own(conversation_id)"
_TABLES = text(
    """
    SELECT relname, relkind::text, relrowsecurity, (
        SELECT bool_or(attname = 'conversation_id') FROM pg_attribute WHERE attrelid = pg_class.oid
    ) FROM pg_class
    WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind IN ('r', 'p', 'v')
        AND relname = ANY(:names)
    """
)
_SECURED = text("SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass('conversations')")
_LIMITED = text(
    "SELECT coalesce(row_security_active(to_regclass('conversations')::oid), false), "
    "to_regprocedure('eventstore_forks(uuid)') IS NOT NULL"
)

# What an owner's login may know of rows that it cannot see: whether a conversation has forks, and
# whether it is gone. The functions have the rights of the tables' owner.
_THEIR_RIGHTS = "SECURITY DEFINER"
_COUNT_FORKS = """
    SELECT count(*) FROM conversations AS fork WHERE parent_conversation_id = {}
        AND NOT EXISTS (SELECT FROM events
            WHERE events.conversation_id = fork.conversation_id AND version = 1)
    """
_FUNCTIONS = {
    # In this language, because Citus has no distributed queries in functions of plain SQL.
    "eventstore_forks(uuid)": f"""RETURNS bigint LANGUAGE plpgsql STABLE {_THEIR_RIGHTS}
        SET search_path = {{schema}}, pg_temp AS $$
        DECLARE
            found bigint;
        BEGIN
            found := ({_COUNT_FORKS.format("$1")});
            RETURN found;
        END
        $$""",
    "eventstore_is_gone(uuid)": f"""RETURNS boolean LANGUAGE sql STABLE {_THEIR_RIGHTS}
        SET search_path = {{schema}}, pg_temp AS $$
            SELECT NOT EXISTS (SELECT FROM conversations WHERE conversation_id = $1)
        $$""",  # noqa: S608 - a constant
}
# A policy of a shard may contain no query, and sees the names of shards.
_ON_SHARD = """RETURNS boolean LANGUAGE plpgsql STABLE {rights}
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        found boolean;
    BEGIN
        EXECUTE format('SELECT {exists} (SELECT FROM %s WHERE conversation_id = $1)',
            {{schema}}.eventstore_alongside({{table}}, $1)) INTO found USING $1;
        RETURN found;
    END
    $$"""
_ON_SHARDS = {
    **_FUNCTIONS,
    "eventstore_is_gone(uuid)": _ON_SHARD.format(rights=_THEIR_RIGHTS, exists="NOT EXISTS"),
    "eventstore_is_own(uuid)": _ON_SHARD.format(rights="", exists="EXISTS"),
}
_FORKS = text("SELECT eventstore_forks(:stream)")
_VISIBLE = text(_COUNT_FORKS.format(":stream"))


def is_secured(connection: Connection) -> bool:
    """Whether row-level security is on; never on SQLite."""
    return backend_of(connection).secures_rows and bool(connection.execute(_SECURED).scalar())


def is_limited(connection: Connection) -> bool:
    """Whether row-level security shows the connection's login only one owner's rows."""
    return backend_of(connection).secures_rows and bool(connection.execute(_LIMITED).one()[0])


def is_complete(connection: Connection) -> bool:
    """Whether the functions that the policies need exist; older versions did not create them."""
    return bool(connection.execute(_LIMITED).one()[1])


def require_forks_visible(connection: Connection, conversation_id: UUID) -> None:
    """Refuse to erase a conversation if row-level security hides forks that share its events.

    Raises:
        OwnerMismatch: Forks of it belong to owners whose rows this login cannot see.
        NotWritable: The database was secured by an older version.
    """
    if not is_limited(connection):
        return
    if not is_complete(connection):
        reason = "row-level security was turned on by an older version: run eventstore db secure"
        raise NotWritable(masked(connection.engine.url), reason)
    asking = {"stream": conversation_id}
    forks = connection.execute(_FORKS, asking).scalar_one()
    visible = connection.execute(_VISIBLE, asking).scalar_one()
    if forks != visible:
        reason = (
            f"{forks - visible} of its forks belong to other owners, whose rows this login cannot "
            "see: erase it as the tables' owner"
        )
        raise OwnerMismatch(conversation_id, reason)


def speaks_for(backend: Backend, tenant_id: str | None, user_id: str | None) -> Sequence[str]:
    """Return the statements that name a transaction's owner, for this transaction only."""
    tenant = "-" if tenant_id is None else f"+{escape(tenant_id)}"
    user = "-" if user_id is None else f"+{escape(user_id)}"
    values = {_TENANT: literal(tenant), _USER: literal(user)}
    return backend.set_local(values)


def secure(connection: Connection, names: Iterable[str]) -> None:
    """Limit each login to one owner's rows of these tables and views, in the caller's transaction.

    Call it under the schema lock.

    Raises:
        NotWritable: The database is SQLite, or PostgreSQL before version 15.
    """
    url = masked(connection.engine.url)
    if not backend_of(connection).secures_rows:
        reason = "SQLite has no row-level security: anyone who can read its file can read all of it"
        raise NotWritable(url, reason)
    found = connection.execute(text("SHOW server_version_num")).scalar_one()
    if int(found) < _LEAST_VERSION:
        raise NotWritable(url, "row-level security needs PostgreSQL 15 or later, for its views")
    secure_all(connection, names, on_shards=backend_of(connection).is_distributed)


def secure_all(connection: Connection, names: Iterable[str], *, on_shards: bool) -> None:
    """Do what `secure` does, for tables that have shards or not, in the caller's transaction."""
    # Temporary tables last, so that no login can put its own in place of the store's.
    schema = connection.execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    table = literal(f"{schema}.conversations")
    for signature, definition in (_ON_SHARDS if on_shards else _FUNCTIONS).items():
        defined = definition.format(schema=schema, table=table)
        run_ddl(connection, f"CREATE OR REPLACE FUNCTION {signature} {defined}")
    _secure(connection, names, on_shards=on_shards)


def secure_new(connection: Connection, names: Iterable[str]) -> None:
    """Secure new tables and views if the store is secured, in the transaction that created them."""
    if is_secured(connection):
        _secure(connection, names, on_shards=backend_of(connection).is_distributed)


def unsecure(connection: Connection, names: Iterable[str]) -> None:
    """Remove row-level security from these tables and views, in the caller's transaction."""
    if not backend_of(connection).secures_rows:
        return
    for name, kind, _, _ in connection.execute(_TABLES, {"names": [*names]}):
        own = connection.dialect.identifier_preparer.quote_identifier(name)
        if kind == "v":
            run_ddl(connection, f"ALTER VIEW {own} RESET (security_invoker)")
        else:
            run_ddl(connection, f"DROP POLICY IF EXISTS {_POLICY} ON {own}")
            run_ddl(connection, f"ALTER TABLE {own} DISABLE ROW LEVEL SECURITY")
    for signature in _ON_SHARDS:
        run_ddl(connection, f"DROP FUNCTION IF EXISTS {signature}")


def unsecured(connection: Connection, names: Iterable[str]) -> list[str]:
    """Return those of these tables that hold conversations' rows but lack row-level security."""
    rows = connection.execute(_TABLES, {"names": [*names]})
    return sorted(name for name, kind, on, owned in rows if kind in "rp" and owned and not on)


def _secure(connection: Connection, names: Iterable[str], *, on_shards: bool) -> None:
    of_own = _OF_OWN_ON_SHARD if on_shards else _OF_OWN
    for name, kind, _, owned in connection.execute(_TABLES, {"names": [*names]}).all():
        own = connection.dialect.identifier_preparer.quote_identifier(name)
        if kind == "v":
            run_ddl(connection, f"ALTER VIEW {own} SET (security_invoker = true)")
            continue
        if name == "conversations":
            rule = f"USING ({_OWN}) WITH CHECK ({_OWN})"
        elif name == "archives":
            # Only the tables' owner may say where a file is: whoever restores reads and deletes it.
            rule = f"FOR SELECT USING (({_OWN}) OR {of_own.format(table=own)})"
        elif owned:
            theirs = of_own.format(table=own)
            # A key is destroyed after its conversation was purged.
            seen = f"{theirs} OR eventstore_is_gone(conversation_id)"
            rule = f"USING ({seen if name == _RETIRED else theirs}) WITH CHECK ({theirs})"
        elif name in ("projections", "projection_workers"):
            # A login that sees only its own events must not change how far all of them are folded,
            # or who folds them.
            rule = "FOR SELECT USING (true)"
        else:
            continue
        run_ddl(connection, f"DROP POLICY IF EXISTS {_POLICY} ON {own}")
        run_ddl(connection, f"CREATE POLICY {_POLICY} ON {own} {rule}")
        run_ddl(connection, f"ALTER TABLE {own} ENABLE ROW LEVEL SECURITY")
