"""What was altered behind the store's back: named by `verify`, and a typed error where it matters.

Whatever columns may hold and `verify` finds is in ``tests/contract/test_verify.py``; here is what
the other readers do with it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import (
    BlobDamaged,
    ConversationDamaged,
    EventDamaged,
    EventStoreError,
    NotADatabase,
)
from eventstore.events import ToolResult, UserMessage
from projections import Views, worker
from projections.errors import ProjectionFailed
from projections.models.timeline import TIMELINE
from projections.upkeep import rebuild
from tests.contract.facade import say
from tests.contract.plain import PlainClient
from tests.exhaustive import partly
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, expected, stored

UNREADABLE = {
    "meta of another shape": "meta = '[]'",
    "meta of another type": 'meta = \'{"turn": "seven"}\'',
}
"""What both databases can be made to hold in a column, and no append writes."""
UNREADABLE_ON_SQLITE = {
    "bytes that are not text": "data = CAST(x'7bff7d' AS TEXT)",
    "bytes for a text": "data = x'ff'",
    "meta that is not JSON": "meta = '{'",
    "no event id": "event_id = 'nobody'",
    "no time": "recorded_at = 'yesterday'",
    "no chain value": "chain = 'text'",
}
UNREADABLE_ON_POSTGRESQL = {
    "a time after the year 9999": "recorded_at = '10000-01-01 00:00:00+00'",
    "a time before the year 1": "recorded_at = '0001-12-31 23:59:59+00 BC'",
    "no time": "recorded_at = 'infinity'",
}
READABLE = {
    "another payload": "data = '{\"parts\": 1}'",
    "another chain value": "chain = data_digest",
    "another digest": "data_digest = chain",
    "another type": "type = 'nonsense'",
}


def variants(changes: dict[str, str]) -> pytest.MarkDecorator:
    """Run a test with each of the changes."""
    return pytest.mark.parametrize("change", changes.values(), ids=changes)


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store with its views installed."""
    with EventStore.open(database_url) as store:
        Views(store)
        yield store


@pytest.fixture
def cid(store: EventStore) -> UUID:
    """Give a conversation, beside which there is another."""
    converse(store, 1)
    return converse(store, 1)


def alter(store: EventStore, cid: UUID, change: str, version: int = 3) -> None:
    """Change an event's row as the owner of the tables can."""
    with PlainClient(store.engine.url.render_as_string(hide_password=False)) as client:
        client.disarm()
        client.execute(
            f"UPDATE events SET {change} WHERE conversation_id = ? AND version = {version}", cid
        )


def check_unreadable(store: EventStore, cid: UUID, change: str) -> None:
    """Expect each reader to name conversation and version, and to go on with the others."""
    alter(store, cid, change)
    place = (cid, 3)

    assert [place] == [(p.conversation_id, p.version) for p in store.verify().problems]
    with pytest.raises(EventDamaged, match=f"event 3 of conversation {cid} is damaged") as read:
        list(store.read(cid))
    assert place == (read.value.conversation_id, read.value.version)
    with pytest.raises(ProjectionFailed) as viewed:
        Views(store).timeline(cid)
    assert place == (viewed.value.conversation_id, viewed.value.version)
    with pytest.raises(ProjectionFailed) as rebuilt:
        rebuild(store, ["timeline"])
    assert place == (rebuilt.value.conversation_id, rebuilt.value.version)

    report = rebuild(store, ["timeline"], skip_broken=True)
    assert [place] == [(each.conversation_id, each.version) for each in report.set_aside]
    assert [1, 2, 8] == [
        event.version
        for event in (
            *store.read(cid, before=3),
            *store.append(cid, say("an append needs no other event")).events,
        )
    ]


@variants(UNREADABLE)
def test_event_that_cannot_be_read(store: EventStore, cid: UUID, change: str) -> None:
    """Reading, folding and rebuilding name conversation and version; the others go on."""
    check_unreadable(store, cid, change)


@variants(UNREADABLE_ON_SQLITE)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_bytes_that_only_sqlite_takes(store: EventStore, cid: UUID, change: str) -> None:
    """The same, for what PostgreSQL's types do not let in."""
    check_unreadable(store, cid, change)


@variants(UNREADABLE_ON_POSTGRESQL)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_times_that_only_postgresql_takes(store: EventStore, cid: UUID, change: str) -> None:
    """The driver refused the whole page, and named no event."""
    check_unreadable(store, cid, change)
    with pytest.raises(EventDamaged, match=f"event 3 of conversation {cid} is damaged"):
        wait_for_feed(store).read_all()


