"""Large payloads: kept as compressed blobs, with a preview in the event, and read back whole."""

from __future__ import annotations

import hashlib
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.blobs import THRESHOLD_BYTES, preview_of
from eventstore.errors import BlobNotFound
from eventstore.events import BlobRef, TextPart, ToolResult, UserMessage
from tests.contract.facade import result_of, say, texts

LARGE = "".join(f"line {number}: ü\n" for number in range(5_000))


def test_a_tool_result_becomes_a_reference(store: EventStore, cid: UUID) -> None:
    """The event holds preview, alias and digest; the bytes are the text's, as UTF-8."""
    store.append(cid, [ToolResult(call_id="3.0", name="cat", content=LARGE, duration_ms=7)])

    (event,) = store.read(cid)

    content = LARGE.encode()
    reference = BlobRef(digest=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
    assert (
        ToolResult(
            call_id="3.0",
            name="cat",
            blob=reference,
            preview=preview_of(LARGE),
            alias="@state/logs/tool-results/3.0.txt",
            duration_ms=7,
        )
        == event.data
    )
    assert content == store.blob(cid, reference.digest)


def test_what_append_returns_equals_what_is_read(store: EventStore, cid: UUID) -> None:
    """A writer sees the reference at once."""
    done = store.append(cid, [ToolResult(call_id="3.0", content=LARGE)])

    assert list(done.events) == list(store.read(cid))


def test_own_preview_and_alias_are_kept(store: EventStore, cid: UUID) -> None:
    """A tool may know better than the store what to show."""
    store.append(cid, [ToolResult(call_id="3.0", content=LARGE, preview="5000 lines", alias="@x")])

    result = result_of(next(store.read(cid)))

    assert ("5000 lines", "@x") == (result.preview, result.alias)


def test_any_other_payload_is_read_whole(store: EventStore, cid: UUID) -> None:
    """Reading, forward or through the feed, resolves the blob by itself."""
    parts = ToolResult(call_id="1.0", content=(TextPart(text=LARGE),))
    raw = ToolResult(call_id="1.1", content="small", raw={"all": LARGE})

    store.append(cid, [UserMessage.text(LARGE), parts, raw])

    assert [UserMessage.text(LARGE), parts, raw] == [event.data for event in store.read(cid)]


@pytest.mark.parametrize(("extra", "blobs"), [(0, 0), (1, 1)])
def test_the_threshold_counts_bytes_of_json(
    store: EventStore, cid: UUID, extra: int, blobs: int
) -> None:
    """A payload of exactly the threshold stays in its row."""
    frame = len('{"call_id":"1.0","status":"success","content":"","interim":false}')
    store.append(cid, [ToolResult(call_id="1.0", content="x" * (THRESHOLD_BYTES - frame + extra))])

    result = result_of(next(store.read(cid)))

    assert blobs == (result.blob is not None)


def test_the_threshold_can_be_chosen(database_url: str, cid: UUID) -> None:
    """A store that is opened with a lower one keeps smaller texts in blobs."""
    with EventStore.open(database_url, blob_threshold=4_000) as store:
        store.append(cid, [*say("y" * 5_000), ToolResult(call_id="1.0", content="x" * 5_000)])

        message, result = store.read(cid)

        assert ["y" * 5_000] == texts([message])
        assert isinstance(result.data, ToolResult)
        assert result.data.blob is not None


def test_a_blob_is_only_its_conversations(store: EventStore, cid: UUID) -> None:
    """Who knows a digest does not get another conversation's bytes."""
    done = store.append(cid, [ToolResult(call_id="1.0", content=LARGE)])
    blob = result_of(done.events[0]).blob
    assert blob is not None

    with pytest.raises(BlobNotFound) as caught:
        store.blob(other := new_id(), blob.digest)

    assert (other, blob.digest) == (caught.value.conversation_id, caught.value.digest)


def test_a_tool_result_of_100_mb(database_url: str, cid: UUID) -> None:
    """It is appended, verified and read back to the byte."""
    million = "".join(f"{number:08d}\n" for number in range(111_110))
    content = "".join(f"{number:09d}\n{million}" for number in range(100))
    with EventStore.open(database_url) as store:
        store.append(cid, [ToolResult(call_id="1.0", content=content)])

        result = result_of(next(store.read(cid)))

        assert result.blob is not None
        assert 100_000_000 == result.blob.size_bytes
        assert content.encode() == store.blob(cid, result.blob.digest)
        assert store.verify(cid).ok
