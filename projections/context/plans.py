"""Budget, groups and plans: what a request may hold, of what history, at what level of detail.

A group is what must stay together: an assistant message with the results of its calls, or any
other message alone. `Past` is the history of a conversation as the planner reads it: newest first,
no further than asked. A plan says of each group at what level of detail a request holds it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from projections.context.compression.items import Item, Level, section_of
from projections.context.compression.monitor import Thresholds
from projections.context.compression.strategy import interval
from projections.context.older import Older
from projections.context.rows import ContextRow

__all__ = [
    "COMPACTED",
    "ERROR",
    "Budget",
    "Group",
    "Past",
    "Plan",
    "Planned",
    "Step",
    "holds",
    "whole",
]

ERROR = "error before the latest user message"
"""What an error that must be sent is, for errors and the ledger."""

COMPACTED = "compacted by the provider"
"""What an answer is that holds all before it for its maker, for errors and the ledger."""

_AT_THE_STEP = "latest user message at the last step"
_tokens, _key = attrgetter("tokens"), attrgetter("group.key")
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """A group, and what became of it.

    Attributes:
        group: The group, whole.
        level: The level of detail that is sent.
        item: The group as a strategy sees it; None where none was asked.
        facts: At the level ``facts``, the facts that the digest tells.
        why: Why it lost detail; empty if it did not.
        tokens: Of what is sent; of facts, those of its line.
    """

    group: Group
    level: Level
    tokens: int
    item: Item | None = None
    facts: tuple[str, ...] = ()
    why: str = ""

    @classmethod
    def whole(cls, group: Group) -> Planned:
        """Return a group that is sent as it is, if it can be sent at all."""
        if group.left_out:
            return cls.dropped(group, group.why)
        return cls(group, "full", group.tokens)

    @classmethod
    def dropped(cls, group: Group, why: str) -> Planned:
        """Return a group that is not sent."""
        return cls(group, "dropped", 0, why=why)


@dataclass(frozen=True)
class Plan:
    """What a request holds of the history.

    Attributes:
        groups: Oldest first: all that were looked at, those that are dropped among them.
        all_read: Whether these are all that there are.
        step: The place of the newest group before the last step; None if none fell.
        recalled: The places of groups that were retrieved from beyond those that were read.
        older: What the digest tells of the history before these groups.
        stages: The places of the newest groups that the steps before the last have covered, whose
            plans still stand: each has a digest of its own.
    """

    groups: tuple[Planned, ...]
    all_read: bool
    step: tuple[int, int] | None = None
    recalled: frozenset[tuple[int, int]] = frozenset()
    older: Older | None = None
    stages: tuple[tuple[int, int], ...] = ()

    @property
    def trimmed(self) -> bool:
        """Whether the budget made anything lose detail."""
        return not self.all_read or any(
            each.level != "full" or each.group.whole is not None for each in self.groups
        )

    @cached_property
    def told(self) -> list[list[Planned]]:
        """Whose facts each digest tells, oldest first; the first tells what is older."""
        told: dict[int, list[Planned]] = {} if self.older is None else {0: []}
        for each in self.groups:
            if each.level == "facts":
                told.setdefault(bisect_left(self.stages, each.group.key), []).append(each)
        return [told[stage] for stage in sorted(told)]

    @cached_property
    def tokens(self) -> int:
        """Of all its groups."""
        tokens: int = sum(map(_tokens, self.groups))
        return tokens

    @cached_property
    def tokens_by_section(self) -> Counter[str]:
        """Of its groups; those at the level ``facts`` are of the digest."""
        tokens: Counter[str] = Counter()
        for each in self.groups:
            tokens["digest" if each.level == "facts" else each.group.section] += each.tokens
        return tokens

    @cached_property
    def marked(self) -> tuple[_Key, ...]:
        """The places of what must be sent."""
        return tuple(each.group.key for each in self.groups if each.group.label)

    def at(self, keys: Iterable[_Key]) -> Iterator[Planned]:
        """Yield those of its groups that stand at these places."""
        for key in keys:
            place = bisect_left(self.groups, key, key=_key)
            if place < len(self.groups) and self.groups[place].group.key == key:
                yield self.groups[place]


@dataclass(frozen=True, slots=True)
class Step:
    """What a step came to.

    Attributes:
        place: Of the group with which it fell.
        ordinal: The number of that group; None if it has none.
        before: What became of the groups that it has covered.
        covered: The place of the newest of these.
    """

    place: tuple[int, int]
    ordinal: int | None
    before: Plan
    covered: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request; None is not a limit.

    Attributes:
        max_tokens: Upper limit for the prompt's tokens.
        max_messages: Upper limit for its messages.
        max_chars: Upper limit for the characters of its messages.
        thresholds: When the history is trimmed, and how far; None to trim it at every request to
            what just fits.
        sections: Upper limits for the tokens of sections; see `section_budgets`.
    """

    max_tokens: int | None = None
    max_messages: int | None = None
    max_chars: int | None = None
    thresholds: Thresholds | None = None
    sections: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together.

    Attributes:
        rows: In order; an assistant row comes before the rows of its results.
        tokens: Of all its messages within a request.
        label: What a mandatory group is, for errors and the ledger; empty for others.
        native: Of the tokens, those of what its maker alone can read, by row; or empty.
        yields: Whether its shorter form may stand for it, though it is mandatory.
        whole: The group as it was said, where a limit does not let it be sent so: then ``rows``
            are the shorter ones, and ``tokens`` 0 if these are not sent either.
        why: Why that is.
        came: Tokens of the messages as they came, if results are sent as tables; otherwise 0.
        key: The place of its first row.
        section: The section that it belongs to; see `projections.context.section_budgets`.
        item: The group as a strategy sees it, once it was asked for.
    """

    rows: tuple[ContextRow, ...]
    tokens: int
    label: str = ""
    native: tuple[int, ...] = ()
    yields: bool = False
    whole: Group | None = None
    why: str = ""
    came: int = 0
    key: tuple[int, int] = field(init=False, compare=False, repr=False)
    section: str = field(init=False, compare=False, repr=False)
    item: Item | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Note what is looked at again and again."""
        object.__setattr__(self, "item", None)
        object.__setattr__(self, "key", self.rows[0].key)
        object.__setattr__(self, "section", section_of(self.rows[0].kind, len(self.rows)))

    def note(self, item: Item) -> None:
        """Hold the group as a strategy sees it; it is not part of its value."""
        object.__setattr__(self, "item", item)

    @property
    def kind(self) -> str:
        """The kind of its first row."""
        return self.rows[0].kind

    @property
    def left_out(self) -> bool:
        """Whether no form of it can be sent."""
        return self.whole is not None and not self.tokens

    @property
    def source_versions(self) -> tuple[int, ...]:
        """The events that it was made of, ascending."""
        return tuple(sorted(set().union(*[row.source_versions for row in self.rows])))


