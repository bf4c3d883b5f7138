"""Sections of a request within their budgets: the promises hold beside, with steps and without.

The judge looks at the messages that are sent, and shares no code with the planner.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    NewEvent,
    SystemInstruction,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import ContextRow, ContextSettings, ContextView, build
from projections.context.compression import strategy_of
from projections.context.section_budgets import SECTIONS
from projections.errors import BudgetInfeasible
from projections.tokens import count_messages, tokenizer_for
from tests.exhaustive import partly
from tests.list_row_source import ListRowSource
from tests.properties.dense import dense_histories
from tests.properties.promises import (
    FORMATS,
    STRATEGIES,
    Request,
    ask,
    assert_first_four,
    assert_never_less,
    is_digest,
    is_recalled,
    refused,
    tokens_of,
)
from tests.properties.test_context import as_events, transcripts
from tests.properties.test_promises import said
from tests.properties.test_promises_steps import (
    assert_prefix_is_kept,
    long_conversation,
    moments,
    sent,
)
from tests.unit.context.log import Log

HISTORY = ("user", "assistant", "tools", "summaries", "recalled", "digest")
_tokens = st.dictionaries(st.sampled_from(HISTORY), st.integers(0, 300), max_size=4)
_shares = st.dictionaries(
    st.sampled_from(HISTORY), st.floats(0, 0.16) | st.integers(0, 300), max_size=4
)


def drawn(given: Mapping[str, int | float]) -> tuple[tuple[str, int | float], ...]:
    """Return budgets as a request has them."""
    return tuple(given.items())


requests = st.builds(
    Request,
    strategy=st.sampled_from(STRATEGIES),
    format=st.sampled_from([*FORMATS]),
    steps=st.booleans(),
    model=st.sampled_from(["gpt-4o", "claude-sonnet-4"]),
    sections=_shares.map(drawn),
)


def section_of(message: Mapping[str, Any]) -> str:
    """Return the section of a message of OpenAI's chat format, by what it looks like."""
    if is_digest(message):
        return "digest"
    if is_recalled(message):
        return "recalled"
    if message["role"] == "system":
        return "summaries"
    if message["role"] == "tool" or message.get("tool_calls"):
        return "tools"
    return str(message["role"])


def assert_within_sections(request: Request, view: ContextView) -> None:
    """Check that no section has more than its budget, but for what must be sent."""
    tokenizer = tokenizer_for(request.model)
    alone = count_messages((), tokenizer).tokens
    front = len(view.account.front)
    taken: Counter[str] = Counter()
    for message in view.messages[front:]:
        taken[section_of(message)] += count_messages([message], tokenizer).tokens - alone
    must = Counter(
        {
            "user": sum(each.tokens_after for each in mandatory(view, "user")),
            "assistant": sum(each.tokens_after for each in mandatory(view, "error")),
            "tools": sum(each.tokens_after for each in mandatory(view, "assistant")),
        }
    )
    for name, most in request.sections:
        limit = int(most * (request.max_tokens or 0)) if isinstance(most, float) else most
        assert taken[name] <= max(limit, must[name]), name


def mandatory(view: ContextView, kind: str) -> list[Any]:
    """Return the entries of what must be sent."""
    found = (each for each in view.ledger if each.reason.startswith("mandatory"))
    return [each for each in found if each.kind == kind]


