"""Token limits of a request and its sections: `Room`, and the rules of ``section_budgets``.

It also computes the part of the budget that stays free: the margin of an estimate, and the tokens
that a shortened task saves.

A section is a kind of content. The system part and the notebook are never shortened: if one exceeds
its budget, the request is refused. Recalled messages take at most their budget. The other sections
belong to the history and are planned: messages that are not mandatory lose detail until their
section is within its budget. Mandatory messages count first, and are sent even if they alone exceed
it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from eventstore.arguments import meant
from projections.context.compression.monitor import exactly
from projections.context.compression.reduction import header_tokens
from projections.context.plans import Budget, Group, Plan
from projections.context.prompts import DIGEST_HEADER
from projections.context.recalled_block import RecalledBlock
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = [
    "OVERHEAD",
    "SECTIONS",
    "Room",
    "SectionBudgets",
    "beside_shorter",
    "infeasible",
    "over",
    "require_front",
    "require_known",
    "section_budgets",
    "tokens_by_section",
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
"""Sections and their limits in tokens."""

OVERHEAD = "tools and request overhead"
"""The label of everything in a request except its messages, for errors."""

_NONE: Mapping[str, int] = MappingProxyType({})


def require_known(given: Any) -> dict[str, int | float]:
    """Return the setting ``section_budgets`` unchanged, if it is valid.

    Raises:
        ValueError: A section is unknown, a value is invalid, or the shares add up to more than 1.
    """
    if not isinstance(given, Mapping):
        raise ValueError("must be an object with the tokens, or the share, of each section")
    for name, most in given.items():
        if name not in SECTIONS:
            raise ValueError(f"unknown section {str(name)[:80]!r}: {meant(str(name), SECTIONS)}")
        whole = isinstance(most, int) and not isinstance(most, bool) and most >= 0
        if not (whole or (isinstance(most, float) and 0 <= most < 1)):
            raise ValueError(
                f"{name} must be a whole number of tokens, or a share from 0 to less than 1, "
                f"not {most!r}"
            )
    shares = sum(exactly(most) for most in given.values() if isinstance(most, float))
    if shares > 1:
        raise ValueError(f"the shares add up to {float(100 * shares):g} % of the budget")
    return dict(given)


def section_budgets(given: Mapping[str, int | float], limit: int | None) -> SectionBudgets:
    """Return the limits of sections in tokens, given the prompt's limit; () without a limit.

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
    """Refuse a system part or a notebook that exceeds its budget.

    Raises:
        BudgetInfeasible: One exceeds its budget; the error lists its parts with their sizes.
    """
    budgets = dict(sections)
    for name in budgets.keys() & {"system", "notebook"}:
        parts = [group for group in front if (group.kind == "notebook") == (name == "notebook")]
        sizes = {f"{group.label} (version {group.key[0]})": group.tokens for group in parts}
        if sum(sizes.values()) > budgets[name]:
            error = BudgetInfeasible(budgets[name], sizes)
            sizes_text = ", ".join(f"{part}: {size}" for part, size in sizes.items())
            need = f"what must be sent ({sum(sizes.values())} tokens: {sizes_text})"
            limit = f"section_budgets.{name} of {budgets[name]} tokens"
            error.args = (f"{limit} cannot hold {need}: raise it or shorten these",)
            raise error


def tokens_by_section(
    plan: Plan, tokenizer: Tokenizer, but: Iterable[tuple[int, int]] = ()
) -> Counter[str]:
    """Return the tokens of each section of a plan, without the groups with the keys in ``but``."""
    tokens = plan.tokens_by_section.copy()
    for each in plan.at(but):
        tokens["digest" if each.level == "facts" else each.group.section] -= each.tokens
    tokens["digest"] += len(plan.digested) * header_tokens(DIGEST_HEADER, tokenizer)
    tokens["digest"] += 0 if plan.older is None else plan.older.tokens
    return tokens


