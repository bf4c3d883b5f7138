"""The codec: payload to text and back, and what becomes of text that it cannot interpret."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eventstore.errors import InvalidEvent
from eventstore.events import (
    AssistantMessage,
    Meta,
    OtherPart,
    ToolCall,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import decode, dumps, dumps_json, encode, loads, loads_json

any_text = st.text(st.characters(exclude_categories=[])) | st.sampled_from(["\ud800", "\0", "NaN"])
any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@given(text=any_text, raw=any_json, arguments=st.dictionaries(any_text, any_json, max_size=3))
def test_round_trip(text: str, raw: Any, arguments: dict[str, Any]) -> None:
    """Whatever text and JSON a payload holds, decoding what was encoded gives it back."""
    for payload in (
        UserMessage(parts=(OtherPart(raw=raw),), name=text, raw=raw),
        ToolCall(call_id=text, name=text, arguments=arguments),
        ToolResult(call_id="1.0", content=text, raw={"text": text}),
    ):
        assert payload == decode(payload.type, payload.schema_version, encode(payload))


@given(value=any_json)
def test_text_is_utf8_without_nul(value: Any) -> None:
    """Both databases take every text that the codec makes."""
    text = dumps(value)

    assert b"\0" not in text.encode()
    assert value == json.loads(text)


def test_fields_without_a_value_are_left_out() -> None:
    """None at the level of fields is not written; inside a raw object it is kept."""
    assert '{"parts":[{"kind":"text","text":"hi"}],"mentions":[],"raw":{"a":null}}' == encode(
        UserMessage.text("hi", raw={"a": None})
    )


def test_text_stays_readable() -> None:
    """A plain SQL client sees the words as they were said."""
    assert '"text":"Zürich 🙂"' in encode(AssistantMessage.of("Zürich 🙂"))


@pytest.mark.parametrize(
    ("name", "version"), [("telepathy", 1), ("user_message", 3), ("user_message", 99)]
)
def test_the_future_is_unknown(name: str, version: int) -> None:
    """A type or version that this code does not know is kept, and is nobody's fault."""
    assert UnknownEvent(name, version, {"a": [1]}) == decode(name, version, '{"a": [1]}')


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('{"reason": "bored"}', {"reason": "bored"}),
        ('{"reason": "archived", "x": 1}', {"reason": "archived", "x": 1}),
        ("[]", []),
        ("null", None),
        ("no JSON", "no JSON"),
        ("", ""),
    ],
)
def test_what_does_not_fit_is_unknown_for_a_reason(text: str, raw: Any) -> None:
    """Reading never fails; it tells why the payload could not be understood."""
    event = decode("conversation_end", 1, text)

    assert isinstance(event, UnknownEvent)
    assert raw == event.raw
    assert event.reason


def test_an_older_version_of_another_shape_is_unknown() -> None:
    """What upcasts it may count on nothing; a text in place of a receipt was an AttributeError."""
    for text in ('"x"', "[]", '{"blobs": 1}', '{"blobs": [1]}'):
        assert isinstance(decode("erasure", 1, text), UnknownEvent)


def test_endless_nesting_is_unknown() -> None:
    """What was written deeper than Python can follow does not break reading."""
    text = '{"config":' * 100_000 + "{}" + "}" * 100_000

    event = decode("conversation_start", 1, text)

    assert isinstance(event, UnknownEvent)
    assert text == event.raw


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]", "", "{", "1 2"])
def test_strict_reading_refuses_what_is_no_json(text: str) -> None:
    """Python's JSON is wider than JSON; the store's is not."""
    with pytest.raises(InvalidEvent, match=r"not (a )?JSON"):
        loads(text)


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}, object(), {"a": {1, 2}}])
def test_what_json_cannot_express_is_refused(value: Any) -> None:
    """The error says what happened; a driver would not."""
    with pytest.raises(InvalidEvent, match="cannot be written as JSON"):
        dumps(value)


def test_times_are_converted_to_utc() -> None:
    """An aware time of any zone is kept as the same moment in UTC."""
    moment = datetime(2025, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2)))

    assert datetime(2025, 1, 2, 1, 4, tzinfo=UTC) == Meta(occurred_at=moment).occurred_at


def test_naive_times_are_refused() -> None:
    """A time without a zone is not a moment."""
    with pytest.raises(ValidationError, match="timezone"):
        Meta(occurred_at=datetime(2025, 1, 2))  # noqa: DTZ001


@pytest.mark.parametrize(
    "field", [{"turn": 0}, {"step": -1}, {"mode": "A dream"}, {"mode": "active"}]
)
def test_metadata_is_checked(field: dict[str, Any]) -> None:
    """Turns count from 1, steps from 0, and modes have names."""
    with pytest.raises(ValidationError):
        Meta(**field)


@given(any_json)
def test_the_fast_writer_writes_the_same_value(value: Any) -> None:
    """What is made of JSON's own types is the same value, whichever of the two writes it."""
    assert loads(dumps(value)) == loads(dumps_json(value))
    assert loads(dumps(value)) == loads_json(dumps(value))
    assert dumps_json(value).encode()


@pytest.mark.parametrize("value", [float("nan"), [float("-inf")]], ids=["nan", "inf"])
def test_the_fast_writer_refuses_what_is_no_number(value: Any) -> None:
    """Neither of them writes NaN or an infinity."""
    with pytest.raises(InvalidEvent):
        dumps_json(value)
    with pytest.raises(InvalidEvent):
        loads_json(json.dumps(value))
