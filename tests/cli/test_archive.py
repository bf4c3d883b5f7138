"""``eventstore archive`` from the command line, and whatever is killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from eventstore import EventStore, new_id
from tests.cli.program import run, start
from tests.contract.facade import say

MOMENT = ("--days", "0.00000001")


def test_there_and_back(database_url: str, tmp_path: Path) -> None:
    """Run, list, verify and restore say what they did, as text and as JSON."""
    place = tmp_path / "archive"
    with EventStore.open(database_url) as store:
        cid = store.append("our-key", say("hello", "more"), user_id="ada").conversation_id
    assert (
        "0 conversations" in run("archive", "run", str(place), "--days", "1", url=database_url).out
    )
    done = run("archive", "run", str(place), *MOMENT, "--json", url=database_url)
    assert (0, 1, 2) == (done.status, done.document["conversations"], done.document["events"])
    listed = run("archive", "list", "--json", url=database_url).document
    assert [str(cid)] == [each["conversation_id"] for each in listed]
    assert str(cid) in run("archive", "list", "--user-id", "ada", url=database_url).out
    assert str(cid) not in run("archive", "list", "--user-id", "bob", url=database_url).out
    for name in (str(cid), str(cid)[:8], "our-key"):
        done = run("timeline", name, url=database_url)
        assert (2, True) == (done.status, f"archive restore {cid}" in done.err)
    assert "1 file read, 0 problems" in run("archive", "verify", url=database_url).out
    [file] = place.iterdir()
    content = file.read_bytes()
    file.write_bytes(b"?")
    done = run("archive", "verify", "--json", url=database_url)
    assert (1, 1) == (done.status, len(done.document["problems"]))
    done = run("archive", "restore", str(cid)[:8], url=database_url)
    assert (2, True) == (done.status, "not those that were written" in done.err)
    file.write_bytes(content)
    done = run("archive", "restore", "our-key", url=database_url)
    assert (0, f"restored {cid} with its 2 events\n") == (done.status, done.out)
    assert "hello" in run("timeline", "our-key", url=database_url).out
    done = run("archive", "restore", "our-key", url=database_url)
    assert (2, True) == (done.status, "not in the archive" in done.err)


def test_what_could_not_be_moved_is_named(database_url: str, tmp_path: Path) -> None:
    """The others are moved, and the status says that something was found."""
    with EventStore.open(database_url) as store:
        for _ in range(2):
            store.append(new_id(), say("hello"))
        damaged = store.append(new_id(), say("hello")).conversation_id
        with store.writing() as connection:
            connection.exec_driver_sql(
                f"UPDATE conversations SET version = 7 WHERE conversation_id = '{damaged}'"
            )
    done = run("archive", "run", str(tmp_path / "archive"), *MOMENT, url=database_url)
    assert (1, True) == (done.status, "2 conversations, 2 events" in done.out)
    assert f"{damaged} left here" in done.err
    assert "does not verify" in done.err
    assert 2 == len([*(tmp_path / "archive").iterdir()])


@pytest.mark.parametrize("delay_s", [0.9, 1.1, 1.3])
def test_whatever_is_killed_nothing_is_lost(
    database_url: str, tmp_path: Path, delay_s: float
) -> None:
    """Each conversation is here or there, whole, and a later run and restore find all of them."""
    with EventStore.open(database_url) as store:
        ids = {
            store.append(new_id(), say("hello", "more" * 1_000)).conversation_id for _ in range(60)
        }
        place = tmp_path / "archive"
        process = start(["--db", database_url, "archive", "run", str(place), *MOMENT], tmp_path)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        here = {each.conversation_id for each in store.list(limit=100)}
        there = {each.conversation_id for each in store.archived(limit=100)}
        assert (ids, set()) == (here | there, here & there)
        assert store.verify().ok
        assert [] == store.verify_archive()
        for each in there:
            store.restore(each)
        assert all(2 == len([*store.read(each)]) for each in ids)
