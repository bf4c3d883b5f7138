"""Applies the limits to a history: selects the newest groups, and no group that is too large.

A group that exceeds a limit even when only the mandatory messages are sent with it is sent in its
shorter form; if that exceeds the limit too, only the ends of its texts are sent. If even these
exceed it, the group is left out, and older groups can still be sent. Once half of ``max_messages``
or ``max_chars`` is used, the history ends at the first group that no longer fits; before that
point, such a group is sent in a shorter form or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from eventstore.events.codec import dumps_json
from projections.context.plans import Budget, Group
from projections.errors import BudgetInfeasible

__all__ = ["Ends", "Window", "chars_of", "content_chars", "within"]

Shorten = Callable[[Group], Group | None]
"""Returns a group in its shorter form, or None if it has none."""

Ends = Callable[[Group], Iterable[Group]]
"""Returns the forms in which only the ends of a group's texts are sent, the longest first."""

_LEAST_MESSAGES = 32
_ID = 24  # characters for the id of a call, which each request sets
_MOST_LEFT_OUT = 128  # groups; then the history ends


@dataclass(slots=True)
class Window:
    """The part of a history that the limits allow.

    Attributes:
        groups: The groups, newest first. Groups that are left out are included, with 0 tokens.
        summaries: The summaries in effect that are sent in any case.
        error: The mandatory error in the form in which it is sent, if there is one.
        form: Returns a group in the form that fits if only mandatory messages are sent with it.
        ended: The name of the limit that ended the history, if one did.
    """

    groups: Iterator[Group]
    summaries: tuple[Group, ...]
    error: Group | None
    form: Callable[[Group], Group]
    ended: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Limit:
    """A limit, and how much of it is left."""

    name: str
    most: int
    left: int
    measure: Callable[[Group], int]

    @property
    def half_used(self) -> bool:
        return 2 * self.left <= self.most

    def fits(self, group: Group) -> bool:
        return self.measure(group) <= self.left

    def pay(self, group: Group) -> None:
        self.left -= self.measure(group)


def within(
    newest: Iterator[Group],
    front: Sequence[Group],
    users: Sequence[Group],
    budget: Budget,
    *,
    fixed: int = 0,
    shorten: Shorten = lambda group: None,
    ends: Ends = lambda group: (),
    summaries: Sequence[Group] = (),
    error: Group | None = None,
) -> Window:
    """Return the part of a history that the limits allow.

    If the history is trimmed in steps, the part that ``max_messages`` and ``max_chars`` allow
    begins at the same group for several requests. This gives up at most a quarter of a limit, and
    nothing if ``max_messages`` is below 32.

    Args:
        newest: All groups, newest first.
        front: The groups of the system part.
        users: The first and the latest user message, which are sent whole.
        budget: The limits.
        fixed: Tokens of everything that is sent in addition to the history.
        shorten: Returns the shorter form of a group.
        ends: Returns a group's last forms, for those whose shorter form is too large too.
        summaries: The summaries in effect: sent if they fit in addition to the newest group.
        error: The mandatory error: sent in its shorter form if it takes more than half of what is
            left of a limit.

    Raises:
        BudgetInfeasible: The mandatory messages exceed ``max_messages`` or ``max_chars``.
    """
    limits = _limits(budget)
    for limit in limits:
        for group in chain(front, users):
            limit.pay(group)
    if error is not None:
        error = _yielding(error, limits, shorten)
    must = (*front, *users, *(() if error is None else (error,)))
    for limit in limits:
        if limit.left < 0:
            raise _infeasible(limit, must)
    # Ignore the latest user message, which changes every turn, so that a group stays too large.
    alone = [replace(limit) for limit in limits]
    if budget.max_tokens is not None:
        tokens = budget.max_tokens - fixed - _tokens(users[:1])
        alone.append(_Limit("max_tokens", tokens, tokens, lambda group: group.tokens))
    alone += _section_limits(budget, _tokens(users[:1]))
    window = _Walk(limits, alone, shorten, ends, {group.key for group in must[len(front) :]})
    summaries = window.newest_summaries(summaries, budget)
    if not limits:
        return Window(map(window.alone, newest), tuple(summaries), error, window.alone)
    found = window.walk(newest, [each for each in summaries if not each.left_out])
    if window.ended and budget.thresholds is not None:
        if budget.max_messages is None or budget.max_messages >= _LEAST_MESSAGES:
            found = window.started_later(found)
    return Window(iter(found), tuple(window.summaries), error, window.alone, window.ended)


