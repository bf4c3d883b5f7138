"""The bill survives its words: usage after an erasure is what it was before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventstore.erasure.bill import bills, usage_events
from eventstore.events import LlmError, LlmRequest, Meta, RecordedEvent, RetainedUsage, TokenUsage
from eventstore.events.codec import decode, encode
from projections.models.usage import USAGE
from tests.properties.histories import histories
from tests.unit.projections.history import apply, fold, record

_COUNTED = "estimated_completion_tokens"  # from the words, where nobody reported them


def usage_of(events: list[RecordedEvent]) -> dict[Any, dict[str, Any]]:
    """Return the rows of usage, without what is counted from words and what is empty."""
    rows = apply(fold(USAGE, events)[1]).get("usage_by_call", {})
    return {
        key: {name: value for name, value in row.items() if value is not None and name != _COUNTED}
        for key, row in rows.items()
    }


@given(
    histories().filter(lambda each: not any(isinstance(e.data, RetainedUsage) for e in each)),
    st.sets(st.integers(1, 25)),
    st.sets(st.integers(1, 25)),
)
def test_usage_is_what_it_was(
    events: list[RecordedEvent], first: set[int], second: set[int]
) -> None:
    """Whatever is erased of a history, and whatever more in a second erasure; bills outlive it."""
    before = usage_of(events)
    for versions in (first, second):
        chosen = versions - {
            each.version for each in events if isinstance(each.data, RetainedUsage)
        }
        left = usage_events(bills(events, chosen))
        events = [
            replace(event, data=None) if event.version in chosen else event for event in events
        ]
        events += [record(len(events) + place, each) for place, each in enumerate(left, 1)]
        assert before == usage_of(events)


def test_the_bill_of_a_retry_has_nothing_of_the_failed_attempt() -> None:
    """A request that repeats the id of a failed call starts its bill over, as it does usage."""
    used = TokenUsage(prompt_tokens=10, completion_tokens=2)
    failed = LlmError(
        llm_call_id="a", kind="timeout", message="", usage=used, duration_ms=7, attempt=1
    )
    asked = LlmRequest(llm_call_id="a", attempt=2)
    events = [record(1, LlmRequest(llm_call_id="a")), record(2, failed), record(3, asked)]
    assert bills(events[2:], [3]) == bills(events, [2, 3])


def test_a_long_bill_stands_in_several_events() -> None:
    """No event grows without bound."""
    events = [record(version, LlmRequest(llm_call_id=str(version))) for version in range(1, 2_502)]
    found = usage_events(bills(events, range(1, 2_502)))
    assert [1_000, 1_000, 501] == [len(each.calls) for each in found]


def test_a_bill_with_half_a_character_is_kept() -> None:
    """Names that are no Unicode text stand beside moments."""
    told = (LlmRequest(llm_call_id="a"), Meta(session_id="\ud800"))
    [bill] = usage_events(bills([record(1, told)], [1]))
    assert bill == decode(bill.type, 1, encode(bill))