def over(plan: Plan, budgets: Mapping[str, int], tokenizer: Tokenizer) -> bool:
    """Whether a section exceeds its budget and contains groups that are not mandatory."""
    if not budgets:
        return False
    free, everything = (
        tokens_by_section(plan, tokenizer, plan.marked),
        tokens_by_section(plan, tokenizer),
    )
    return any(free[name] and everything[name] > most for name, most in budgets.items())


def uses(
    budgets: SectionBudgets,
    front: Sequence[Group],
    plan: Plan,
    block: RecalledBlock | None,
    tokenizer: Tokenizer,
) -> dict[str, tuple[int, int]]:
    """Return the used tokens and the budget of each section that has a budget."""
    if not budgets:
        return {}
    used = tokens_by_section(plan, tokenizer)
    for group in front:
        used["notebook" if group.kind == "notebook" else "system"] += group.tokens
    used["recalled"] = 0 if block is None else block.group.tokens
    return {name: (used[name], most) for name, most in budgets}


class Room(NamedTuple):
    """The size that a request may have, in tokens.

    Attributes:
        limit: The size down to which detail is lowered.
        least: The size that the request should have, if there are enough groups.
        most: Upper limits while groups get detail back to reach ``least``, tried in turn.
        strict: Whether to raise an error if the request cannot fit. Otherwise everything that may
            be dropped is dropped, except summaries.
        newest: Whether the newest group for which there is room is sent in any case.
        sections: The limits of sections for planned groups, and of ``digest`` for their lines.
    """

    limit: int
    least: int
    most: tuple[int, ...]
    strict: bool = False
    newest: bool = True
    sections: Mapping[str, int] = _NONE

    def less(self, tokens: int) -> Room:
        """Return the room without the tokens that are reserved for lines of the digest."""
        most = tuple(each - tokens for each in self.most)
        sections = dict(self.sections)
        if "digest" in sections:
            sections["digest"] -= tokens
        return self._replace(
            limit=self.limit - tokens, least=self.least - tokens, most=most, sections=sections
        )

    def passed(self, groups: Iterable[Group]) -> set[str]:
        """Return the sections that these groups exceed if they are sent whole."""
        if not self.sections:
            return set()
        tokens: Counter[str] = Counter()
        for group in groups:
            tokens[group.section] += group.tokens
        return {name for name, most in self.sections.items() if tokens[name] > most}


def within_margin(limit: int, margin: float) -> int:
    """Return the limit for counted tokens that keeps within ``limit`` if the count is too low.

    >>> within_margin(8_000, 0.25), within_margin(8_000, 0.0)
    (6400, 8000)
    """
    return int(limit / (1 + exactly(margin))) if margin else limit


def infeasible(error: BudgetInfeasible, limit: int | None, margin: float) -> BudgetInfeasible:
    """Return the error in terms of the whole limit, with the margin among the sizes.

    Errors about messages or characters, and errors without a margin, are returned unchanged.
    """
    if limit is None or not margin or OVERHEAD not in error.mandatory:
        return error
    counted = sum(error.mandatory.values())
    free = math.ceil(counted * (1 + exactly(margin))) - counted
    return BudgetInfeasible(limit, {**error.mandatory, "margin of the count": free})


def beside_shorter(task: Group, newest: Group, budget: Budget, refusal: BudgetInfeasible) -> Budget:
    """Return the budget of a request whose first user message is sent in its shorter form.

    Without steps, only the newest group gets the room that this saves: a budget that just holds the
    whole message has no room for others, and a larger budget must never keep less. If the whole
    message exceeds half of the budget, other groups get the room too, since most of the budget
    would remain unused otherwise.

    Args:
        task: The first user message in its shorter form.
        newest: The newest group.
        budget: The limits.
        refusal: The error about the request with the whole message.
    """
    limit = budget.max_tokens
    if limit is None or budget.thresholds is not None or OVERHEAD not in refusal.mandatory:
        return budget
    whole = task.tokens if task.whole is None else task.whole.tokens
    if 2 * whole > limit:
        return budget
    needed = sum(refusal.mandatory.values()) - whole + task.tokens
    needed += 0 if newest.kind == "user" else newest.tokens
    return replace(budget, max_tokens=min(limit, needed))
