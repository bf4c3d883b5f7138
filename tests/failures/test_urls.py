"""URLs that name no database: refused at once, in words, and without showing a password."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import InvalidUrl, NotWritable, StoreUnavailable
from eventstore.sql.engines import open_engine
from tests.contract.facade import say, texts


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user@host/database",
        "oracle+cx://host/db",
        "sqlite+aiosqlite:///file.db",
        "postgresql+asyncpg://host/db",
        "mongodb://host/db",
    ],
)
def test_unknown_database(url: str) -> None:
    """The error names what was asked for and what there is."""
    with pytest.raises(InvalidUrl, match="use sqlite or postgresql"):
        EventStore.open(url)


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("postgresql+asyncpg://ada:pw@h/d?sslmode=require", "postgresql+psycopg://ada:"),
        ("postgresql+psycopg2://h/d", "write postgresql+psycopg://h/d"),
        ("postgres+asyncpg://h/d", "write postgresql+psycopg://h/d"),
        ("sqlite+aiosqlite:///file.db", "write sqlite:///file.db"),
    ],
)
def test_another_driver(url: str, instead: str) -> None:
    """A driver that is not used here is answered with the URL to write."""
    with pytest.raises(InvalidUrl) as caught:
        EventStore.open(url)
    assert instead in str(caught.value)
    assert "AsyncEventStore write" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///agent.db?mode=ro",
        "sqlite:///agent.db?timeout=soon",
        "sqlite://agent.db",
        "sqlite:///",
        "sqlite:///?timeout=5",
        "sqlite:///what?.db",
        "sqlite:///agent\0.db",
        "sqlite:///\udcff.db",
        "postgresql://h/d?nonsense=1",
        "postgresql://h/d?connect_timeout=soon",
        "postgresql://h/d?lock_timeout=soon",
        "postgresql://h/d?lock_timeout=1000h",
        "postgresql://h/d?idle_in_transaction_session_timeout=-1",
        "postgresql://h/d?synchronous_commit=maybe",
        "postgresql://h/d?pooler=session",
        "postgresql://h/d?pooler=none&pooler=none",
        "postgresql://h/d?sslmode=require&sslmode=disable",
        "postgresql://h/d?plugin=nonsense",
        "postgresql://h:65536/d",
        "postgresql://h/d\0",
    ],
)
def test_what_a_driver_would_misread(url: str) -> None:
    """Unknown options and the like are refused at once; SQLite's were passed over in silence."""
    with pytest.raises(InvalidUrl):
        EventStore.open(url)


def test_password_with_special_characters() -> None:
    """Written as they are, all but the "@" may stand in a password."""
    for password in ("a/b", "a#b", "a%zz", "a:b", "a?b", "a b"):
        assert password == open_engine(f"postgresql://ada:{password}@h/d").url.password


@pytest.mark.parametrize("url", ["", "agent.db", "/var/lib/agent.db", "sqlite", "http:/x", "::"])
def test_junk(url: str) -> None:
    """What is not a URL is answered with examples of one."""
    with pytest.raises(InvalidUrl, match=r"write sqlite:///file\.db or postgresql://"):
        EventStore.open(url)


def test_what_is_not_text() -> None:
    """Such as an environment variable that is not set."""
    with pytest.raises(InvalidUrl, match="None: this is not a database URL: write sqlite"):
        EventStore.open(os.environ.get("NOT_SET_ANYWHERE"))  # type: ignore[arg-type]


def test_port_that_is_no_number() -> None:
    """A URL that SQLAlchemy begins to understand is refused as well."""
    with pytest.raises(InvalidUrl):
        EventStore.open("postgresql://user@host:port/database")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:s3cret@host/database",
        "postgresql://user:s3cret@host:port/database",
        "postgresql:/user:s3cret@host/database",
        "user:s3cret@host/database",
    ],
)
def test_password_is_not_shown(url: str) -> None:
    """Neither message nor attributes hold the password."""
    with pytest.raises(InvalidUrl) as caught:
        EventStore.open(url)

    assert "s3cret" not in f"{caught.value} {caught.value.url} {caught.value.details}"


def test_an_invalid_url_is_a_value_error() -> None:
    """Who catches Python's own error catches this one."""
    with pytest.raises(ValueError, match="use sqlite or postgresql"):
        EventStore.open("mysql://host/database")


def test_asynchronous_store_says_the_same() -> None:
    """Opening fails in the awaiting task."""
    with pytest.raises(InvalidUrl):
        asyncio.run(AsyncEventStore.open("mysql://host/database"))


def test_missing_directory(tmp_path: Path) -> None:
    """The directory is named, and not made."""
    missing = tmp_path / "nowhere"

    with pytest.raises(NotWritable, match=f"{missing} does not exist"):
        EventStore.open(f"sqlite:///{missing / 'agent.db'}")

    assert not missing.exists()


def test_directory_in_place_of_a_file(tmp_path: Path) -> None:
    """A directory cannot be opened as a database."""
    with pytest.raises(NotWritable, match="is a directory"):
        EventStore.open(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("read_only", [True, False])
def test_pipe_in_place_of_a_file(tmp_path: Path, read_only: bool) -> None:
    """Who opened it to read waited for ever."""
    os.mkfifo(pipe := tmp_path / "agent.db")

    with pytest.raises(NotWritable, match="is not a regular file"):
        EventStore.open(f"sqlite:///{pipe}", read_only=read_only)


def test_file_in_place_of_a_directory(tmp_path: Path) -> None:
    """Nor can a file hold another."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(NotWritable):
        EventStore.open(f"sqlite:///{tmp_path / 'file' / 'agent.db'}")


def test_nothing_to_read(tmp_path: Path) -> None:
    """Opening for reading makes no file."""
    with pytest.raises(NotWritable, match="does not exist"):
        EventStore.open(f"sqlite:///{tmp_path / 'agent.db'}", read_only=True)

    assert [] == list(tmp_path.iterdir())


def test_one_error_class_for_all() -> None:
    """Who only wants to know that there is no store catches one class."""
    assert {InvalidUrl, NotWritable} <= set(StoreUnavailable.__subclasses__())


@pytest.mark.parametrize("name", ["a#b.db", "a%41.db", "a%3Fb.db", "ü b.db"])
def test_a_file_of_any_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And from any directory: another file was read, and one created for what precedes the #."""
    monkeypatch.chdir(tmp_path)
    with EventStore.open(f"sqlite:///{name}") as store:
        store.append(cid := new_id(), say("one"))
    files = {path.name for path in tmp_path.iterdir()}

    with EventStore.open(f"sqlite:///{name}", read_only=True) as store, store.reading():
        monkeypatch.chdir("/")
        with store.reading() as second:
            assert 1 == second.exec_driver_sql("SELECT count(*) FROM events").scalar()
        assert ["one"] == texts(store.read(cid))

    there = {path.name for path in tmp_path.iterdir()}
    assert files == {each for each in there if not each.endswith(("-wal", "-shm"))}
