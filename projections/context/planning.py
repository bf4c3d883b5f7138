"""At what level of detail a request holds each group: within the budget, and in steps.

Detail is lowered within the newest 128 groups only: what lies beyond is whole if everything up to
it fits whole, and dropped otherwise; so the cost does not grow with the conversation. What a
strategy retrieves from beyond joins these. With steps, the groups before the last step are planned
as they were at that step; those since are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from projections.context.compression.items import Item
from projections.context.compression.monitor import Thresholds
from projections.context.compression.reduction import header_tokens, reduce
from projections.context.compression.strategy import Reduction, Strategy, interval, last_step
from projections.context.detail import GroupItem
from projections.context.older import LookForLasting, Teller
from projections.context.plan_cache import KeptPlan, PlanMemo
from projections.context.plans import Budget, Group, Past, Plan, Planned, Room, holds, whole
from projections.context.prompts import DIGEST_HEADER
from projections.context.recall import Recall
from projections.context.rows import ContextRow
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "LookForLevels", "Plan", "Planned", "plan"]

HORIZON = 128
"""Groups, from the newest, within which detail is lowered."""

LookForLevels = Callable[[Iterable[ContextRow]], None]
_Key = tuple[int, int]


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
    planner = _Planner(
        past, budget.max_tokens, fixed, strategy, tokenizer, recall, form, look_for_levels, teller
    )
    if budget.thresholds is None:
        return planner.fitting()
    return planner.in_steps(budget.thresholds, memo, (budget, fixed, memo_key))


class _Planner:
    """One plan in the making; see `plan` for what it is made of."""

    def __init__(
        self,
        past: Past,
        limit: int,
        fixed: int,
        strategy: Strategy,
        tokenizer: Tokenizer,
        recall: Recall | None,
        form: Callable[[Group], Group],
        look_for_levels: LookForLevels,
        teller: Teller | None,
    ) -> None:
        self._past, self._teller = past, teller
        self._limit = limit
        self._fixed = fixed
        self._strategy = strategy
        self._tokenizer = tokenizer
        self._recall = recall
        self._form = form
        self._look_for_levels = look_for_levels

    def fitting(self) -> Plan:
        """Return the plan that just fits."""
        room = Room(self._limit, self._limit // 2 + 2, (self._limit,), strict=True)
        return self._fit(0, room)

    def in_steps(self, thresholds: Thresholds, memo: PlanMemo | None, key: Hashable) -> Plan:
        """Return the plan of the last step, and everything since as it is."""
        fixed = self._fixed + sum(map(_tokens, self._past.standing))
        trigger = thresholds.trigger_tokens(fixed, self._limit)
        target = thresholds.target_tokens(fixed, self._limit)
        room, kept = trigger - fixed, target - fixed
        remembered = None if memo is None else memo.get(key)
        if remembered is not None:
            plan = self._since(remembered, room=room, kept=kept)
            if plan is not None and self._fits(plan):
                return plan
        start = self._past.newest_covered(self._limit, room=room, kept=kept)
        if start is None:
            return self._checked(whole(self._past))
        *others, stepped = self._at_step(start, trigger=trigger, target=target, fixed=fixed)
        passed_over = tuple(each.covered for each in others if each.covered)
        if memo is not None and stepped.covered and not self._looks_beyond(stepped.covered[1]):
            step = self._past.groups[start]
            before, covered = stepped.covered
            memo.put(key, step.key, step.rows[0].ordinal, before, covered, passed_over)
        return self._checked(stepped)

    def _looks_beyond(self, covered: _Key) -> bool:
        """Whether a step has looked at a message that it would not look at once others follow."""
        near, standing = self._past.groups[:HORIZON], {each.key for each in self._past.standing}
        return covered == near[0].key and any(
            each.key < near[-1].key and each.key not in standing for each in self._past.mandatory
        )

    def _at_step(self, start: int, *, trigger: int, target: int, fixed: int) -> list[Plan]:
        """Return the plan of the step that fell at a place, and all since: the last one tried."""
        # One more, as the lines of a digest are counted one by one.
        least = min(target, -(-self._limit // 2)) + 1
        # The group with which a step falls stays as it is: nobody has answered to it yet. However
        # large it is, what stands before it is left half of its room.
        newest = self._past.groups[start]
        size = self._past.size(newest)
        rest = max(target - size, fixed + (target - fixed) // 2)
        asked = newest.kind == "user"
        # What comes after an answer has it; a question goes with what it is asked about.
        room = Room(
            rest, least - size, (target, self._limit - size), newest=asked or newest.left_out
        )
        made = [self._stepped(start + 1, room, asked=asked)]
        # Where it is too large for that, it loses detail too, to what leaves room up to the next
        # step, so that this is not done anew at every request; and once newer ones need room.
        limit = self._limit - (trigger - target)
        for kept in (True, False):
            stepped = made[-1]
            then = stepped.covered is None or self._fits(stepped.covered[0], size)
            if not self._fits(stepped) and not (kept and then):
                room = Room(limit, least, (limit, self._limit), newest=kept)
                made.append(self._stepped(start, room))
        return made

    def _since(self, kept_plan: KeptPlan, *, room: int, kept: int) -> Plan | None:
        """Return a remembered plan with everything since; None if a step has fallen since."""
        past, index = self._past, 0
        sizes: list[int] = []
        ordinals: list[int] = []
        while (group := past.at(index)) is not None and group.key > kept_plan.covered:
            if group.key > kept_plan.step:
                sizes.append(past.size(group))
                if (ordinal := group.rows[0].ordinal) is not None:
                    ordinals.append(ordinal)
            index += 1
        if group is None or group.key != kept_plan.covered:
            return None  # An answer in which its maker compacted the rest has come in between.
        if ordinals:
            anchor = max(ordinals) - max(ordinals) % interval(self._limit)
            if min(ordinals) < anchor and (kept_plan.ordinal or 0) < anchor:
                return None
        if last_step(reversed(sizes), before=kept, room=room, kept=kept):
            return None
        for before, covered in kept_plan.passed_over:
            place = index if covered == kept_plan.covered else index + 1
            if self._fits(self._joined(before, place, covered)):
                return None
        return self._joined(kept_plan.before, index, kept_plan.covered)

    def _stepped(self, start: int, room: Room, *, asked: bool = False) -> Plan:
        """Return the plan of a step behind a place, and everything since as it is."""
        if self._past.at(start) is None:
            return whole(self._past)
        covered = self._past.groups[start].key
        before = self._fit(start, room, asked=asked)
        return self._joined(before, start, covered)

    def _joined(self, before: Plan, start: int, covered: tuple[int, int]) -> Plan:
        """Return the plan of what a step has covered, and everything since as it is."""
        since = self._past.with_standing(self._past.groups[:start], 0)
        told = [
            replace(each, group=self._past.labelled(each.group)) if each.group.label else each
            for each in before.groups
        ]
        newest = told[-1].group.key if told else (0, 0)
        groups = (*told, *(Planned.whole(group) for group in since if group.key > newest))
        # What stands in every plan, though the step did not look at it: a summary made since.
        missed = [
            Planned.whole(group)
            for group in since
            if group.key < newest and not holds(told, group.key)
        ]
        if missed:
            groups = tuple(sorted((*groups, *missed), key=_key))
        return replace(before, groups=groups, step=covered, covered=(before, covered))

    def _checked(self, plan: Plan) -> Plan:
        """Return the plan or, where what must be sent is too large for it, one that fits."""
        return plan if self._fits(plan) else self.fitting()

    def _fits(self, plan: Plan, more: int = 0) -> bool:
        size = self._fixed + sum(map(_tokens, plan.groups)) + more
        size += 0 if plan.older is None else plan.older.tokens
        if plan.older is not None or "facts" in map(_level, plan.groups):
            size += header_tokens(DIGEST_HEADER, self._tokenizer)
        return bool(size <= self._limit)

    def _fit(self, start: int, aim: Room, *, asked: bool = False) -> Plan:
        """Return the groups from a place on such that they fit."""
        past = self._past
        past.at(start + HORIZON)
        near = past.with_standing(past.groups[start : start + HORIZON], start, asked=asked)
        kept = self._kept_for_older(near, start, aim)
        if kept:
            with suppress(BudgetInfeasible):
                plan = self._chosen(near, start, aim.less(kept), asked=asked)
                if self._fixed + sum(map(_tokens, plan.groups)) + kept <= aim.limit:
                    return self._with_older(plan, start, kept)
        return self._chosen(near, start, aim, asked=asked)

    def _kept_for_older(self, near: Sequence[Group], start: int, aim: Room) -> int:
        """Return the tokens for what is told of the history before the near groups."""
        if self._teller is None or self._past.at(start + HORIZON) is None:
            return 0
        found = {group.key: group for group in near}
        if self._whole_within(found, start, aim.limit - self._fixed):
            return 0
        must = self._fixed + sum(group.tokens for group in near if group.label)
        oldest = self._past.groups[start + HORIZON - 1]
        return self._teller.reserve(oldest.key[0], aim.limit, must)

    def _with_older(self, plan: Plan, start: int, kept: int) -> Plan:
        assert self._teller is not None  # noqa: S101 - it has said how much is kept
        standing = {group.key for group in self._past.standing} | plan.recalled
        sent = (each.group for each in plan.groups if each.level != "dropped")
        keys = [group.key for group in sent if group.key not in standing and not group.label]
        near = self._past.groups[start + HORIZON - 1].key
        return replace(plan, older=self._teller.told(near[0], kept, min([near, *keys])[0]))

    def _chosen(self, near: Sequence[Group], start: int, aim: Room, *, asked: bool) -> Plan:
        room = aim.limit - self._fixed
        if sum(map(_tokens, near)) > room:
            return self._reduce(near, start, aim)
        found = {group.key: group for group in near}
        if self._recall is not None and not self._whole_within(found, start, room):
            recalled, _ = self._retrieve(near, start)
            found |= {group.key: group for group in recalled}
            if sum(map(_tokens, found.values())) > room:
                return self._reduce(near, start, aim)
        return self._reaching(near, found, start, aim, asked=asked)

    def _whole_within(self, found: Mapping[_Key, Group], start: int, room: int) -> bool:
        """Whether everything from a place on fits; of what does not, no more is read than that."""
        size, index = sum(map(_tokens, found.values())), start + HORIZON
        while size <= room and (group := self._past.at(index)) is not None:
            size += 0 if group.key in found else group.tokens
            index += 1
        return bool(size <= room)

    def _reaching(
        self,
        near: Sequence[Group],
        found: dict[_Key, Group],
        start: int,
        aim: Room,
        *,
        asked: bool,
    ) -> Plan:
        """Return the groups that were found, and those beyond the near ones as far as they fit.

        Where that is far less than the budget, groups that do not fit are passed over.
        """
        past, dropped = self._past, set[_Key]()
        recalled = frozenset(found.keys() - {group.key for group in near})
        size, index = self._fixed + sum(map(_tokens, found.values())), start + HORIZON
        while (group := past.at(index)) is not None:
            if group.key not in found:
                grown = size + group.tokens
                if grown > (aim.limit if size >= aim.least else aim.most[-1]):
                    dropped.add(group.key)
                    if size >= aim.least or index >= start + 2 * HORIZON:
                        index += 1
                        break
                else:
                    size = grown
                found[group.key] = group
            index += 1
        everything = past.with_standing(past.groups[start:index], start, asked=asked)
        found |= {group.key: group for group in everything}
        planned = (
            Planned.dropped(found[key], "the budget does not reach back so far")
            if key in dropped
            else Planned.whole(found[key])
            for key in sorted(found)
        )
        return Plan(tuple(planned), past.at(index) is None, recalled=recalled)

    def _retrieve(
        self, near: Sequence[Group], start: int
    ) -> tuple[list[Group], Mapping[tuple[int, int], float]]:
        """Return what answers the latest user message from beyond these groups, and all scores."""
        said = [group for group in near if group.kind == "user"]
        if self._recall is None or not said:
            return [], {}
        until = self._past.groups[start].key if start else None
        scores = self._recall.scores(said[-1].rows, until)
        found = self._recall.groups(scores.keys() - {group.key for group in near})
        return [*map(self._form, found)], scores

    def _reduce(self, near: Sequence[Group], start: int, aim: Room) -> Plan:
        recalled, scores = self._retrieve(near, start)
        groups = sorted((*near, *recalled), key=_place)
        self._look_for_levels(row for group in groups for row in group.rows)
        items: list[Item] = [
            GroupItem(group, self._tokenizer, scores.get(group.key, 0.0)) for group in groups
        ]
        said = [item.text for item in items if item.kind == "user"]
        reductions = self._strategy.reductions(items, said[-1] if said else "")
        if not aim.strict:
            # A target that cannot be reached is no reason to lose what stands for the rest.
            reductions = (each for each in reductions if items[each.item].kind != "summary")
        reduced = reduce(
            items,
            # Of what is left out in any case, the facts may be told.
            chain(
                (Reduction(n, "facts", why=g.why) for n, g in enumerate(groups) if g.left_out),
                reductions,
            ),
            fixed=self._fixed,
            max_tokens=aim.limit,
            tokenizer=self._tokenizer,
            header=DIGEST_HEADER,
            strict=aim.strict,
            kept=self._kept(groups, items, newest=aim.newest),
            least=aim.least,
            most=aim.most,
        )
        planned = (
            Planned(group, level, size, item, facts, why)
            for group, level, size, item, facts, why in zip(
                groups,
                reduced.levels,
                reduced.sizes,
                items,
                reduced.facts,
                reduced.reasons,
                strict=True,
            )
        )
        all_read = self._past.at(start + HORIZON) is None
        return Plan(tuple(planned), all_read, recalled=frozenset(group.key for group in recalled))

    def _kept(self, groups: Sequence[Group], items: Sequence[Item], *, newest: bool) -> set[int]:
        """Return what is shortened at most: an error that must be sent, and the newest that can be.

        That is the newest group for which there is room beside all that must be sent.
        """
        kept = {index for index, group in enumerate(groups) if group.yields}
        room = self._limit - self._fixed - sum(item.tokens for item in items if item.mandatory)
        room -= sum(items[index].shorter_tokens for index in kept)
        for index in range(len(groups) - 1, -1, -1) if newest else ():
            if not (groups[index].left_out or groups[index].label):
                if items[index].shorter_tokens <= room:
                    return kept | {index}
        return kept


# A plan holds some two hundred groups, and most requests look at them all.
_tokens, _level, _place = attrgetter("tokens"), attrgetter("level"), attrgetter("key")
_key = attrgetter("group.key")
