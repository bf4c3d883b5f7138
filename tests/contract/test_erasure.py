"""Erasure: what was said is gone from everywhere, and the proof of order and completeness stays."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, new_id
from eventstore import events as e
from eventstore.errors import BlobNotFound, ConversationNotFound, InvalidEvent
from eventstore.events import AssistantMessage, Erasure, ToolResult, UnknownEvent
from tests.contract.facade import result_of, say, texts
from tests.contract.plain import PlainClient

MARKER = "xylophone-4711"
LARGE = f"{MARKER} in a text far over the threshold; " * 2_000


def files_of(client: PlainClient) -> bytes:
    """Return all bytes that SQLite keeps on disk: the file, its log and its index."""
    path = Path(client.address.database or "")
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def test_payloads_and_blobs_are_gone(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Neither a table nor, on SQLite, a byte on disk holds what was said."""
    fresh.append(
        cid,
        [
            *say(f"my word is {MARKER}", LARGE),
            AssistantMessage.of(MARKER, raw={MARKER: [MARKER]}),
            ToolResult(call_id="3.0", content=LARGE),
        ],
    )
    digest = result_of(next(fresh.read(cid, after=3))).blob
    assert digest is not None
    assert MARKER.encode() in plain.dump()

    fresh.erase(cid, reason="the user asked for it")

    assert MARKER.encode() not in plain.dump()
    assert [] == plain.execute("SELECT * FROM blobs")
    # Whoever has a digest without a salt can make sure of what he guesses.
    assert digest.digest.encode() not in plain.dump()
    with pytest.raises(BlobNotFound):
        fresh.blob(cid, digest.digest)


def test_no_byte_stays_on_disk(sqlite_url: str, cid: UUID) -> None:
    """Freed pages are overwritten, and the write-ahead log is emptied."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        for _ in range(50):
            store.append(cid, [*say(f"my word is {MARKER}"), ToolResult(call_id="1", content="x")])
        assert MARKER.encode() in files_of(client)

        store.erase(cid, reason="the user asked for it")

        assert MARKER.encode() not in files_of(client)


@pytest.mark.parametrize("then", ["close", "vacuum", "erase"])
def test_a_reader_that_stays_is_waited_for_shortly(
    sqlite_url: str, cid: UUID, caplog: pytest.LogCaptureFixture, then: str
) -> None:
    """It kept an erasure, and all writers, waiting for the busy timeout; it still can read on."""
    with (
        EventStore.open(sqlite_url) as reader,
        EventStore.open(sqlite_url) as store,
        PlainClient(sqlite_url) as client,
    ):
        store.append(cid, say(f"my word is {MARKER}"))
        with reader.reading() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM events")
            started = time.monotonic()
            receipt = store.erase(cid, reason="the user asked for it")
            assert time.monotonic() - started < 10
            assert receipt.log_emptied is False
            assert 1 == caplog.text.count("a reader holds them")
            assert MARKER.encode() in files_of(client)
            assert MARKER not in repr(list(store.read(cid)))

        if then == "erase":
            assert store.erase(cid, reason="once more").log_emptied is True
        else:
            {"close": store.close, "vacuum": store.vacuum}[then]()
        assert MARKER.encode() not in files_of(client)


def test_no_byte_stays_of_what_projections_wrote_over(sqlite_url: str, cid: UUID) -> None:
    """Rows that a projection replaced before the erasure have left no copies in freed space."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        store.append(cid, say("hello"))
        with store.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE notes_g1 (conversation_id TEXT, body TEXT)")
            connection.exec_driver_sql(
                "INSERT INTO projections VALUES ('notes', 1, 1, 'live', '[\"notes_g1\"]', NULL, '')"
            )
        for number in range(200):
            with store.writing() as connection:
                body = f"{MARKER} " * (1 + number % 90)
                connection.exec_driver_sql("INSERT INTO notes_g1 VALUES (?, ?)", (str(cid), body))
                connection.exec_driver_sql(
                    "DELETE FROM notes_g1 WHERE rowid % 7 = ?", (number % 7,)
                )

        store.erase(cid, reason="the user asked for it")

        assert MARKER.encode() not in files_of(client)


META = Meta(turn=2, session_id="s", actor=MARKER, causation_id=MARKER, correlation_id=MARKER)


