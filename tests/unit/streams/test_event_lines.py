"""Lines of server-sent events, in any pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.providers.stream_base import EventLines, Unread
from tests.unit.streams.recorded import fed, text_of

_ODD = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


def read(*pieces: Any) -> list[Any]:
    """Return the events in text that comes in these pieces."""
    lines = EventLines()
    found = [event for piece in pieces for event in lines.feed(piece)]
    return [*found, *lines.end()]


def test_only_cr_and_lf_end_a_line() -> None:
    """JSON may contain the other characters that `str.splitlines` splits at, raw."""
    sent = "data: " + json.dumps({"a": "x\u2028y\u2029z\x85"}, ensure_ascii=False)
    assert [{"a": "x\u2028y\u2029z\x85"}] == read(sent)
    chunk = {"choices": [{"delta": {"content": f"a{_ODD}b"}, "finish_reason": "stop"}]}
    line = "data: " + json.dumps(chunk, ensure_ascii=False)
    assert f"a{_ODD}b" == text_of(fed([line.encode()]))


@pytest.mark.parametrize(
    "pieces",
    [
        ['data: {"a":1}\n\ndata: {"b":2}\n\n'],
        ['data: {"a":1}', 'data: {"b":2}'],
        ['data: {"a":1}\ndata: {"b":2}\n'],
        ['data:{"a":1}\r\rdata:{"b":2}\r'],
        ['data: {"a":', "data: 1}", "", 'data: {"b":2}'],
        ['data: {"a":\ndata: 1}\n\n', 'data: {"b":2}\n\n'],
        ["da", 'ta: {"a"', ":1}\r", "\n\r\ndata", ': {"b":2}'],
        ["\ufeff: keep-alive\n\nevent: x\nid: 1\nretry: 5\n", 'data: {"a":1}', 'data: {"b":2}'],
        [": keep-alive", "event: x", 'data: {"a":1}', "id: 7", 'data: {"b":2}'],
        ['{"a":1}\n{"b":2}\n'],
    ],
)
def test_events_in_pieces(pieces: list[str]) -> None:
    """Several events in one piece, and one in several, are what they are."""
    assert [{"a": 1}, {"b": 2}] == read(*pieces)
    assert [{"a": 1}, {"b": 2}] == read(*(piece.encode() for piece in pieces))


def test_a_character_in_two_pieces() -> None:
    """Bytes may be cut within a character."""
    sent = 'data: {"a":"é😀"}\n\n'.encode()
    assert [{"a": "é😀"}] == read(*(sent[at : at + 1] for at in range(len(sent))))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_in_any_pieces(size: int, indent: int | None) -> None:
    """Gemini's REST API streams one array unless it is asked for events."""
    chunks = [{"a": f'{n} ]}},[{{ \\" é{_ODD}', "b": [{}]} for n in range(4)]
    sent = "\ufeff" + json.dumps(chunks, indent=indent, ensure_ascii=False) + "\r\n"
    assert chunks == read(*(sent[at : at + size] for at in range(0, len(sent), size)))
    data = sent.encode()
    assert chunks == read(*(data[at : at + size] for at in range(0, len(data), size)))


def test_an_array_that_breaks_off_is_not_complete() -> None:
    """What is left of it is marked, as is what is no array."""
    lines = EventLines()
    assert [{"a": 1}] == lines.feed('[{"a": 1}, {"b"')
    assert lines.within
    (left,) = lines.end()
    assert isinstance(left, Unread)
    assert '{"b"' == left
    assert [{"a": 1}, "x", "y"] == read('[{"a": 1}', "x", "y")
    assert ["[DONE]"] == read("[", "DONE]")
    assert ["[1, 2]"] == read("[1, 2]")


def test_an_answer_of_gemini_as_an_array() -> None:
    """Each object is a chunk of the answer, the first one too."""
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]}
        for text in ("a", "b", "c")
    ]
    chunks[-1]["candidates"][0]["finishReason"] = "STOP"
    assert "abc" == text_of(fed([json.dumps(chunks, indent=2).encode()]))
    assert "abc" == text_of(fed(json.dumps(chunks, indent=2).splitlines()))


def test_an_error_event_is_an_error() -> None:
    """Some servers say so in the event's name alone."""
    assert [{"error": {"message": "no"}}] == read('event: error\ndata: {"message": "no"}\n\n')
    assert [{"error": {"message": "busy"}}] == read("event: error\ndata: busy\n\n")


def test_text_that_is_no_event_is_marked() -> None:
    """A line of another kind is neither lost nor joined with the next."""
    found = read("<html>", 'data: {"a":1}', "data: {cut\n\n", 'data: {"b":2}')
    assert ["<html>", {"a": 1}, "{cut", {"b": 2}] == found
    assert [True, False, True, False] == [isinstance(each, Unread) for each in found]


def test_a_strict_reader_waits_for_the_blank_line() -> None:
    """As SDKs do, which ignore an event that was cut off at the end."""
    lines = EventLines(strict=True)
    assert [[], [{"a": 1}], [], []] == [
        lines.feed('data: {"a":1}\n'),
        lines.feed("\n"),
        lines.feed('data: {"b":2}\n'),
        lines.end(),
    ]
