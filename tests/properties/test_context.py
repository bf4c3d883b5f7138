"""What a messages[] view promises, over histories in any order and over real transcripts."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore.errors import BudgetInfeasible
from eventstore.events import (
    AssistantMessage,
    LlmError,
    LlmRequest,
    Meta,
    NewEvent,
    Payload,
    RecordedEvent,
    Retraction,
    Summary,
    SystemInstruction,
    TextPart,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from eventstore.tokens import count_messages, tokenizer_for
from projections.context import ContextSettings, ContextView
from tests.checkers import check_openai_messages
from tests.properties.histories import histories
from tests.unit.context.log import Log

TRANSCRIPTS = Path(__file__).parents[3] / "shared/data/tau-bench/airline-even-tasks.json"
TOKENIZER = tokenizer_for("gpt-4o")

_versions = st.integers(1, 25)
_ranges = st.lists(st.builds(VersionRange, first=_versions, last=_versions), max_size=2)
_words = st.sampled_from(["", "a", "什么", "\ud83d", "longer words " * 20])
_llm_ids = st.sampled_from(["a", "b", "c"])
_requests = st.builds(
    ToolCallRequest,
    name=st.sampled_from(["f", "", "two words", "工具"]),
    arguments_text=st.sampled_from(["", "{}", "{broken"]),
    provider_id=st.sampled_from([None, "", "x", "call_3_0", "y" * 50]),
)
_call_ids = st.builds("{}.{}".format, _versions, st.integers(0, 2))
_dense: st.SearchStrategy[Payload] = st.one_of(
    st.builds(
        AssistantMessage,
        llm_call_id=_llm_ids,
        parts=_words.map(lambda text: (TextPart(text=text),)),
        tool_calls=st.lists(_requests, max_size=3).map(tuple),
    ),
    st.builds(ToolCall, call_id=_call_ids, name=st.just("f")),
    st.builds(
        ToolResult,
        call_id=_call_ids,
        status=st.sampled_from(["success", "failed", "not_started", "outcome_unknown"]),
        content=st.none() | _words,
    ),
    st.builds(UserMessage.text, _words),
    st.builds(LlmError, llm_call_id=_llm_ids, kind=st.just("network"), message=_words),
    st.builds(LlmRequest, llm_call_id=_llm_ids, retry_of=st.none() | _llm_ids),
    st.builds(SystemInstruction, text=_words),
    st.builds(Summary, text=_words, versions=_ranges.map(tuple)),
    st.builds(Retraction, versions=_ranges.map(tuple)),
)
_metas = st.sampled_from([Meta(), Meta(), Meta(), Meta(in_context=False)])
dense_histories = st.lists(st.builds(NewEvent, _dense, meta=_metas), max_size=25)


LEVELS = ("dropped", "summarised", "shortened", "kept")


def kept(view: ContextView) -> set[tuple[int | None, str, int]]:
    """Return the groups that a view holds, once for each level of detail that it reaches."""
    return {
        (entry.version, entry.kind, level)
        for entry in view.ledger
        for level in range(1, LEVELS.index(entry.action) + 1)
    }


def attempt(log: Log, settings: ContextSettings | None = None, **limits: int) -> ContextView | None:
    """Return a view that was checked against its limits, or None if they are infeasible."""
    try:
        view = log.view(settings=settings, **limits)
    except BudgetInfeasible as error:
        if sum(error.mandatory.values()) <= error.max_tokens:
            raise
        return None
    assert check_openai_messages(view.messages) == []
    assert view.tokens.tokens == count_messages(view.messages, TOKENIZER).tokens
    assert view.tokens.tokens <= limits.get("max_tokens", view.tokens.tokens)
    assert len(view.messages) <= limits.get("max_messages", len(view.messages))
    return view


@given(entries=dense_histories)
def test_every_prefix_of_a_dense_history_is_a_valid_request(entries: list[NewEvent]) -> None:
    """Calls, results, failures, summaries and retractions in any order never break a request."""
    log = Log()
    for entry in entries:
        log.add(entry)
        attempt(log)


@given(events=histories())
def test_every_prefix_of_any_history_is_a_valid_request(events: list[RecordedEvent]) -> None:
    """Neither do all other types of events, erased and unknown ones among them."""
    log = Log()
    for event in events:
        log.add(None if event.data is None else NewEvent(event.data, meta=event.meta))
        attempt(log)


@given(
    entries=dense_histories,
    budgets=st.lists(st.integers(0, 500), min_size=2, max_size=5),
    limit=st.sampled_from(["max_tokens", "max_messages"]),
)
def test_a_larger_budget_never_keeps_less(
    entries: list[NewEvent], budgets: list[int], limit: str
) -> None:
    """With steps off: what a budget holds, every larger one holds at no less detail."""
    log = Log(entries)
    scale = 1 if limit == "max_tokens" else 20
    before: set[Any] | None = None
    for budget in sorted(budgets):
        view = attempt(log, ContextSettings(steps=False), **{limit: budget // scale})
        if before is not None:
            assert view is not None
            assert before <= kept(view)
        before = None if view is None else kept(view)


@given(entries=dense_histories, max_tokens=st.integers(0, 300))
def test_the_first_and_the_latest_user_message_are_kept(
    entries: list[NewEvent], max_tokens: int
) -> None:
    """Whatever the budget, and even if a summary covers them; only withdrawn ones are not."""
    users = [
        version
        for version, entry in enumerate(entries, start=1)
        if isinstance(entry.data, UserMessage)
        and entry.meta.in_context
        and not _withdrawn(version, entries[version:])
    ]
    view = attempt(Log(entries), max_tokens=max_tokens)
    if view is not None and users:
        assert {users[0], users[-1]} <= set(view.versions)


def _withdrawn(version: int, later: Sequence[NewEvent]) -> bool:
    return any(
        item.first <= version <= item.last
        for entry in later
        if isinstance(entry.data, Retraction)
        for item in entry.data.versions
    )


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


def without_ids(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Return what the model sees of messages: everything but ids."""
    return [
        (
            message["role"],
            message["content"],
            [call["function"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


@pytest.mark.parametrize("share", range(5))
def test_every_prefix_of_real_transcripts_fits_and_is_valid(share: int) -> None:
    """At ample, middling and tight budgets, though a third of them use ids twice."""
    for messages in told_by_prefixes()[share::5]:
        log = Log()
        for event in as_events(messages):
            log.add(event)
            whole = attempt(log)
            assert whole is not None
            for percent in (80, 50):
                attempt(log, max_tokens=whole.tokens.tokens * percent // 100)


def test_real_transcripts_come_back_whole() -> None:
    """Without a budget the model sees every message as it was, in order."""
    for messages in transcripts():
        view = Log(as_events(messages)).view()
        assert without_ids(view.messages) == without_ids(messages)