@pytest.mark.parametrize("size", [10, 100_000])
def test_metadata_that_identifies_goes_too(
    fresh: EventStore, plain: PlainClient, cid: UUID, size: int
) -> None:
    """Who caused an event, and the product's ids of causes, go with the payload."""
    said = [*say("x" * size), ToolResult(call_id="1.0", content="y" * size), e.SessionStart()]
    unknown = UnknownEvent("custom", 1, {"$meta": {"actor": "no"}, "a": size})
    empty = UnknownEvent("custom", 1, {})
    done = fresh.append(cid, [*said, unknown, empty], meta=META)
    before = list(fresh.read(cid))
    assert list(done.events) == before
    assert {META} == {event.meta for event in before}
    assert [{"$meta": {"actor": "no"}, "a": size}, {}] == [
        event.data.raw for event in before if isinstance(event.data, UnknownEvent)
    ]
    assert fresh.verify(cid).ok
    assert MARKER.encode() in plain.dump()

    fresh.erase(cid, reason="asked for")

    assert MARKER.encode() not in plain.dump()
    kept = Meta(turn=2, session_id="s")
    assert [kept] * 5 == [event.meta for event in fresh.read(cid, before=6)]
    assert fresh.verify(cid).ok


@pytest.mark.parametrize(
    "raw", [{"$meta": {"actor": "no"}}, {"$meta": 1, "a": 2}, {"$value": 1}, {}, [1], "x", None]
)
@pytest.mark.parametrize("meta", [Meta(), Meta(actor="ada", turn=1)])
def test_a_payload_that_looks_like_metadata(
    store: EventStore, cid: UUID, raw: object, meta: Meta
) -> None:
    """What somebody calls as this project calls metadata, or is not an object, is as it was."""
    store.append(cid, [UnknownEvent("custom", 1, raw)], meta=meta)

    [event] = store.read(cid)
    assert isinstance(event.data, UnknownEvent)
    assert (raw, meta) == (event.data.raw, event.meta)
    assert store.verify(cid).ok


def test_the_erased_stream_is_whole_and_verifies(store: EventStore, cid: UUID) -> None:
    """Headers, metadata, order and hashes stay; only the payloads are gone."""
    store.append(cid, [*say("1", "2"), ToolResult(call_id="1.0", content=LARGE)])
    before = list(store.read(cid))

    store.erase(cid, reason="test")

    after = list(store.read(cid, before=4))
    assert [None] * 3 == [event.data for event in after]
    assert all(event.erased for event in after)
    assert [(e.version, e.event_id, e.type, e.recorded_at, e.meta, e.chain) for e in before] == [
        (e.version, e.event_id, e.type, e.recorded_at, e.meta, e.chain) for e in after
    ]
    assert store.verify(cid).ok


def test_the_receipt_is_an_event(store: EventStore, cid: UUID) -> None:
    """What was erased, why and for whom stands in the stream, and is what the caller gets."""
    store.append(cid, [*say("1"), ToolResult(call_id="1.0", content=LARGE)])

    receipt = store.erase(cid, reason="Art. 17", requested_by="user:7")

    (event,) = store.read(cid, after=2)
    assert Erasure(
        erasure_id=str(receipt.erasure_id),
        reason="Art. 17",
        whole=True,
        versions=(1, 2),
        event_count=2,
        blob_count=1,
        blob_bytes=len(LARGE),
        requested_by="user:7",
    ) == (event.data)
    assert (cid, 3, "Art. 17") == (receipt.conversation_id, receipt.version, receipt.reason)
    assert (1, len(LARGE)) == (receipt.blob_count, receipt.blob_bytes)


def test_some_versions_only(store: EventStore, cid: UUID) -> None:
    """The other events keep their payload."""
    store.append(cid, say("1", "2", "3", "4"))

    receipt = store.erase(cid, reason="test", versions=[4, 2])

    assert (2, 4) == receipt.versions
    kept = [event for event in store.read(cid, before=5) if not event.erased]
    assert ["1", "3"] == texts(kept)
    assert store.verify(cid).ok


def test_a_blob_stays_while_an_event_needs_it(store: EventStore, cid: UUID) -> None:
    """Two results with the same bytes share a blob; it goes with the second."""
    done = store.append(
        cid, [ToolResult(call_id=call_id, content=LARGE) for call_id in ("1.0", "1.1")]
    )
    blob = result_of(done.events[0]).blob
    assert blob is not None

    first = store.erase(cid, reason="test", versions=[1])
    kept = store.blob(cid, blob.digest)
    second = store.erase(cid, reason="test", versions=[2])

    assert (0, LARGE.encode(), 1) == (first.blob_count, kept, second.blob_count)
    with pytest.raises(BlobNotFound):
        store.blob(cid, blob.digest)
    assert store.verify(cid).ok


def test_blobs_of_other_conversations_stay(store: EventStore, cid: UUID) -> None:
    """The same bytes in another conversation are kept for themselves."""
    store.append(cid, [ToolResult(call_id="1.0", content=LARGE)])
    done = store.append(other := new_id(), [ToolResult(call_id="1.0", content=LARGE)])
    blob = result_of(done.events[0]).blob
    assert blob is not None

    store.erase(cid, reason="test")

    assert LARGE.encode() == store.blob(other, blob.digest)


