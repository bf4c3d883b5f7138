"""What the folds share: short ways that say what the plain ones say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore import events as e
from eventstore.events import RecordedEvent
from projections import payload_text
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, RowDraft, one_line
from tests.unit.projections.history import record

SIGNS = "ab\x00é工\u200b \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2000\u2028\u2029\u202f\u205f\u3000"


@pytest.fixture
def event() -> RecordedEvent:
    """Give any event."""
    return record(1, e.TurnStart())


class TestOneLine:
    """The start of a text without line breaks."""

    @given(st.text("ab ", max_size=20) | st.text(SIGNS, max_size=20), st.integers(1, 12))
    @example("ab c", 3)
    def test_a_text_that_is_one_line_is_only_cut(self, text: str, limit: int) -> None:
        """Whichever way is taken, words stand apart by one space, up to the limit."""
        assert " ".join(text.lstrip()[: 4 * limit].split())[:limit] == one_line(text, limit)


class TestDraft:
    """The state after an event, while it is written."""

    def test_the_oldest_is_forgotten(self, event: RecordedEvent) -> None:
        """A memory holds the newest entries in order of age, however often it has forgotten."""
        state: dict[str, dict[str, int]] = {"ended": {}}
        for number in range(3 * CLOSED_LIMIT):
            draft = RowDraft(state, event)
            draft.keep("ended", str(number), number, CLOSED_LIMIT)
            state = draft.state
        newest = range(2 * CLOSED_LIMIT, 3 * CLOSED_LIMIT)
        assert [(str(number), number) for number in newest] == list(state["ended"].items())

    def test_the_given_state_stays_as_it_was(self, event: RecordedEvent) -> None:
        """Keeping and dropping alter copies."""
        state = {"open": {"a": 1, "b": 2}}
        draft = RowDraft(state, event)
        draft.drop("open", "a")
        draft.keep("open", "c", 3)
        assert ({"open": {"a": 1, "b": 2}}, {"b": 2, "c": 3}) == (state, draft.state["open"])


def test_where_names_what_the_metadata_tell() -> None:
    """Each column has the value of the metadata's field of that name."""
    meta = e.Meta(turn=1, step=0, mode="run", session_id="s", run_id="r", agent_id="a", actor="x")
    expected = {
        "turn": 1,
        "step": 0,
        "mode": "run",
        "session_id": "s",
        "run_id": "r",
        "agent_id": "a",
    }
    assert expected == folding.where(record(1, (e.TurnStart(), meta)))


def test_a_moment_keeps_its_microseconds() -> None:
    """The text in a state gives the moment back."""
    moment = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert moment == datetime.fromisoformat(folding.moment_text(moment))


SEARCHED = e.OtherPart(raw={"type": "web_search_call", "action": {"query": "rome weather"}})


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], ""),
        ([SEARCHED, e.TextPart(text="Sun"), SEARCHED, e.TextPart(text="ny.")], "Sunny."),
        ([e.ReasoningPart(text="So."), SEARCHED, SEARCHED], "[web search: rome weather]\n" * 2),
        ([e.OtherPart(raw=["?"])], "[other content]"),
        ([e.RefusalPart(text="No."), SEARCHED], "No."),
    ],
)
def test_what_an_answer_said(parts: list[e.ContentPart], text: str) -> None:
    """What a provider's own tools did is no part of the text; alone, it is told in words."""
    assert text.rstrip() == payload_text.answer_text(parts)