@variants(READABLE)
def test_event_that_can_still_be_read(store: EventStore, cid: UUID, change: str) -> None:
    """Only verification finds it, and names the version; nothing else fails."""
    alter(store, cid, change)

    assert (cid, 3) == next((p.conversation_id, p.version) for p in store.verify().problems)
    assert list(range(1, 8)) == [event.version for event in store.read(cid)]
    assert [] != Views(store).timeline(cid)
    assert 2 == rebuild(store, ["timeline"]).conversations


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("change", ["version = 'seven'", "chain = 7", "chain = 'text'"])
def test_damaged_conversation(store: EventStore, cid: UUID, change: str) -> None:
    """Whoever needs the conversation's own row names it; its events are read, and the others'."""
    bystanders = [info.conversation_id for info in store.list() if info.conversation_id != cid]
    with PlainClient(store.engine.url.render_as_string(hide_password=False)) as client:
        client.execute(f"UPDATE conversations SET {change} WHERE conversation_id = ?", cid)

    found = [(problem.conversation_id, problem.kind) for problem in store.verify().problems]
    assert [(cid, "head_differs")] == found
    with pytest.raises(ConversationDamaged, match=f"the row of conversation {cid} is damaged"):
        store.append(cid, say("an append needs the row"))
    assert 7 == len(list(store.read(cid)))
    assert 8 == store.append(bystanders[0], say("that of another")).version


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("change", ["version = 'seven'", "created_at = 'yesterday'"])
def test_damaged_conversation_in_a_list(store: EventStore, cid: UUID, change: str) -> None:
    """Looking it up and listing it name the conversation whose row it is."""
    with PlainClient(store.engine.url.render_as_string(hide_password=False)) as client:
        client.execute(f"UPDATE conversations SET {change} WHERE conversation_id = ?", cid)

    for look_up in (lambda: store.get(cid), store.list):
        with pytest.raises(ConversationDamaged) as caught:
            look_up()
        assert cid == caught.value.conversation_id


def test_damaged_event_in_the_feed(store: EventStore, cid: UUID) -> None:
    """The page that would hold it is refused with the same error; those before are handed out."""
    alter(store, cid, "meta = '[]'")
    before = wait_for_feed(store).read_all(limit=9)
    assert 9 == len(before)

    with pytest.raises(EventDamaged) as caught:
        store.read_all(after=before.cursor)
    assert (cid, 3) == (caught.value.conversation_id, caught.value.version)


def test_damaged_blob(store: EventStore) -> None:
    """Of a tool result it is met when the whole text is asked for, of a message when it is read."""
    result, message = new_id(), new_id()
    store.append(result, [ToolResult(call_id="1.0", content="x" * 100_000)])
    store.append(message, [UserMessage.text("one"), UserMessage.text("x" * 100_000)])
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE blobs SET content = substr(content, 1, 8)")

    [event] = store.read(result)
    assert isinstance(event.data, ToolResult)
    assert event.data.blob is not None
    with pytest.raises(BlobDamaged):
        store.blob(result, event.data.blob.digest)
    assert [] != Views(store).timeline(result)
    with pytest.raises(BlobDamaged):
        list(store.read(message))
    with pytest.raises(ProjectionFailed) as caught:
        Views(store).timeline(message)
    assert (message, 2) == (caught.value.conversation_id, caught.value.version)
    assert {(result, 1), (message, 2)} == {
        (problem.conversation_id, problem.version) for problem in store.verify().problems
    }


@pytest.mark.parametrize("state", ['{"v": 1}', "[]", "null", "{"])
def test_damaged_state_of_a_fold(store: EventStore, cid: UUID, state: str) -> None:
    """What was folded is read on; what is new fails by name, and a rebuild mends it.

    For a process that needs the state: one that has it in memory goes on, and saves its own.
    """
    views = Views(store, memory_bytes=0)
    before = views.timeline(cid)
    views.context(cid)
    with store.writing() as connection:
        connection.exec_driver_sql(f"UPDATE projection_heads SET state = '{state}'")
    assert before == views.timeline(cid)
    store.append(cid, say("more"))

    with pytest.raises(ProjectionFailed) as caught:
        views.context(cid)
    assert (cid, 8) == (caught.value.conversation_id, caught.value.version)
    worker.run(store, once=True)
    rebuild(store)
    assert expected(store.read(cid)) == stored(store, cid)


def test_damaged_rows_of_a_view(store: EventStore, cid: UUID) -> None:
    """A rebuild mends them."""
    Views(store).timeline(cid)
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE timeline_items_g1 SET text = 'altered'")
    assert expected(store.read(cid), [TIMELINE]) != stored(store, cid, [TIMELINE])

    rebuild(store, ["timeline"])
    assert expected(store.read(cid), [TIMELINE]) == stored(store, cid, [TIMELINE])


