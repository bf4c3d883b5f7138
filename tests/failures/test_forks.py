"""Processes that fork while a store is open: each uses connections of its own, or is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eventstore import EventStore
from tests.contract.facade import texts
from tests.failures.forking import EACH
from tests.warm import Programs

Run = Callable[[str, str], Any]

_OPTIONS = "--preload --workers 2 --bind 127.0.0.1:0 --no-control-socket".split()


@pytest.fixture
def run(programs: Programs) -> Run:
    """Give a function that returns what a program of `forking` tells; a hang fails."""

    def run(program: str, url: str) -> Any:
        done = programs.run("-m", "tests.failures.forking", program, url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def all_there(url: str, told: list[str]) -> bool:
    """Whether each of these conversations has what was acknowledged, and all verify."""
    with EventStore.open(url) as store:
        whole = [len(list(texts(store.read(cid)))) for cid in told]
        return whole == [EACH] * len(told) and store.verify().ok


@pytest.mark.parametrize("program", ["side_by_side", "pool_of_processes", "asynchronous"])
def test_parent_and_children_use_one_store(database_url: str, program: str, run: Run) -> None:
    """What each was told is there: children that shared a socket lost some, or waited for ever."""
    told = run(program, database_url)

    assert all_there(database_url, told)


def test_child_that_leaves_the_parents_transaction(database_url: str, run: Run) -> None:
    """It is told that nothing was committed, and breaks nothing off: the parent goes on in it."""
    (first, talked, second, again), said = run("within_a_transaction", database_url)

    assert [7, 7] == [first, second]
    assert ["parent", "parent"] == said
    assert all_there(database_url, [talked, again])


@pytest.fixture
def gunicorn(database_url: str) -> Iterator[str]:
    """Run a web server whose two workers are forked after the store was opened; give its URL."""
    started = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *_OPTIONS, "tests.failures.preloaded:app"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"EVENTSTORE_DB": database_url},
    )
    assert started.stderr is not None
    seen: list[str] = []
    try:
        for line in started.stderr:
            seen.append(line)
            if found := re.search(r"Listening at: (http://\S+)", line):
                yield found[1]
                return
        pytest.fail("".join(seen))
    finally:
        started.terminate()
        started.communicate(timeout=60)


def test_gunicorn_with_preload(gunicorn: str, database_url: str) -> None:
    """Its workers share a store that the application opened before they were forked."""

    def ask(number: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"{gunicorn}/?{number}", timeout=60) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(ask, range(40)))

    assert 2 == len({each["worker"] for each in told})
    with EventStore.open(database_url) as store:
        assert [each["said"] for each in told] == [texts(store.read(each["id"])) for each in told]
        assert store.verify().ok


def test_child_forked_within_a_transaction(database_url: str, run: Run) -> None:
    """SQLite's locks are the process's, so that it is refused; PostgreSQL's child is unharmed."""
    inherited, anew, later = run("using", database_url)

    if database_url.startswith("sqlite"):
        assert ["ForkedStore", "ForkedStore"] == [inherited, anew]
        assert all_there(database_url, [later])
    else:
        assert all_there(database_url, [inherited, anew, later])


def test_child_forked_beside_a_query(sqlite_url: str, run: Run) -> None:
    """The child is refused: it waited for ever for SQLite's lock on that thread's connection."""
    found, talked = run("beside_a_query", sqlite_url)

    assert "ForkedStore" == found
    assert all_there(sqlite_url, [talked])


def test_database_in_memory(run: Run) -> None:
    """A child would write to a copy, and nobody would ever see it: refused."""
    assert ["ForkedStore", ""] == run("in_memory", "")


def test_parents_conversation(database_url: str, run: Run) -> None:
    """A child may not write in its parent's name; it opens the conversation for itself."""
    call, turn, anew, verified = run("conversation", database_url)

    assert ["ForkedWriter", "ForkedWriter"] == [call, turn]
    assert ("opened", True) == (anew, verified)