@given(entries=dense_histories, request=requests, share=st.integers(0, 120))
def test_no_section_is_over_its_budget(
    entries: list[NewEvent], request: Request, share: int
) -> None:
    """With steps and without, by a count of what is sent; what must be sent is sent."""
    rows = Log(entries).rows()
    request = replace(request, format="openai_chat", model="gpt-4o")
    request = replace(request, max_tokens=tokens_of(rows) * share // 100)
    view = ask(rows, request)
    if view is not None:
        assert_within_sections(request, view)
        for name, (used, most) in view.sections.items():
            assert name in dict(request.sections)
            assert used <= most or mandatory(view, "user") or mandatory(view, "error")


@given(entries=dense_histories, request=requests, share=st.integers(0, 120))
def test_the_first_promises_hold(entries: list[NewEvent], request: Request, share: int) -> None:
    """Valid, within the whole budget, with both user messages, and accounted for."""
    rows = Log(entries).rows()
    assert_first_four(rows, replace(request, max_tokens=tokens_of(rows) * share // 100))


@given(
    entries=dense_histories,
    request=requests,
    share=st.integers(10, 120),
    messages=st.none() | st.integers(2, 30),
    chars=st.none() | st.integers(50, 3_000),
)
def test_limits_on_messages_and_characters_are_held_too(
    entries: list[NewEvent], request: Request, share: int, messages: int | None, chars: int | None
) -> None:
    """All limits at once, of which each may refuse."""
    rows = Log(entries).rows()
    limit = tokens_of(rows) * share // 100
    request = replace(request, format="openai_chat", model="gpt-4o", max_tokens=limit)
    settings = ContextSettings(steps=request.steps, section_budgets=dict(request.sections))
    settings = settings.with_(max_messages=messages, max_chars=chars)
    strategy = strategy_of(request.strategy)
    with suppress(BudgetInfeasible):
        view = build(ListRowSource(rows), max_tokens=limit, settings=settings, strategy=strategy)
        assert_within_sections(request, view)
        assert view.tokens.tokens <= limit
        assert messages is None or len(view.messages) <= messages
        assert [] == refused(view)


@given(entries=dense_histories, request=requests, share=st.integers(0, 120))
def test_the_same_rows_give_the_same_bytes(
    entries: list[NewEvent], request: Request, share: int
) -> None:
    """Also those that another process has folded."""
    rows = Log(entries).rows()
    request = replace(request, max_tokens=tokens_of(rows) * share // 100)
    assert said(ask(rows, request)) == said(ask(Log(entries).rows(), request))


@given(
    entries=dense_histories,
    request=requests,
    sections=_tokens.map(drawn),
    budgets=st.lists(st.integers(0, 120), min_size=2, max_size=9),
)
def test_a_larger_budget_never_keeps_less(
    entries: list[NewEvent],
    request: Request,
    sections: tuple[tuple[str, int], ...],
    budgets: list[int],
) -> None:
    """Without steps, where sections have tokens: shares grow with the budget, at others' cost."""
    rows = Log(entries).rows()
    request = replace(request, sections=sections, steps=False, format="openai_chat")
    assert_never_less(rows, request, [tokens_of(rows) * share // 100 for share in budgets])


@given(
    entries=dense_histories,
    strategy=st.sampled_from(STRATEGIES),
    sections=_shares.map(drawn),
    share=st.integers(30, 100),
)
def test_the_prefix_is_kept(
    entries: list[NewEvent],
    strategy: str,
    sections: tuple[tuple[str, int | float], ...],
    share: int,
) -> None:
    """Between two steps, whichever section they fell for."""
    limit = tokens_of(Log(entries).rows()) * share // 100
    log = Log()
    histories = (log.rows() for entry in entries if log.add(entry))
    request = Request(strategy, steps=True, max_tokens=limit, sections=sections)
    assert_prefix_is_kept(histories, request)


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("sections", partly([(("tools", 0.3),), (("tools", 0.2), ("digest", 60))]))
def test_real_conversations_stay_within(
    steps: bool, sections: tuple[tuple[str, int | float], ...]
) -> None:
    """At every moment, and with steps the prefix is kept most of the time."""
    kept = 0
    for messages in transcripts()[::7]:
        events = as_events(messages)
        limit = tokens_of(Log(events).rows())
        request = Request("key_messages", steps=steps, max_tokens=limit, sections=sections)
        for rows in moments(events):
            view = ask(rows, request)
            if view is not None:
                assert_within_sections(request, view)
        if steps:
            kept += assert_prefix_is_kept(moments(events), request)
    assert kept > 10 or not steps


def rows_of(results: int) -> list[ContextRow]:
    """Return a conversation in which tools say most, and the user little."""
    log = Log([SystemInstruction(text="Be brief."), UserMessage.text("The task.")])
    for number in range(results):
        call = ToolCallRequest(name="find", arguments_text=f'{{"number": {number}}}')
        version = log.add(AssistantMessage(tool_calls=(call,)))
        told = f"Order #W{number:07} is in the house of user_{number}. It is old. " * 8
        log.add(ToolResult(call_id=f"{version}.0", content=told))
        log.add(AssistantMessage.of(f"I have seen number {number}, and it is fine."))
        log.add(UserMessage.text(f"And the next, after {number}?"))
    return log.rows()


@pytest.mark.parametrize("steps", [True, False])
def test_a_section_makes_room_for_others(steps: bool) -> None:
    """The whole history would fit, or nearly; tools lose detail, talk does not, the ledger says."""
    rows = rows_of(12)
    request = Request(steps=steps, max_tokens=tokens_of(rows) + 50, sections=(("tools", 0.25),))
    view = request.build(rows)
    talk = [each for each in view.ledger if each.kind == "user"]
    assert {"full"} == {each.level for each in talk}
    assert 0 < view.sections["tools"][0] <= view.sections["tools"][1]
    assert any("over section_budgets.tools" in each.reason for each in view.ledger)
    assert {"tools": 0.25} == view.policy["settings"]["section_budgets"]


def test_a_step_for_a_section_leaves_the_prefix_for_some_requests() -> None:
    """A full section is no reason to change old messages at every request."""
    rows = long_conversation(120)
    groups = [[*group] for _, group in itertools.groupby(rows, key=lambda row: row.version)]
    request = Request("key_messages", steps=True, max_tokens=8_000, sections=(("tools", 1_500),))
    told = [
        sent(request.build([row for group in groups[:n] for row in group])) for n in range(40, 110)
    ]
    changes = sum(before != now[: len(before)] for before, now in itertools.pairwise(told))
    assert 0 < changes < len(told) // 3


@pytest.mark.parametrize("steps", [True, False])
def test_what_is_left_out_is_not_sent_where_others_have_room(steps: bool) -> None:
    """A group too large for its section was sent all the same, beside a task over its own."""
    log = Log([UserMessage.text("The task."), AssistantMessage.of("I see. " * 200)])
    log.add(UserMessage.text("And now?"))
    sections = (("user", 0), ("assistant", 5))
    view = Request(steps=steps, max_tokens=400, sections=sections).build(log.rows())
    assert ["user", "user"] == [message["role"] for message in view.messages]
    assert ["full", "dropped", "full"] == [entry.level for entry in view.ledger]
    assert "alone over section_budgets.assistant" == view.ledger[1].reason


def test_the_names_are_those_of_the_page() -> None:
    """And each is one that the judge knows, but for what stands in front of the history."""
    assert {*HISTORY, "system", "notebook"} == {*SECTIONS}
