"""How many tokens a request may have, and each section of it: `Room`, and the setting's rules.

Of the whole budget the margin of an estimate stays free, and what a shorter task saves.

A section is a kind of content. The system part and the notebook are never shortened: over their
budget, the request is refused. What is recalled has at most its budget. The others, which belong
to the history, are planned: what need not be sent loses detail until its section is within its
budget. What must be sent counts first, and is sent even if it alone is over that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from eventstore.options import meant
from projections.context.compression.monitor import exactly
from projections.context.compression.reduction import header_tokens
from projections.context.plans import Budget, Group, Plan
from projections.context.prompts import DIGEST_HEADER
from projections.context.recalled import Block
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = [
    "OVERHEAD",
    "SECTIONS",
    "Room",
    "SectionBudgets",
    "beside_shorter",
    "held",
    "infeasible",
    "over",
    "require_front",
    "require_known",
    "section_budgets",
    "uses",
    "within_margin",
]

SECTIONS = (
    "system",
    "notebook",
    "user",
    "assistant",
    "tools",
    "summaries",
    "recalled",
    "digest",
)
"""The names of the sections."""

SectionBudgets = tuple[tuple[str, int], ...]
"""Sections with the tokens that each may have."""

OVERHEAD = "tools and request overhead"
"""What a request has besides messages, for errors."""

_NONE: Mapping[str, int] = MappingProxyType({})


def require_known(given: Any) -> dict[str, int | float]:
    """Return the setting ``section_budgets`` as it is, if it can be held.

    Raises:
        ValueError: A name is unknown, a number is none, or the shares are more than the whole.
    """
    if not isinstance(given, Mapping):
        raise ValueError("is one object of sections and the tokens, or the share, of each")
    for name, most in given.items():
        if name not in SECTIONS:
            raise ValueError(
                f"there is no section {str(name)[:80]!r}: {meant(str(name), SECTIONS)}"
            )
        whole = isinstance(most, int) and not isinstance(most, bool) and most >= 0
        if not (whole or (isinstance(most, float) and 0 <= most < 1)):
            raise ValueError(
                f"{name} has a whole number of tokens, or a share from 0 to less than 1, "
                f"not {most!r}"
            )
    shares = sum(exactly(most) for most in given.values() if isinstance(most, float))
    if shares > 1:
        raise ValueError(f"the shares are {float(100 * shares):g} % of the budget")
    return dict(given)


def section_budgets(given: Mapping[str, int | float], limit: int | None) -> SectionBudgets:
    """Return the tokens that sections may have of a prompt's; of no limit there are no shares.

    >>> section_budgets({"tools": 0.3, "digest": 500}, 8_000)
    (('tools', 2400), ('digest', 500))
    """
    if limit is None:
        return ()
    return tuple(
        (name, int(exactly(most) * limit) if isinstance(most, float) else most)
        for name, most in given.items()
    )


def require_front(front: Sequence[Group], sections: SectionBudgets) -> None:
    """Refuse a system part, or a notebook, that is over its budget.

    Raises:
        BudgetInfeasible: It is; it names its parts and their sizes.
    """
    budgets = dict(sections)
    for name in budgets.keys() & {"system", "notebook"}:
        parts = [group for group in front if (group.kind == "notebook") == (name == "notebook")]
        sizes = {f"{group.label} (version {group.key[0]})": group.tokens for group in parts}
        if sum(sizes.values()) > budgets[name]:
            error = BudgetInfeasible(budgets[name], sizes)
            told = ", ".join(f"{part}: {size}" for part, size in sizes.items())
            need = f"what must be sent ({sum(sizes.values())} tokens: {told})"
            limit = f"section_budgets.{name} of {budgets[name]} tokens"
            error.args = (f"{limit} cannot hold {need}: raise it or shorten these",)
            raise error


def held(plan: Plan, tokenizer: Tokenizer, but: Iterable[tuple[int, int]] = ()) -> Counter[str]:
    """Return the tokens of each section of a plan, without those of some groups."""
    tokens = plan.tokens_by_section.copy()
    for each in plan.at(but):
        tokens["digest" if each.level == "facts" else each.group.section] -= each.tokens
    tokens["digest"] += len(plan.told) * header_tokens(DIGEST_HEADER, tokenizer)
    tokens["digest"] += 0 if plan.older is None else plan.older.tokens
    return tokens


def over(plan: Plan, budgets: Mapping[str, int], tokenizer: Tokenizer) -> bool:
    """Whether a section has too much that need not be sent."""
    if not budgets:
        return False
    free, everything = held(plan, tokenizer, plan.marked), held(plan, tokenizer)
    return any(free[name] and everything[name] > most for name, most in budgets.items())


def uses(
    budgets: SectionBudgets,
    front: Sequence[Group],
    plan: Plan,
    block: Block | None,
    tokenizer: Tokenizer,
) -> dict[str, tuple[int, int]]:
    """Return of each section that has a budget the tokens that it takes, and its budget."""
    if not budgets:
        return {}
    used = held(plan, tokenizer)
    for group in front:
        used["notebook" if group.kind == "notebook" else "system"] += group.tokens
    used["recalled"] = 0 if block is None else block.group.tokens
    return {name: (used[name], most) for name, most in budgets}


class Room(NamedTuple):
    """How large a request may be, in tokens.

    Attributes:
        limit: Up to which nothing loses detail.
        least: That it should have, if there are groups for it.
        most: That it may have to come to these: a first limit, and where that is none, a second.
        strict: Refuses what cannot fit; otherwise all that may be dropped is, but the summaries.
        newest: Whether the newest group for which there is room is sent in any case.
        sections: What the planned groups of a section may have, and their lines in the digest.
    """

    limit: int
    least: int
    most: tuple[int, ...]
    strict: bool = False
    newest: bool = True
    sections: Mapping[str, int] = _NONE

    def less(self, tokens: int) -> Room:
        """Return the room without so many tokens, which the digest has."""
        most = tuple(each - tokens for each in self.most)
        sections = dict(self.sections)
        if "digest" in sections:
            sections["digest"] -= tokens
        return self._replace(
            limit=self.limit - tokens, least=self.least - tokens, most=most, sections=sections
        )

    def passed(self, groups: Iterable[Group]) -> set[str]:
        """Return the sections that these groups are over, as they are."""
        if not self.sections:
            return set()
        tokens: Counter[str] = Counter()
        for group in groups:
            tokens[group.section] += group.tokens
        return {name for name, most in self.sections.items() if tokens[name] > most}


def within_margin(limit: int, margin: float) -> int:
    """Return how many tokens may be counted so that a limit holds if the count is too low.

    >>> within_margin(8_000, 0.25), within_margin(8_000, 0.0)
    (6400, 8000)
    """
    return int(limit / (1 + exactly(margin))) if margin else limit


def infeasible(error: BudgetInfeasible, limit: int | None, margin: float) -> BudgetInfeasible:
    """Return the error as it is told of the whole limit: with the margin among the sizes.

    One that speaks of messages or characters stays as it is, as does one without a margin.
    """
    if limit is None or not margin or OVERHEAD not in error.mandatory:
        return error
    counted = sum(error.mandatory.values())
    free = math.ceil(counted * (1 + exactly(margin))) - counted
    return BudgetInfeasible(limit, {**error.mandatory, "margin of the count": free})


def beside_shorter(task: Group, newest: Group, budget: Budget, refusal: BudgetInfeasible) -> Budget:
    """Return the budget of a request whose first user message is sent in its shorter form.

    Without steps, of what this saves the newest group alone has room: a budget that just holds the
    message whole has none for others, and a larger budget never keeps less. If it is over half of
    the budget, others do get the room, or most of the budget would be left unused.

    Args:
        task: In its shorter form.
        newest: The newest group.
        budget: The limits.
        refusal: Of the request with the whole message.
    """
    limit = budget.max_tokens
    if limit is None or budget.thresholds is not None or OVERHEAD not in refusal.mandatory:
        return budget
    whole = task.tokens if task.whole is None else task.whole.tokens
    if 2 * whole > limit:
        return budget
    held = sum(refusal.mandatory.values()) - whole + task.tokens
    held += 0 if newest.kind == "user" else newest.tokens
    return replace(budget, max_tokens=min(limit, held))