class Past:
    """Groups, newest first.

    Attributes:
        groups: Those that were read so far.
        mandatory: The first and the latest user message, in this order, and an error that the
            latest goes on from.
        standing: What is looked at in every plan, however old: the first user message, and the
            summaries.
    """

    def __init__(
        self,
        newest: Iterator[Group],
        users: Sequence[Group],
        summaries: Sequence[Group] = (),
        error: Group | None = None,
    ) -> None:
        self.groups: list[Group] = []
        self.mandatory = (*users, *(() if error is None else (error,)))
        self.standing = (*users[:1], *summaries)
        self._newest = newest
        self._marked = {group.key: group for group in self.mandatory}
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
        if group.label == COMPACTED:
            return group
        label = ERROR if group.kind == "error" else _AT_THE_STEP
        return self._marked.get(group.key) or replace(group, label=label)

    def read_all(self) -> None:
        """Read all groups that there are."""
        while self.at(len(self.groups)) is not None:
            pass

    def size(self, group: Group) -> int:
        """Return the tokens of a group; none for what stands in every plan and always counts."""
        return 0 if group.key in self._standing else group.tokens

    def anchor(
        self, limit: int, room: int, passes: Callable[[Counter[str], Group], bool]
    ) -> tuple[int, bool]:
        """Return the place from the end from which steps are told, and whether one fell there.

        That is the newest group before the last anchor, with which a step falls if what stands up
        to it is over the room. Without an anchor, it is the beginning.

        Args:
            limit: Tokens of the request.
            room: Tokens of the groups up to which no step falls.
            passes: Whether a section is over its room with a group, which is added to the tokens.
        """
        place, size = self._before_anchor(limit), 0
        if place is None:
            return len(self.groups), False
        index, used, fell = place, Counter[str](), False
        while not fell and (group := self.at(index)) is not None:
            size += self.size(group)
            fell = passes(used, group) or size > room
            index += 1
        return (place, True) if fell else (len(self.groups), False)

    def _before_anchor(self, limit: int) -> int | None:
        """Return the place from the end of the newest group before the last anchor, if any."""
        index, anchor = 0, None
        while (group := self.at(index)) is not None:
            ordinal = group.rows[0].ordinal
            if ordinal is not None:
                if anchor is None:
                    anchor = ordinal - ordinal % interval(limit)
                if ordinal < anchor:
                    return index
            index += 1
        return None

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
        if start:
            found |= {group.key: group for group in _mandatory_then(newest, asked=asked)}
        # The latest message of now is looked at only where that of then would have been: what a
        # step came to must not depend on what was said since.
        until = self.groups[start].key if start else None
        present = found.keys() | self._standing
        for group in (*self.standing, *self.mandatory):
            if until is None or (group.key <= until and group.key in present):
                found[group.key] = group
        return [found[key] for key in sorted(found)]


def _mandatory_then(newest: Sequence[Group], *, asked: bool) -> Iterator[Group]:
    """Yield what must have been sent to a request that knew no newer group, with its label.

    The latest user message, unless the request was asked one that is newer than these; and the
    latest error, if it is newer than the latest user message but one.
    """
    users, error = int(asked), False
    for group in newest:
        if group.kind == "error" and not error:
            error = True
            if not (group.label or group.left_out):
                yield replace(group, label=ERROR, yields=True)
        elif group.kind == "user":
            users += 1
            if users == 1 and not (group.label or group.left_out):
                yield replace(group, label=_AT_THE_STEP)
            if users == 2:
                return


def whole(past: Past) -> Plan:
    """Return the plan that keeps everything."""
    past.read_all()
    groups = past.with_standing(past.groups, 0)
    return Plan(tuple(map(Planned.whole, groups)), all_read=True)


def holds(planned: Sequence[Planned], key: tuple[int, int]) -> bool:
    """Whether a group is among these, which are in order."""
    place = bisect_left(planned, key, key=_key)
    return place < len(planned) and planned[place].group.key == key
