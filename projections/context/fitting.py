"""Planning of one step: reduces the groups from a place back to a size.

Detail is lowered only within the newest 128 groups, so that the cost does not grow with the
conversation. Older groups are included in full while they fit, and dropped otherwise. Groups that a
strategy retrieves from beyond are added to the newest ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from math import inf
from operator import attrgetter

from projections.context.compression.items import Item
from projections.context.compression.reduction import Reduced, header_tokens, reduce
from projections.context.compression.strategy import Reduction, Strategy
from projections.context.detail import item_of
from projections.context.older import Teller
from projections.context.past import Past
from projections.context.plans import Group, Plan, Planned
from projections.context.prompts import DIGEST_HEADER
from projections.context.recall import Recall
from projections.context.rows import ContextRow
from projections.context.section_budgets import Room, held
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "Fitting", "LookForLevels"]

HORIZON = 128
"""The number of newest groups within which detail is lowered."""

LookForLevels = Callable[[Iterable[ContextRow]], None]
_Key = tuple[int, int]


@dataclass(slots=True, eq=False)
class Fitting:
    """Plans of one history within one budget.

    Attributes:
        past: The history.
        limit: The most tokens of the request.
        fixed: The tokens of everything sent in addition to the history.
        strategy: Decides what loses detail first.
        tokenizer: Counts tokens.
        recall: Retrieves groups for the strategy, if it retrieves.
        form: Converts a retrieved group to the form in which it can be sent.
        look_for_levels: Called with the rows that may lose detail, before their levels are used.
        teller: Describes what is older than all groups considered, if enabled.
        sections: The most tokens of each section.
    """

    past: Past
    limit: int
    fixed: int
    strategy: Strategy
    tokenizer: Tokenizer
    recall: Recall | None
    form: Callable[[Group], Group]
    look_for_levels: LookForLevels
    teller: Teller | None
    sections: Mapping[str, int]

    def fitting(self) -> Plan:
        """Return the plan that just fits."""
        least, most = self.limit // 2 + 2, (self.limit,)
        room = Room(self.limit, least, most, strict=True, sections=self.sections)
        return self.at(0, room)

    def size(self, plan: Plan) -> int:
        """Return the tokens of a request with a plan, and nothing after it."""
        digests = len(plan.told) * header_tokens(DIGEST_HEADER, self.tokenizer)
        older = 0 if plan.older is None else plan.older.tokens
        return self.fixed + plan.tokens + older + digests

    def since(
        self, front: Plan, covered: _Key, start: int, aim: Room, *, asked: bool = False
    ) -> Plan | None:
        """Return a plan unchanged, followed by the groups after it, reduced until they fit.

        None if they do not fit, or if there are none, or too many.

        Args:
            front: The plan.
            covered: The place of the newest group in the plan.
            start: The index, from the end, of the newest group to plan.
            aim: The permitted size of the request.
            asked: See `Past.with_standing`.
        """
        newer = takewhile(lambda group: group.key > covered, self.past.groups[start:])
        listed = self.past.with_standing([*newer], start, asked=asked)
        groups = [group for group in listed if group.key > covered]
        if not 0 < len(groups) <= HORIZON:
            return None
        scores = {} if self.recall is None else self._retrieve(groups, start)[1]
        fixed = self.size(front)
        items, reduced = self._reduced(groups, scores, aim, fixed, _told_by(front))
        if reduced.tokens > aim.limit:
            return None
        return replace(
            front,
            groups=(*front.groups, *_planned(groups, items, reduced)),
            stages=(*front.stages, covered),
        )

    def at(self, start: int, aim: Room, *, asked: bool = False) -> Plan:
        """Return a plan of the groups from an index back that fits."""
        past = self.past
        past.at(start + HORIZON)
        near = past.with_standing(past.groups[start : start + HORIZON], start, asked=asked)
        kept = self._kept_for_older(near, start, aim)
        if kept:
            with suppress(BudgetInfeasible):
                plan = self._chosen(near, start, aim.less(kept), asked=asked)
                if self.fixed + plan.tokens + kept <= aim.limit:
                    return self._with_older(plan, start, kept)
        return self._chosen(near, start, aim, asked=asked)

    def _kept_for_older(self, near: Sequence[Group], start: int, aim: Room) -> int:
        """Return the tokens reserved for the description of the history before the near groups."""
        if self.teller is None or self.past.at(start + HORIZON) is None:
            return 0
        found = {group.key: group for group in near}
        if self._whole_within(found, start, aim):
            return 0
        must = self.fixed + sum(group.tokens for group in near if group.label)
        oldest = self.past.groups[start + HORIZON - 1]
        kept = self.teller.reserve(oldest.key[0], aim.limit, must)
        return max(min(kept, aim.sections.get("digest", kept)), 0)

    def _with_older(self, plan: Plan, start: int, kept: int) -> Plan:
        assert self.teller is not None  # noqa: S101 - it determined the reserved tokens
        standing = {group.key for group in self.past.standing} | plan.recalled
        sent = (each.group for each in plan.groups if each.level != "dropped")
        keys = [group.key for group in sent if group.key not in standing and not group.label]
        near = self.past.groups[start + HORIZON - 1].key
        return replace(plan, older=self.teller.told(near[0], kept, min([near, *keys])[0]))

    def _chosen(self, near: Sequence[Group], start: int, aim: Room, *, asked: bool) -> Plan:
        room = aim.limit - self.fixed
        if sum(map(_tokens, near)) > room:
            return self._reduce(near, start, aim)
        found = {group.key: group for group in near}
        if self.recall is not None and not self._whole_within(found, start, aim):
            recalled, _ = self._retrieve(near, start)
            found |= {group.key: group for group in recalled}
            if sum(map(_tokens, found.values())) > room:
                return self._reduce(near, start, aim)
        if aim.passed(found.values()):
            plan = self._reduce(near, start, aim)
        else:
            listed = frozenset(found.keys() - {group.key for group in near})
            planned = tuple(Planned.whole(found[key]) for key in sorted(found))
            plan = Plan(planned, all_read=False, recalled=listed)
        return self._reaching(plan, start, aim, asked=asked)

    def _whole_within(self, found: Mapping[_Key, Group], start: int, aim: Room) -> bool:
        """Whether all groups from an index back fit; reads no further than needed to decide."""
        room = aim.limit - self.fixed
        size, index, more = sum(map(_tokens, found.values())), start + HORIZON, list[Group]()
        while size <= room and (group := self.past.at(index)) is not None:
            if group.key not in found:
                size += group.tokens
                more.append(group)
            index += 1
        return bool(size <= room) and not aim.passed(chain(found.values(), more))

    def _reaching(self, plan: Plan, start: int, aim: Room, *, asked: bool) -> Plan:
        """Return a plan of the near groups, extended by older groups as far as they fit.

        While the plan is far below the budget, groups that do not fit are skipped; groups for which
        their section has no room are skipped in any case.
        """
        past, dropped = self.past, set[_Key]()
        found = {each.group.key: each for each in plan.groups}
        used = held(plan, self.tokenizer) if aim.sections else Counter[str]()
        size, index = self.size(plan), start + HORIZON
        while (group := past.at(index)) is not None:
            index += 1
            if group.key in found:
                continue
            grown, name, why = size + group.tokens, group.section, ""
            if used[name] + group.tokens > aim.sections.get(name, inf):
                why, ends = f"over section_budgets.{name}", len(dropped) >= 4 * HORIZON
            elif grown > (aim.limit if size >= aim.least else aim.most[-1]):
                why = "the budget does not reach back so far"
                ends = size >= aim.least or index > start + 2 * HORIZON
            if why:
                dropped.add(group.key)
                found[group.key] = Planned.dropped(group, why)
                if ends:
                    break
            else:
                size = grown
                used[name] += group.tokens
                found[group.key] = Planned.whole(group)
        for group in past.with_standing(past.groups[start:index], start, asked=asked):
            each = found.get(group.key)
            if each is None or (each.item is None and each.group.key not in dropped):
                found[group.key] = Planned.whole(group)
            elif each.group.key in dropped:
                found[group.key] = replace(each, group=group)
        planned = tuple(found[key] for key in sorted(found))
        return replace(plan, groups=planned, all_read=past.at(index) is None)

    def _retrieve(
        self, near: Sequence[Group], start: int
    ) -> tuple[list[Group], Mapping[tuple[int, int], float]]:
        """Return older groups that answer the latest user message, and the scores of all groups."""
        said = [group for group in near if group.kind == "user"]
        if self.recall is None or not said:
            return [], {}
        until = self.past.groups[start].key if start else None
        scores = self.recall.scores(said[-1].rows, until)
        found = self.recall.groups(scores.keys() - {group.key for group in near})
        return [*map(self.form, found)], scores

    def _reduce(self, near: Sequence[Group], start: int, aim: Room) -> Plan:
        recalled, scores = self._retrieve(near, start)
        groups = sorted((*near, *recalled), key=_place)
        items, reduced = self._reduced(groups, scores, aim, self.fixed)
        all_read = self.past.at(start + HORIZON) is None
        found = frozenset(group.key for group in recalled)
        return Plan(tuple(_planned(groups, items, reduced)), all_read, recalled=found)

    def _reduced(
        self,
        groups: Sequence[Group],
        scores: Mapping[_Key, float],
        aim: Room,
        fixed: int,
        known: Collection[str] = (),
    ) -> tuple[list[Item], Reduced]:
        """Return groups as items, and their reduction next to the fixed part."""
        self.look_for_levels(row for group in groups for row in group.rows)
        items: list[Item] = [
            item_of(group, self.tokenizer, scores.get(group.key, 0.0)) for group in groups
        ]
        said = [item.text for item in items if item.kind == "user"]
        reductions = self.strategy.reductions(items, said[-1] if said else "")
        if not aim.strict and any(item.kind == "summary" for item in items):
            # An unreachable target is no reason to lose the summaries of the rest.
            reductions = (each for each in reductions if items[each.item].kind != "summary")
        # Groups that are left out in any case may still contribute facts.
        left_out = (
            Reduction(n, "facts", why=group.why) for n, group in enumerate(groups) if group.left_out
        )
        return items, reduce(
            items,
            chain(left_out, reductions),
            fixed=fixed,
            max_tokens=aim.limit,
            tokenizer=self.tokenizer,
            header=DIGEST_HEADER,
            strict=aim.strict,
            kept=self._kept(groups, items, fixed, newest=aim.newest),
            least=aim.least,
            most=aim.most,
            known=known,
            sections=aim.sections,
        )

    def _kept(
        self, groups: Sequence[Group], items: Sequence[Item], fixed: int, *, newest: bool
    ) -> set[int]:
        """Return the groups that are at most shortened: a mandatory error, and the newest group.

        That is the newest group for which there is room next to everything mandatory.
        """
        kept = {index for index, group in enumerate(groups) if group.yields}
        room = self.limit - fixed - sum(item.tokens for item in items if item.mandatory)
        room -= sum(items[index].shorter_tokens for index in kept)
        for index in range(len(groups) - 1, -1, -1) if newest else ():
            if not (groups[index].left_out or groups[index].label):
                if items[index].shorter_tokens <= self._left(groups, items, kept, index, room):
                    return kept | {index}
        return kept

    def _left(
        self,
        groups: Sequence[Group],
        items: Sequence[Item],
        kept: Collection[int],
        index: int,
        room: int,
    ) -> int:
        """Return the tokens left for a group, in the room and its section, by mandatory items."""
        name = groups[index].section
        if name not in self.sections:
            return room
        must = sum(item.tokens for item in items if item.mandatory and item.section == name)
        must += sum(items[n].shorter_tokens for n in kept if items[n].section == name)
        return min(room, self.sections[name] - must)


def _told_by(front: Plan) -> set[str]:
    """Return the facts in a plan's request, as far as they are already computed."""
    told: set[str] = set()
    for each in front.groups:
        if each.item is None or each.level == "dropped":
            continue
        facts = [fact.text for fact in each.item.facts]
        if each.level == "shortened":
            said = json.dumps(each.item.shorter or each.item.messages, ensure_ascii=False)
            facts = [fact for fact in facts if fact in said]
        told.update(each.facts if each.level == "facts" else facts)
    return told


def _planned(groups: Sequence[Group], items: Sequence[Item], reduced: Reduced) -> Iterator[Planned]:
    account = (reduced.levels, reduced.sizes, items, reduced.facts, reduced.reasons)
    for group, level, *rest in zip(groups, *account, strict=True):
        # A group that is left out in any case is not sent just because there is room.
        left_out = group.left_out and level == "full"
        yield Planned.whole(group) if left_out else Planned(group, level, *rest)


_tokens, _place = attrgetter("tokens"), attrgetter("key")
