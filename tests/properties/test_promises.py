"""The promises of a messages[] view, one by one, over conversations in any order.

For every strategy and format, and at budgets from impossible to ample. More examples are looked at
with ``--hypothesis-profile search``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    LlmError,
    NewEvent,
    SystemInstruction,
    UserMessage,
)
from projections.context import ContextView
from projections.errors import BudgetInfeasible
from projections.tokens import text as tokens_text
from projections.tokens.counts import TokenCounts
from tests.properties.dense import dense_histories
from tests.properties.promises import (
    FORMATS,
    STRATEGIES,
    Request,
    ask,
    assert_accounted,
    assert_never_less,
    assert_users_are_told,
    assert_within_budget,
    refused,
    tokens_of,
)
from tests.unit.context.log import Log

every_format = pytest.mark.parametrize("format", FORMATS)
_models = st.sampled_from(["gpt-4o", "gpt-4", "claude-sonnet-4"])
requests = st.builds(
    Request,
    strategy=st.sampled_from(STRATEGIES),
    format=st.sampled_from([*FORMATS]),
    steps=st.booleans(),
    model=_models,
)
shares = st.integers(0, 120)

NOTED = [
    UserMessage.text("What is the matter?"),
    *(LlmError(kind="network", message=f"no route {n}") for n in range(3)),
    *(AssistantMessage.of(f"It is number {n}. " * 5) for n in range(3)),
    LlmError(kind="network", message="reset"),
]


BESIDE_A_TASK = [
    SystemInstruction(text="Be brief, and do not ask. " * 30),
    UserMessage.text("I am mia_li_3668. " + "It is cold today. " * 30 + "Send it to /srv/a.txt!"),
    *(AssistantMessage.of(f"I see, it is number {n}. " * 2) for n in range(9)),
    UserMessage.text("And what is the matter? " * 30),
]


def limited(
    entries: list[NewEvent], request: Request, share: int, counts: TokenCounts | None = None
) -> tuple[Any, Request]:
    """Return the rows of a history, and the request with a share of their tokens in percent."""
    rows = Log(entries, counts).rows()
    return rows, replace(request, max_tokens=tokens_of(rows) * share // 100)


@contextmanager
def no_tokenizing() -> Iterator[None]:
    """Make every attempt to tokenize within the block an error."""

    def refuse(name: str) -> None:
        raise AssertionError(f"something was tokenized with {name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens_text, "encoding", refuse)
        yield


class TestItIsValidForTheProvider:
    """Promise 1: calls and results are paired, ids unique, roles in order."""

    @every_format
    @given(entries=dense_histories, request=requests, share=shares)
    def test_nothing_is_refused(
        self, format: str, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """An independent judge of the format has nothing against what is sent."""
        view = ask(*limited(entries, replace(request, format=format), share))
        assert [] == ([] if view is None else refused(view))


class TestItIsWithinTheBudget:
    """Promise 2: by the project's own count, or it says what must be sent."""

    @given(entries=dense_histories, request=requests, share=shares)
    def test_the_count_of_what_is_sent_is_not_over_it(
        self, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """What is sent is counted afresh; a refusal names sizes that are over the budget."""
        rows, request = limited(entries, request, share)
        view = ask(rows, request)
        if view is not None:
            assert_within_budget(request, view)

    @given(entries=dense_histories, request=requests)
    def test_what_a_refusal_names_can_be_sent(
        self, entries: list[NewEvent], request: Request
    ) -> None:
        """The sum of the sizes is the least budget that is not refused."""
        rows, request = Log(entries).rows(), replace(request, format="openai_chat")
        with pytest.raises(BudgetInfeasible) as refusal:
            replace(request, max_tokens=0).build(rows)
        least = sum(refusal.value.mandatory.values())
        assert ask(rows, replace(request, max_tokens=least)) is not None
        assert ask(rows, replace(request, max_tokens=least - 1)) is None


class TestItHoldsTheTask:
    """Promise 3: the first and the latest user message are in it."""

    @given(entries=dense_histories, request=requests, share=shares)
    def test_the_first_and_the_latest_user_message_are_told(
        self, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """To the letter, whatever the budget, and even if a summary covers them."""
        rows, request = limited(entries, request, share)
        view = ask(rows, request)
        if view is not None:
            assert_users_are_told(rows, view)


class TestItIsAccountedFor:
    """Promise 4: the ledger says of each message what became of it."""

    @given(entries=dense_histories, request=requests, share=shares)
    def test_the_ledger_tells_what_is_sent(
        self, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """From the ledger alone the messages can be put together again, and their tokens."""
        rows, request = limited(entries, request, share)
        view = ask(rows, request)
        if view is not None:
            assert_accounted(rows, view)


class TestItIsTheSameForEver:
    """Promise 5: the same rows, budget and policy give the same bytes."""

    @given(entries=dense_histories, request=requests, share=shares, seed=st.integers(0, 9))
    def test_the_order_of_the_rows_does_not_matter(
        self, entries: list[NewEvent], request: Request, share: int, seed: int
    ) -> None:
        """Nor who folded them, nor who asked before."""
        rows, request = limited(entries, request, share)
        view = ask(rows, request)
        again = Log(entries).rows()
        random.Random(seed).shuffle(again)  # noqa: S311 - repeatable, not secret
        assert said(view) == said(ask(again, request))


class TestMoreBudgetKeepsMore:
    """Promise 6: for one request, with steps off, a larger budget never keeps less."""

    @every_format
    @given(
        entries=dense_histories, request=requests, budgets=st.lists(shares, min_size=2, max_size=9)
    )
    def test_no_level_falls(
        self, format: str, entries: list[NewEvent], request: Request, budgets: list[int]
    ) -> None:
        """What a budget holds, every larger one holds at no less detail, and refuses no more.

        A group that is larger than half of the smaller one may cost others their place.
        """
        rows, request = Log(entries).rows(), replace(request, format=format, steps=False)
        assert_never_less(rows, request, [tokens_of(rows) * share // 100 for share in budgets])

    @given(
        entries=dense_histories, request=requests, budgets=st.lists(shares, min_size=2, max_size=9)
    )
    def test_no_fact_is_lost(
        self, entries: list[NewEvent], request: Request, budgets: list[int]
    ) -> None:
        """Of messages and digest together: what a smaller request tells, a larger one tells."""
        rows, request = Log(entries).rows(), replace(request, format="openai_chat", steps=False)
        assert_never_less(rows, request, [tokens_of(rows) * share // 100 for share in budgets])

    def test_what_a_format_adds_changes_nothing(self) -> None:
        """Notes of Anthropic's format once made a budget hold less than one smaller by a token."""
        rows = Log(NOTED).rows()
        budgets = range(tokens_of(rows) + 60)
        assert_never_less(rows, Request(format="anthropic_messages"), budgets)

    @every_format
    def test_a_shortened_task_makes_room_for_the_newest_alone(self, format: str) -> None:
        """Answers were sent beside a shorter task, and dropped where the task was sent whole."""
        rows = Log(BESIDE_A_TASK).rows()
        budgets = range(tokens_of(rows) + 60)
        assert_never_less(rows, Request(format=format), budgets)


class TestItIsCountedOnce:
    """Promise 7: each message is tokenized once, and each count says whether it is exact."""

    @given(entries=dense_histories, request=requests, share=shares)
    def test_a_second_build_and_a_rebuild_tokenize_nothing(
        self, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """With the counts that were kept of the first, messages and digest alike."""
        known = TokenCounts()
        with known.active():
            rows, request = limited(entries, request, share, known)
            view = ask(rows, request)
            with no_tokenizing():
                rows, request = limited(entries, request, share, known)
                assert said(view) == said(ask(rows, request))

    @given(entries=dense_histories, share=shares)
    def test_a_whole_build_tokenizes_no_message(self, entries: list[NewEvent], share: int) -> None:
        """For a model of the rows' encoding, lower levels and a digest are all that is counted.

        A budget is refused only once the lower levels of what yields to it were made.
        """
        rows, request = limited(entries, Request(steps=True), share)
        known = TokenCounts()
        with known.active():
            view = ask(rows, request)
        if view is None:
            known = TokenCounts()
            with known.active():
                ask(rows, request)  # of rows that have their lower levels by now
        levels = [] if view is None else [entry.level for entry in view.ledger]
        assert {*levels} - {"full"} or not known.has_new

    @given(entries=dense_histories, request=requests, share=shares)
    def test_a_count_says_whether_it_is_exact(
        self, entries: list[NewEvent], request: Request, share: int
    ) -> None:
        """An exact count has no margin, and an estimate has one; Claude's is never exact."""
        view = ask(*limited(entries, request, share))
        if view is not None:
            assert view.tokens.exact == (view.tokens.margin == 0)
            assert not (request.model == "claude-sonnet-4" and view.tokens.exact)


def said(view: ContextView | None) -> Any:
    """Return everything that a view says, but for who is told."""
    if view is None:
        return None
    return view.prompt, view.ledger, view.tokens, view.usage, view.digest, view.versions, view.step
