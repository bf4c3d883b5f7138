"""Estimated and reported tokens of the same calls, side by side and as a calibration."""

from __future__ import annotations

from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views


def ask(
    store: EventStore,
    cid: UUID,
    estimated: int | None,
    reported: int | None,
    *,
    model: str = "gpt-4o",
    answered_by: str | None = None,
) -> None:
    """Append a model call with these figures of its prompt."""
    call = str(new_id())
    usage = None if reported is None else e.TokenUsage(prompt_tokens=reported, completion_tokens=1)
    store.append(
        cid,
        [
            e.LlmRequest(
                llm_call_id=call,
                invocation=e.Invocation(provider="openai", model=model),
                counted_tokens=estimated,
            ),
            e.AssistantMessage.of(
                "hi",
                llm_call_id=call,
                invocation=e.Invocation(model=answered_by),
                usage=usage,
            ),
        ],
    )


def test_the_error_is_over_calls_that_have_both(store: EventStore, views: Views, cid: UUID) -> None:
    """What was only estimated, or only reported, does not blur the comparison."""
    for estimated, reported in ((110, 100), (330, 300), (None, 5_000), (7_000, None)):
        ask(store, cid, estimated, reported)
    [total] = views.usage(by="model")
    assert pytest.approx((4, 2, 440, 400, 10.0, 5_400, 7_440)) == (
        total.calls,
        total.compared_calls,
        total.compared_estimated_tokens,
        total.compared_prompt_tokens,
        total.estimate_error_percent,
        total.prompt_tokens,
        total.estimated_prompt_tokens,
    )


def test_without_both_there_is_no_error(store: EventStore, views: Views, cid: UUID) -> None:
    """Nothing to compare is not the same as no error."""
    ask(store, cid, None, 100)
    [total] = views.usage(by="model")
    assert (0, None, None) == (
        total.compared_calls,
        total.compared_estimated_tokens,
        total.estimate_error_percent,
    )


def test_a_calibration_is_of_one_model(store: EventStore, views: Views, cid: UUID) -> None:
    """Dated versions of the model count, its smaller sister does not."""
    ask(store, cid, 100, 110)
    ask(store, cid, 100, 130, answered_by="gpt-4o-2024-08-06")
    ask(store, cid, 100, 900, model="gpt-4o-mini")
    found = views.calibration("gpt-4o")
    assert pytest.approx((2, 1.2)) == (found.calls, found.factor)


def test_a_calibration_of_one_conversation(store: EventStore, views: Views, cid: UUID) -> None:
    """What others have cost is left out where only one is asked about."""
    ask(store, cid, 100, 110)
    ask(store, new_id(), 100, 300)
    one = views.calibration("gpt-4o", conversation_id=cid)
    assert pytest.approx((1, 1.1)) == (one.calls, one.factor)
    assert 2 == views.calibration("gpt-4o").calls


def test_a_model_that_nobody_called_has_no_calibration(store: EventStore, views: Views) -> None:
    """Counts are then taken as they are."""
    assert (0, 1.0) == (views.calibration("m").calls, views.calibration("m").factor)
