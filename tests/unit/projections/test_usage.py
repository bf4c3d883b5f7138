"""Tokens, cost, latency and outcome of model calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from eventstore import events as e
from projections.models.prices import cost_usd
from projections.models.usage import USAGE
from tests.unit.projections.history import Entry, rows

GPT = e.Invocation(provider="openai", specification="chat", model="gpt-4o")
ASK = e.LlmRequest(llm_call_id="a", invocation=GPT, counted_tokens=90)
REPORTED = e.TokenUsage(prompt_tokens=1000, completion_tokens=100, cached_prompt_tokens=200)
ANSWER = e.AssistantMessage.of("hello world", llm_call_id="a", usage=REPORTED)
AT = datetime(2025, 5, 1, tzinfo=UTC)


def usage(*entries: Entry) -> list[dict[str, Any]]:
    """Return the rows of the entries."""
    return rows(USAGE, "usage_by_call", *entries)


def test_a_request_without_an_answer_is_started() -> None:
    """A call that never ended is not counted as a success."""
    row = usage((ASK, e.Meta(turn=3)))[0]
    assert ("started", "gpt-4o", 90, 3) == (
        row["status"],
        row["model"],
        row["estimated_prompt_tokens"],
        row["turn"],
    )


def test_reported_usage_stands_beside_the_estimate() -> None:
    """What was estimated before the call stays comparable with what was billed."""
    row = usage(ASK, ANSWER)[0]
    assert (90, 1000, 100, 200, 1100) == (
        row["estimated_prompt_tokens"],
        row["prompt_tokens"],
        row["completion_tokens"],
        row["cached_prompt_tokens"],
        row["total_tokens"],
    )


def test_latency_counts_from_the_request() -> None:
    """The first piece and the end are timed by the log if the writer did not."""
    chunk = e.AssistantChunk(llm_call_id="a", index=0, text="hello")
    row = usage(ASK, chunk, chunk, ANSWER)[0]
    assert (1000, 3000, 4) == (row["first_token_ms"], row["latency_ms"], row["end_version"])


def test_an_unreported_usage_fills_only_the_estimates() -> None:
    """A writer's estimate is never taken for the provider's figure."""
    told = e.TokenUsage(prompt_tokens=5, completion_tokens=6, reported=False)
    row = usage(e.AssistantMessage.of("x", llm_call_id="a", usage=told))[0]
    assert (5, 6, None, None) == (
        row["estimated_prompt_tokens"],
        row["estimated_completion_tokens"],
        row.get("prompt_tokens"),
        row.get("cost_usd"),
    )


@pytest.mark.parametrize("model", ["gpt-4o", "text-davinci-003", "house-model", None])
def test_an_answer_without_usage_is_counted(model: str | None) -> None:
    """Any model gets an estimate, also one whose encoding is not at hand."""
    called = e.Invocation(model=model)
    row = usage(e.AssistantMessage.of("hello world", invocation=called))[0]
    assert ("v1", 2) == (row["llm_call_id"], row["estimated_completion_tokens"])


def test_an_error_is_a_status() -> None:
    """Errors are counted by kind, with the usage that was billed all the same."""
    error = e.LlmError(llm_call_id="a", kind="timeout", message="", usage=REPORTED, attempt=2)
    row = usage(ASK, error)[0]
    assert ("timeout", "timeout", 2, 1000) == (
        row["status"],
        row["error_kind"],
        row["attempt"],
        row["prompt_tokens"],
    )


def test_an_answer_after_an_error_replaces_it() -> None:
    """A call that recovery gave up may still have been answered."""
    error = e.LlmError(llm_call_id="a", kind="interrupted", message="")
    row = usage(ASK, error, ANSWER)[0]
    assert ("ok", None, 1) == (row["status"], row["error_kind"], row["version"])


def test_an_error_after_the_answer_changes_nothing() -> None:
    """What was answered stays answered."""
    error = e.LlmError(llm_call_id="a", kind="interrupted", message="")
    assert usage(ASK, ANSWER) == usage(ASK, ANSWER, error)


def test_a_second_answer_under_one_id_changes_nothing() -> None:
    """Tokens are not counted from a duplicate."""
    again = e.AssistantMessage.of("x", llm_call_id="a", usage=e.TokenUsage(prompt_tokens=1))
    assert usage(ASK, ANSWER) == usage(ASK, ANSWER, again)


def test_a_new_request_under_the_id_of_a_failed_call_begins_again() -> None:
    """A writer that retries under the same id has one row, with the last attempt."""
    error = e.LlmError(llm_call_id="a", kind="timeout", message="")
    row = usage(ASK, error, e.LlmRequest(llm_call_id="a", invocation=GPT, attempt=2))[0]
    assert ("started", None, 2) == (row["status"], row["error_kind"], row["attempt"])


def test_a_retry_under_the_id_of_a_failed_call_keeps_nothing_of_it() -> None:
    """What the failed attempt took and used is not that of the one that has just begun."""
    asked = e.LlmRequest(llm_call_id="a", invocation=GPT, attempt=2)
    told: tuple[dict[str, Any], ...] = ({"usage": REPORTED}, {"partial_text": "hello"})
    for used in told:
        error = e.LlmError(llm_call_id="a", kind="timeout", message="", duration_ms=7, **used)
        chunk = e.AssistantChunk(llm_call_id="a", index=0, text="hello")
        row = usage("user_message", "user_message", "user_message", asked)[0]
        again = usage(ASK, chunk, error, asked)[0]
        assert row == {
            name: value for name, value in again.items() if value is not None or name in row
        }


def test_cost_takes_cached_tokens_at_their_own_price() -> None:
    """800 tokens at 2.50, 200 cached at 1.25 and 100 at 10 dollars a million."""
    assert 0.00325 == cost_usd(REPORTED, "openai", "gpt-4o", AT)


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "house-model"), ("house", "gpt-4o"), (None, None)]
)
def test_there_is_no_cost_without_a_price(provider: str | None, model: str | None) -> None:
    """An unknown price is NULL, not zero."""
    assert cost_usd(REPORTED, provider, model, AT) is None


def test_there_is_no_cost_of_contradictory_counts() -> None:
    """More cached than prompt tokens cannot be priced."""
    counts = e.TokenUsage(prompt_tokens=1, cached_prompt_tokens=2)
    assert cost_usd(counts, "openai", "gpt-4o", AT) is None


def test_the_answer_knows_the_model_best() -> None:
    """A gateway may answer with another model than the one that was asked for."""
    other = e.Invocation(model="gpt-4o-mini")
    row = usage(ASK, e.AssistantMessage.of("x", llm_call_id="a", invocation=other))[0]
    assert ("openai", "gpt-4o-mini") == (row["provider"], row["model"])


def test_erased_events_count_nothing() -> None:
    """An erased answer leaves the call as it was begun."""
    assert "started" == usage(ASK, "assistant_message")[0]["status"]
