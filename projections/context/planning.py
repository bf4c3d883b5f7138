"""At what level of detail a request holds each group: within the budget, and in steps.

With steps, the groups before the last step are planned as they were at that step; those since are
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from projections.context.compression.strategy import Strategy
from projections.context.fitting import HORIZON, Fitting, LookForLevels
from projections.context.older import LookForLasting, Teller
from projections.context.plan_cache import PlanMemo
from projections.context.plans import Budget, Group, Past, Plan, Planned, whole
from projections.context.recall import Recall
from projections.context.stepping import Stepping
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "LookForLevels", "Plan", "Planned", "plan"]


def plan(
    newest: Iterator[Group],
    mandatory: Sequence[Group],
    budget: Budget,
    *,
    fixed: int,
    strategy: Strategy,
    tokenizer: Tokenizer,
    summaries: Sequence[Group] = (),
    error: Group | None = None,
    form: Callable[[Group], Group] = lambda group: group,
    recall: Recall | None = None,
    lasting: LookForLasting = lambda before, limit: (),
    memo: PlanMemo | None = None,
    memo_key: Hashable = None,
    look_for_levels: LookForLevels = lambda rows: None,
) -> Plan:
    """Choose what a request holds of the history.

    Args:
        newest: All groups, newest first; read as far as is needed.
        mandatory: The first and the latest user message, in this order, which must be sent whole;
            one where they are the same.
        budget: The limits.
        fixed: Tokens of what is sent besides.
        strategy: What loses detail first.
        tokenizer: Counts.
        summaries: Those that stand, oldest first: looked at in any case, as they may stand for
            what is older than all that is read.
        error: Must be sent too, if only in its shorter form.
        form: Returns a group that is retrieved in the form in which it can be sent.
        recall: What the strategy retrieves with, if it does.
        lasting: Gives the newest rows before a version that leave something behind.
        memo: Where the plans of steps are remembered, if they are.
        memo_key: All else that a plan depends on.
        look_for_levels: Called with the rows that may lose detail, before their levels are asked.

    Raises:
        BudgetInfeasible: What must be sent is over the budget; it names the items and their sizes.
    """
    limited = budget.max_messages is not None or budget.max_chars is not None
    past = Past(newest, mandatory, summaries, error)
    if budget.max_tokens is None:
        return whole(past)
    if limited:
        past.read_all()  # Nothing is retrieved from beyond these limits.
        recall = None if recall is None else recall.within(past.groups)
        memo = None
    but = {group.key for group in past.standing}
    teller = None if limited else Teller(lasting, tokenizer, but)
    fit = Fitting(
        past, budget.max_tokens, fixed, strategy, tokenizer, recall, form, look_for_levels, teller
    )
    if budget.thresholds is None:
        return fit.fitting()
    # A digest is a message: each more than the first might be one too many.
    thresholds = replace(budget.thresholds, frozen=0.0) if limited else budget.thresholds
    stepping = Stepping(past, fit, thresholds, budget.max_tokens, fixed)
    stepped = stepping.plan(memo, (budget, fixed, memo_key))
    # What must be sent may be too large for what the step left.
    return stepped if fit.size(stepped) <= budget.max_tokens else fit.fitting()
