"""Rights of a login that may change rows and nothing else, on PostgreSQL.

Its tables are the owner's, who upgrades them and rebuilds read models. Whoever may write the
projections' heads may write the tables that are made for them later: a new generation gets the same
rights in the transaction that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, inspect, text

from eventstore.errors import NotWritable
from eventstore.log import masked
from eventstore.sql.migrate import VERSION_TABLE
from eventstore.sql.row_security import secure_new
from eventstore.sql.schema import derived_tables, metadata_for

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
    """Give a role what it needs to append, read, project and erase, in the caller's transaction.

    Raises:
        NotWritable: The database is SQLite, which has no roles, or has no such role; or the login
            may not grant, as it does not own the tables.
    """
    url = masked(connection.engine.url)
    if connection.dialect.name == "sqlite":
        raise NotWritable(url, "SQLite has no roles: who may write its file may do everything")
    found = connection.execute(_ROLE, {"role": role}).first()
    if found is None:
        raise NotWritable(url, f"there is no role {role!r}: create it with CREATE ROLE")
    grantee, schema = found
    connection.exec_driver_sql(_escaped(f"GRANT USAGE ON SCHEMA {schema} TO {grantee}"))
    tables, views = relations(connection)
    granted = {name: _LESS.get(name, _ROWS) for name in tables} | dict.fromkeys(views, _READ)
    for name, rights in granted.items():
        _grant(connection, rights, name, grantee)
    # Who owns no table grants nothing, of which PostgreSQL merely warns.
    asked = [(name, right) for name, rights in granted.items() for right in rights]
    names, each = zip(*asked, strict=True)
    asking = {"names": [*names], "rights": [*each], "role": role}
    if lacking := connection.execute(_LACKING, asking).scalar():
        said = f"the rights on {lacking} were not granted: the owner of the tables has to do this"
        raise NotWritable(url, said)


def relations(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the names of the store's tables, those of projections among them, and of its views."""
    declared = metadata_for("postgresql").tables
    derived = derived_tables(connection)
    tables = {*declared, VERSION_TABLE, *derived}
    there = {*inspect(connection).get_view_names()}
    views = {name.rpartition("_g")[0] for name in derived} & there
    return sorted(tables), sorted(views)


def share_rights(connection: Connection, names: Iterable[str]) -> None:
    """Give tables or views that were just made the rights that others have on projections' heads.

    And row-level security, where the store has it.

    In the caller's transaction, which has made them.
    """
    if connection.dialect.name == "sqlite":
        return
    names = [*names]
    secure_new(connection, names)
    others = connection.execute(_OTHERS).all()
    for name in names:
        for grantee, rights in others:
            if chosen := [right for right in _ROWS if right in rights]:
                _grant(connection, chosen, name, grantee)


def _grant(connection: Connection, rights: Iterable[str], name: str, grantee: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote_identifier(name)
    statement = f"GRANT {', '.join(rights)} ON {quoted} TO {grantee}"
    connection.exec_driver_sql(_escaped(statement))


def _escaped(statement: str) -> str:
    return statement.replace("%", "%%")
