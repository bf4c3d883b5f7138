"""Reduces the groups up to an index to a size: one plan, without regard to steps.

Detail is lowered within the newest 128 groups only: older groups are sent whole if everything up to
them fits whole, and dropped otherwise, so the cost does not grow with the conversation. Older
groups that a strategy retrieves are treated like the newest.
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

from projections.context.compression.facts import texts_of
from projections.context.compression.items import Item
from projections.context.compression.reduction import Reduced, header_tokens, reduce
from projections.context.compression.strategy import Reduction, Strategy
from projections.context.detail import item_of
from projections.context.limits import Ends
from projections.context.older import Teller
from projections.context.past import Past
from projections.context.plans import Group, Plan, Planned
from projections.context.prompts import DIGEST_HEADER
from projections.context.recall import Recall
from projections.context.rows import ContextRow, Key
from projections.context.section_budgets import Room, held
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "Fitting", "LookForLevels"]

HORIZON = 128
"""How many of the newest groups may lose detail; older ones are sent whole or dropped."""

_ONLY_ENDS = "shortened: with what must be sent, there is room only for its ends"

LookForLevels = Callable[[Iterable[ContextRow]], None]


@dataclass(slots=True, eq=False)
class Fitting:
    """Makes plans of one history within one budget.

    Attributes:
        past: The history.
        limit: Upper limit for the request's tokens.
        fixed: Tokens of everything that is sent in addition to the history.
        strategy: Decides what loses detail first.
        tokenizer: Counts tokens.
        recall: The search of a strategy that retrieves; None for other strategies.
        form: Returns a retrieved group in the form in which it can be sent.
        ends: Returns a group's last forms, the longest first.
        look_for_levels: Called with the rows that may lose detail, before their levels are read.
        teller: Writes the digest's lines about the older part of the history, if any are wanted.
        sections: Upper limits for the tokens of sections.
    """

    past: Past
    limit: int
    fixed: int
    strategy: Strategy
    tokenizer: Tokenizer
    recall: Recall | None
    form: Callable[[Group], Group]
    ends: Ends
    look_for_levels: LookForLevels
    teller: Teller | None
    sections: Mapping[str, int]

    def fitting(self) -> Plan:
        """Return the plan of a request without steps, trimmed to just fit."""
        least, most = self.limit // 2 + 2, (self.limit,)
        room = Room(self.limit, least, most, strict=True, sections=self.sections)
        return self.at(0, room)

    def size(self, plan: Plan) -> int:
        """Return the tokens of a request that contains only the plan and the fixed part."""
        digests = len(plan.told) * header_tokens(DIGEST_HEADER, self.tokenizer)
        older = 0 if plan.older is None else plan.older.tokens
        return self.fixed + plan.tokens + older + digests

    def since(
        self, front: Plan, covered: Key, start: int, aim: Room, *, asked: bool = False
    ) -> Plan | None:
        """Return the plan of a minor step: an earlier plan unchanged, and newer groups reduced.

        None if the newer groups cannot be made to fit, or if there are none, or too many.

        Args:
            front: The earlier plan.
            covered: The key of the newest group that it covers.
            start: The index of the newest group to plan.
            aim: The size of the request.
            asked: See `Past.with_standing`.
        """
        newer = takewhile(lambda group: group.key > covered, self.past.groups[start:])
        listed = self.past.with_standing([*newer], start, asked=asked)
        groups = [group for group in listed if group.key > covered]
        if not 0 < len(groups) <= HORIZON:
            return None
        scores = {} if self.recall is None else self._retrieve(groups, start)[1]
        fixed = self.size(front)
        groups, items, reduced = self._reduced(groups, scores, aim, fixed, _told_by(front))
        if reduced.tokens > aim.limit:
            return None
        return replace(
            front,
            groups=(*front.groups, *_planned(groups, items, reduced)),
            stages=(*front.stages, covered),
        )

    def at(self, start: int, aim: Room, *, asked: bool = False) -> Plan:
        """Return a plan of all groups from an index on, reduced to fit."""
        past = self.past
        past.at(start + HORIZON)
        near = past.with_standing(past.groups[start : start + HORIZON], start, asked=asked)
        kept = self._kept_for_older(near, start, aim)
        if kept:
            with suppress(BudgetInfeasible):
                plan = self._chosen(near, start, aim.less(kept), asked=asked)
                if self.fixed + plan.tokens + kept <= aim.limit:
                    return self._with_older(plan, start, kept, _said(near))
        return self._chosen(near, start, aim, asked=asked)

    def _kept_for_older(self, near: Sequence[Group], start: int, aim: Room) -> int:
        """Return the tokens to reserve for lines about the history before the near groups."""
        if self.teller is None or self.past.at(start + HORIZON) is None:
            return 0
        found = {group.key: group for group in near}
        if self._whole_within(found, start, aim):
            return 0
        must = self.fixed + sum(group.tokens for group in near if group.label)
        oldest = self.past.groups[start + HORIZON - 1]
        kept = self.teller.reserve(oldest.key[0], aim.limit, must, _said(near))
        return max(min(kept, aim.sections.get("digest", kept)), 0)

    def _with_older(
        self, plan: Plan, start: int, kept: int, newer: Sequence[tuple[int, str]]
    ) -> Plan:
        assert self.teller is not None  # noqa: S101 - it computed the reserve
        standing = {group.key for group in self.past.standing} | plan.recalled
        sent = (each.group for each in plan.groups if each.level != "dropped")
        keys = [group.key for group in sent if group.key not in standing and not group.label]
        near = self.past.groups[start + HORIZON - 1].key
        until = min([near, *keys])[0]
        return replace(plan, older=self.teller.told(near[0], kept, until, newer))

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

    def _whole_within(self, found: Mapping[Key, Group], start: int, aim: Room) -> bool:
        """Whether everything from an index on fits whole; stops reading once it does not."""
        room = aim.limit - self.fixed
        size, index, more = sum(map(_tokens, found.values())), start + HORIZON, list[Group]()
        while size <= room and (group := self.past.at(index)) is not None:
            if group.key not in found:
                size += group.tokens
                more.append(group)
            index += 1
        return bool(size <= room) and not aim.passed(chain(found.values(), more))

    def _reaching(self, plan: Plan, start: int, aim: Room, *, asked: bool) -> Plan:
        """Return a plan of the near groups, extended by older ones as far as they fit.

        The plan ends at the first group that does not fit, unless too little of the budget is used:
        then such groups are skipped. Groups that exceed their section's budget are always skipped.
        """
        past, dropped = self.past, set[Key]()
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
        """Return older groups that answer the latest user message, and the scores of all hits."""
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
        groups, items, reduced = self._reduced(groups, scores, aim, self.fixed)
        all_read = self.past.at(start + HORIZON) is None
        found = frozenset(group.key for group in recalled)
        return Plan(tuple(_planned(groups, items, reduced)), all_read, recalled=found)

    def _reduced(
        self,
        groups: Sequence[Group],
        scores: Mapping[Key, float],
        aim: Room,
        fixed: int,
        known: Collection[str] = (),
    ) -> tuple[list[Group], list[Item], Reduced]:
        """Return the groups, the same as items, and the result of reducing these.

        The groups are those given, except the newest, if only its ends fit into the request.
        """
        groups = [*groups]
        self.look_for_levels(row for group in groups for row in group.rows)
        items: list[Item] = [
            item_of(group, self.tokenizer, scores.get(group.key, 0.0)) for group in groups
        ]
        kept = self._kept(groups, items, fixed, newest=aim.newest)
        said = [item.text for item in items if item.kind == "user"]
        reductions = self.strategy.reductions(items, said[-1] if said else "")
        if not aim.strict:
            # A target that cannot be reached is no reason to lose the summaries of older messages.
            summaries = {n for n, item in enumerate(items) if item.kind == "summary"}
            reductions = (each for each in reductions if each.item not in summaries)
        # A group that no limit lets through may still have its facts in the digest.
        left_out = (
            Reduction(n, "facts", why=group.why) for n, group in enumerate(groups) if group.left_out
        )
        reduced = reduce(
            items,
            chain(left_out, reductions),
            fixed=fixed,
            max_tokens=aim.limit,
            tokenizer=self.tokenizer,
            header=DIGEST_HEADER,
            strict=aim.strict,
            kept=kept,
            least=aim.least,
            most=aim.most,
            known=known,
            sections=aim.sections,
            refill=not aim.strict,
        )
        return groups, items, reduced

    def _kept(
        self, groups: list[Group], items: list[Item], fixed: int, *, newest: bool
    ) -> set[int]:
        """Return the indexes of groups that are shortened at most, never dropped.

        These are a mandatory error and, with ``newest``, the newest group for which there is room
        in addition to the mandatory messages. If there is room only for its ends, these replace it
        in both lists.
        """
        kept = {index for index, group in enumerate(groups) if group.yields}
        room = self.limit - fixed - sum(item.tokens for item in items if item.mandatory)
        room -= sum(items[index].shorter_tokens for index in kept)
        for index in range(len(groups) - 1, -1, -1) if newest else ():
            if not (groups[index].left_out or groups[index].label):
                left = self._left(groups, items, kept, index, room)
                if items[index].shorter_tokens <= left:
                    return kept | {index}
                whole = groups[index].whole or groups[index]
                for form in self.ends(whole):
                    if form.tokens <= left:
                        groups[index] = replace(form, whole=whole, why=_ONLY_ENDS)
                        items[index] = item_of(groups[index], self.tokenizer)
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
        """Return the tokens that mandatory messages leave a group, of a room and of its section."""
        name = groups[index].section
        if name not in self.sections:
            return room
        must = sum(item.tokens for item in items if item.mandatory and item.section == name)
        must += sum(items[n].shorter_tokens for n in kept if items[n].section == name)
        return min(room, self.sections[name] - must)


def _said(groups: Sequence[Group]) -> list[tuple[int, str]]:
    """Return version and text of each message of a user."""
    users = (group.rows[0] for group in groups if group.kind == "user")
    return [(row.version, "\n".join(texts_of(row.message))) for row in users]


def _told_by(front: Plan) -> set[str]:
    """Return the facts that a plan sends, for groups whose facts have been determined."""
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
        # A group that no limit lets through is not sent, even if the reduction left it whole.
        left_out = group.left_out and level == "full"
        yield Planned.whole(group) if left_out else Planned(group, level, *rest)


_tokens, _place = attrgetter("tokens"), attrgetter("key")
