"""A conversation whose key is lost: it can be erased, and it stops nothing that concerns others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import DirectoryKeys, EventStore, new_id
from eventstore.errors import EventDamaged, KeyUnavailable
from projections import Views
from projections.upkeep import rebuild
from projections.worker import run
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient


def lose_key(keys: DirectoryKeys, conversation_id: UUID) -> None:
    """Delete the file of a conversation's key."""
    [path] = keys.directory.rglob(f"{conversation_id}.*.key")
    path.unlink()


def settled(store: EventStore) -> list[UUID]:
    """Return the conversations in the feed, page by page."""
    found: list[UUID] = []
    page = store.read_all(limit=1)
    while page.events:
        found += [event.conversation_id for event in page.events]
        page = store.read_all(after=page.cursor, limit=1)
    return found


@pytest.fixture
def ids(database_url: str, keys: DirectoryKeys) -> list[UUID]:
    """Three conversations of a user; the key of the second one is lost."""
    ids = sorted(new_id() for _ in range(3))
    with EventStore.open(database_url, keys=keys) as store:
        for each in ids:
            store.append(each, say("1", "2"), user_id="ada")
    lose_key(keys, ids[1])
    return ids


def test_erasing_a_user_goes_on(database_url: str, keys: DirectoryKeys, ids: list[UUID]) -> None:
    """Every call ended at the conversation that cannot be read, and it could never be erased."""
    with EventStore.open(database_url, keys=keys) as store:
        done = store.erase_user("ada", reason="asked for")

        assert (tuple(ids), 6, ()) == (done.conversations, done.event_count, done.left)
        assert all(event.erased for each in ids for event in store.read(each, limit=2))
        assert 3 == store.erase_user("ada", reason="asked for").erased_before
        assert store.verify().ok


def test_single_events_can_be_erased(
    database_url: str, keys: DirectoryKeys, ids: list[UUID]
) -> None:
    """Their copies were sealed with the same key, so nobody can read those either."""
    with EventStore.open(database_url, keys=keys) as store:
        receipt = store.erase(ids[1], reason="asked for", versions=[1])

        assert (1,) == receipt.versions
        assert ["unreadable"] == [each.what for each in receipt.quoted_by]


def test_the_feed_passes_it(database_url: str, keys: DirectoryKeys, ids: list[UUID]) -> None:
    """It stopped at the first event that cannot be read, for every tenant."""
    with EventStore.open(database_url, keys=keys) as store:
        assert [each for each in (ids[0], ids[2]) for _ in range(2)] == settled(store)
        [passed] = store.read_all().passed
        assert (ids[1], 1, 2, 2) == (
            passed.conversation_id,
            passed.first,
            passed.last,
            passed.count,
        )
        assert "has no key" in passed.reason


@pytest.mark.parametrize(
    "work",
    [
        lambda store: rebuild(store),
        lambda store: run(store, once=True),
        lambda store: Views(store).conversations(),
        lambda store: Views(store).search("1"),
        lambda store: Views(store).usage(),
    ],
    ids=["rebuild", "worker", "list", "search", "usage"],
)
def test_work_on_all_conversations_goes_on(
    database_url: str, keys: DirectoryKeys, ids: list[UUID], work: Callable[[EventStore], object]
) -> None:
    """A rebuild was refused because of it."""
    with EventStore.open(database_url, keys=keys) as store:
        work(store)
        shown = Views(store).conversations()
        assert {ids[0], ids[2]} == {row.conversation_id for row in shown}


def test_a_rebuild_reports_it(database_url: str, keys: DirectoryKeys, ids: list[UUID]) -> None:
    """The report names the conversation that is missing."""
    with EventStore.open(database_url, keys=keys) as store:
        report = rebuild(store, ["timeline"])
    assert [(ids[1], "timeline")] == [
        (each.conversation_id, each.projection) for each in report.set_aside
    ]


class Away(DirectoryKeys):
    """Keys that cannot be reached at the moment."""

    def get(self, conversation_id: UUID, key_id: str) -> bytes | None:
        """Fail."""
        raise OSError("no route to host")


def test_a_key_that_may_come_back_stops_the_feed(
    database_url: str, keys: DirectoryKeys, ids: list[UUID]
) -> None:
    """Otherwise an outage of the keys would be taken for their loss; who wants to may pass it."""
    with EventStore.open(database_url, keys=Away(keys.directory)) as store:
        with pytest.raises(KeyUnavailable, match="no route to host"):
            store.read_all()
        page = store.read_all(skip_unreadable=True)
        assert {*ids} == {each.conversation_id for each in page.passed}


