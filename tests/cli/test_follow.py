"""``eventstore follow``: a stream of lines that resumes where its reader was."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from eventstore import EventStore, new_id
from tests.cli.program import run, start
from tests.contract.facade import say
from tests.feed_wait import wait_for_feed


def test_lines_resume_at_their_cursor(database_url: str) -> None:
    """Each event is a line; the last one of a page has the place to go on from."""
    cid = new_id()
    with EventStore.open(database_url) as store:
        store.append(cid, say("one", "two"))
        lines = [json.loads(each) for each in _followed(database_url)]
        assert [1, 2] == [each["version"] for each in lines if each["conversation_id"] == str(cid)]
        assert "cursor" not in lines[-2]
        cursor = lines[-1]["cursor"]
        assert [] == _followed(database_url, "--from", cursor)
        store.append(cid, say("three"))
        [line] = _followed(database_url, "--from", cursor)
        assert "three" in line


def test_words(sqlite_url: str) -> None:
    """For people a line each, and how to go on."""
    with EventStore.open(sqlite_url) as store:
        store.append(new_id(), say("hello"))
    done = run("follow", "--once", url=sqlite_url)
    assert "1 hello" in done.out
    assert "go on with --from" in done.err


@pytest.mark.parametrize("cursor", ["x", "s2:1:abc", "p2:1:1:1:00", ""])
def test_a_cursor_that_is_none(database_url: str, cursor: str) -> None:
    """It is refused in one line, and nothing is printed."""
    EventStore.open(database_url).close()
    done = run("follow", "--once", "--json", "--from", cursor, url=database_url)
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))


def test_it_goes_on_until_it_is_stopped(sqlite_url: str, tmp_path: Path) -> None:
    """What another process commits is printed at once; a signal ends it well."""
    with EventStore.open(sqlite_url) as store:
        store.append(new_id(), say("first"))
        arguments = ("--db", sqlite_url, "follow", "--json")
        process = start(arguments, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        try:
            assert "first" in process.stdout.readline()
            store.append(new_id(), say("second"))
            assert "second" in process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
    assert (0, "") == (process.returncode, errors)


def _followed(url: str, *more: str) -> list[str]:
    """Return the lines up to the end of the log; on PostgreSQL that may lag a moment."""
    with EventStore.open(url) as store:
        wait_for_feed(store)
    done = run("follow", "--once", "--json", *more, url=url)
    assert done.status == 0, done.err
    return done.out.splitlines()
