"""Checks of a SQLite file: its pages, its write-ahead log, its size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError

from eventstore.checks import Check, Checker, name_of
from eventstore.sql.engines import IMMUTABLE
from eventstore.sql.migrate import revision_script
from eventstore.store import EventStore

__all__ = ["CHECKS", "COLUMNS", "wrong_triggers"]

COLUMNS = text(
    "SELECT owner.name, part.name FROM sqlite_master AS owner "
    "JOIN pragma_table_info(owner.name) AS part WHERE owner.type = 'table'"
)
"""The columns of every table."""
_LARGE_LOG_BYTES = 256 * 2**20
_MANY_FREE_BYTES = 64 * 2**20
SOUND = (3, 51, 3)
"""The first release without the WAL-reset bug (sqlite.org/wal.html, March 2026)."""
_MENDED = ((3, 44, 6), (3, 50, 7))
"""Older release lines with the fix, each from this release on."""


def wrong_triggers(connection: Connection) -> set[str]:
    """Return the names of triggers that are missing or differ from the migration's."""
    declared = revision_script("0001")["SQLITE_TRIGGERS"]
    query = text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = {name: _one_line(sql) for name, sql in connection.execute(query)}
    return {name_of(each) for each in declared if found.get(name_of(each)) != _one_line(each)}


def _one_line(statement: str) -> str:
    return " ".join(statement.split())


def integrity(store: EventStore) -> Check:
    """Whether the file's pages, tables and indexes are consistent."""
    with store.reading() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(5)").scalars().all()
    if found == ["ok"]:
        return Check("integrity", "ok", "the file's pages are consistent")
    finding = "; ".join(str(each).splitlines()[-1] for each in found)
    return Check("integrity", "problem", finding, "restore a backup, or salvage data with .recover")


def version(store: EventStore) -> Check:
    """Whether the SQLite release that Python is linked with may damage a file in WAL mode."""
    with store.reading() as connection:
        number = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    release = tuple(int(part) for part in number.split("."))
    found, details = f"SQLite {number}", {"version": number}
    if is_sound(release):
        return Check("version", "ok", found, details=details)
    why = "may damage a file when two connections write and checkpoint at the same time"
    advice = (
        "use SQLite 3.51.3 or newer, or a build with the fix for the WAL-reset bug "
        "(https://sqlite.org/wal.html#walresetbug)"
    )
    return Check("version", "warning", f"{found} {why}", advice, details)


def is_sound(release: tuple[int, ...]) -> bool:
    """Whether a SQLite release is free of the WAL-reset bug."""
    mended = any(release[:2] == each[:2] and release >= each for each in _MENDED)
    return mended or release >= SOUND


def journal(store: EventStore) -> Check:
    """Whether the file is in WAL mode, and whether its write-ahead log is being emptied."""
    with store.reading() as connection:
        mode = _pragma(connection, "journal_mode")
        path = Path(_path(connection) + "-wal")
    if store.engine.get_execution_options().get(IMMUTABLE):
        # Then SQLite looks for no log, and says that the mode is "delete".
        finding = "unknown: the directory is not writable, so the file is read without a log"
        return Check("journal", "ok", finding, details={"journal_mode": None, "wal_bytes": 0})
    size = path.stat().st_size if path.exists() else 0
    details = {"journal_mode": mode, "wal_bytes": size}
    if mode not in ("wal", "memory"):
        advice = "open the database once with EventStore.open, or run: eventstore db upgrade"
        return Check("journal", "problem", f"journal mode {mode}, not wal", advice, details)
    finding = f"journal mode {mode}, {size / 2**20:.1f} MB in the write-ahead log"
    if size > _LARGE_LOG_BYTES:
        advice = "a reader keeps the log from being emptied: end long-running transactions"
        return Check("journal", "warning", finding, advice, details)
    return Check("journal", "ok", finding, details=details)


def sync(store: EventStore) -> Check:
    """The level at which SQLite syncs commits by default; each store's own option decides."""
    with store.reading() as connection:
        level = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}[_pragma(connection, "synchronous")]
    finding = f"{level} by default; appends use the store's own `synchronous` option"
    return Check("sync", "ok", finding, details={"synchronous": level})


def size(store: EventStore) -> Check:
    """How large the file and its tables are, and how much of it is free pages."""
    with store.reading() as connection:
        page = _pragma(connection, "page_size")
        total, free = (
            page * _pragma(connection, each) for each in ("page_count", "freelist_count")
        )
        by_table = _by_table(connection)
    details = {"bytes": total, "free_bytes": free, "tables": by_table}
    largest = sorted(by_table.items(), key=lambda pair: -sum(pair[1].values()))[:3]
    parts = [f"{name} {sum(sizes.values()) / 2**20:.1f} MB" for name, sizes in largest]
    finding = f"{total / 2**20:.1f} MB, {free / 2**20:.1f} MB free; largest: {', '.join(parts)}"
    if free > _MANY_FREE_BYTES and 2 * free > total:
        return Check("size", "warning", finding, "release the free pages: VACUUM", details)
    return Check("size", "ok", finding, details=details)


def _by_table(connection: Connection) -> dict[str, dict[str, int]]:
    """Return bytes by table, data and indexes; empty if SQLite was built without ``dbstat``."""
    query = """
        SELECT tbl_name, type, sum(pgsize) FROM dbstat('main', 1)
        JOIN sqlite_master USING (name) GROUP BY tbl_name, type ORDER BY tbl_name
        """
    try:
        rows = connection.exec_driver_sql(query).all()
    except DatabaseError as error:
        if "dbstat" not in str(error.orig):
            raise
        return {}
    found: dict[str, dict[str, int]] = {}
    for table, kind, size_bytes in rows:
        sizes = found.setdefault(table, {"table_bytes": 0, "index_bytes": 0})
        sizes["index_bytes" if kind == "index" else "table_bytes"] += size_bytes
    return found


def _pragma(connection: Connection, name: str) -> Any:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def _path(connection: Connection) -> str:
    """Return the path of the file."""
    rows = connection.exec_driver_sql("PRAGMA database_list").all()
    return next(str(path) for _, name, path in rows if name == "main")


CHECKS: tuple[tuple[str, Checker], ...] = (
    ("version", version),
    ("integrity", integrity),
    ("journal", journal),
    ("sync", sync),
    ("size", size),
)
