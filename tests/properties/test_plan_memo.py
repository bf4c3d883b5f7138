"""What is remembered of a step changes nothing: with it and without it, a request is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import AssistantMessage, Erasure, NewEvent, ToolResult, UserMessage
from projections.context import build
from projections.context.plans import Plan, PlanStep
from projections.context.row_cache import CachedPlan, Folded, PlanMemo, Recent, touch
from projections.errors import BudgetInfeasible
from tests.exhaustive import partly
from tests.list_row_source import ListRowSource
from tests.properties.dense import dense_histories
from tests.unit.context import test_compacted as compacted
from tests.unit.context.log import Log

Plans = Recent[CachedPlan]


class LogMemo(PlanMemo):
    """A memo over a log in memory, which counts what it was good for."""

    def __init__(self, plans: Plans, log: Log) -> None:
        folded = Folded(log.version, json.loads(log.state)["touched"])
        super().__init__(plans, "log", folded)
        self.hits = 0

    def get(self, key: Any) -> Any:
        """Return what is remembered, counted."""
        found = super().get(key)
        self.hits += found is not None
        return found


def answer(log: Log, max_tokens: int, memo: PlanMemo | None, **options: Any) -> Any:
    """Return all that is said of a request, or why there is none."""
    try:
        source = ListRowSource(log.rows())
        return build(source, max_tokens=max_tokens, memo=memo, **options).document
    except BudgetInfeasible as error:
        return repr(error)


@given(entries=dense_histories, max_tokens=st.sampled_from([60, 120, 250]))
def test_any_history_is_read_the_same(entries: list[NewEvent], max_tokens: int) -> None:
    """Late results, retractions and summaries change what a step was made of, and are noticed."""
    log, plans = Log(), Plans()
    for entry in entries:
        log.add(entry)
        expected = answer(log, max_tokens, None)
        assert expected == answer(log, max_tokens, LogMemo(plans, log))


TASK = f"I am mia_li_3668. {'It is cold today. ' * 20}Send it to /srv/depot/a.txt!"
WORDS = ["ok", "It is so. " * 10, "Order #W2378156 must arrive. Thanks. " * 8, "[7, 8] " * 60]


@given(
    form=st.sampled_from(sorted(compacted.OF)),
    said=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(WORDS)), min_size=4, max_size=15),
    max_tokens=st.integers(90, 700),
)
def test_a_history_that_its_provider_compacts_is_read_the_same(
    form: str, said: list[tuple[int, str]], max_tokens: int
) -> None:
    """Also where hardly anything fits beside a large first message, which is shortened."""
    log, plans, options = Log(), Plans(), {"format": form, "provider": compacted.OF[form]}
    log.add(UserMessage.text(TASK))
    for kind, words in said:
        if kind < 2:
            log.add(compacted.answer(form, compacted=kind == 0))
        else:
            log.add((UserMessage.text if kind < 6 else AssistantMessage.of)(words))
        expected = answer(log, max_tokens, None, **options)
        assert expected == answer(log, max_tokens, LogMemo(plans, log), **options)


@pytest.mark.parametrize("turns", partly([60, 220]))
def test_a_long_conversation_is_read_the_same_and_mostly_from_what_is_remembered(
    turns: int,
) -> None:
    """Over several steps and anchors, at two budgets that share a memory."""
    log, plans = Log(), Plans()
    hits = 0
    for number in range(turns):
        log.add(UserMessage.text(f"Where is order W{number}? " * 3))
        log.add(AssistantMessage.of(f"Order W{number} is on its way. " * 4))
        for max_tokens in (700, 2_000):
            memo = LogMemo(plans, log)
            assert answer(log, max_tokens, None) == answer(log, max_tokens, memo)
            hits += memo.hits
    assert hits > {60: 70, 220: 300}[turns]


def test_an_erasure_forgets() -> None:
    """Nothing that was erased comes from memory."""
    log, plans = Log(), Plans()
    for number in range(30):
        log.add(UserMessage.text(f"Secret {number}. " * 20))
    answer(log, 900, LogMemo(plans, log))
    before = LogMemo(plans, log)
    answer(log, 900, before)
    erasure = Erasure(erasure_id="e", reason="asked for", versions=(1,), event_count=1)
    log.add(erasure)
    after = LogMemo(plans, log)
    answer(log, 900, after)
    # The step, and what the turn's requests recall.
    assert (2, 0) == (before.hits, after.hits)


def test_the_past_that_was_touched_is_noted_in_few_entries() -> None:
    """A change counts until a later one reaches further back; many are merged with care."""
    touched: list[list[int]] = []
    for version in range(10, 100):
        touched = touch(touched, version, version - 1)
    assert len(touched) <= 32
    # What happened first is told as later and further back than it was: never the other way.
    assert all(oldest < version for version, oldest in touched)
    assert [[200, 3]] == touch(touched, 200, 3)


def test_a_late_result_far_back_is_noticed() -> None:
    """The call of an old message is answered after the step that has covered it."""
    log, plans = Log(), Plans()
    log.add(UserMessage.text("task"))
    call = {"name": "f", "arguments_text": "{}"}
    log.add(AssistantMessage.model_validate({"tool_calls": [call]}))
    for number in range(40):
        log.add(UserMessage.text(f"message {number} " * 12))
    answer(log, 800, LogMemo(plans, log))
    log.add(ToolResult(call_id="2.0", content="order W77 " * 5))
    memo = LogMemo(plans, log)
    assert answer(log, 800, None) == answer(log, 800, memo)
    assert memo.hits == 0


def test_a_plan_outlasts_more_changes_than_are_noted() -> None:
    """Results that complete newer messages do not make a process forget the step before them."""
    step = PlanStep((10, 0), None, Plan((), all_read=True), (9, 0))
    plans: Recent[CachedPlan] = Recent()
    PlanMemo(plans, "c", Folded(12, [])).put("key", step)
    touched: list[list[int]] = [[5, 4]]
    for version in range(13, 200, 2):
        touched = touch(touched, version, version - 1)
        assert step is PlanMemo(plans, "c", Folded(version, touched)).get("key")
    touched = touch(touched, 200, 7)
    assert PlanMemo(plans, "c", Folded(200, touched)).get("key") is None
