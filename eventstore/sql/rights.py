"""Rights of a PostgreSQL login that may change rows and nothing else.

The tables belong to the owner, who upgrades them and rebuilds read models. A login that may write
``projection_heads`` may also write projection tables created later: a new generation gets the same
rights in the transaction that creates it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, inspect, text

from eventstore.errors import NotWritable
from eventstore.sql.distributed import distribute_new, run_ddl
from eventstore.sql.migrate import VERSION_TABLE
from eventstore.sql.row_security import secure_new
from eventstore.sql.schema import VIEWS, derived_tables, metadata_for
from eventstore.telemetry.log import masked

__all__ = ["grant", "relations", "share_rights"]

_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_READ = ("SELECT",)
_LESS = {
    "purges": ("SELECT", "INSERT"),
    "store_identity": _READ,
    VERSION_TABLE: _READ,
}
_OTHERS = text(
    """
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
        array_agg(privilege_type::text)
    FROM pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner)))
    WHERE oid = 'projection_heads'::regclass AND grantee <> current_user::regrole::oid
    GROUP BY grantee
    """
)
_ROLE = text(
    "SELECT quote_ident(rolname), quote_ident(current_schema()) FROM pg_roles WHERE rolname = :role"
)


_LACKING = text(
    """
    SELECT name FROM unnest(CAST(:names AS text[]), CAST(:rights AS text[])) AS asked (name, one)
    WHERE NOT has_table_privilege(:role, quote_ident(name), one) LIMIT 1
    """
)


def grant(connection: Connection, role: str) -> None:
    """Give a role the rights to append, read, project and erase, in the caller's transaction.

    Raises:
        NotWritable: The database is SQLite, which has no roles; the role does not exist; or the
            login may not grant, because it does not own the tables.
    """
    url = masked(connection.engine.url)
    if connection.dialect.name == "sqlite":
        raise NotWritable(url, "SQLite has no roles: anyone who can write its file can do anything")
    found = connection.execute(_ROLE, {"role": role}).first()
    if found is None:
        raise NotWritable(url, f"role {role!r} does not exist: create it with CREATE ROLE")
    grantee, schema = found
    run_ddl(connection, f"GRANT USAGE ON SCHEMA {schema} TO {grantee}")
    tables, views = relations(connection)
    granted = {name: _LESS.get(name, _ROWS) for name in tables} | dict.fromkeys(views, _READ)
    for name, rights in granted.items():
        _grant(connection, rights, name, grantee)
    # If the login owns no table, nothing is granted, and PostgreSQL only warns.
    requested = [(name, right) for name, rights in granted.items() for right in rights]
    names, each = zip(*requested, strict=True)
    asking = {"names": [*names], "rights": [*each], "role": role}
    if lacking := connection.execute(_LACKING, asking).scalar():
        reason = f"the rights on {lacking} were not granted: the owner of the tables has to do this"
        raise NotWritable(url, reason)


def relations(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the names of the store's tables, including projections' tables, and of its views."""
    declared = metadata_for("postgresql").tables
    derived = derived_tables(connection)
    tables = {*declared, VERSION_TABLE, *derived}
    there = {*inspect(connection).get_view_names()}
    views = {*VIEWS, *(name.rpartition("_g")[0] for name in derived)} & there
    return sorted(tables), sorted(views)


def share_rights(connection: Connection, names: Iterable[str]) -> None:
    """Give new tables or views the rights that other roles have on ``projection_heads``.

    Also gives them row-level security, if the store has it. Runs in the caller's transaction, which
    has created them.
    """
    if connection.dialect.name == "sqlite":
        return
    names = [*names]
    distribute_new(connection, names)
    secure_new(connection, names)
    others = connection.execute(_OTHERS).all()
    for name in names:
        for grantee, rights in others:
            if chosen := [right for right in _ROWS if right in rights]:
                _grant(connection, chosen, name, grantee)


def _grant(connection: Connection, rights: Iterable[str], name: str, grantee: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote_identifier(name)
    run_ddl(connection, f"GRANT {', '.join(rights)} ON {quoted} TO {grantee}")
