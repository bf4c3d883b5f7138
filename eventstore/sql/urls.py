"""Checks a database URL before anything is opened, and reports problems without its password.

Refuses URLs that SQLAlchemy or a driver would silently misread: a password cut off at its "@", an
unknown option, a control character.
"""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import make_conninfo, timeout_from_conninfo
from sqlalchemy import URL, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import ArgumentError

from eventstore.errors import InvalidUrl
from eventstore.sql.sessions import NAMES, problem_of
from eventstore.telemetry.log import HIGHEST_PORT, MaskedUrl, masked

__all__ = ["file_of", "is_in_memory", "parse"]

_DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_EXAMPLES = "write sqlite:///file.db or postgresql://user@host/database"
_QUOTE = "more than one @: write those of user name and password as %40 (and / as %2F, ? as %3F)"
_USER = re.compile(r"\w[\w+]*://(?:[^:/]*(?::[^@]*)?@)?")  # as SQLAlchemy reads it
_QUERY = re.compile(r"\?\w+=")
_OPTIONS = re.compile("[&;]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SQLITE_OPTIONS = frozenset(
    ("cached_statements", "check_same_thread", "detect_types", "isolation_level", "timeout", "uri")
)


def parse(url: str | URL, schema: str | None = None) -> URL:
    """Return a URL with the name of this project's driver for its database.

    ``schema`` becomes the option of that name.

    Raises:
        InvalidUrl: It does not name a supported database, or would be misread.
    """
    if not isinstance(url, str | URL):
        raise InvalidUrl(repr(url), f"this is not a database URL: {_EXAMPLES}")
    masked_url = masked(url)
    try:
        parsed = MaskedUrl._make(make_url(url))
        str(parsed.render_as_string(hide_password=False)).encode()
    except (ArgumentError, ValueError) as error:
        raise InvalidUrl(repr(masked_url), f"this is not a database URL: {_EXAMPLES}") from error
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise InvalidUrl(masked_url, _instead(parsed.drivername, masked_url))
    if problem := _problem(url, parsed):
        raise InvalidUrl(masked_url, problem)
    if schema is not None:
        parsed = _in_schema(parsed, schema)
    return parsed.set(drivername=driver)


def is_in_memory(url: URL) -> bool:
    """Whether the database lives in memory and ends with the process that opened it."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def file_of(url: URL) -> str | None:
    """Return the file of a SQLite database as the URL names it, or None."""
    has_one = url.get_backend_name() == "sqlite" and not is_in_memory(url)
    return url.database if has_one else None


def _in_schema(url: MaskedUrl, schema: str) -> MaskedUrl:
    if url.query.get("schema", schema) != schema:
        raise InvalidUrl(masked(url), f"schema={schema!r} contradicts the URL: give only one")
    named = MaskedUrl._make(url.update_query_dict({"schema": schema}))
    if problem := _problem(named, named):
        raise InvalidUrl(masked(url), problem)
    return named


def _instead(drivername: str, masked_url: str) -> str:
    reason = f"unknown database {drivername!r}: use sqlite or postgresql"
    backend = drivername.partition("+")[0]
    if backend not in _DRIVERS:
        return f"{reason}: {_EXAMPLES}"
    # Perhaps an asyncio driver; here one driver serves both stores.
    right = "sqlite" if backend == "sqlite" else _DRIVERS[backend]
    return (
        f"{reason}; for both EventStore and AsyncEventStore write "
        f"{right}{masked_url.removeprefix(drivername)}"
    )


def _problem(raw: str | URL, url: URL) -> str | None:
    """Return why a URL of a supported database is refused, or None if it is not."""
    if any(_CONTROL.search(str(part)) for part in url):
        return "the URL contains a control character"
    if _ends_early(raw, url):
        return _QUOTE
    if url.port is not None and not 0 < url.port <= HIGHEST_PORT:
        return f"the port must be from 1 to {HIGHEST_PORT}: {_EXAMPLES}"
    on_sqlite = url.get_backend_name() == "sqlite"
    problem = _of_sqlite(raw, url) if on_sqlite else _of_options(url)
    # What looks like an option may be part of the password, so do not show it.
    return _QUOTE if problem and "@" in str(raw).partition("?")[2] else problem


def _ends_early(raw: str | URL, url: URL) -> bool:
    """Whether SQLAlchemy mistook an "@" in the password for its end."""
    if "@" in (url.host or ""):
        return True
    if not isinstance(raw, str) or url.username is None:
        return False
    end = _USER.match(raw).end()  # type: ignore[union-attr]
    if _QUERY.search(raw, 0, end):  # The "@" is in an option; the port was read as a password.
        return True
    path, _, query = raw[end:].partition("?")
    return "@" in path or any("@" in each.partition("=")[0] for each in _OPTIONS.split(query))


def _of_sqlite(raw: str | URL, url: URL) -> str | None:
    if url.host or url.username or url.port:
        return "name the file after three slashes, or four for an absolute path: sqlite:///file.db"
    if url.database == "":
        # SQLAlchemy opens a database in memory: a forgotten path would lose all data.
        return "no file is named after the slashes; a database in memory is sqlite://"
    if "schema" in url.query:
        return "SQLite has no schemas: give the store its own file"
    if "uri" in url.query or (url.database or "").startswith("file:"):
        return None
    named = isinstance(raw, str) and raw.partition("?")[2]
    if named and not all("=" in option for option in _OPTIONS.split(named)):
        return "options begin at the ?, as in ?timeout=3: write a ? in a file's name as %3F"
    for name in url.query:
        if name not in _SQLITE_OPTIONS:
            return f"unknown option {name!r}; SQLite's own are for sqlite:///file:...?uri=true"
    return None


def _of_options(url: URL) -> str | None:
    if problem := problem_of(url.query):
        return problem
    url = url.difference_update_query(NAMES)
    try:
        _, options = PGDialect_psycopg().create_connect_args(url)  # type: ignore[no-untyped-call]
        for name, value in options.items():
            if not isinstance(value, str | int):
                return f"the option {name!r} is given more than once"
        make_conninfo(**options)
        timeout_from_conninfo(options)
    except (ArgumentError, psycopg.Error, ValueError) as error:
        return str(error).strip().splitlines()[0]
    return None