def test_erasing_again_keeps_the_receipts(store: EventStore, cid: UUID) -> None:
    """What was said since is erased; the earlier receipt is not."""
    store.append(cid, say("1"))
    store.erase(cid, reason="first")
    store.append(cid, say("3"))

    receipt = store.erase(cid, reason="second")

    assert ((3,), 4) == (receipt.versions, receipt.version)
    reasons = [e.data.reason for e in store.read(cid) if isinstance(e.data, Erasure)]
    assert ["first", "second"] == reasons
    assert store.verify(cid).ok


def test_the_conversation_goes_on(store: EventStore, cid: UUID) -> None:
    """An erased conversation takes new events as any other."""
    store.append(cid, say("1"))
    store.erase(cid, reason="test")

    assert 3 == store.append(cid, say("again"), expected_version=2).version
    assert store.verify(cid).ok


def test_a_reason_is_needed(store: EventStore, cid: UUID) -> None:
    """Nothing is erased without saying why."""
    store.append(cid, say("1"))

    with pytest.raises(InvalidEvent, match="needs a reason"):
        store.erase(cid, reason=" ")
    assert ["1"] == texts(store.read(cid))


def test_an_unknown_conversation(store: EventStore, cid: UUID) -> None:
    """There is nothing to erase, and no receipt."""
    with pytest.raises(ConversationNotFound):
        store.erase(cid, reason="test")
    assert [] == list(store.read(cid))


def test_projection_tables_are_reached(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Rows of every registered table go in the same transaction, those of others stay.

    Those that no generation owns are registered by their names; one may be gone by now.
    """
    other = new_id()
    kind = "TEXT" if plain.dialect == "sqlite" else "UUID"
    generations, shared = ["notes_g1", "notes_g2"], ["note_words"]
    names = [*generations, *shared]
    for name in names:
        plain.execute(f"CREATE TABLE {name} (conversation_id {kind}, body TEXT)")
    plain.execute(
        "INSERT INTO projections VALUES ('notes', 2, 1, 'live', ?, NULL, '2020-01-01T00:00:00Z')",
        json.dumps(generations),
    )
    for place, name in enumerate([*shared, "long_gone"], 100):
        plain.execute("INSERT INTO shared_tables VALUES (?, ?)", name, place)
    for conversation_id in (cid, other):
        fresh.append(conversation_id, say("hello"))
        plain.execute(
            "INSERT INTO projection_heads VALUES (?, 'notes', 2, 1, ?)", conversation_id, "{}"
        )
        for name in names:
            plain.execute(f"INSERT INTO {name} VALUES (?, ?)", conversation_id, MARKER)

    fresh.erase(cid, reason="test")

    for name in (*names, "projection_heads"):
        rows = plain.execute(f"SELECT conversation_id FROM {name}")
        assert [str(other)] == [str(row[0]) for row in rows]


def test_vacuum(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Erasing with a vacuum leaves no byte on disk, also what a client without care had left."""
    fresh.append(cid, say(f"my word is {MARKER}"))
    if plain.dialect == "sqlite":
        plain.execute("PRAGMA secure_delete = OFF")
        plain.execute(f"CREATE TABLE scratch AS SELECT '{MARKER}' AS word")
        plain.execute("DROP TABLE scratch")

    receipt = fresh.erase(cid, reason="asked for", vacuum=True)

    assert (1,) == receipt.versions
    assert MARKER.encode() not in plain.dump()
    if plain.dialect == "sqlite":
        assert MARKER.encode() not in files_of(plain)
    assert fresh.verify(cid).ok


@pytest.mark.parametrize("versions", [["1"], [1, "2"], [True], [1, 4], [0, 1], [-1], [2**70]])
def test_what_is_no_version_is_refused(store: EventStore, cid: UUID, versions: list[Any]) -> None:
    """It was left out of the receipt, which otherwise looked as if all had been erased."""
    store.append(cid, say("one", "two", "three"))

    with pytest.raises(InvalidEvent, match=r"is not a version|there is no event"):
        store.erase(cid, reason="x", versions=versions)

    assert ["one", "two", "three"] == texts(store.read(cid))


@pytest.mark.parametrize("name", ["erase", "purge"])
def test_a_reason_is_a_text(store: EventStore, cid: UUID, name: str) -> None:
    """None is no reason."""
    store.append(cid, say("one"))

    with pytest.raises(InvalidEvent, match="needs a reason"):
        getattr(store, name)(cid, reason=None)
