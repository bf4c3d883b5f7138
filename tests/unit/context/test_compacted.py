"""A history that its provider has compacted goes back to it from there on; others get all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventstore.events import AssistantMessage, Invocation, Payload, UserMessage
from projections.context.row_cache import CachedPlan, Folded, PlanMemo, Recent
from projections.context.settings import ContextSettings
from projections.errors import BudgetInfeasible
from tests.pairing import unpaired_blocks, unpaired_items
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.streams import handmade_anthropic as claude
from tests.unit.streams import handmade_openai as gpt
from tests.unit.streams.recorded import fed

OF = {"openai_responses": "openai", "anthropic_messages": "anthropic"}


def answer(specification: str, *, compacted: bool = False) -> Payload:
    """Return an answer, with what was compacted before it was made."""
    if specification == "anthropic_messages":
        blocks = claude.BLOCKS["compaction"] if compacted else [claude.text("Before.")]
        return fed(claude.messages(*blocks)).message()
    items = [*(gpt.HOSTED["compaction"] if compacted else ()), gpt.said("Before.")]
    message = fed(gpt.responses(*items)).message()
    maker = Invocation(provider="openai", specification="openai_responses", model="gpt-5.2")
    return message.model_copy(update={"invocation": maker})


def log(specification: str) -> Log:
    """Return a conversation that was compacted before its third answer."""
    events: list[Payload] = [UserMessage.text("The task.")]
    for n in range(5):
        events += [UserMessage.text(f"Question {n}."), answer(specification, compacted=n == 3)]
    return Log([*events, UserMessage.text("The last.")])


def asked(view: Any) -> str:
    """Return all that is said, in one text."""
    return str(view.messages)


@pytest.mark.parametrize("steps", [None, 4_000])
@pytest.mark.parametrize("specification", OF)
def test_the_maker_gets_its_compaction_and_what_came_after(
    specification: str, steps: int | None
) -> None:
    """What it stands for is left out, but for the task."""
    view = log(specification).view(
        format=specification, provider=OF[specification], max_tokens=steps
    )
    said = asked(view)
    assert [f"Question {n}." in said for n in range(5)] == [False, False, False, False, True]
    assert ("The task." in said, "compaction" in said) == (True, True)
    assert (view.complete, view.ledger[0].kind) == (False, "older")
    assert view.ledger[0].reason.endswith("compacted by the provider")
    field = "input" if specification == "openai_responses" else "messages"
    assert refused_by_sdk(specification, {field: view.messages}) == []
    unpaired = unpaired_items if specification == "openai_responses" else unpaired_blocks
    assert unpaired(view.messages) == []


@pytest.mark.parametrize("specification", OF)
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_another_gets_the_whole_history(specification: str, target: str) -> None:
    """It cannot read what was compacted."""
    view = log(specification).view(format=target, provider="x-ai")
    assert all(f"Question {n}." in asked(view) for n in range(5))
    assert gpt.HOSTED["compaction"][0]["encrypted_content"] not in asked(view)


@pytest.mark.parametrize("specification", OF)
@pytest.mark.parametrize("steps", [True, False])
def test_a_compaction_is_the_last_to_go(specification: str, steps: bool) -> None:
    """What is before it would be lost; it goes sooner than that the request is refused."""
    held, chosen = log(specification), ContextSettings(steps=steps)
    options: dict[str, Any] = {"format": specification, "provider": OF[specification]}
    found: list[bool] = []
    for budget in range(10, 400, 10):
        try:
            view = held.view(**options, max_tokens=budget, settings=chosen)
        except BudgetInfeasible:
            assert not found
            continue
        assert view.tokens.tokens <= budget
        found.append("compaction" in asked(view))
    assert found == sorted(found)
    assert found[-1]


@pytest.mark.parametrize("specification", OF)
def test_a_plan_from_before_is_not_taken(specification: str) -> None:
    """What was compacted since is not sent, though the last step had kept it."""
    plans: Recent[CachedPlan] = Recent()
    options = {"format": specification, "provider": OF[specification], "max_tokens": 400}
    held = Log([UserMessage.text("The task.")])
    for n in range(9):
        held.add(UserMessage.text(f"Question {n}. " * 12))
        held.add(answer(specification, compacted=n == 7))
        memo = PlanMemo(plans, "log", Folded(held.version, []))
        assert held.view(**options).document == held.view(**options, memo=memo).document


@pytest.mark.parametrize("budget", [310, 350])
@pytest.mark.parametrize("specification", OF)
def test_a_question_from_before_the_compaction_is_not_remembered(
    specification: str, budget: int
) -> None:
    """It is sent while it is the latest, and not once another one is."""
    plans: Recent[CachedPlan] = Recent()
    options = {"format": specification, "provider": OF[specification], "max_tokens": budget}
    held = Log([UserMessage.text("The task. " * 30), UserMessage.text("Which order? " * 20)])
    held.add(answer(specification, compacted=True))
    orders = json.dumps([{"o": n, "s": "delivered"} for n in range(30)])
    answers = map(AssistantMessage.of, ("ok", orders, "ok"))
    for said in (*answers, UserMessage.text("And?")):
        held.add(said)
        memo = PlanMemo(plans, "log", Folded(held.version, []))
        assert held.view(**options).document == held.view(**options, memo=memo).document
