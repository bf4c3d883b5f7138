"""Every prefix of every history is a request: of any order of events, and of real transcripts.

The promises one by one are in ``test_promises.py``; here the first four are checked together, at
each moment of a conversation, with the strategies, formats and budgets in turn.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    NewEvent,
    Payload,
    RecordedEvent,
    SystemInstruction,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import ContextSettings, ContextView
from projections.context.prompts import status
from projections.errors import BudgetInfeasible
from tests.exhaustive import partly
from tests.properties.dense import dense_histories
from tests.properties.histories import histories
from tests.properties.promises import (
    FORMATS,
    STRATEGIES,
    Request,
    assert_first_four,
    levels_of,
    tokens_of,
)
from tests.unit.compression.test_tables import scalars
from tests.unit.context.log import Log

TRANSCRIPTS = Path(__file__).parents[3] / "shared/data/tau-bench/airline-even-tasks.json"

SHARES = (5, 45, 55, 65, 75, 85, 95, 100, 110)
"""Budgets, in percent of everything: from impossible to ample."""


def questions() -> Iterator[tuple[str, str, bool, int]]:
    """Yield strategy, format, steps and share of the budget in turn, for ever.

    The numbers of choices have common factors, so each round over the shares begins one later.
    """
    choices = list(itertools.product(STRATEGIES, FORMATS, (True, False)))
    for number in itertools.count():
        yield (*choices[number % len(choices)], SHARES[number % len(SHARES)])


def ask_at(log: Log, strategy: str, format: str, steps: bool, share: int) -> bool:
    """Ask for a share of everything, with promises 1 to 4 checked; return whether it is held."""
    rows = log.rows()
    budget = tokens_of(rows) * share // 100
    return assert_first_four(rows, Request(strategy, format, steps, max_tokens=budget)) is not None


@given(entries=dense_histories, start=st.integers(0, 47))
def test_every_prefix_of_a_dense_history_is_a_request(entries: list[NewEvent], start: int) -> None:
    """Calls, results, failures, summaries and retractions in any order never break a request."""
    log = Log()
    for entry, question in zip(entries, itertools.islice(questions(), start, None), strict=False):
        log.add(entry)
        ask_at(log, *question)


@given(events=histories(), start=st.integers(0, 47))
def test_every_prefix_of_any_history_is_a_request(events: list[RecordedEvent], start: int) -> None:
    """Neither do all other types of events, erased and unknown ones among them."""
    log = Log()
    for event, question in zip(events, itertools.islice(questions(), start, None), strict=False):
        log.add(None if event.data is None else NewEvent(event.data, meta=event.meta))
        ask_at(log, *question)


@given(entries=dense_histories, limits=st.lists(st.integers(0, 25), min_size=2, max_size=5))
def test_more_messages_never_keep_less(entries: list[NewEvent], limits: list[int]) -> None:
    """With steps off: what a limit on messages holds, every larger one holds."""
    log = Log(entries)
    before: dict[tuple[int, int], int] | None = None
    for limit in sorted(limits):
        view = with_most(log, limit)
        if view is None:
            assert before is None
            continue
        assert len(view.messages) <= limit
        smaller, before = before or {}, levels_of(view)
        assert all(level <= before.get(key, 0) for key, level in smaller.items())


def with_most(log: Log, messages: int) -> ContextView | None:
    """Return a view of so many messages at most, or None if that many must be sent."""
    try:
        return log.view(settings=ContextSettings(steps=False), max_messages=messages)
    except BudgetInfeasible as error:
        refusal = error
    assert sum(refusal.mandatory.values()) > messages
    return None


@functools.cache
def transcripts() -> list[list[dict[str, Any]]]:
    """Return the messages of the real conversations."""
    return [record["traj"] for record in json.loads(TRANSCRIPTS.read_text())]


def told_by_prefixes() -> list[list[dict[str, Any]]]:
    """Return the conversations whose every prefix is looked at, which takes the square of time.

    A fourth of them all, of which again a third use ids twice; all of them in a search.
    """
    searching = settings().max_examples > 100
    return transcripts()[:: 1 if searching else 4]


def as_events(messages: Sequence[dict[str, Any]]) -> list[Payload]:
    """Return a transcript as events; a result answers the oldest open call."""
    events: list[Payload] = []
    waiting: list[str] = []
    for version, message in enumerate(messages, start=1):
        text = message["content"]
        if message["role"] == "system":
            events.append(SystemInstruction(text=text))
        elif message["role"] == "user":
            events.append(UserMessage.text(text))
        elif message["role"] == "tool":
            events.append(ToolResult(call_id=waiting.pop(0), content=text))
        else:
            calls = tuple(
                ToolCallRequest(
                    name=call["function"]["name"],
                    arguments_text=call["function"]["arguments"],
                    provider_id=call["id"],
                )
                for call in message.get("tool_calls") or ()
            )
            waiting += [f"{version}.{index}" for index in range(len(calls))]
            events.append(AssistantMessage.of(text, tool_calls=calls))
    return events


def in_words(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as it is sent: an empty result in words."""
    empty = message["role"] == "tool" and not message["content"]
    return {**message, "content": status("success", None, "")} if empty else message


def without_ids(messages: Iterable[dict[str, Any]]) -> list[Any]:
    """Return what the model sees of messages: everything but ids."""
    return [
        (
            message["role"],
            message["content"],
            [call["function"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


SHARDS = 5


@pytest.mark.parametrize("shard", partly(range(SHARDS)))
def test_every_prefix_of_real_transcripts_keeps_the_first_four_promises(shard: int) -> None:
    """A third of the transcripts use ids twice; each prefix is asked one question of the turn.

    With ``EVERY_PROMISE=1`` in the environment each prefix is asked all of them: every strategy,
    format, share of the budget, with steps and without. That takes over half an hour of one core.
    """
    everything = bool(os.environ.get("EVERY_PROMISE"))
    every = list(itertools.product(STRATEGIES, FORMATS, (True, False), SHARES))
    turn = itertools.islice(questions(), shard, None)
    held = asked = 0
    for messages in transcripts()[shard::SHARDS]:
        log = Log()
        for event in as_events(messages):
            log.add(event)
            for question in every if everything else [next(turn)]:
                held += ask_at(log, *question)
                asked += 1
    assert 0 < asked - held < held


def test_real_transcripts_come_back_whole() -> None:
    """Without a budget or tables the model sees every message as it was, in order.

    Only an empty result is stated in words.
    """
    as_they_came = ContextSettings(tool_tables=False)
    for messages in transcripts():
        view = Log(as_events(messages)).view(settings=as_they_came)
        assert without_ids(view.messages) == without_ids(map(in_words, messages))


def test_tables_of_real_transcripts_say_what_their_results_said() -> None:
    """Every scalar of every result, and every other message as it was."""
    tables = 0
    for messages in transcripts():
        view = Log(as_events(messages)).view()
        for sent, said in zip(view.messages, messages, strict=True):
            if sent["content"] == in_words(said)["content"]:
                continue
            assert "tool" == said["role"]
            came, table = json.loads(said["content"]), json.loads(sent["content"])
            assert not Counter(scalars(came)) - Counter(scalars(table))
            tables += 1
    assert tables
