"""Transcripts, and a store that holds them, on each backend; the tests that share it only read.

The transcripts are imported once on each backend; every other store is a copy of that one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.cli.program import run
from tests.cli.samples import MEETING, WEATHER, write_transcripts
from tests.postgres import fresh_database


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    """Give a file of two conversations."""
    return write_transcripts(tmp_path, WEATHER, MEETING)


@pytest.fixture(scope="session")
def untouched_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a SQLite store with the two conversations that nobody has read, to be copied."""
    directory = tmp_path_factory.mktemp("untouched")
    _import(f"sqlite:///{directory / 'store.db'}", directory)
    return directory / "store.db"


@pytest.fixture(scope="session")
def untouched_database(
    tmp_path_factory: pytest.TempPathFactory, postgres_server_url: str
) -> Iterator[str]:
    """Name of a PostgreSQL store with the same, to be copied."""
    with fresh_database(postgres_server_url) as url:
        _import(url, tmp_path_factory.mktemp("untouched"))
        yield str(make_url(url).database)


def _import(url: str, directory: Path) -> None:
    path = write_transcripts(directory, WEATHER, MEETING)
    done = run("import", str(path), "--user-id", "ada", "--tenant-id", "acme", url=url)
    assert 0 == done.status, done.err


@pytest.fixture(scope="session")
def _sqlite_imported(tmp_path_factory: pytest.TempPathFactory, untouched_file: Path) -> str:
    return _copy(untouched_file, tmp_path_factory.mktemp("imported"))


@pytest.fixture(scope="session")
def _postgresql_imported(postgres_server_url: str, untouched_database: str) -> Iterator[str]:
    with fresh_database(postgres_server_url, template=untouched_database) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def imported(request: pytest.FixtureRequest) -> str:
    """URL of a store with the two conversations, once for each backend; only to be read."""
    return str(request.getfixturevalue(f"_{request.param}_imported"))


@pytest.fixture
def own(tmp_path: Path, untouched_file: Path) -> str:
    """URL of a SQLite store with the two conversations, to be changed at will."""
    return _copy(untouched_file, tmp_path)


@pytest.fixture
def _own_on_postgresql(postgres_server_url: str, untouched_database: str) -> Iterator[str]:
    with fresh_database(postgres_server_url, template=untouched_database) as url:
        yield url


@pytest.fixture(params=["own", "_own_on_postgresql"], ids=["sqlite", "postgresql"])
def own_anywhere(request: pytest.FixtureRequest) -> str:
    """URL of a store with the two conversations, to be changed, once for each backend."""
    return str(request.getfixturevalue(request.param))


def _copy(file: Path, directory: Path) -> str:
    return f"sqlite:///{shutil.copy(file, directory / 'store.db')}"
