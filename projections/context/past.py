"""The history of a conversation as the planner reads it: newest group first, no further than asked.

Limits on messages and characters end it: what lies beyond them is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from eventstore.errors import BudgetInfeasible
from projections.context.budget import Budget, Group

__all__ = ["Past", "within"]


_AT_THE_STEP = "latest user message at the last step"


class Past:
    """Groups, newest first.

    Attributes:
        groups: Those that were read so far.
        mandatory: The first and the latest user message, in this order.
        standing: What is looked at in every plan, however old: the first user message, and the
            summaries.
    """

    def __init__(
        self, newest: Iterator[Group], mandatory: Sequence[Group], summaries: Sequence[Group] = ()
    ) -> None:
        self.groups: list[Group] = []
        self.mandatory = tuple(mandatory)
        self.standing = (*mandatory[:1], *summaries)
        self._newest = newest
        self._marked = {group.key: group for group in mandatory}
        self._standing = {group.key for group in self.standing}

    def at(self, index: int) -> Group | None:
        """Return a group by its place from the end, the newest being 0; None if there is none."""
        while len(self.groups) <= index:
            group = next(self._newest, None)
            if group is None:
                return None
            self.groups.append(self._marked.get(group.key, group))
        return self.groups[index]

    def labelled(self, group: Group) -> Group:
        """Return a mandatory group with the label that it has now: the latest may be another."""
        return self._marked.get(group.key) or replace(group, label=_AT_THE_STEP)

    def read_all(self) -> None:
        """Read all groups that there are."""
        while self.at(len(self.groups)) is not None:
            pass

    def size(self, group: Group) -> int:
        """Return the tokens of a group; none for what stands in every plan and always counts."""
        return 0 if group.key in self._standing else group.tokens

    def with_standing(
        self, newest: Sequence[Group], start: int, *, asked: bool = False
    ) -> list[Group]:
        """Return groups oldest first, with what a request at a place would look at in any case.

        Args:
            newest: Groups from the place on, newest first.
            start: The place from the end; a request there knew no newer group.
            asked: But for one, which was a user message, and is sent in any case.
        """
        found = {group.key: group for group in newest}
        if start and not asked:
            latest = next((group for group in newest if group.kind == "user"), None)
            if latest is not None and not latest.label:
                found[latest.key] = replace(latest, label=_AT_THE_STEP)
        # The latest message of now is looked at only where that of then would have been: what a
        # step came to must not depend on what was said since.
        until = self.groups[start].key if start else None
        present = found.keys() | self._standing
        for group in (*self.standing, *self.mandatory):
            if until is None or (group.key <= until and group.key in present):
                found[group.key] = group
        return [found[key] for key in sorted(found)]


def within(
    newest: Iterator[Group], front: Sequence[Group], mandatory: Sequence[Group], budget: Budget
) -> tuple[Iterator[Group], list[str]]:
    """Return the newest groups that stay within the limits on messages and characters.

    Of the mandatory groups, all are paid first. While the history is trimmed in steps, it begins
    at every n-th message only, so that its beginning stays where it is for n messages. The list is
    filled with the name of the limit that ended it, once it has.

    Raises:
        BudgetInfeasible: The mandatory groups alone are over a limit.
    """
    ended: list[str] = []
    limits = [
        (name, limit, measure)
        for name, limit, measure in (
            ("max_messages", budget.max_messages, _messages),
            ("max_chars", budget.max_chars, _chars),
        )
        if limit is not None
    ]
    if not limits:
        return newest, ended
    left = {}
    for name, limit, measure in limits:
        sizes = {_name(group): measure(group) for group in chain(front, mandatory)}
        left[name] = limit - sum(sizes.values())
        if left[name] < 0:
            raise _infeasible(name, limit, sizes)
    paid = {group.key for group in mandatory}

    def groups() -> Iterator[Group]:
        waiting: list[Group] = []
        every = 1 if budget.thresholds is None else _every(budget.max_messages)
        for group in newest:
            if group.key not in paid:
                for name, _, measure in limits:
                    left[name] -= measure(group)
                over = next((name for name, *_ in limits if left[name] < 0), None)
                if over:
                    ended.append(over)
                    return
            waiting.append(group)
            ordinal = group.rows[0].ordinal
            if ordinal is None or ordinal % every == 0:
                yield from waiting
                waiting = []
        yield from waiting

    return groups(), ended


def _every(max_messages: int | None) -> int:
    """Return a power of two that is at most a quarter of the messages."""
    every = 1
    while every * 8 <= (max_messages or 64):
        every *= 2
    return every


def _messages(group: Group) -> int:
    return len(group.rows)


def _chars(group: Group) -> int:
    return sum(_length(row.message) for row in group.rows)


def _length(message: dict[str, object]) -> int:
    content = message.get("content")
    said = len(content) if isinstance(content, str) else len(str(content or ""))
    return said + (len(str(message["tool_calls"])) if "tool_calls" in message else 0)


def _name(group: Group) -> str:
    return f"{group.label or group.kind} (version {group.rows[0].version})"


def _infeasible(name: str, limit: int, sizes: dict[str, int]) -> BudgetInfeasible:
    error = BudgetInfeasible(limit, sizes)
    # The class speaks of tokens; these limits are others.
    unit = name.removeprefix("max_")
    need = f"the {sum(sizes.values())} {unit} that must be sent ({', '.join(sizes)})"
    error.args = (f"{name}={limit} cannot hold {need}: raise it",)
    return error
