"""What is too large is refused before anything is written; what claims to be is not unpacked."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, NewEvent
from eventstore import events as e
from eventstore.errors import BlobDamaged, InvalidEvent
from tests.contract.facade import Access, opened
from tests.contract.plain import PlainClient

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONG = "x" * 5_000


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "name": ("name", lambda: e.ToolCall(call_id="1.0", name=LONG)),
    "call": ("call_id", lambda: e.ToolResult(call_id=LONG, content="")),
    "model": (
        "invocation.model",
        lambda: e.LlmRequest(llm_call_id="a", invocation=e.Invocation(model=LONG)),
    ),
    "run": ("run_id", lambda: e.RunStart(run_id=LONG, workflow_id="w")),
    "node": (
        "nodes[1].node_id",
        lambda: e.RunStart(
            run_id="r",
            workflow_id="w",
            nodes=(e.RunNode(node_id="n"), e.RunNode(node_id=LONG)),
        ),
    ),
    "provider's id": (
        "tool_calls[0].provider_id",
        lambda: e.AssistantMessage.of(
            None,
            tool_calls=(e.ToolCallRequest(name="t", arguments_text="", provider_id="x" * 70_000),),
        ),
    ),
    "tokens": (
        "usage.prompt_tokens",
        lambda: e.AssistantMessage.of("a", usage=e.TokenUsage(prompt_tokens=2**63)),
    ),
    "duration": ("duration_ms", lambda: e.ToolResult(call_id="1.0", duration_ms=2**41)),
    "status": ("status_code", lambda: e.LlmError(kind="timeout", message="", status_code=-(2**40))),
    "version": (
        "versions[0].last",
        lambda: e.Retraction(versions=(e.VersionRange(first=1, last=10**30),)),
    ),
    "depth": ("arguments", lambda: e.ToolCall(call_id="1.0", name="t", arguments=_nested(200))),
    "great depth": ("raw", lambda: e.ToolResult(call_id="1.0", raw=_nested(50_000))),
    "digits": ("raw", lambda: e.ToolResult(call_id="1.0", raw={"a": 10**5_000})),
    "depth of the unknown": ("raw", lambda: e.UnknownEvent("odd", 1, _nested(200))),
    "turn": ("turn", lambda: NewEvent(e.Notebook(text="a"), meta=e.Meta(turn=2**63))),
    "long turn": ("turn", lambda: NewEvent(e.Notebook(text="a"), meta=e.Meta(turn=10**5_000))),
    "agent": ("agent_id", lambda: NewEvent(e.Notebook(text="a"), meta=e.Meta(agent_id=LONG))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_beyond_a_bound_is_refused(store: EventStore, cid: UUID, what: str) -> None:
    """The error names field, limit and event; nothing of the append is written."""
    field, make = REFUSED[what]
    with pytest.raises(InvalidEvent) as caught:
        store.append(cid, [e.UserMessage.text("first"), make()])
    assert (1, field) == (caught.value.index, caught.value.field)
    assert caught.value.limit is not None
    for part in ("event 1 of the append", field, caught.value.limit):
        assert part in str(caught.value)
    assert [] == list(store.read(cid))


def test_what_is_at_a_bound_is_kept(store: EventStore, cid: UUID) -> None:
    """Names of 512 characters, however many bytes, and numbers that are as large as may be."""
    name, most = "\U0001f600" * 512, 2**31 - 1
    payloads = [
        e.ToolCall(call_id=name, name=name, arguments=_nested(100)),
        e.AssistantMessage.of("a", usage=e.TokenUsage(prompt_tokens=most), duration_ms=2**40 - 1),
    ]
    meta = e.Meta(turn=most, step=most, run_id=name, agent_id=name)
    store.append(cid, payloads, meta=meta)
    assert payloads == [event.data for event in store.read(cid)]
    assert {meta} == {event.meta for event in store.read(cid)}


@pytest.mark.parametrize("field", ["tenant_id", "user_id"])
def test_owners_have_bounds(store: EventStore, cid: UUID, field: str) -> None:
    """On PostgreSQL the index of owners did not take 3 KB, and the server was said to be away."""
    with pytest.raises(InvalidEvent, match=f"{field} has 5,000 bytes; at most 1,024 bytes"):
        store.append(cid, [e.UserMessage.text("a")], **{field: LONG})  # type: ignore[arg-type]
    both = {"tenant_id": "\U0001f600" * 256, "user_id": "\x00" * 102}
    store.append(cid, [e.UserMessage.text("a")], **both)  # type: ignore[arg-type]
    assert both["tenant_id"] == store.get(cid).tenant_id


def test_an_event_has_a_size(database_url: str, access: Access, cid: UUID) -> None:
    """Text beyond the store's limit is refused, also where it would go to a blob."""
    with opened(database_url, access, max_event_bytes=50_000) as store:
        for payload in (
            e.ToolResult(call_id="1.0", content="x" * 60_000),
            e.UserMessage.text("\U0001f600" * 15_000),
            e.UnknownEvent("odd", 1, "x" * 60_000),
        ):
            with pytest.raises(InvalidEvent, match=r"50,000 \(max_event_bytes\)") as caught:
                store.append(cid, [payload])
            assert 0 == caught.value.index
        store.append(cid, [e.ToolResult(call_id="1.0", content="x" * 40_000)])


@pytest.mark.parametrize("size", [0, -1, 2**31])
def test_the_size_has_bounds(size: int) -> None:
    """Beyond a gigabyte neither database would take the value."""
    with pytest.raises(ValueError, match="max_event_bytes must be from 1 to 1,073,741,824"):
        EventStore.open("sqlite://", max_event_bytes=size)


def _claiming(size: int) -> bytes:
    """Return a frame of a few bytes whose header claims to hold so many."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"


FORGED: dict[str, tuple[bytes, int | None]] = {
    "claims 6 GB": (_claiming(6 << 30), None),
    "claims 6 GB, and so does its row": (_claiming(6 << 30), 6 << 30),
    "claims 900 MB, and so does its row": (_claiming(900 << 20), 900 << 20),
    "unpacks to more": (zstd.compress(b"\x00" * 50_000_000), None),
    "unpacks to other bytes": (zstd.compress(b"y" * 40_000), None),
    "claims nothing": (
        zstd.compress(b"y" * 100_000, options={zstd.CompressionParameter.content_size_flag: 0}),
        None,
    ),
    "is not a frame": (b"forged", None),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_blob_is_damaged(
    fresh: EventStore, plain: PlainClient, cid: UUID, forged: str
) -> None:
    """It is neither unpacked beyond its size nor taken for what it replaced."""
    content = "x" * 40_000
    fresh.append(cid, [e.ToolResult(call_id="1.0", content=content), e.UserMessage.text(content)])
    digest = hashlib.sha256(content.encode()).hexdigest()
    assert content.encode() == fresh.blob(cid, digest)
    frame, size = FORGED[forged]
    plain.execute("UPDATE blobs SET content = ?", frame)
    if size is not None:
        plain.execute("UPDATE blobs SET size_bytes = ?", size)
    with pytest.raises(BlobDamaged) as caught:
        fresh.blob(cid, digest)
    assert (cid, digest) == (caught.value.conversation_id, caught.value.digest)
    with pytest.raises(BlobDamaged, match=str(cid)):
        list(fresh.read(cid))
    assert not fresh.verify(cid).ok
