"""SQLite in trouble: damaged, read-only or locked, and nothing is ever half written."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import DatabaseBusy, NotADatabase, NotWritable
from eventstore.events import UserMessage
from tests.contract.facade import say, texts


def path_of(url: str) -> Path:
    """Return the file of a SQLite URL."""
    return Path(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("content", [b"Dear diary, " * 1_000, b"\0" * 8_192])
def test_file_that_is_no_database(sqlite_url: str, content: bytes, read_only: bool) -> None:
    """Somebody else's file is refused, and left as it was."""
    path_of(sqlite_url).write_bytes(content)

    with pytest.raises(NotADatabase, match="not a SQLite database"):
        EventStore.open(sqlite_url, read_only=read_only)

    assert content == path_of(sqlite_url).read_bytes()


def test_damaged_database(sqlite_url: str) -> None:
    """A file whose pages were overwritten is reported as damaged, with the driver's error."""
    with EventStore.open(sqlite_url) as store:
        store.append(cid := new_id(), say("x" * 30_000))
    path = path_of(sqlite_url)
    content = path.read_bytes()
    path.write_bytes(content[:4_096] + b"\xff" * (len(content) - 4_096))

    with pytest.raises(NotADatabase) as caught, EventStore.open(sqlite_url) as store:
        list(store.read(cid))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


def test_empty_file_is_a_new_database(sqlite_url: str) -> None:
    """As SQLite itself sees it; temporary files begin like that."""
    path_of(sqlite_url).touch()

    with EventStore.open(sqlite_url) as store:
        assert 1 == store.append(new_id(), say("hello")).version


def test_large_transaction_leaves_a_small_log(sqlite_url: str) -> None:
    """What an import has filled the write-ahead log with is given back at the next appends."""
    log = path_of(f"{sqlite_url}-wal")
    with EventStore.open(sqlite_url) as store:
        store.append(cid := new_id(), [say(f"{place} " + "x" * 4_000)[0] for place in range(3_000)])
        assert log.stat().st_size > 12_000_000
        for _ in range(2):
            store.append(cid, say("more"))
        assert log.stat().st_size <= 4 * 2**20


def test_directory_that_nobody_can_write() -> None:
    """Not even root can make a file there."""
    with pytest.raises(NotWritable, match="cannot be opened"):
        EventStore.open("sqlite:////proc/self/agent.db")


def test_file_that_nobody_can_open() -> None:
    """A file which is there, but which the system refuses to open."""
    with pytest.raises(NotWritable):
        EventStore.open("sqlite:////proc/self/mem")


def test_read_only_store_reads(sqlite_url: str) -> None:
    """What is there can be read and verified."""
    cid = new_id()
    with EventStore.open(sqlite_url) as store:
        store.append(cid, say("1", "2"))
    with EventStore.open(sqlite_url, read_only=True) as store:
        assert ["1", "2"] == texts(store.read(cid))
        assert store.verify().ok


def test_locked_beyond_the_timeout(sqlite_url: str) -> None:
    """Another process that holds the lock is waited for, then named as the reason."""
    cid = new_id()
    with EventStore.open(sqlite_url, busy_timeout_ms=50) as store:
        store.append(cid, say("1"))
        other = sqlite3.connect(path_of(sqlite_url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy, match="raise busy_timeout_ms"):
            store.append(cid, say("2"))
        assert ["1"] == texts(store.read(cid))
        other.rollback()
        other.close()

        assert 2 == store.append(cid, say("2")).version


def test_all_connections_in_use(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that is used up is a busy database too, and says which setting helps."""
    with EventStore.open(sqlite_url, pool_size=1) as store:
        monkeypatch.setattr(store.engine.pool, "_timeout", 0.05)
        with store.reading(), store.reading(), pytest.raises(DatabaseBusy, match="pool_size"):
            store.append(new_id(), say("hello"))


@pytest.mark.parametrize(
    "write",
    [
        lambda store, cid: store.append(cid, say("2")),
        lambda store, cid: store.erase(cid, reason="test"),
        lambda store, cid: store.raise_writer_epoch(cid),
    ],
    ids=["append", "erase", "raise_writer_epoch"],
)
def test_file_without_write_permission(
    sqlite_url: str, write: Callable[[EventStore, Any], Any]
) -> None:
    """A store that was opened for reading refuses every write with its own error."""
    cid = new_id()
    with EventStore.open(sqlite_url) as store:
        store.append(cid, say("1"))
    path_of(sqlite_url).chmod(stat.S_IRUSR)

    with EventStore.open(sqlite_url, read_only=True) as store:
        with pytest.raises(NotWritable, match="read-only"):
            write(store, cid)
        assert ["1"] == texts(store.read(cid))


@pytest.mark.parametrize("form", ["{}", "file:{}?uri=true"])
def test_files_are_their_owners_alone(tmp_path: Path, form: str) -> None:
    """The database, its log and its index are read by nobody else; an older file keeps its mode."""
    path = tmp_path / "store.db"
    before = os.umask(0o022)
    try:
        with EventStore.open(f"sqlite:///{form.format(path)}") as store:
            store.append(new_id(), [UserMessage.text("x")])
            modes = {each.name: oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()}
        path.chmod(0o640)
        with EventStore.open(f"sqlite:///{form.format(path)}") as store:
            store.append(new_id(), [UserMessage.text("x")])
            kept = {oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), "0o600") == modes
    assert {"0o640"} == kept


def test_a_file_created_through_a_link_is_its_owners_alone(tmp_path: Path) -> None:
    """SQLite follows a link to a file that does not exist yet, and created it readable by all."""
    (tmp_path / "store.db").symlink_to(tmp_path / "real.db")
    before = os.umask(0o022)
    try:
        with EventStore.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
            store.append(new_id(), [UserMessage.text("x")])
            modes = {oct((tmp_path / name).stat().st_mode) for name in ("real.db", "real.db-wal")}
    finally:
        os.umask(before)
    assert {"0o100600"} == modes


def test_opening_a_file_again_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Closing a file beside SQLite ends its locks: another process then takes the log away."""
    path = tmp_path / "store.db"
    with EventStore.open(f"sqlite:///{path}") as store:
        first = store.append(new_id(), say("kept")).conversation_id
        EventStore.open(store.url, migrate=False).close()
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM events')"
        subprocess.run([sys.executable, "-c", other, str(path)], check=True)
        assert Path(f"{path}-wal").exists()
        assert ["kept"] == texts(store.read(first))
