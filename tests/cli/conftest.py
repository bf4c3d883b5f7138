"""Transcripts, and a store that holds them, on each backend; the tests that share it only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import run
from tests.cli.samples import MEETING, WEATHER, write_transcripts
from tests.postgres import fresh_database


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    """Give a file of two conversations."""
    return write_transcripts(tmp_path, WEATHER, MEETING)


@pytest.fixture(scope="session")
def _sqlite_imported(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("imported")
    return _import(f"sqlite:///{directory / 'store.db'}", directory)


@pytest.fixture(scope="session")
def _postgresql_imported(
    tmp_path_factory: pytest.TempPathFactory, postgres_server_url: str
) -> Iterator[str]:
    with fresh_database(postgres_server_url) as url:
        yield _import(url, tmp_path_factory.mktemp("imported"))


def _import(url: str, directory: Path) -> str:
    path = write_transcripts(directory, WEATHER, MEETING)
    done = run("import", str(path), "--user-id", "ada", "--tenant-id", "acme", url=url)
    assert 0 == done.status, done.err
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def imported(request: pytest.FixtureRequest) -> str:
    """URL of a store with the two conversations, once for each backend; only to be read."""
    return str(request.getfixturevalue(f"_{request.param}_imported"))


@pytest.fixture
def own(sqlite_url: str, transcripts: Path) -> str:
    """URL of a SQLite store with the two conversations, to be changed at will."""
    assert 0 == run("import", str(transcripts), url=sqlite_url).status
    return sqlite_url