@pytest.mark.parametrize(
    "work",
    [
        lambda store: rebuild(store),
        lambda store: run(store, once=True),
        lambda store: Views(store).conversations(),
        lambda store: Views(store).search("1"),
        lambda store: Views(store).usage(),
    ],
    ids=["rebuild", "worker", "list", "search", "usage"],
)
def test_a_key_that_may_come_back_stops_no_other_conversation(
    database_url: str,
    keys: DirectoryKeys,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[EventStore], object],
) -> None:
    """One request that timed out stopped worker, lists and rebuilds; it is tried again later."""
    ids = sorted(new_id() for _ in range(3))
    with EventStore.open(database_url, keys=keys) as store:
        for each in ids:
            store.append(each, say("1", "2"))
    found = keys.get

    def get(conversation_id: UUID, key_id: str) -> bytes | None:
        if conversation_id == ids[1]:
            raise TimeoutError("no answer")
        return found(conversation_id, key_id)

    monkeypatch.setattr(keys, "get", get)
    with EventStore.open(database_url, keys=keys) as store:
        work(store)
        shown = Views(store).conversations()
        assert {ids[0], ids[2]} == {row.conversation_id for row in shown}
        monkeypatch.setattr(keys, "get", found)
        monkeypatch.setattr("projections.engine.follower.RETRY_S", 0)
        assert {*ids} == {row.conversation_id for row in Views(store).conversations()}
        assert {*ids} == {hit.conversation_id for hit in Views(store).search("1")}


def test_a_store_without_keys_still_says_so(
    database_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """Nothing is set aside because of a store that was opened in the wrong way."""
    with EventStore.open(database_url, keys=keys) as store:
        store.append(cid, say("1"))
    with EventStore.open(database_url) as store, pytest.raises(KeyUnavailable, match="without"):
        Views(store).conversations()
    with EventStore.open(database_url, keys=keys) as store:
        assert [cid] == [row.conversation_id for row in Views(store).conversations()]


def test_a_damaged_event_can_be_passed(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """There was no way past it."""
    store = fresh
    store.append(cid, say("1", "2"))
    store.append(other := new_id(), say("3"))
    plain.disarm()
    plain.execute("UPDATE events SET meta = '[]' WHERE version = 2")

    with pytest.raises(EventDamaged):
        store.read_all()
    page = store.read_all(skip_unreadable=True)
    assert ["1", "3"] == texts(page.events)
    assert [(cid, 2)] == [(each.conversation_id, each.first) for each in page.passed]
    assert other == page.events[-1].conversation_id


@pytest.mark.parametrize(
    "given", [None, "x" * 32, b"short", b"x" * 33, 7, [1] * 32, ValueError("own error")]
)
def test_what_is_no_key_is_refused(
    sqlite_url: str, tmp_path: Path, cid: UUID, given: object
) -> None:
    """It was an assertion or the error of another package."""

    class Odd(DirectoryKeys):
        def create(self, conversation_id: UUID, key_id: str) -> bytes:
            if isinstance(given, Exception):
                raise given
            return given  # type: ignore[return-value]

    with (
        EventStore.open(sqlite_url, keys=Odd(tmp_path / "keys")) as store,
        pytest.raises(KeyUnavailable),
    ):
        store.append(cid, say("1"))


@pytest.mark.parametrize("given", ["x" * 32, b"short", 7, KeyError("own"), RuntimeError("own")])
def test_what_is_no_key_is_refused_when_reading(
    sqlite_url: str, keys: DirectoryKeys, cid: UUID, given: object
) -> None:
    """As when a key is created; what was sealed can be erased all the same."""
    with EventStore.open(sqlite_url, keys=keys) as store:
        store.append(cid, say("1"))

    class Odd(DirectoryKeys):
        def get(self, conversation_id: UUID, key_id: str) -> bytes | None:
            if isinstance(given, Exception):
                raise given
            return given  # type: ignore[return-value]

    with EventStore.open(sqlite_url, keys=Odd(keys.directory)) as store:
        with pytest.raises(KeyUnavailable):
            list(store.read(cid))
        store.erase(cid, reason="asked for", keep_usage=False)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"plain YWJj", b"plain ???"])
def test_a_damaged_key_file_is_a_lost_key(
    sqlite_url: str, keys: DirectoryKeys, content: bytes
) -> None:
    """Bytes that are not text were taken for a passing failure, which stops everybody."""
    with EventStore.open(sqlite_url, keys=keys) as store:
        store.append(cid := new_id(), say("1"), user_id="bob")
    [path] = keys.directory.rglob(f"{cid}.*.key")
    path.write_bytes(content)
    with EventStore.open(sqlite_url, keys=keys) as store:
        store.read_all()
        assert (cid,) == store.erase_user("bob", reason="asked for").conversations
