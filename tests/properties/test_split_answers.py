"""Any split of any answer into pieces gives that answer back, in every specification."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.providers import StreamParser, parser_for
from projections.providers.pieces import RULES
from tests.properties.splitting import SPLITTERS, Answer, Quirks, answer_from
from tests.unit.streams.recorded import fed, text_of

_ALLOWED = st.builds(Quirks, interleaved=st.booleans(), values=st.booleans())
_SENT = st.one_of(
    st.builds(
        Quirks,
        numbers=st.sampled_from(["own", "none"]),
        repeats_names=st.booleans(),
        placeholders=st.booleans(),
        values=st.booleans(),
        repeats_whole=st.booleans(),
        interleaved=st.booleans(),
        numbers_from=st.integers(0, 2),
    ),
    # Calls that share a number, or whose numbers mean nothing, come one after another.
    st.builds(
        Quirks,
        numbers=st.sampled_from(["zero", "rising"]),
        placeholders=st.booleans(),
        values=st.booleans(),
    ),
)


def _same(parser: StreamParser, answer: Answer) -> None:
    message = parser.message()
    assert parser.finished
    assert answer.text == text_of(parser)
    assert [(c.name, c.arguments) for c in message.tool_calls] == [
        (call.name, call.arguments) for call in answer.calls
    ]


def test_every_specification_has_rules_and_a_splitter() -> None:
    """The table of what is allowed, the parsers, and the properties here agree."""
    assert RULES.keys() == SPLITTERS.keys()


@pytest.mark.parametrize("specification", SPLITTERS)
@given(st.randoms(use_true_random=False), _ALLOWED)
def test_split_that_the_specification_allows(
    specification: str, random: Random, quirks: Quirks
) -> None:
    """Text and calls come back whole, and each piece is its own call's."""
    answer = answer_from(random)
    chunks = SPLITTERS[specification](random, answer, quirks)
    _same(fed([chunk.value for chunk in chunks]), answer)


@pytest.mark.parametrize("specification", SPLITTERS)
@given(st.randoms(use_true_random=False), _SENT)
def test_split_as_servers_send_it(specification: str, random: Random, quirks: Quirks) -> None:
    """Placeholders, repeated names and ids, and numbers of any kind change nothing."""
    answer = answer_from(random)
    chunks = SPLITTERS[specification](random, answer, quirks)
    _same(fed([chunk.value for chunk in chunks]), answer)


@pytest.mark.parametrize("specification", SPLITTERS)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"data: ", b"data:"]),
    st.integers(1, 60),
)
def test_split_of_the_bytes(
    specification: str, random: Random, end: bytes, field: bytes, size: int
) -> None:
    """However the bytes of an event stream are cut, and its lines ended, it says the same."""
    answer = answer_from(random)
    chunks = SPLITTERS[specification](random, answer, Quirks())
    sent = b"\xef\xbb\xbf: keep-alive" + end + end
    for number, chunk in enumerate(chunks):
        sent += b"id: %d" % number + end + b"retry: 5" + end
        sent += field + json.dumps(chunk.value, ensure_ascii=False).encode() + end + end
    pieces: list[Any] = [sent[at : at + size] for at in range(0, len(sent), size)]
    parser = parser_for(pieces[0])
    for piece in pieces:
        parser.feed(piece)
    parser.end()

    assert not parser.unread
    _same(parser, answer)
