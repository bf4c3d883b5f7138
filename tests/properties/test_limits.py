"""Limits leave as much of a history as they can: for every combination, strategy and size of group.

Once, messages[] was one message for ever where the tool results of an agent were large: groups
were let go only at some of their beginnings, and what waited for one was thrown away at the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    LlmError,
    Payload,
    Summary,
    SystemInstruction,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextRow, ContextSettings, ContextView
from projections.context.compression import strategies
from projections.context.groups import groups_of
from projections.context.levels import lower
from projections.context.payload_messages import is_blank
from projections.errors import BudgetInfeasible
from tests.unit.context.log import Log

CALL = ToolCallRequest(name="find", arguments_text="{}")
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds an order."}}
DROPPED = ("dropped", "facts")


def text(size: int, *, sentences: bool) -> str:
    """Return a text of so many characters; without sentences it has hardly a shorter form."""
    return (("It was so on day 7. And so on. " if sentences else "word ") * (size // 5 + 1))[:size]


def history(*said: tuple[str, int, int, bool]) -> list[Payload]:
    """Return the events of a conversation from kind, size, calls and whether there are sentences.

    Of an answer with calls, each result has the size.
    """
    events: list[Payload] = [UserMessage.text("The task.")]
    for kind, size, calls, sentences in said:
        told = text(size, sentences=sentences)
        if kind == "user":
            events.append(UserMessage.text(told))
        elif kind == "error":
            events.append(LlmError(kind="network", message="reset", partial_text=told))
        elif kind == "summary" and len(events) > 2:
            covered = VersionRange(first=2, last=len(events) // 2 + 1)
            events.append(Summary(text=told, versions=(covered,)))
        elif kind == "system":
            events.append(SystemInstruction(text=told))
        elif calls:
            events.append(AssistantMessage(tool_calls=(CALL,) * calls))
            version = len(events)
            events += [ToolResult(call_id=f"{version}.{n}", content=told) for n in range(calls)]
        else:
            events.append(AssistantMessage.of(told))
    return events


_kinds = st.sampled_from(["answer"] * 8 + ["user", "user", "error", "summary", "system"])
_sizes = st.sampled_from([0, 4, 40, 40, 200, 200, 1_000, 5_000])
_calls = st.sampled_from([0, 0, 0, 1, 1, 5, 30])
_said = st.tuples(_kinds, _sizes, _calls, st.booleans())
histories = st.lists(_said, max_size=12) | st.builds(
    lambda some, times: [*some] * times, st.lists(_said, min_size=1, max_size=3), st.integers(1, 40)
)


@dataclass(frozen=True)
class Limits:
    """What a request may hold, in each unit."""

    messages: int | None = None
    chars: int | None = None
    tokens: int | None = None

    def used(self, rows: Sequence[ContextRow]) -> dict[str, int]:
        """Return what these rows take of each limit."""
        found = {
            "messages": len(rows),
            "chars": sum(characters(row.message, 24) for row in rows),
            "tokens": sum(row.tokens for row in rows),
        }
        return {name: size for name, size in found.items() if getattr(self, name) is not None}

    def hold(self, used: dict[str, int]) -> bool:
        """Whether this much is not over any limit."""
        return all(size <= getattr(self, name) for name, size in used.items())


def characters(message: dict[str, Any], more: int = 0) -> int:
    """Return the characters of a message: of its text and its calls; for each of these some more.

    A request settles the ids, which are longer in it.
    """
    calls = message.get("tool_calls") or ()
    return len(message["content"] or "") + sum(len(str(call)) + more for call in calls)


limits = st.builds(
    Limits,
    messages=st.none() | st.sampled_from([4, 10, 20, 33, 80]),
    chars=st.none() | st.sampled_from([400, 2_000, 20_000]),
    tokens=st.none() | st.sampled_from([150, 600, 4_000]),
)


def ask(log: Log, some: Limits, **how: Any) -> ContextView | None:
    """Return the view, None if what must be sent is over a limit."""
    settings = ContextSettings(
        max_messages=some.messages,
        max_chars=some.chars,
        max_prompt_tokens=some.tokens,
        steps=how.pop("steps", True),
        strategy=how.pop("strategy", "level_of_detail"),
    )
    try:
        return log.view(settings=settings, **how)
    except BudgetInfeasible:
        return None


def assert_used(log: Log, view: ContextView, some: Limits) -> None:
    """Check that the newest group that fits is sent, and that no limit is left half empty."""
    rows = log.rows()
    sent = {entry.version: entry for entry in view.ledger if entry.level not in DROPPED}
    must = {"system part", "first user message", "latest user message", "error before"}
    paid = [
        row
        for row in rows
        if row.version in sent
        and any(f"mandatory: {each}" in sent[row.version].reason for each in must)
        and "last step" not in sent[row.version].reason
    ]
    total = {"messages": len(view.messages), "tokens": view.tokens.tokens}
    total["chars"] = sum(characters(message) for message in view.messages)
    total = {name: total[name] for name in some.used([])}
    assert some.hold(total)
    overhead = view.tokens.tokens - sum(entry.tokens_after for entry in view.ledger)
    overhead = overhead if all(each.level != "facts" for each in view.ledger) else 40
    taken = some.used([row.with_(**_as_sent(row, sent)) for row in paid])
    taken["tokens"] = taken.get("tokens", 0) + overhead
    paid_keys = {row.key for row in paid}
    newest_first = sorted(rows, key=lambda row: row.key, reverse=True)
    visible = (
        row
        for row in newest_first
        if row.visible
        and row.kind not in ("system", "notebook")
        and not _is_empty(row)
        # Of all failures only the one that a "continue" may need is sent with its error.
        and (row.kind != "error" or row.key in paid_keys)
    )
    fitting = [
        group
        for group in groups_of(visible)
        if group[0].key not in paid_keys and some.hold(_sum(taken, some.used(group)))
    ]
    if fitting:  # Or a newer one, which fits in its shorter form.
        others = sent.keys() - {row.version for row in paid}
        assert max(each for each in others if each is not None) >= fitting[0][0].version
    missing = [group for group in fitting if group[0].version not in sent]
    if missing and not any(2 * size + 1 >= getattr(some, name) for name, size in total.items()):
        assert not any(some.hold(_sum(total, some.used(group))) for group in missing)


def _is_empty(row: ContextRow) -> bool:
    """Whether a row is an answer without content or calls, which is in no request."""
    message = row.message
    blank = is_blank(message["content"]) and "tool_calls" not in message
    return row.kind == "assistant" and blank


def _as_sent(row: ContextRow, sent: dict[Any, Any]) -> dict[str, Any]:
    if sent[row.version].level == "full" or lower(row).shortened is None:
        return {}
    return {"message": lower(row).shortened, "tokens": lower(row).tokens}


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + size for name, size in other.items()}


@pytest.mark.parametrize("strategy", strategies())
@given(said=histories, some=limits, steps=st.booleans(), tools=st.booleans())
@example([("answer", 40, 5, False)] * 24, Limits(messages=80), True, False)
@example([("answer", 5_000, 1, False)] * 12, Limits(80, 20_000), True, True)
@example(
    [("answer", 40, 0, True)] * 9 + [("answer", 5_000, 5, True)], Limits(chars=400), True, True
)
@example(
    [("answer", 40, 0, True)] * 9 + [("answer", 5_000, 5, True)],
    Limits(None, None, 600),
    False,
    True,
)
def test_no_newest_group_is_lost(
    strategy: str, said: list[tuple[str, int, int, bool]], some: Limits, steps: bool, tools: bool
) -> None:
    """The newest group that fits by itself is sent, and at least half of each limit is used."""
    log = Log(history(*said))
    declared = [TOOL] if tools else []
    view = ask(log, some, steps=steps, strategy=strategy, tools=declared)
    if view is not None:
        assert_used(log, view, some)
