"""Promise 8: between two requests the prefix stays byte-identical as long as possible.

Trimming happens in steps, and where one fell is a fold of the log: it is worked out here a second
time, forwards, from the sizes of the messages alone.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator, Sequence
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
from projections.context import ContextRow, ContextView
from projections.context.compression.strategy import interval
from projections.context.prompts import RECALLED
from tests.exhaustive import partly
from tests.properties.dense import dense_histories
from tests.properties.promises import FORMATS, STRATEGIES, Request, ask, tokens_of
from tests.properties.test_context import as_events, transcripts
from tests.unit.context.log import Log

DIGEST = 64
"""Tokens by which a digest may be counted too high while it is planned, line by line."""

TOLD = ("user", "assistant", "tools")
"""Sections for which a step may fall, with the messages that are added."""

CLOSING = "<system_note>\nThe conversation stops here. Continue it.\n</system_note>"


def sent(view: ContextView) -> list[Any]:
    """Return what a cache sees, in order: of Anthropic's messages, the blocks.

    A note that ends a request because the user has to have the last word ends that request only.
    """
    if view.format != "anthropic_messages":
        return [view.system, *view.messages]
    blocks = [(message["role"], block) for message in view.messages for block in message["content"]]
    closed = blocks and blocks[-1][1].get("text") == CLOSING
    return [view.system, *(blocks[:-1] if closed else blocks)]


def recalled_at(messages: Sequence[Any]) -> int:
    """Return the place of what is recalled, which is the same for one turn; the end if nothing."""
    told = json.dumps(RECALLED)[1:-1]
    places = (n for n, message in enumerate(messages) if told in json.dumps(message))
    return next(places, len(messages))


def left_of_recall(view: ContextView, limit: int) -> int:
    """Return the tokens that are kept for what is recalled and not taken by it.

    Of the room that system part, tools and task leave, 60 %; what stands in front is planned within
    the rest.
    """
    taken = [entry.tokens_after for entry in view.ledger if entry.kind == "recalled"]
    standing = ("mandatory: system part", "mandatory: notebook", "mandatory: first user message")
    fixed = sum(each.tokens_after for each in view.ledger if each.reason.startswith(standing))
    return max((limit - fixed) * 60 // 100 - sum(taken), 0) if taken else 0


def only_appended(before: Sequence[ContextRow], after: Sequence[ContextRow]) -> bool:
    """Whether nothing but the history's end has changed, and nobody spoke for the first time."""
    kinds = {row.kind for row in after[len(before) :]}
    spoken = any(row.kind == "user" and row.hidden is None for row in before)
    return (
        spoken
        and list(before) == list(after[: len(before)])
        and kinds <= {"user", "assistant", "tool"}
    )


def assert_prefix_is_kept(histories: Iterator[list[ContextRow]], request: Request) -> int:
    """Ask at each moment, and return how often the messages were only added to.

    They are, unless a step fell: it is another one, or what is new has passed the trigger, or the
    budget of a section; or an old message has changed.
    """
    last: tuple[list[ContextRow], ContextView] | None = None
    kept = 0
    for rows in histories:
        view = ask(rows, request)
        if view is not None and last is not None and only_appended(last[0], rows):
            new = sum(row.tokens + row.native_tokens for row in rows[len(last[0]) :])
            limit = request.max_tokens or 0
            trigger = limit - DIGEST - left_of_recall(last[1], limit)
            before, now = sent(last[1]), sent(view)
            asked = any(row.kind == "user" for row in rows[len(last[0]) :])
            recalled = (recalled_at(before) < len(before), recalled_at(now) < len(now))
            before = before[: recalled_at(before)] if asked else before
            same = view.step == last[1].step and recalled[0] == recalled[1]
            within = last[1].sections.items()
            same = same and all(used + new <= most for name, (used, most) in within if name in TOLD)
            if same and last[1].tokens.tokens + new <= trigger:
                assert before == now[: len(before)]
                kept += 1
        last = None if view is None else (rows, view)
    return kept


