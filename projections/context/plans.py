"""Budget, groups and plans: what a request may hold, of what history, at what level of detail.

A group is what must stay together: an assistant message with the results of its calls, or any
other message alone. A plan says of each group at what level of detail a request holds it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

from projections.context.compression.items import Item, Level, section_of
from projections.context.compression.monitor import Thresholds
from projections.context.older import Older
from projections.context.rows import ContextRow

__all__ = [
    "AT_THE_STEP",
    "COMPACTED",
    "ERROR",
    "Budget",
    "Group",
    "Plan",
    "Planned",
    "Step",
]

ERROR = "error before the latest user message"
"""What an error that must be sent is, for errors and the ledger."""

COMPACTED = "compacted by the provider"
"""What an answer is that holds all before it for its maker, for errors and the ledger."""

AT_THE_STEP = "latest user message at the last step"
"""What a message is that was the latest user message when a step fell."""

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
        if group.sent is None:
            group.note("sent", cls(group, "full", group.tokens))
        sent: Planned | None = group.sent
        assert sent is not None  # noqa: S101 - noted
        return sent

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
        digests: The rows of its digests, by what they depend on besides, once they were made.
    """

    groups: tuple[Planned, ...]
    all_read: bool
    step: tuple[int, int] | None = None
    recalled: frozenset[tuple[int, int]] = frozenset()
    older: Older | None = None
    stages: tuple[tuple[int, int], ...] = ()
    digests: dict[Hashable, tuple[ContextRow, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def going_on(self, groups: tuple[Planned, ...], step: _Key) -> Plan:
        """Return the plan with the groups since a step, which are whole: its digests are the same.

        Whatever was made for them is not made again.
        """
        plan = replace(self, groups=groups, step=step)
        vars(plan).update(told=self.told, digests=self.digests)
        return plan

    @cached_property
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
        sent: The group as it is sent whole, once it was.
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
    sent: Planned | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Note what is looked at again and again."""
        object.__setattr__(self, "item", None)
        object.__setattr__(self, "sent", None)
        object.__setattr__(self, "key", self.rows[0].key)
        object.__setattr__(self, "section", section_of(self.rows[0].kind, len(self.rows)))

    def note(self, name: str, made: Item | Planned) -> None:
        """Hold ``item`` or ``sent``, once it was made; it is not part of its value."""
        object.__setattr__(self, name, made)

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
