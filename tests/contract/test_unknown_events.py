"""Events from the future, or from somebody else: they are read, kept and passed on unchanged."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, Meta, new_id
from eventstore.events import ToolResult, UnknownEvent
from tests.contract.facade import say
from tests.contract.plain import PlainClient

UNKNOWN = {
    "type": UnknownEvent("telepathy", 1, {"thought": [1, 2.5, None, True, {"ü": "\0"}]}),
    "version": UnknownEvent("user_message", 99, {"parts": {}, "colour": "blue"}),
    "list": UnknownEvent("telepathy", 3, [1, 2]),
    "scalar": UnknownEvent("telepathy", 3, "just a text"),
    "null": UnknownEvent("telepathy", 3, None),
    "large": UnknownEvent("telepathy", 3, {"thought": "ü" * 50_000}),
    "large number": UnknownEvent("telepathy", 3, 2**200),
    "order of keys": UnknownEvent("telepathy", 3, {"b": 1, "a": 2}),
    "like a blob's stub": UnknownEvent("telepathy", 3, {"$blob": {"digest": "0", "size_bytes": 1}}),
    "like a broken stub": UnknownEvent("telepathy", 3, {"$blob": 7}),
}

every_unknown = pytest.mark.parametrize("event", UNKNOWN.values(), ids=UNKNOWN)


@every_unknown
def test_is_read_as_it_was_written(store: EventStore, cid: UUID, event: UnknownEvent) -> None:
    """Type, version and JSON come back; the envelope names them too."""
    store.append(cid, [*say("before"), event, *say("after")])

    recorded = list(store.read(cid))[1]

    assert (event, event.type, event.schema_version) == (
        recorded.data,
        recorded.type,
        recorded.schema_version,
    )
    assert store.verify(cid).ok


@every_unknown
def test_is_appended_again_unchanged(
    fresh: EventStore, plain: PlainClient, event: UnknownEvent
) -> None:
    """What was read can be written to another conversation, byte for byte."""
    first, second = new_id(), new_id()
    fresh.append(first, [event])
    (recorded,) = fresh.read(first)
    assert recorded.data is not None

    fresh.append(second, [recorded.data])

    one, two = (
        plain.execute(
            "SELECT type, schema_version, CAST(data AS TEXT) FROM events WHERE conversation_id = ?",
            cid,
        )
        for cid in (first, second)
    )
    assert one == two


@pytest.mark.parametrize(
    ("column", "value"),
    [("data", '{"call_id":"1.0","surprise":1}'), ("data", '{"call_id":7}'), ("data", "[]")],
)
def test_a_payload_that_does_not_fit_its_class(
    fresh: EventStore, plain: PlainClient, cid: UUID, column: str, value: str
) -> None:
    """Reading does not fail on it, and says why it could not be understood."""
    fresh.append(cid, [ToolResult(call_id="1.0", content="x")])
    plain.disarm()
    plain.execute(f"UPDATE events SET {column} = ?", value)

    (event,) = fresh.read(cid)

    assert isinstance(event.data, UnknownEvent)
    assert ("tool_result", ToolResult.schema_version) == (
        event.data.type,
        event.data.schema_version,
    )
    assert "validation error" in str(event.data.reason)


def test_metadata_of_the_future(fresh: EventStore, plain: PlainClient, cid: UUID) -> None:
    """Fields that this code does not know are left out; the others are kept."""
    fresh.append(cid, say("hello"))
    plain.disarm()
    future: Any = '{"turn":3,"aura":"blue"}'
    plain.execute("UPDATE events SET meta = ?", future)

    (event,) = fresh.read(cid)

    assert 3 == event.meta.turn


def test_a_time_that_utc_does_not_have(store: EventStore, cid: UUID) -> None:
    """It ended every read of the feed with an OverflowError, which no caller expects."""
    late = "9999-12-31T23:59:59-05:00"
    call = {"llm_call_id": "a", "status": "ok", "version": 1, "end_version": 1, "started_at": late}
    store.append(cid, [*say("before"), UnknownEvent("kept_usage", 1, {"calls": [call]})])

    before, event = store.read(cid)

    assert "user_message" == before.type
    assert isinstance(event.data, UnknownEvent)
    assert "the year 1 or after 9999" in str(event.data.reason)
    with pytest.raises(ValueError, match="the year 1 or after 9999"):
        Meta(occurred_at=datetime.fromisoformat(late))