def moments(events: Sequence[Any]) -> Iterator[list[ContextRow]]:
    """Yield the rows at each moment when a model could be asked: when no call is open."""
    log = Log()
    for event in events:
        log.add(event)
        rows = log.rows()
        if not any(row.sealed for row in rows):
            yield rows


class TestThePrefix:
    """What was sent once is sent again, letter for letter, in front of what is new."""

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_it_is_kept_in_real_conversations(self, strategy: str) -> None:
        """At budgets of 45 to 80 % of what the conversation comes to, in the formats in turn."""
        kept = 0
        start = STRATEGIES.index(strategy)
        for number, messages in enumerate(transcripts()[start :: 3 * len(STRATEGIES)]):
            events = as_events(messages)
            budget = tokens_of(Log(events).rows()) * (45 + number * 7) // 100
            format = [*FORMATS][(number + start) % len(FORMATS)]
            kept += assert_prefix_is_kept(
                moments(events), Request(strategy, format, True, max_tokens=budget)
            )
        assert kept > 10

    @given(
        entries=dense_histories,
        strategy=st.sampled_from(STRATEGIES),
        format=st.sampled_from([*FORMATS]),
        share=st.integers(30, 100),
    )
    def test_it_is_kept_in_any_history(
        self, entries: list[NewEvent], strategy: str, format: str, share: int
    ) -> None:
        """Unless a late result, a retraction or a summary has changed an old message."""
        budget = tokens_of(Log(entries).rows()) * share // 100
        log = Log()
        histories = (log.rows() for entry in entries if log.add(entry))
        assert_prefix_is_kept(histories, Request(strategy, format, True, max_tokens=budget))


def long_conversation(groups: int) -> list[ContextRow]:
    """Return the rows of a conversation of calls with results, and a user now and then."""
    log = Log([UserMessage.text("The task.")])
    for number in range(groups):
        if number % 9 == 3:
            log.add(UserMessage.text(f"And what of order #W{number:07}? " * (number % 4 + 1)))
            continue
        call = ToolCallRequest(name="find", arguments_text=f'{{"number": {number}}}')
        version = log.add(AssistantMessage(tool_calls=(call,)))
        told = f"Order #W{number:07} is in the house of user_{number}. It is old. " * (
            number % 7 + 1
        )
        log.add(ToolResult(call_id=f"{version}.0", content=told))
    return log.rows()


ROWS = long_conversation(600)
ORDERS = re.compile(r"#W\d{7}")


def groups_of(rows: Sequence[ContextRow]) -> list[list[ContextRow]]:
    """Return the rows by group, oldest first."""
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row.version)]


def views_of(budget: int, counts: range) -> Iterator[tuple[list[list[ContextRow]], ContextView]]:
    """Yield the first groups of the long conversation, and their request, made of these alone."""
    groups = groups_of(ROWS)
    for count in counts:
        yield groups[:count], _view_of(budget, count)


@functools.cache
def _view_of(budget: int, count: int) -> ContextView:
    rows = [row for group in groups_of(ROWS)[:count] for row in group]
    return Request(steps=True, max_tokens=budget).build(rows)


def is_over_at_an_anchor(groups: Sequence[Sequence[ContextRow]], budget: int) -> bool:
    """Whether the newest group is one before which a history over the trigger has a step."""
    whole = 3 + sum(row.tokens for group in groups[:-1] for row in group)
    return (groups[-1][0].ordinal or 0) % interval(budget) == 0 and whole > budget


