"""Whatever a conversation holds, finding the copies of its events costs what it is long.

Steps are counted, not timed (see `tests.growth.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from eventstore import events as e
from eventstore.erasure.plan import copies_of, quotations_of
from eventstore.events import Meta, VersionRange
from tests.growth.steps import assert_linear
from tests.unit.projections.history import Entry, history

_SIZE = 35


class Versions(Sequence[int]):
    """Versions as in a list: searching it for each event would take the square."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:  # type: ignore[override]
        if place >= self._count:
            raise IndexError
        return place + 1

    def __contains__(self, version: object) -> bool:
        raise AssertionError("searched from the start")


def _messages(count: int) -> Iterator[Entry]:
    for number in range(count):
        yield e.UserMessage.text(f"message {number}, which is long enough to be searched for")


def _messages_of_a_turn(count: int) -> Iterator[Entry]:
    yield e.TurnStart(input="message 001"), Meta(turn=1)
    for number in range(count):
        yield e.UserMessage.text(f"message {number:03}"), Meta(turn=1)


def _summaries_of_summaries(count: int) -> Iterator[Entry]:
    yield e.UserMessage.text("the first message")
    for number in range(1, count):
        yield e.Summary(text="so far", versions=(VersionRange(first=number, last=number),))


KINDS = {each.__name__: each for each in (_messages, _messages_of_a_turn, _summaries_of_summaries)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("find", [copies_of, quotations_of])
def test_copies_cost_what_the_log_is_long(kind: str, find: Callable[..., object]) -> None:
    """Erasing half of 20,000 messages took three minutes."""

    def work(count: int) -> Callable[[], object]:
        events = history(*KINDS[kind](count))
        return lambda: find(
            events, Versions(1 if kind == "_summaries_of_summaries" else count // 2)
        )

    assert_linear(work, _SIZE)


def test_a_summary_of_summaries_is_a_copy() -> None:
    """Each of them, however many stand between it and the message."""
    events = history(*_summaries_of_summaries(6))

    assert dict.fromkeys(range(2, 7), "summary") == copies_of(events, [1])


@pytest.mark.parametrize("count", [1, 9, 99])
def test_one_text_is_found_among_many(count: int) -> None:
    """A few texts are searched for one after another, many in one pass over each event."""
    said = "You said: message 0, which is long enough to be searched for, and then another."
    events = history(*_messages(99), e.AssistantMessage.of(said), e.AssistantMessage.of(said[:40]))

    assert {100: "quotation"} == quotations_of(events, range(1, count + 1))
