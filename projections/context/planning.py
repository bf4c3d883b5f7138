"""Chooses which part of the history a request contains: within a budget, and in steps.

Between two steps the earlier messages stay byte-identical, so that the provider's prompt cache
hits. A step happens at the group with which the request exceeds its trigger. A major step plans
everything before that group, down to the target. A minor step leaves the result of the last step
unchanged and plans only newer groups, down to half of the remaining room, with a digest of its own.
Steps are minor as long as the part they leave unchanged takes at most a share (``frozen``) of the
room.

The result of a step depends only on the messages up to it, so every process computes the same steps
from the last anchor on: every `interval` groups, a history that is over the trigger has a major
step. `projections.context.fitting` makes the plan of a single step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter

from projections.context.compression.monitor import Thresholds, exactly
from projections.context.compression.strategy import Strategy, interval
from projections.context.fitting import HORIZON, Fitting, LookForLevels
from projections.context.limits import Ends
from projections.context.older import LookForLasting, Teller
from projections.context.past import Past, whole
from projections.context.plan_cache import PlanMemo
from projections.context.plans import Budget, Group, Plan, Planned, Step
from projections.context.recall import Recall
from projections.context.rows import Key
from projections.context.section_budgets import Room, held, over
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "LookForLevels", "Plan", "Planned", "plan"]

_STEPPED = frozenset({"user", "assistant", "tools", "digest"})

# Most requests read all groups of a plan, and these getters are the fastest.
_tokens, _key = attrgetter("tokens"), attrgetter("group.key")


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
    ends: Ends = lambda group: (),
    recall: Recall | None = None,
    lasting: LookForLasting = lambda before, limit: (),
    memo: PlanMemo | None = None,
    memo_key: Hashable = None,
    look_for_levels: LookForLevels = lambda rows: None,
) -> Plan:
    """Return the plan of a request's history.

    Args:
        newest: All groups, newest first; read only as far as needed.
        mandatory: The first and the latest user message, in this order, which must be sent whole;
            one group if they are the same.
        budget: The limits.
        fixed: Tokens of everything that is sent in addition to the history.
        strategy: Decides what loses detail first.
        tokenizer: Counts tokens.
        summaries: The summaries in effect, oldest first: part of every plan, since they may cover
            messages older than all groups that are read.
        error: An error that must be sent too, at least in its shorter form.
        form: Returns a retrieved group in the form in which it can be sent.
        ends: Returns a group's last forms, the longest first.
        recall: The search of a strategy that retrieves; None for other strategies.
        lasting: Returns the newest rows before a version that contain rules or identifiers.
        memo: The cache of step plans, if there is one.
        memo_key: Everything else that a plan depends on.
        look_for_levels: Called with the rows that may lose detail, before their levels are read.

    Raises:
        BudgetInfeasible: The mandatory messages exceed the budget; the error lists them with sizes.
    """
    limited = budget.max_messages is not None or budget.max_chars is not None
    past = Past(newest, mandatory, summaries, error)
    if budget.max_tokens is None:
        return whole(past)
    if limited:
        past.read_all()  # Groups beyond these limits are not retrieved either.
        recall = None if recall is None else recall.within(past.groups)
        memo = None
    but = {group.key for group in past.standing}
    teller = None if limited else Teller(lasting, tokenizer, but)
    fit = Fitting(
        past,
        budget.max_tokens,
        fixed,
        strategy,
        tokenizer,
        recall,
        form,
        ends,
        look_for_levels,
        teller,
        dict(budget.sections),
    )
    if budget.thresholds is None:
        return fit.fitting()
    # Each digest is a message of its own: a second one might exceed ``max_messages``.
    thresholds = replace(budget.thresholds, frozen=0.0) if limited else budget.thresholds
    stepped = _Stepping(fit, thresholds).plan(memo, (budget, fixed, memo_key))
    # The mandatory messages may not fit into the room that the step left.
    fits = fit.size(stepped) <= budget.max_tokens and not over(stepped, fit.sections, tokenizer)
    return stepped if fits else fit.fitting()


class _Stepping:
    """Computes the steps of one history within one budget.

    Args:
        fit: Plans the groups that a step covers.
        thresholds: When a step happens, and how far it trims.
    """

    def __init__(self, fit: Fitting, thresholds: Thresholds) -> None:
        past, limit = fit.past, fit.limit
        self._past, self._fit, self._limit = past, fit, limit
        self._standing = {group.key for group in past.standing}
        self._fixed = fit.fixed + sum(map(_tokens, past.standing))
        self._trigger = thresholds.trigger_tokens(self._fixed, limit)
        self._target = thresholds.target_tokens(self._fixed, limit)
        self._room = self._trigger - self._fixed
        share = exactly(thresholds.frozen)
        self._frozen = int(share * self._room)
        task = sum(group.tokens for group in past.standing if group.section == "user")
        # A step does not change the tokens of summaries.
        self._rooms = {
            name: max(most - task, 0) if name == "user" else most
            for name, most in fit.sections.items()
            if name in _STEPPED
        }
        self._frozen_rooms = {name: int(share * room) for name, room in self._rooms.items()}
        self._task, self._part = task, exactly(thresholds.target)
        self._part /= exactly(thresholds.trigger)

    def plan(self, memo: PlanMemo | None, key: Hashable) -> Plan:
        """Return the plan of the last step with all newer groups in full.

        It exceeds the limit if the mandatory messages do not fit into the room that the step left.
        """
        kept = None if memo is None else memo.get(key)
        known = None if kept is None else self._since(kept)
        step, index = (kept, known) if known is not None else self._anchored()
        size, used = self._taken(step, index)
        while index:
            index -= 1
            group = self._past.groups[index]
            size += self._past.size(group)
            if size > self._room or self._passes(used, group):
                step = self._fall(index, step)
                size, used = self._taken(step, index)
        if step is None:
            return whole(self._past)
        plan = self._joined(step)
        if memo is not None and step is not kept and self._lasts(plan, step.covered):
            memo.put(key, step)
        return plan

    def _anchored(self) -> tuple[Step | None, int]:
        """Return the step at the last anchor, or None, and the index from which to continue."""
        index, fell = self._past.anchor(self._limit, self._room, self._passes)
        return self._fall(index, None) if fell else None, index

    def _since(self, step: Step) -> int | None:
        """Return the index of a cached step; None if it no longer applies.

        That is the case after an anchor has passed, or the provider has compacted the history.
        """
        index, ordinals = 0, list[int]()
        while (group := self._past.at(index)) is not None and group.key > step.place:
            if (ordinal := group.rows[0].ordinal) is not None:
                ordinals.append(ordinal)
            index += 1
        place, until = index, index
        while (group := self._past.at(until)) is not None and group.key > step.covered:
            until += 1
        if group is None or group.key != step.covered:
            return None  # The provider has compacted the history in between.
        if ordinals:
            anchor = max(ordinals) - max(ordinals) % interval(self._limit)
            if min(ordinals) < anchor and (step.ordinal or 0) < anchor:
                return None
        return place

    def _lasts(self, plan: Plan, covered: Key) -> bool:
        """Whether a step stays the same when groups follow, so that it may be cached."""
        return self._fit.size(plan) <= self._limit and not self._looks_beyond(covered)

    def _looks_beyond(self, covered: Key) -> bool:
        """Whether a step included a mandatory message that it would omit once groups follow."""
        near = self._past.groups[:HORIZON]
        return covered == near[0].key and any(
            each.key < near[-1].key and each.key not in self._standing
            for each in self._past.mandatory
        )

    def _passes(self, used: Counter[str], group: Group) -> bool:
        """Add a group to the tokens by section; return whether its section exceeds its room."""
        if not self._rooms:
            return False
        name = group.section
        used[name] += self._past.size(group)
        return used[name] > self._rooms.get(name, used[name])

    def _taken(self, step: Step | None, index: int) -> tuple[int, Counter[str]]:
        """Return the tokens of everything from an index on, without the groups in every plan.

        In all and by section; ``step`` is the step before the index, if any.
        """
        size = 0 if step is None else self._held(step.before)
        used = Counter[str]() if step is None else self._held_by_section(step.before)
        for group in self._past.groups[index:]:
            if step is not None and group.key <= step.covered:
                break
            size += self._past.size(group)
            self._passes(used, group)
        return size, used

    def _held_by_section(self, plan: Plan) -> Counter[str]:
        """Return the tokens of a plan's sections, without the groups in every plan."""
        return held(plan, self._fit.tokenizer, self._standing) if self._rooms else Counter()

    def _held(self, plan: Plan) -> int:
        """Return the tokens of a plan, without the groups in every plan."""
        standing = sum(each.tokens for each in plan.at(self._standing))
        return self._fit.size(plan) - self._fit.fixed - standing

    def _fall(self, index: int, last: Step | None) -> Step | None:
        """Return the step that happens at a group; the last step if there is nothing to cover."""
        if last is not None and self._stays(last.before):
            minor = self._covering(index, last)
            if minor is not None:
                return minor
        return self._covering(index, None) or last

    def _stays(self, plan: Plan) -> bool:
        """Whether a plan is small enough to stay unchanged, in all and in each section."""
        used = self._held_by_section(plan)
        small = all(used[name] <= most for name, most in self._frozen_rooms.items())
        return small and self._held(plan) <= self._frozen

    def _covering(self, index: int, front: Step | None) -> Step | None:
        """Return the step at a group: minor after ``front``, major if that is None.

        None if there is nothing to cover, or if a minor step cannot trim far enough.
        """
        fixed = self._fixed if front is None else self._fixed + self._held(front.before)
        target = self._target if front is None else fixed + (self._trigger - fixed) // 2
        # One more, since the lines of a digest are counted one by one.
        least = min(target, -(-self._limit // 2)) + 1
        # The group at which a step happens stays whole: no model has answered it yet. However large
        # it is, the groups before it get half of their room.
        newest = self._past.groups[index]
        size = self._past.size(newest)
        rest = max(target - size, fixed + (target - fixed) // 2)
        asked = newest.kind == "user"
        # After a question, keep the newest group that it may refer to.
        sections = self._sections(front, newest)
        room = Room(
            rest,
            least - size,
            (target, self._limit - size),
            newest=asked or newest.left_out,
            sections=sections,
        )
        step = self._step(index + 1, index, room, front, asked=asked)
        if step is not None and self._fixed + self._held(step.before) + size <= self._limit:
            used = self._held_by_section(step.before)
            self._passes(used, newest)
            if all(used[name] <= most for name, most in self._rooms.items()):
                return step
        if front is not None:
            return None
        # If the group is too large for that, it loses detail too, down to a size that leaves room
        # for newer groups until the next step.
        limit = self._limit - (self._trigger - target)
        room = Room(limit, least, (limit, self._limit), sections=self._sections(None, None))
        return self._step(index, index, room, None)

    def _sections(self, front: Step | None, newest: Group | None) -> dict[str, int]:
        """Return the tokens that a step leaves each section.

        As for the whole history: a share of the room for a major step, half of the remaining room
        for a minor one.
        """
        used = Counter[str]() if front is None else self._held_by_section(front.before)
        share = self._part if front is None else Fraction(1, 2)
        left = {name: int(share * (most - used[name])) for name, most in self._rooms.items()}
        if newest is not None and (name := newest.section) in left:
            left[name] = max(left[name] - self._past.size(newest), left[name] // 2)
        if front is None and "user" in left:
            left["user"] += self._task
        return left

    def _step(
        self, start: int, index: int, room: Room, front: Step | None, *, asked: bool = False
    ) -> Step | None:
        """Return the step at ``index`` that covers the groups from ``start`` on.

        None if there are no such groups, or if a minor step cannot trim them far enough.
        """
        covered, newest = self._past.at(start), self._past.groups[index]
        if covered is None:
            return None
        if front is None:
            plan: Plan | None = self._fit.at(start, room, asked=asked)
        else:
            plan = self._fit.since(front.before, front.covered, start, room, asked=asked)
        if plan is None:
            return None
        return Step(newest.key, newest.rows[0].ordinal, plan, covered.key)

    def _joined(self, step: Step) -> Plan:
        """Return the plan of a step with all newer groups in full."""
        past = self._past
        start = sum(1 for group in past.groups if group.key > step.covered)
        since = past.with_standing(past.groups[:start], 0)
        told = [
            replace(each, group=past.labelled(each.group)) if each.group.label else each
            for each in step.before.groups
        ]
        newest = told[-1].group.key if told else (0, 0)
        groups = (*told, *(Planned.whole(group) for group in since if group.key > newest))
        # Groups in every plan that the step did not include, such as a summary made since.
        missed = [
            Planned.whole(group)
            for group in since
            if group.key < newest and not any(step.before.at((group.key,)))
        ]
        if missed:
            groups = tuple(sorted((*groups, *missed), key=_key))
        return step.before.going_on(groups, step.covered)