@pytest.mark.parametrize("budget", partly([1_500, 6_000, 9_000]))
class TestALongConversation:
    """Of 600 groups, at budgets that have a step at every 64, 128 and 256 messages at least."""

    def test_a_step_falls_where_the_log_says(self, budget: int) -> None:
        """Told from the end, as by a process that knows nothing, it is where it was forwards.

        It falls with the group that is too much for the request before, or at an anchor.
        """
        last: ContextView | None = None
        seen = 0
        for groups, view in views_of(budget, range(2, 280)):
            size = sum(row.tokens for row in groups[-1])
            before = 0 if last is None else last.tokens.tokens
            if is_over_at_an_anchor(groups, budget):
                assert view.step in (groups[-3][0].key, groups[-2][0].key)
            elif before + size > budget:
                assert view.step == groups[-2][0].key
                seen += 1
            elif last is not None and before + size <= budget - 2 * DIGEST:
                assert last.step == view.step
            last = view
        assert seen > 2

    def test_it_trims_above_the_trigger_and_leaves_room(self, budget: int) -> None:
        """A step leaves room for the next ones, and no more than that."""
        last: ContextView | None = None
        for groups, view in views_of(budget, range(100, 150)):
            newest = sum(row.tokens for row in groups[-1])
            assert view.tokens.tokens <= budget
            if last is not None and last.step != view.step:
                assert budget // 2 <= view.tokens.tokens <= budget * 15 // 16 + newest
            last = view

    def test_a_minor_step_leaves_what_stands_from_the_last(self, budget: int) -> None:
        """Of the steps, some change less than half of the request, and no fact is told twice."""
        last: list[Any] | None = None
        step, changed, minor = None, 0, 0
        for _, view in views_of(budget, range(100, 320)):
            told = sent(view)
            if last is not None and view.step != step:
                changed += 1
                same = itertools.takewhile(
                    lambda pair: pair[0] == pair[1], zip(last, told, strict=False)
                )
                minor += len([*same]) > len(last) // 2
            digests = [text for text in map(str, told) if "CONVERSATION_DIGEST" in text]
            facts = [fact for text in digests for fact in set(ORDERS.findall(text))]
            assert len({*facts}) == len(facts)
            last, step = told, view.step
        assert 0 < minor < changed

    def test_the_prefix_is_kept(self, budget: int) -> None:
        """Also where a step fell because of the number of messages."""
        groups = groups_of(ROWS)
        histories = ([row for group in groups[:n] for row in group] for n in range(120, 170))
        assert assert_prefix_is_kept(histories, Request(steps=True, max_tokens=budget)) > 25


def test_without_steps_it_slides() -> None:
    """The judge of the prefix finds what has no steps, or it would prove nothing."""
    groups = groups_of(ROWS)
    views = [
        Request(max_tokens=2_000).build([row for group in groups[:n] for row in group])
        for n in range(150, 160)
    ]
    slid = [
        sent(before) != sent(after)[: len(sent(before))]
        for before, after in itertools.pairwise(views)
    ]
    assert slid.count(True) >= len(slid) - 2


def test_a_large_group_is_not_fitted_anew_at_every_request() -> None:
    """A group too large to stand whole beside the rest once lost some more with each message."""
    orders = [{"order_id": f"#W{number:07}"} for number in range(60)]
    log = Log([SystemInstruction(text="Be brief. " * 400), UserMessage.text("The task.")])
    log.add(AssistantMessage.of("Well, well. " * 60))
    log.add(AssistantMessage.of(json.dumps(orders)))
    histories = [log.rows()]
    for _ in range(6):
        log.add(AssistantMessage.of("Yes, it is so. " * 6))
        histories.append(log.rows())
    request = Request(steps=True, max_tokens=1_800)
    told = [sent(request.build(rows)) for rows in histories]
    changes = sum(before != after[: len(before)] for before, after in itertools.pairwise(told))
    assert changes <= 2


def test_what_is_kept_for_recall_is_not_given_back_within_a_turn() -> None:
    """Where nothing was found, its room was given to what is older once the turn needed it."""
    log = Log([UserMessage.text("The task.")])
    log.add(AssistantMessage.of("Well, well."))
    log.add(AssistantMessage.of("It is as it is. " * 60))
    log.add(UserMessage.text("Zebras? " * 30))
    histories = [log.rows()]
    for _ in range(4):
        log.add(AssistantMessage.of("Wait."))
        histories.append(log.rows())
    for budget in range(150, 400, 5):
        request = Request("retrieval", steps=True, max_tokens=budget)
        assert_prefix_is_kept(iter(histories), request)