def cut_in_half(path: Path) -> None:
    """As after a copy that was broken off."""
    os.truncate(path, path.stat().st_size // 2)


def lose_the_last_page(path: Path) -> None:
    """As after a file system's own damage."""
    os.truncate(path, path.stat().st_size - 4_096)


def spoil_all_but_the_first_page(path: Path) -> None:
    """Overwrite the head of each page."""
    with path.open("r+b") as file:
        for page in range(4_096, path.stat().st_size, 4_096):
            file.seek(page)
            file.write(b"\xff" * 64)


def test_a_schema_that_is_not_text(sqlite_url: str) -> None:
    """SQLite's own message quotes it, which Python cannot decode."""
    with EventStore.open(sqlite_url) as store:
        path = Path(str(store.engine.url.database))
    path.write_bytes(
        path.read_bytes().replace(b"CREATE TABLE erasures", b"CREATE \x80ABLE erasures")
    )

    with pytest.raises(NotADatabase, match="damaged"):
        EventStore.open(sqlite_url)


def spoiled(content: bytes, seed: int) -> bytes:
    """Overwrite pages, some bytes, or words of the schema and the payloads, by chance."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    damaged = bytearray(content)
    kind = chance.choice(["page", "bytes", "words", "words"])
    for _ in range(chance.choice([1, 3, 20])):
        at, length = chance.randrange(100, len(content) - 8), 8
        if kind == "page":
            at, length = chance.randrange(1, len(content) // 4_096) * 4_096, 4_096
        elif kind == "words":
            word = chance.choice([b"TABLE", b"events", b"parts", b"2026-", b"user_message", b'{"'])
            at, length = max(content.find(word, at), 0) or content.rfind(word, 0, at), len(word)
            if at < 0:
                continue
        damaged[at : at + length] = chance.randbytes(length)
    return bytes(damaged)


@pytest.mark.parametrize("seed", partly(range(40), 4))
def test_whatever_is_damaged_the_error_is_the_stores_own(sqlite_url: str, seed: int) -> None:
    """Pages are damaged at random; each use works, or raises an error of the tree."""
    with EventStore.open(sqlite_url) as store:
        cids = [converse(store, 1) for _ in range(3)]
        store.erase(cids[2], reason="asked for", versions=[3])
        Views(store).timeline(cids[0])
        worker.run(store, once=True)
    path = Path(str(store.engine.url.database))
    whole = path.read_bytes()
    uses: list[Callable[[EventStore], object]] = [
        lambda store: [list(store.read(cid)) for cid in cids],
        lambda store: [Views(store).timeline(cid) for cid in cids],
        lambda store: Views(store).context(cids[1], max_tokens=4_000, model="gpt-4o"),
        lambda store: store.read_all(skip_unreadable=True),
        lambda store: store.verify(),
        lambda store: (Views(store).conversations(), Views(store).usage()),
        lambda store: Views(store).search("hello"),
        lambda store: worker.run(store, once=True),
        lambda store: rebuild(store, skip_broken=True),
        lambda store: store.append(cids[1], say("more")),
        lambda store: store.fork(cids[1]),
        lambda store: store.erase(cids[0], reason="asked for", versions=[2]),
        lambda store: store.purge(cids[1], reason="asked for", forks=True),
    ]
    for each in range(6):
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        path.write_bytes(spoiled(whole, 1_000 * seed + each))
        with suppress(EventStoreError), EventStore.open(sqlite_url) as store:
            for use in uses:
                with suppress(EventStoreError):
                    use(store)


@pytest.mark.parametrize("damage", [cut_in_half, lose_the_last_page, spoil_all_but_the_first_page])
@pytest.mark.parametrize(
    "use",
    [
        lambda store, cid: store.verify(),
        lambda store, cid: list(store.read(cid)),
        lambda store, cid: store.append(cid, say("more")),
        lambda store, cid: Views(store).timeline(cid),
        lambda store, cid: rebuild(store),
    ],
    ids=["verify", "read", "append", "view", "rebuild"],
)
def test_damaged_file(
    sqlite_url: str, damage: Callable[[Path], None], use: Callable[[EventStore, UUID], object]
) -> None:
    """Whoever comes upon damaged pages is told so, in one error."""
    with EventStore.open(sqlite_url) as store:
        cid = converse(store, 1)
        converse(store, 20)
        Views(store).timeline(cid)
    damage(Path(str(store.engine.url.database)))

    with pytest.raises(NotADatabase, match="damaged"), EventStore.open(sqlite_url) as store:
        use(store, cid)
