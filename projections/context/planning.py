"""Chooses which part of the history a request contains: within a budget, and in steps.

Between two steps the earlier messages stay byte-identical, so that the provider's prompt cache
hits. A step happens at the group with which the request exceeds its trigger. A major step plans
everything before that group, down to the target. A minor step leaves the result of the last step
unchanged and plans only newer groups, down to half of the remaining room, with a digest of its own.
Steps are minor as long as the part they leave unchanged takes at most a share (``frozen``) of the
room.

The result of a step depends only on the messages up to it, so every process computes the same steps
from the last anchor on: every `interval` groups, a history that is over the trigger has a major
step. `projections.context.planning` makes the plan of a single step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, takewhile
from math import inf
from operator import attrgetter

from projections.context.compression.facts import texts_of
from projections.context.compression.items import Item
from projections.context.compression.monitor import Thresholds, exactly
from projections.context.compression.reduction import Reduced, header_tokens, reduce
from projections.context.compression.strategy import Reduction, Strategy, interval
from projections.context.detail import item_of
from projections.context.groups import Past, whole
from projections.context.levels import prepare
from projections.context.limits import Ends
from projections.context.older_digest import DigestWriter, LookForLasting
from projections.context.plans import Budget, Group, Plan, Planned, PlanStep
from projections.context.prompts import DIGEST_HEADER
from projections.context.recall import Recall
from projections.context.row_cache import PlanMemo
from projections.context.rows import Key
from projections.context.section_budgets import Room, over, tokens_by_section
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer

__all__ = ["HORIZON", "Fitting", "Plan", "Planned", "plan"]


HORIZON = 128


"""How many of the newest groups may lose detail; older ones are sent whole or dropped."""


_LASTS = 64  # groups of the usual size that fit after a major step, unless the target leaves less


_ONLY_ENDS = "shortened: with what must be sent, there is room only for its ends"


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
        teller: Writes the digest's lines about the older part of the history, if any are wanted.
        sections: Upper limits for the tokens of sections.
        block: Tokens of a block of recalled messages beside the plan.
    """

    past: Past
    limit: int
    fixed: int
    strategy: Strategy
    tokenizer: Tokenizer
    recall: Recall | None
    form: Callable[[Group], Group]
    ends: Ends
    digest_writer: DigestWriter | None
    sections: Mapping[str, int]
    block: int = 0

    def fitting(self) -> Plan:
        """Return the plan of a request without steps, trimmed to just fit."""
        least, most = self.limit // 2 + 2, (self.limit,)
        room = Room(self.limit, least, most, strict=True, sections=self.sections)
        return self.at(0, room)

    def size(self, plan: Plan) -> int:
        """Return the tokens of a request that contains only the plan and the fixed part."""
        digests = len(plan.digested) * header_tokens(DIGEST_HEADER, self.tokenizer)
        older = 0 if plan.older is None else plan.older.tokens
        return self.fixed + plan.tokens + older + digests

    def since(
        self, front: Plan, covered: Key, start: int, aim: Room, *, with_question: bool = False
    ) -> Plan | None:
        """Return the plan of a minor step: an earlier plan unchanged, and newer groups reduced.

        None if the newer groups cannot be made to fit, or if there are none, or too many.

        Args:
            front: The earlier plan.
            covered: The key of the newest group that it covers.
            start: The index of the newest group to plan.
            aim: The size of the request.
            with_question: See `Past.with_fixed`.
        """
        newer = takewhile(lambda group: group.key > covered, self.past.groups[start:])
        listed = self.past.with_fixed([*newer], start, with_question=with_question)
        groups = [group for group in listed if group.key > covered]
        if not 0 < len(groups) <= HORIZON:
            return None
        scores = {} if self.recall is None else self._retrieve(groups, start)[1]
        fixed = self.size(front)
        groups, items, reduced = self._reduced(groups, scores, aim, fixed, _digested_in(front))
        if reduced.tokens > aim.limit:
            return None
        return replace(
            front,
            groups=(*front.groups, *_planned(groups, items, reduced)),
            stages=(*front.stages, covered),
        )

    def at(self, start: int, aim: Room, *, with_question: bool = False) -> Plan:
        """Return a plan of all groups from an index on, reduced to fit."""
        past = self.past
        past.at(start + HORIZON)
        near = past.with_fixed(
            past.groups[start : start + HORIZON], start, with_question=with_question
        )
        reserved = self._reserved_for_older(near, start, aim)
        if reserved:
            with suppress(BudgetInfeasible):
                plan = self._chosen(near, start, aim.less(reserved), with_question=with_question)
                if self.fixed + plan.tokens + reserved <= aim.limit:
                    return self._with_older(plan, start, reserved, _numbered_texts(near))
        return self._chosen(near, start, aim, with_question=with_question)

    def _reserved_for_older(self, near: Sequence[Group], start: int, aim: Room) -> int:
        """Return the tokens to reserve for lines about the history before the near groups."""
        if self.digest_writer is None or self.past.at(start + HORIZON) is None:
            return 0
        found = {group.key: group for group in near}
        if self._whole_within(found, start, aim):
            return 0
        must = self.fixed + sum(group.tokens for group in near if group.label)
        oldest = self.past.groups[start + HORIZON - 1]
        # A block takes nothing from the lines about older messages.
        limit = aim.limit * (self.limit + self.block) // max(self.limit, 1)
        reserved = self.digest_writer.reserve(oldest.key[0], limit, must, _numbered_texts(near))
        if self.block:
            reserved = min(reserved, aim.limit // 2 - must)
        return max(min(reserved, aim.sections.get("digest", reserved)), 0)

    def _with_older(
        self, plan: Plan, start: int, reserved: int, newer: Sequence[tuple[int, str]]
    ) -> Plan:
        assert self.digest_writer is not None  # noqa: S101 - it computed the reserve
        fixed_keys = {group.key for group in self.past.fixed} | plan.recalled
        sent = (each.group for each in plan.groups if each.level != "dropped")
        keys = [group.key for group in sent if group.key not in fixed_keys and not group.label]
        near = self.past.groups[start + HORIZON - 1].key
        until = min([near, *keys])[0]
        return replace(plan, older=self.digest_writer.digest(near[0], reserved, until, newer))

    def _chosen(self, near: Sequence[Group], start: int, aim: Room, *, with_question: bool) -> Plan:
        room = aim.limit - self.fixed
        if sum(map(_group_tokens, near)) > room:
            return self._reduce(near, start, aim)
        found = {group.key: group for group in near}
        if self.recall is not None and not self._whole_within(found, start, aim):
            recalled, _ = self._retrieve(near, start)
            found |= {group.key: group for group in recalled}
            if sum(map(_group_tokens, found.values())) > room:
                return self._reduce(near, start, aim)
        if aim.passed(found.values()):
            plan = self._reduce(near, start, aim)
        else:
            listed = frozenset(found.keys() - {group.key for group in near})
            planned = tuple(Planned.whole(found[key]) for key in sorted(found))
            plan = Plan(planned, all_read=False, recalled=listed)
        return self._reaching(plan, start, aim, with_question=with_question)

    def _whole_within(self, found: Mapping[Key, Group], start: int, aim: Room) -> bool:
        """Whether everything from an index on fits whole; stops reading once it does not."""
        room = aim.limit - self.fixed
        size, index, more = sum(map(_group_tokens, found.values())), start + HORIZON, list[Group]()
        while size <= room and (group := self.past.at(index)) is not None:
            if group.key not in found:
                size += group.tokens
                more.append(group)
            index += 1
        return bool(size <= room) and not aim.passed(chain(found.values(), more))

    def _reaching(self, plan: Plan, start: int, aim: Room, *, with_question: bool) -> Plan:
        """Return a plan of the near groups, extended by older ones as far as they fit.

        The plan ends at the first group that does not fit, unless too little of the budget is used:
        then such groups are skipped. Groups that exceed their section's budget are always skipped.
        """
        past, dropped = self.past, set[Key]()
        found = {each.group.key: each for each in plan.groups}
        used = tokens_by_section(plan, self.tokenizer) if aim.sections else Counter[str]()
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
        for group in past.with_fixed(past.groups[start:index], start, with_question=with_question):
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
        questions = [group for group in near if group.kind == "user"]
        if self.recall is None or not questions:
            return [], {}
        until = self.past.groups[start].key if start else None
        scores = self.recall.scores(questions[-1].rows, until)
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
        prepare(row for group in groups for row in group.rows)
        items: list[Item] = [
            item_of(group, self.tokenizer, scores.get(group.key, 0.0)) for group in groups
        ]
        required = self._required(groups, items, fixed, newest=aim.newest)
        user_texts = [item.text for item in items if item.kind == "user"]
        reductions = self.strategy.reductions(items, user_texts[-1] if user_texts else "")
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
            required=required,
            least=aim.least,
            most=aim.most,
            known=known,
            sections=aim.sections,
            refill=not aim.strict,
        )
        return groups, items, reduced

    def _required(
        self, groups: list[Group], items: list[Item], fixed: int, *, newest: bool
    ) -> set[int]:
        """Return the indexes of groups that are shortened at most, never dropped.

        These are a mandatory error and, with ``newest``, the newest group for which there is room
        in addition to the mandatory messages. If there is room only for its ends, these replace it
        in both lists.
        """
        required = {index for index, group in enumerate(groups) if group.yields}
        room = self.limit - fixed - sum(item.tokens for item in items if item.mandatory)
        room -= sum(items[index].shorter_tokens for index in required)
        for index in range(len(groups) - 1, -1, -1) if newest else ():
            if not (groups[index].left_out or groups[index].label):
                left = self._left(groups, items, required, index, room)
                if items[index].shorter_tokens <= left:
                    return required | {index}
                whole = groups[index].whole or groups[index]
                for form in self.ends(whole):
                    if form.tokens <= left:
                        groups[index] = replace(form, whole=whole, why=_ONLY_ENDS)
                        items[index] = item_of(groups[index], self.tokenizer)
                        return required | {index}
        return required

    def _left(
        self,
        groups: Sequence[Group],
        items: Sequence[Item],
        required: Collection[int],
        index: int,
        room: int,
    ) -> int:
        """Return the tokens that mandatory messages leave a group, of a room and of its section."""
        name = groups[index].section
        if name not in self.sections:
            return room
        must = sum(item.tokens for item in items if item.mandatory and item.section == name)
        must += sum(items[n].shorter_tokens for n in required if items[n].section == name)
        return min(room, self.sections[name] - must)


