"""Purging: a conversation leaves no trace but its receipt, and the log goes on around it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import ConversationForked, ConversationNotFound, InvalidEvent, OwnerMismatch
from eventstore.events import ToolResult
from eventstore.owners import Owned
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient

MARKER = "xylophone-4711"
KEPT = {"purges", "retired_keys"}


def rows_of(plain: PlainClient, cid: UUID) -> dict[str, int]:
    """Return how many rows each table has of a conversation, of those that have any."""
    if plain.dialect == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    else:
        query = (
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
            "AND relnamespace = quote_ident(current_schema())::regnamespace"
        )
    found = {}
    for (name,) in plain.execute(query):
        if "conversation_id" not in columns_of(plain, name):
            continue
        [(count,)] = plain.execute(
            f"SELECT count(*) FROM {name} WHERE conversation_id = ?",
            cid,
        )
        if count:
            found[name] = count
    return found


def columns_of(plain: PlainClient, table: str) -> set[str]:
    """Return the names of a table's columns."""
    if plain.dialect == "sqlite":
        return {row[1] for row in plain.execute(f"PRAGMA table_info({table})")}
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = ?"
    return {row[0] for row in plain.execute(query, table)}


def test_nothing_is_left_but_the_receipt(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """No row of any table, nor a word or a name in any of them."""
    said = [*say(MARKER), ToolResult(call_id="1.0", content=f"{MARKER} " * 10_000)]
    fresh.append(cid, said, user_id=f"user of {MARKER}", tenant_id=MARKER)
    fresh.erase(cid, reason="first", versions=[1], requested_by=MARKER)
    other = new_id()
    fresh.append(other, say("stays"))

    receipt = fresh.purge(cid, reason="asked for", requested_by="the office")

    assert (cid, 3, 1, ()) == (
        receipt.conversation_id,
        receipt.event_count,
        receipt.blob_count,
        receipt.forks,
    )
    assert {"purges": 1} == {
        name: count for name, count in rows_of(plain, cid).items() if name != "retired_keys"
    }
    assert MARKER.encode() not in plain.dump()
    with pytest.raises(ConversationNotFound):
        fresh.get(cid)
    assert [] == list(fresh.read(cid))
    assert [other] == [each.conversation_id for each in fresh.list()]
    assert fresh.verify().ok


def test_no_byte_of_sqlite_files_holds_it(sqlite_url: str, cid: UUID) -> None:
    """Freed pages are overwritten, and the write-ahead log is emptied."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        store.append(cid, [*say(MARKER), ToolResult(call_id="1", content=MARKER * 10_000)])

        assert store.purge(cid, reason="asked for").log_emptied

        path = Path(client.address.database or "")
        files = path.parent.glob(f"{path.name}*")
        assert [] == [file.name for file in files if MARKER.encode() in file.read_bytes()]


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_cursor_at_a_purged_event_goes_on(fresh: EventStore, cid: UUID, place: int) -> None:
    """Whoever has read up to it, or to any other event, sees what follows, and nothing twice."""
    other = new_id()
    fresh.append(other, say("1"))
    fresh.append(cid, say("2", "3"))
    fresh.append(other, say("4"))
    start = fresh.read_all(limit=place) if place else None
    begun = start.cursor if start else None

    fresh.purge(cid, reason="asked for")
    fresh.append(other, say("5"))
    fresh.append(cid, say("6"))

    seen = {0: [], 1: ["1"], 2: ["1"], 3: ["1"]}[place]
    assert ["1", "4", "5", "6"] == [*seen, *texts(fresh.read_all(after=begun).events)]


def test_the_newest_events_are_purged(fresh: EventStore, cid: UUID) -> None:
    """Their places in the feed are not taken again: a follower at the end misses nothing."""
    other = new_id()
    fresh.append(other, say("1"))
    fresh.append(cid, say("2", "3"))
    cursor = fresh.read_all().cursor
    fresh.purge(cid, reason="asked for")
    assert [] == texts(fresh.read_all(after=cursor).events)
    fresh.append(other, say("4"))
    page = fresh.read_all(after=cursor)
    assert ["4"] == texts(page.events)
    assert [] == texts(fresh.read_all(after=page.cursor).events)


def test_it_can_begin_anew(fresh: EventStore) -> None:
    """The product's key is free, and what was said before is in none of what follows."""
    fresh.append("chat-1", say("old"), user_id="ada")
    fresh.purge("chat-1", reason="asked for")
    assert fresh.find(key="chat-1") is None
    assert 1 == fresh.append("chat-1", say("new"), user_id="bob").version
    assert ["new"] == texts(fresh.read("chat-1"))
    assert fresh.verify().ok
    fresh.purge("chat-1", reason="again")
    assert [] == list(fresh.read("chat-1"))


def test_nobody_deletes_events_that_no_receipt_names(
    fresh: EventStore, plain: PlainClient, cid: UUID
) -> None:
    """A receipt opens the door for the events that were purged, and not for those after them."""
    fresh.append(cid, say("old"))
    fresh.purge(cid, reason="asked for")
    fresh.append(cid, say("new"))
    for statement in ("DELETE FROM events", "DELETE FROM purges", "UPDATE purges SET reason = ''"):
        with pytest.raises(Exception, match="immutable"):
            plain.execute(statement)
    assert ["new"] == texts(fresh.read(cid))


def test_forks_that_share_its_events_are_named(fresh: EventStore, cid: UUID) -> None:
    """Nothing is purged from under them; with ``forks=True`` they go too, and theirs."""
    fresh.append(cid, say("1", "2"))
    fork = fresh.fork(cid).conversation_id
    second = fresh.fork(fork).conversation_id
    with pytest.raises(ConversationForked, match=str(fork)) as caught:
        fresh.purge(cid, reason="asked for")
    assert {fork, second} == {*caught.value.forks}
    assert ["1", "2"] == texts(fresh.read(cid))

    receipt = fresh.purge(cid, reason="asked for", forks=True)

    assert ({fork, second}, 4) == ({*receipt.forks}, receipt.event_count)
    assert [] == fresh.list()
    assert fresh.verify().ok


def test_a_fork_is_purged_by_itself(fresh: EventStore, cid: UUID) -> None:
    """What it shares is its parent's, and stays there."""
    fresh.append(cid, say("1"))
    fork = fresh.fork(cid, events=say("2")).conversation_id
    receipt = fresh.purge(fork, reason="asked for")
    assert 2 == receipt.event_count
    assert ["1"] == texts(fresh.read(cid))
    assert fresh.verify().ok


def test_another_owner_is_refused(store: EventStore, cid: UUID) -> None:
    """By name, through a bound store, and where a fork is somebody else's."""
    store.append(cid, say("1"), user_id="ada")
    bob: Owned = {"user_id": "bob"}
    with pytest.raises(OwnerMismatch):
        store.purge(cid, reason="asked for", **bob)
    store.fork(cid, new_user_id="bob")
    with pytest.raises(OwnerMismatch):
        store.purge(cid, reason="asked for", forks=True, user_id="ada")
    assert ["1"] == texts(store.read(cid))


def test_again_gives_the_receipt_again(store: EventStore, cid: UUID) -> None:
    """Whoever died after the commit repeats it; whoever names an owner is told of nothing."""
    store.append(cid, say("1"), user_id="ada")
    first = store.purge(cid, reason="asked for", requested_by="the office")
    assert first == store.purge(cid, reason="again")
    with pytest.raises(ConversationNotFound):
        store.purge(cid, reason="again", user_id="ada")


def test_what_is_missing(store: EventStore, cid: UUID) -> None:
    """A conversation, or a reason."""
    with pytest.raises(ConversationNotFound):
        store.purge(cid, reason="asked for")
    store.append(cid, say("1"))
    with pytest.raises(InvalidEvent, match="needs a reason"):
        store.purge(cid, reason=" ")


def test_a_checkpoint_does_not_miss_it(fresh: EventStore, cid: UUID, tmp_path: Path) -> None:
    """What has a receipt is not told as gone, also where its key began anew."""
    pytest.importorskip("cryptography")
    fresh.append(cid, say("1"))
    fresh.append(new_id(), say("2"))
    fresh.checkpoint(tmp_path / "signed")
    fresh.purge(cid, reason="asked for")
    assert fresh.verify_against(tmp_path / "signed").ok
    fresh.append(cid, say("1"))
    assert fresh.verify_against(tmp_path / "signed").ok
