"""Telling specifications apart by the first chunk, or by a response."""

from __future__ import annotations

from typing import Any

import pytest

from projections.providers import Delta, parser_for, read_response
from tests.unit.streams.recorded import NAMES, as_sdk_object, chunks_of, fed, text_of

CHAT = {"choices": [{"delta": {"content": "a"}}]}


def _specification(name: str) -> str:
    if name.startswith("anthropic"):
        return "anthropic_messages"
    return "openai_responses" if "responses" in name else "openai_chat"


def _told(chunk: Any) -> str | None:
    invocation = parser_for(chunk).message().invocation
    return None if invocation is None else invocation.specification


@pytest.mark.parametrize("name", NAMES)
def test_any_chunk_of_a_recorded_stream_tells(name: str) -> None:
    """Whichever chunk comes first, as dict or object, the specification is known."""
    chunks = chunks_of(name)
    found = {_told(chunk) for chunk in chunks + [as_sdk_object(name, c) for c in chunks]}
    assert {_specification(name)} == found


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"error": {"message": "no"}}, "openai_chat"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "anthropic_messages"),
        ({"type": "error", "code": "x", "message": "no", "param": None}, "openai_responses"),
        ({"type": "error", "sequence_number": 2, "error": {}}, "openai_responses"),
        ({"type": "ping"}, "anthropic_messages"),
        ({"type": "chunk", "chunk": CHAT, "snapshot": {}}, "openai_chat"),
        ('data: {"type": "response.queued"}', "openai_responses"),
        ({"surprise": 1}, None),
        ("hello", None),
        (None, None),
    ],
)
def test_other_first_chunks(chunk: Any, expected: str | None) -> None:
    """Errors, pings and lines tell too; what tells nothing is not guessed at."""
    assert expected == _told(chunk)


def test_a_stream_that_begins_with_garbage_is_parsed_from_where_it_tells() -> None:
    """What comes before is kept as it came."""
    parser = parser_for("hello")
    assert [Delta(raw=("hello",)), Delta(), Delta(text="a")] == [
        parser.feed(chunk) for chunk in ("hello", {}, CHAT)
    ]
    assert "a" == text_of(parser)


def test_the_sdks_wrapper_of_a_chunk_is_opened() -> None:
    """OpenAI's ``stream()`` yields events around the chunks, and others that it derives."""
    derived = {"type": "content.delta", "delta": "a", "snapshot": "a"}
    assert "a" == text_of(fed([{"type": "chunk", "chunk": CHAT}, derived]))


def test_the_caller_may_name_the_provider() -> None:
    """Who made the client knows better than the chunks."""
    invocation = parser_for(CHAT, provider="together").message().invocation
    assert invocation is not None
    assert "together" == invocation.provider


def test_a_response_that_is_none_is_kept() -> None:
    """What nobody knows is the message's ``raw``."""
    assert [{"surprise": 1}] == read_response({"surprise": 1}).message().raw


def test_a_response_that_is_an_error_is_told() -> None:
    """A server may answer with an error under the status of success."""
    error = read_response({"error": {"message": "no", "code": 503}}).error
    assert error is not None
    assert ("provider", True, "no") == (error.kind, error.retryable, error.message)