def _numbered_texts(groups: Sequence[Group]) -> list[tuple[int, str]]:
    """Return version and text of each message of a user."""
    users = (group.rows[0] for group in groups if group.kind == "user")
    return [(row.version, "\n".join(texts_of(row.message))) for row in users]


def _digested_in(front: Plan) -> set[str]:
    """Return the facts that a plan sends, for groups whose facts have been determined."""
    digested: set[str] = set()
    for each in front.groups:
        if each.item is None or each.level == "dropped":
            continue
        facts = [fact.text for fact in each.item.facts]
        if each.level == "shortened":
            content = json.dumps(each.item.shorter or each.item.messages, ensure_ascii=False)
            facts = [fact for fact in facts if fact in content]
        digested.update(each.facts if each.level == "facts" else facts)
    return digested


def _planned(groups: Sequence[Group], items: Sequence[Item], reduced: Reduced) -> Iterator[Planned]:
    account = (reduced.levels, reduced.sizes, items, reduced.facts, reduced.reasons)
    for group, level, *rest in zip(groups, *account, strict=True):
        # A group that no limit lets through is not sent, even if the reduction left it whole.
        left_out = group.left_out and level == "full"
        yield Planned.whole(group) if left_out else Planned(group, level, *rest)


_group_tokens, _place = attrgetter("tokens"), attrgetter("key")


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
    but = {group.key for group in past.fixed}
    digest_writer = None if limited else DigestWriter(lasting, tokenizer, but)
    fit = Fitting(
        past,
        budget.max_tokens,
        fixed,
        strategy,
        tokenizer,
        recall,
        form,
        ends,
        digest_writer,
        dict(budget.sections),
        budget.block,
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
        self._fixed_keys = {group.key for group in past.fixed}
        self._fixed = fit.fixed + sum(map(_tokens, past.fixed))
        self._trigger = thresholds.trigger_tokens(self._fixed, limit)
        self._target = thresholds.target_tokens(self._fixed, limit)
        self._room = self._trigger - self._fixed
        share = exactly(thresholds.frozen)
        self._frozen = int(share * self._room)
        task = sum(group.tokens for group in past.fixed if group.section == "user")
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
        cached: PlanStep | None = None if memo is None else memo.get(key)
        known = None if cached is None else self._since(cached)
        step, index = (cached, known) if known is not None else self._anchored()
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
        if memo is not None and step is not cached and self._lasts(plan, step.covered):
            memo.put(key, step)
        return plan

    def _anchored(self) -> tuple[PlanStep | None, int]:
        """Return the step at the last anchor, or None, and the index from which to continue."""
        index, fell = self._past.anchor(self._limit, self._room, self._passes)
        return self._fall(index, None) if fell else None, index

    def _since(self, step: PlanStep) -> int | None:
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
            # At the last group before an anchor, only a major step is the one that others compute.
            minor = bool(step.before.stages)
            if (step.ordinal or 0) < anchor and (min(ordinals) < anchor or minor):
                return None
        return place

    def _lasts(self, plan: Plan, covered: Key) -> bool:
        """Whether a step stays the same when groups follow, so that it may be cached."""
        return self._fit.size(plan) <= self._limit and not self._looks_beyond(covered)

    def _looks_beyond(self, covered: Key) -> bool:
        """Whether a step included a mandatory message that it would omit once groups follow."""
        near = self._past.groups[:HORIZON]
        return covered == near[0].key and any(
            each.key < near[-1].key and each.key not in self._fixed_keys
            for each in self._past.mandatory
        )

    def _passes(self, used: Counter[str], group: Group) -> bool:
        """Add a group to the tokens by section; return whether its section exceeds its room."""
        if not self._rooms:
            return False
        name = group.section
        used[name] += self._past.size(group)
        return used[name] > self._rooms.get(name, used[name])

    def _taken(self, step: PlanStep | None, index: int) -> tuple[int, Counter[str]]:
        """Return the tokens of everything from an index on, without the groups in every plan.

        In all and by section; ``step`` is the step before the index, if any.
        """
        size = 0 if step is None else self._tokens_sent(step.before)
        used = Counter[str]() if step is None else self._tokens_by_section(step.before)
        for group in self._past.groups[index:]:
            if step is not None and group.key <= step.covered:
                break
            size += self._past.size(group)
            self._passes(used, group)
        return size, used

    def _tokens_by_section(self, plan: Plan) -> Counter[str]:
        """Return the tokens of a plan's sections, without the groups in every plan."""
        return (
            tokens_by_section(plan, self._fit.tokenizer, self._fixed_keys)
            if self._rooms
            else Counter()
        )

    def _tokens_sent(self, plan: Plan) -> int:
        """Return the tokens of a plan, without the groups in every plan."""
        fixed_tokens = sum(each.tokens for each in plan.at(self._fixed_keys))
        return self._fit.size(plan) - self._fit.fixed - fixed_tokens

    def _fall(self, index: int, last: PlanStep | None) -> PlanStep | None:
        """Return the step that happens at a group; the last step if there is nothing to cover."""
        if last is not None and self._stays(last.before):
            minor = self._covering(index, last)
            if minor is not None:
                return minor
        return self._covering(index, None) or last

    def _stays(self, plan: Plan) -> bool:
        """Whether a plan is small enough to stay unchanged, in all and in each section."""
        used = self._tokens_by_section(plan)
        small = all(used[name] <= most for name, most in self._frozen_rooms.items())
        return small and self._tokens_sent(plan) <= self._frozen

    def _covering(self, index: int, front: PlanStep | None) -> PlanStep | None:
        """Return the step at a group: minor after ``front``, major if that is None.

        None if there is nothing to cover, or if a minor step cannot trim far enough.
        """
        fixed = self._fixed if front is None else self._fixed + self._tokens_sent(front.before)
        target = self._mark(index) if front is None else fixed + (self._trigger - fixed) // 2
        # One more, since the lines of a digest are counted one by one.
        least = min(target, -(-self._limit // 2)) + 1
        # The group at which a step happens stays whole: no model has answered it yet. However large
        # it is, the groups before it get half of their room.
        newest = self._past.groups[index]
        size = self._past.size(newest)
        rest = max(target - size, fixed + (target - fixed) // 2)
        with_question = newest.kind == "user"
        # After a question, keep the newest group that it may refer to.
        sections = self._sections(front, newest)
        room = Room(
            rest,
            least - size,
            (target, self._limit - size),
            newest=with_question or newest.left_out,
            sections=sections,
        )
        step = self._step(index + 1, index, room, front, with_question=with_question)
        if step is not None and self._fixed + self._tokens_sent(step.before) + size <= self._limit:
            used = self._tokens_by_section(step.before)
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

    def _mark(self, index: int) -> int:
        """Return the tokens to which a major step at a group trims.

        At least the target; more if the room that this leaves free would last for more groups of
        the usual size than a step is meant to last for.
        """
        self._past.at(index + HORIZON)
        sizes = [*map(self._past.size, self._past.groups[index + 1 : index + 1 + HORIZON])]
        growth = _LASTS * sum(sizes) // max(len(sizes), 1)
        return max(self._target, self._trigger - growth)

    def _sections(self, front: PlanStep | None, newest: Group | None) -> dict[str, int]:
        """Return the tokens that a step leaves each section.

        As for the whole history: a share of the room for a major step, half of the remaining room
        for a minor one.
        """
        used = Counter[str]() if front is None else self._tokens_by_section(front.before)
        share = self._part if front is None else Fraction(1, 2)
        left = {name: int(share * (most - used[name])) for name, most in self._rooms.items()}
        if newest is not None and (name := newest.section) in left:
            left[name] = max(left[name] - self._past.size(newest), left[name] // 2)
        if front is None and "user" in left:
            left["user"] += self._task
        return left

    def _step(
        self,
        start: int,
        index: int,
        room: Room,
        front: PlanStep | None,
        *,
        with_question: bool = False,
    ) -> PlanStep | None:
        """Return the step at ``index`` that covers the groups from ``start`` on.

        None if there are no such groups, or if a minor step cannot trim them far enough.
        """
        covered, newest = self._past.at(start), self._past.groups[index]
        if covered is None:
            return None
        if front is None:
            plan: Plan | None = self._fit.at(start, room, with_question=with_question)
        else:
            plan = self._fit.since(
                front.before, front.covered, start, room, with_question=with_question
            )
        if plan is None:
            return None
        return PlanStep(newest.key, newest.rows[0].ordinal, plan, covered.key)

    def _joined(self, step: PlanStep) -> Plan:
        """Return the plan of a step with all newer groups in full."""
        past = self._past
        start = sum(1 for group in past.groups if group.key > step.covered)
        since = past.with_fixed(past.groups[:start], 0)
        digested = [
            replace(each, group=past.labelled(each.group)) if each.group.label else each
            for each in step.before.groups
        ]
        newest = digested[-1].group.key if digested else (0, 0)
        groups = (*digested, *(Planned.whole(group) for group in since if group.key > newest))
        # Groups in every plan that the step did not include, such as a summary made since.
        missed = [
            Planned.whole(group)
            for group in since
            if group.key < newest and not any(step.before.at((group.key,)))
        ]
        if missed:
            groups = tuple(sorted((*groups, *missed), key=_key))
        return step.before.going_on(groups, step.covered)
