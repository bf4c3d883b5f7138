"""``verify``."""

from __future__ import annotations

import sqlite3

from sqlalchemy import make_url

from eventstore import EventStore, new_id
from tests.cli.program import run
from tests.cli.samples import conversation_with
from tests.contract.plain import PlainClient


def alter_one_byte(url: str, version: int) -> None:
    """Change an event behind the store's back."""
    connection = sqlite3.connect(str(make_url(url).database))
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    for (name,) in triggers.fetchall():
        connection.execute(f'DROP TRIGGER "{name}"')
    change = "UPDATE events SET data = replace(data, 'Oslo', 'Bslo') WHERE version = ?"
    connection.execute(change, (version,))
    connection.commit()
    connection.close()


def test_verify_of_all(imported: str) -> None:
    """An untouched store passes, with the number of what was read."""
    done = run("verify", url=imported)
    assert (0, "2 conversations, 12 events: everything is as it was written\n") == (
        done.status,
        done.out,
    )


def test_verify_finds_one_byte(own: str) -> None:
    """One altered byte gives status 1 and names conversation and version."""
    cid = conversation_with(own, "How is the weather")
    alter_one_byte(own, 3)
    done = run("verify", url=own)
    assert 1 == done.status
    assert [cid, "3", "data_altered"] == done.out.splitlines()[2].split()[:3]


def test_verify_finds_one_byte_in_json(own: str) -> None:
    """The JSON report names conversation, version and kind."""
    cid = conversation_with(own, "How is the weather")
    alter_one_byte(own, 3)
    done = run("verify", cid, "--json", url=own)
    [problem] = done.document["problems"]
    assert (1, False) == (done.status, done.document["ok"])
    assert (cid, 3, "data_altered") == (
        problem["conversation_id"],
        problem["version"],
        problem["kind"],
    )


def without_its_row(url: str, beginning: str) -> str:
    """Delete a conversation's own row behind the store's back, and return its id."""
    cid = conversation_with(url, beginning)
    with PlainClient(url) as client:
        client.execute("DELETE FROM conversations WHERE conversation_id = ?", cid)
    return cid


def test_verify_finds_a_deleted_row(own_anywhere: str) -> None:
    """The command finds what the library finds: events whose conversation has no row."""
    cid = without_its_row(own_anywhere, "How is the weather")
    done = run("verify", "--json", url=own_anywhere)
    with EventStore.open(own_anywhere, read_only=True) as store:
        found = store.verify()
    assert (1, 2, found.events) == (done.status, found.conversations, done.document["events"])
    assert [cid] == [each["conversation_id"] for each in done.document["problems"]]
    assert [cid] == [str(each.conversation_id) for each in found.problems]


def test_verify_of_one_whose_row_is_deleted(own_anywhere: str) -> None:
    """Named by its whole id, it is verified as it is; an id that was never there is an error."""
    cid = without_its_row(own_anywhere, "How is the weather")
    assert 1 == run("verify", cid, url=own_anywhere).status
    unknown = run("verify", str(new_id()), url=own_anywhere)
    assert (2, 1) == (unknown.status, len(unknown.err.splitlines()))


def test_verify_beside_a_row_that_cannot_be_read(own: str) -> None:
    """A row that no append has written is a finding, and does not end the command."""
    with PlainClient(own) as client:
        client.execute("UPDATE conversations SET version = 'x', chain = 'text', created_at = 7")
    done = run("verify", "--json", url=own)
    assert (1, 2) == (done.status, len(done.document["problems"]))
