"""Budgets, groups and plans of requests.

A group is a set of messages that must stay together: an assistant message with the results of its
calls, or any other message by itself. A plan assigns each group the level of detail to send.
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
"""The label of a mandatory error, in errors and the ledger."""

COMPACTED = "compacted by the provider"
"""The label of an answer with its provider's compaction, in errors and the ledger."""

AT_THE_STEP = "latest user message at the last step"
"""The label of the latest user message at the time of a step."""

_tokens, _key = attrgetter("tokens"), attrgetter("group.key")
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """A group and its level in a plan.

    Attributes:
        group: The whole group.
        level: The level of detail to send.
        item: The group as an item for a strategy; None if no strategy was used.
        facts: At the level ``facts``, the facts in the digest.
        why: Why it lost detail; empty if it did not.
        tokens: The tokens sent; for facts, those of its line in the digest.
    """

    group: Group
    level: Level
    tokens: int
    item: Item | None = None
    facts: tuple[str, ...] = ()
    why: str = ""

    @classmethod
    def whole(cls, group: Group) -> Planned:
        """Return a group to be sent unchanged, or dropped if it cannot be sent."""
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
    """The part of the history that a request includes.

    Attributes:
        groups: All groups that were considered, including dropped ones, oldest first.
        all_read: Whether these are all groups of the history.
        step: The place of the newest group before the last step; None if no step occurred.
        recalled: The places of groups that were retrieved from beyond those that were read.
        older: The digest's lines about the history before these groups.
        stages: The places of the newest groups in the steps before the last whose plans are kept:
            each step has its own digest.
        digests: The rows of its digests, by everything else they depend on, once computed.
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
        """Return the plan extended by the whole groups since a step; its digests are unchanged.

        Cached values for the digests are kept.
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
        """The groups at ``facts`` in each digest, oldest first; the first has the older lines."""
        told: dict[int, list[Planned]] = {} if self.older is None else {0: []}
        for each in self.groups:
            if each.level == "facts":
                told.setdefault(bisect_left(self.stages, each.group.key), []).append(each)
        return [told[stage] for stage in sorted(told)]

    @cached_property
    def tokens(self) -> int:
        """The tokens of all groups."""
        tokens: int = sum(map(_tokens, self.groups))
        return tokens

    @cached_property
    def tokens_by_section(self) -> Counter[str]:
        """The tokens of the groups by section; groups at ``facts`` are in the digest."""
        tokens: Counter[str] = Counter()
        for each in self.groups:
            tokens["digest" if each.level == "facts" else each.group.section] += each.tokens
        return tokens

    @cached_property
    def marked(self) -> tuple[_Key, ...]:
        """The places of the mandatory groups."""
        return tuple(each.group.key for each in self.groups if each.group.label)

    def at(self, keys: Iterable[_Key]) -> Iterator[Planned]:
        """Yield the groups at these places."""
        for key in keys:
            place = bisect_left(self.groups, key, key=_key)
            if place < len(self.groups) and self.groups[place].group.key == key:
                yield self.groups[place]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step.

    Attributes:
        place: The place of the group at which it occurred.
        ordinal: The number of that group; None if it has none.
        before: The plan of the groups that it covers.
        covered: The place of the newest of these.
    """

    place: tuple[int, int]
    ordinal: int | None
    before: Plan
    covered: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request; None for no limit.

    Attributes:
        max_tokens: The most tokens of the prompt.
        max_messages: The most messages.
        max_chars: The most characters of all messages.
        thresholds: When the history is trimmed, and how far; None to trim it at every request until
            it just fits.
        sections: The most tokens of each section; see `section_budgets`.
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
        tokens: The tokens of all its messages within a request.
        label: The reason why the group is mandatory, for errors and the ledger; else empty.
        native: For each row, the part of ``tokens`` that only its provider can read; or empty.
        yields: Whether its shorter form may replace it although it is mandatory.
        whole: The original group, if a limit prevents sending it: then ``rows`` are the shortened
            ones, and ``tokens`` is 0 if these are not sent either.
        why: The reason for that.
        came: The tokens of the original messages if results are sent as tables; otherwise 0.
        key: The place of its first row.
        section: The section that it belongs to; see `projections.context.section_budgets`.
        item: The group as an item for a strategy, once computed.
        sent: The group as sent whole, once computed.
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
        """Set the attributes that are read often."""
        object.__setattr__(self, "item", None)
        object.__setattr__(self, "sent", None)
        object.__setattr__(self, "key", self.rows[0].key)
        object.__setattr__(self, "section", section_of(self.rows[0].kind, len(self.rows)))

    def note(self, name: str, made: Item | Planned) -> None:
        """Store ``item`` or ``sent``, once computed; they are not part of the group's value."""
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
