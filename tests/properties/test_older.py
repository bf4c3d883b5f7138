"""What users named and ruled beyond the newest groups is told, and every promise holds with it."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from eventstore.events import AssistantMessage, Retraction, Summary, UserMessage, VersionRange
from projections.context import ContextSettings
from tests.properties.promises import FORMATS, Request, assert_first_four, assert_never_less
from tests.properties.test_promises_steps import assert_prefix_is_kept
from tests.unit.context.log import Log

RULE = "Halden Oslo must never be charged in euro."
ACCOUNT = "4100-88231-0"


def talk(turns: int) -> Log:
    """Return a log of so many turns, in the first of which a rule and a number were told."""
    log = Log([UserMessage.text("Help me with the books."), AssistantMessage.of("Gladly.")])
    log.add(UserMessage.text(f"Remember. {RULE} It caused trouble."))
    log.add(AssistantMessage.of("Noted."))
    log.add(UserMessage.text(f"The account number of Halden Oslo is {ACCOUNT}. Thanks."))
    for turn in range(turns):
        log.add(AssistantMessage.of(f"Entry {turn} is booked, and the next one can be seen. " * 2))
        log.add(
            UserMessage.text(f"Now book entry W{turn:05} for customer C-{turn % 7:04}, please.")
        )
    return log


@cache
def long_log() -> Log:
    """Return a log far longer than what is looked at one by one."""
    return talk(240)


def said(log: Log, max_tokens: int, **options: object) -> str:
    """Return all that a request says."""
    settings = ContextSettings(**options)  # type: ignore[arg-type]
    view = log.view(max_tokens=max_tokens, settings=settings)
    return "\n".join(str(message["content"]) for message in view.messages)


class TestWhatIsTold:
    """Rules to the letter, and identifiers with the names beside them."""

    @pytest.mark.parametrize("steps", [True, False])
    def test_a_rule_and_a_number_outlive_the_newest_groups(self, steps: bool) -> None:
        """Said hundreds of messages ago, and never again."""
        told = said(long_log(), 3_000, steps=steps)
        assert f"3 user: {RULE}" in told
        assert f"5 user: The account number of Halden Oslo is {ACCOUNT}." in told

    def test_the_ledger_tells_of_it(self) -> None:
        """In the entry of all that is older, with the events it came from."""
        view = long_log().view(max_tokens=3_000)
        older = view.ledger[0]
        assert ("older", "facts") == (older.kind, older.level)
        assert {3, 5} <= set(older.source_versions) <= set(view.versions)
        assert 0 < older.tokens_after <= 3_000 * 16 // 100

    def test_a_withdrawn_rule_is_not_told(self) -> None:
        """Nor one that a summary stands for."""
        withdrawn = talk(150)
        withdrawn.add(Retraction(versions=(VersionRange(first=3, last=3),)))
        assert RULE not in said(withdrawn, 2_000)
        covered = talk(150)
        covered.add(Summary(text="Books.", versions=(VersionRange(first=2, last=6),)))
        assert RULE not in said(covered, 2_000)

    def test_nothing_is_kept_for_it_while_everything_fits(self) -> None:
        """Then all is there."""
        view = long_log().view(max_tokens=100_000)
        assert view.complete
        assert "CONVERSATION_DIGEST" not in str(view.messages)


class TestThePromisesHold:
    """With lines about what is older in the request."""

    @pytest.mark.parametrize(
        ("strategy", "format", "steps"),
        [*product(("key_messages", "level_of_detail"), FORMATS, (True, False))],
    )
    def test_valid_within_the_budget_and_accounted_for(
        self, strategy: str, format: str, steps: bool
    ) -> None:
        """Promises 1 to 4, for budgets from small to ample."""
        rows = long_log().rows()
        for budget in (150, 300, 700, 1_500, 3_000, 6_000, 9_000, 12_000):
            request = Request(strategy, format, steps, max_tokens=budget)
            assert assert_first_four(rows, request) is not None

    def test_a_larger_budget_never_keeps_less(self) -> None:
        """Without steps: neither detail nor facts."""
        request = Request("key_messages", "openai_chat", steps=False)
        assert_never_less(long_log().rows(), request, range(200, 12_000, 190))

    @pytest.mark.parametrize("budget", [900, 2_000])
    def test_the_prefix_stays_between_two_steps(self, budget: int) -> None:
        """What is told of older messages is that of the step."""
        rows = long_log().rows()
        moments = (rows[:place] for place in range(300, len(rows), 2))
        request = Request("key_messages", "openai_chat", steps=True, max_tokens=budget)
        assert assert_prefix_is_kept(moments, request) > 20