class _Walk:
    """A walk back through a history, as far as the limits allow."""

    def __init__(
        self,
        limits: Sequence[_Limit],
        alone: Sequence[_Limit],
        shorten: Shorten,
        ends: Ends,
        paid: set[tuple[int, int]],
    ) -> None:
        self.ended: list[str] = []
        self.summaries: list[Group] = []
        self._limits = limits
        self._shorten, self._ends = shorten, ends
        self._paid = paid
        # The limits of a group with which only mandatory messages are sent.
        self._alone = alone
        self._summaries: dict[tuple[int, int], Group] = {}
        # Without limits on messages and characters, any group up to this size passes the others.
        self._small = -1 if limits else min((limit.left for limit in alone), default=inf)

    def newest_summaries(self, summaries: Sequence[Group], budget: Budget) -> Sequence[Group]:
        """Return the summaries in the form that fits into the budget of their section."""
        most = dict(budget.sections).get("summaries")
        if most is None:
            return summaries
        limit = _Limit("section_budgets.summaries", most, most, lambda group: group.tokens)
        for group in reversed(summaries):
            form = self._form(self.alone(group), [limit], "with what is newer over")
            self._summaries[group.key] = form
            if not form.left_out:
                limit.pay(form)
        return [self._summaries[group.key] for group in summaries]

    def alone(self, group: Group) -> Group:
        """Return a group in the form that fits if only mandatory messages are sent with it."""
        if group.tokens <= self._small and not self._summaries:
            return group  # The fast path, for nearly every group.
        if group.key in self._summaries:
            return self._summaries[group.key]
        return group if group.key in self._paid else self._form(group, self._alone, "alone over")

    def walk(self, newest: Iterator[Group], summaries: Sequence[Group]) -> list[Group]:
        """Return the groups up to the one that ends the history, newest first."""
        found: list[Group] = []
        left_out, sent = 0, False
        for group in newest:
            form = self.alone(group)
            if not form.left_out and group.key not in self._paid:
                over = next((limit for limit in self._limits if not limit.fits(form)), None)
                if over is not None and over.half_used:
                    self.ended.append(over.name)
                    break
                form = self._form(form, self._limits, "with what is newer over")
                if not form.left_out:
                    self._pay(form)
                    if not sent:
                        self._pay_summaries(each for each in summaries if each.key != form.key)
                    sent = True
            if form.left_out:
                left_out += 1
                if left_out > _MOST_LEFT_OUT:
                    self.ended.append(form.why.rpartition(" ")[2])
                    break
            found.append(form)
        return found

    def started_later(self, found: list[Group]) -> list[Group]:
        """Drop some of the oldest groups, so that later requests begin at the same group.

        Of the groups at which the history may begin, choose the one whose ordinal is divisible by
        the highest power of two: it remains the choice until a group with a higher power comes.
        """
        begin, rank = len(found), 0
        room = {limit.name: _to_give_up(limit) for limit in self._limits}
        first = next((place for place, group in enumerate(found) if self._counts(group)), 0)
        for place in range(len(found) - 1, first, -1):
            group = found[place]
            number = group.rows[0].ordinal
            if self._counts(group):
                if number is not None and number & -number > rank:
                    begin, rank = place + 1, number & -number
                for limit in self._limits:
                    room[limit.name] -= limit.measure(group)
            if min(room.values()) < 0:
                break
        return found[:begin]

    def _counts(self, group: Group) -> bool:
        return group.key not in self._paid and not group.left_out

    def _form(self, group: Group, limits: Sequence[_Limit], how: str) -> Group:
        for over in limits:  # A loop is fastest, and this runs for every group.
            if not over.fits(group):
                break
        else:
            return group
        whole, least = group.whole or group, group
        first = self._shorten(whole)
        for shorter in chain(() if first is None else (first,), self._ends(whole)):
            if all(limit.fits(shorter) for limit in limits):
                why = f"shortened: whole it is {how} {over.name}"
                return replace(shorter, whole=whole, why=why)
            if shorter.tokens <= least.tokens:  # A last form may be larger than the shorter one.
                least, over = shorter, next(limit for limit in limits if not limit.fits(shorter))
        return Group(least.rows, 0, whole=whole, why=f"{how} {over.name}")

    def _pay(self, group: Group) -> None:
        for limit in self._limits:
            limit.pay(group)

    def _pay_summaries(self, summaries: Iterable[Group]) -> None:
        for group in reversed([*summaries]):
            if all(limit.fits(group) for limit in self._limits):
                self._pay(group)
                self._paid.add(group.key)
                self.summaries.insert(0, group)


def chars_of(message: dict[str, Any]) -> int:
    """Return the characters of a message, as ``max_chars`` counts them: its content and calls.

    Content other than a text, and calls, count as JSON.
    """
    calls = message.get("tool_calls") or ()
    return content_chars(message) + sum(len(dumps_json(call)) + _ID for call in calls)


def content_chars(message: dict[str, Any]) -> int:
    """Return the characters of a message's content."""
    content = message.get("content") or ""
    return len(content if isinstance(content, str) else dumps_json(content))


def _limits(budget: Budget) -> list[_Limit]:
    limits = (
        ("max_messages", budget.max_messages, lambda group: len(group.rows)),
        ("max_chars", budget.max_chars, _chars),
    )
    return [_Limit(name, most, most, measure) for name, most, measure in limits if most is not None]


def _section_limits(budget: Budget, task: int) -> list[_Limit]:
    """Return the limits that a group's section sets for it, with the task already deducted."""
    listed = (
        (name, max(most - task, 0) if name == "user" else most) for name, most in budget.sections
    )
    return [
        _Limit(f"section_budgets.{name}", most, most, partial(_tokens_in, name))
        for name, most in listed
    ]


def _tokens_in(name: str, group: Group) -> int:
    return group.tokens if group.section == name else 0


def _yielding(error: Group, limits: Sequence[_Limit], shorten: Shorten) -> Group:
    """Deduct a mandatory error from the limits, and return it: shortened if it takes too much."""
    over = next((limit for limit in limits if 2 * limit.measure(error) > limit.left), None)
    shorter = None if over is None else shorten(error)
    if over is not None and shorter is not None:
        why = f"shortened: whole it is over half of {over.name}"
        error = replace(shorter, label=error.label, yields=True, whole=error, why=why)
    for limit in limits:
        limit.pay(error)
    return error


def _to_give_up(limit: _Limit) -> int:
    """Return how much of a limit may be given up: a quarter, but none of the half to be used."""
    used, half = limit.most - limit.left, (limit.most + 1) // 2
    quarter = limit.most // 4
    return min(quarter, used - half) if used >= half else quarter


def _tokens(groups: Sequence[Group]) -> int:
    return sum(group.tokens for group in groups)


def _chars(group: Group) -> int:
    return sum(chars_of(row.message) for row in group.rows)


def _infeasible(limit: _Limit, must: Sequence[Group]) -> BudgetInfeasible:
    sizes = {
        f"{group.label or group.kind} (version {group.rows[0].version})": limit.measure(group)
        for group in must
    }
    error = BudgetInfeasible(limit.most, sizes)
    # The class's own message is about tokens, which these limits do not count.
    unit = limit.name.removeprefix("max_")
    need = f"the {sum(sizes.values())} {unit} that must be sent ({', '.join(sizes)})"
    error.args = (f"{limit.name}={limit.most} cannot hold {need}: raise it",)
    return error
