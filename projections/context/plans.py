"""Budget, groups and plans: the limits of a request, the parts of its history, and their levels.

A group consists of messages that stay together: an assistant message with the results of its calls,
or any other single message. A plan sets the level of detail of each group in a request.
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
from projections.context.older_digest import Older
from projections.context.rows import ContextRow, Key

__all__ = [
    "AT_THE_STEP",
    "COMPACTED",
    "ERROR",
    "Budget",
    "Group",
    "Plan",
    "PlanStep",
    "Planned",
]

ERROR = "error before the latest user message"
"""The label of a mandatory error, for errors and the ledger."""

COMPACTED = "compacted by the provider"
"""The label of an answer in which its provider compacted the earlier history."""

AT_THE_STEP = "latest user message at the last step"
"""The label of a message that was the latest user message at the last step."""

_tokens, _key = attrgetter("tokens"), attrgetter("group.key")


@dataclass(frozen=True, slots=True)
class Planned:
    """A group in a plan.

    Attributes:
        group: The whole group.
        level: The level of detail at which it is sent.
        tokens: The tokens that it takes in the request; at the level ``facts``, those of its line.
        item: The group as strategies see it; None if no strategy was asked about it.
        facts: At the level ``facts``, its facts in the digest.
        why: Why it lost detail; empty if it did not.
    """

    group: Group
    level: Level
    tokens: int
    item: Item | None = None
    facts: tuple[str, ...] = ()
    why: str = ""

    @classmethod
    def whole(cls, group: Group) -> Planned:
        """Return a group at the level ``full``, or ``dropped`` if no form of it can be sent."""
        if group.left_out:
            return cls.dropped(group, group.why)
        if group.sent is None:
            group.note("sent", cls(group, "full", group.tokens))
        sent: Planned | None = group.sent
        assert sent is not None  # noqa: S101 - noted
        return sent

    @classmethod
    def dropped(cls, group: Group, why: str) -> Planned:
        """Return a group at the level ``dropped``."""
        return cls(group, "dropped", 0, why=why)


@dataclass(frozen=True)
class Plan:
    """The levels of a history's groups in a request.

    Attributes:
        groups: All groups that were read, oldest first, including dropped ones.
        all_read: Whether these are all groups of the history.
        step: The key of the newest group that the last step covers; None without a step.
        recalled: The keys of retrieved groups that are older than the groups that were read.
        older: The digest's lines about the history before these groups.
        stages: The keys of the newest groups covered by earlier steps whose results are still
            unchanged: each such step has a digest of its own.
        digests: The cached rows of the plan's digests, by tokenizer and header.
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

    def going_on(self, groups: tuple[Planned, ...], step: Key) -> Plan:
        """Return the plan with the groups of a step and those since, which are whole.

        The digests are the same, so their cached rows are kept.
        """
        plan = replace(self, groups=groups, step=step)
        vars(plan).update(digested=self.digested, digests=self.digests)
        return plan

    @cached_property
    def trimmed(self) -> bool:
        """Whether any group lost detail or was not read."""
        return not self.all_read or any(
            each.level != "full" or each.group.whole is not None for each in self.groups
        )

    @cached_property
    def digested(self) -> list[list[Planned]]:
        """The groups with a line in each digest, oldest first; ``older`` is in the first digest."""
        digested: dict[int, list[Planned]] = {} if self.older is None else {0: []}
        for each in self.groups:
            if each.level == "facts":
                digested.setdefault(bisect_left(self.stages, each.group.key), []).append(each)
        return [digested[stage] for stage in sorted(digested)]

    @cached_property
    def tokens(self) -> int:
        """The tokens of all groups."""
        tokens: int = sum(map(_tokens, self.groups))
        return tokens

    @cached_property
    def tokens_by_section(self) -> Counter[str]:
        """The tokens of the groups by section; those at the level ``facts`` count as ``digest``."""
        tokens: Counter[str] = Counter()
        for each in self.groups:
            tokens["digest" if each.level == "facts" else each.group.section] += each.tokens
        return tokens

    @cached_property
    def marked(self) -> tuple[Key, ...]:
        """The keys of the mandatory groups."""
        return tuple(each.group.key for each in self.groups if each.group.label)

    def at(self, keys: Iterable[Key]) -> Iterator[Planned]:
        """Yield the groups with these keys, as far as the plan has them."""
        for key in keys:
            place = bisect_left(self.groups, key, key=_key)
            if place < len(self.groups) and self.groups[place].group.key == key:
                yield self.groups[place]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The result of a step.

    Attributes:
        place: The key of the group at which the step happened.
        ordinal: The ordinal of that group; None if it has none.
        before: The plan of the groups that the step covers.
        covered: The key of the newest of these groups.
    """

    place: tuple[int, int]
    ordinal: int | None
    before: Plan
    covered: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one request; None means no limit.

    Attributes:
        max_tokens: Upper limit for the prompt's tokens.
        max_messages: Upper limit for the number of messages.
        max_chars: Upper limit for the characters of all messages.
        thresholds: When the history is trimmed, and how far; None to trim every request to just
            fit.
        sections: Upper limits for the tokens of sections; see `section_budgets`.
        block: Tokens of a block of recalled messages, which ``max_tokens`` does not include. The
            digest's lines about older messages get their share of both.
    """

    max_tokens: int | None = None
    max_messages: int | None = None
    max_chars: int | None = None
    thresholds: Thresholds | None = None
    block: int = 0
    sections: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together.

    Attributes:
        rows: The rows in order; an assistant row comes before the rows of its results.
        tokens: The tokens of all messages within a request.
        label: For a mandatory group, its name in errors and the ledger; otherwise empty.
        native: The tokens of provider-specific content by row, included in ``tokens``; or empty.
        yields: Whether it may be sent in its shorter form although it is mandatory.
        whole: The original group, if a limit keeps it from being sent whole: then ``rows`` are the
            shorter ones, and ``tokens`` is 0 if these are not sent either.
        why: Why it is not sent whole.
        came: The tokens of the original messages, if results are sent as tables; otherwise 0.
        key: The key of the first row.
        section: The section that it belongs to; see `projections.context.section_budgets`.
        item: The group as strategies see it, once built.
        sent: The group as planned whole, once built.
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
        """Cache ``item`` or ``sent``, which are not part of the group's value."""
        object.__setattr__(self, name, made)

    @property
    def kind(self) -> str:
        """The kind of the first row."""
        return self.rows[0].kind

    @property
    def left_out(self) -> bool:
        """Whether no form of the group can be sent."""
        return self.whole is not None and not self.tokens

    @property
    def source_versions(self) -> tuple[int, ...]:
        """The versions of the events that it was made from, ascending."""
        return tuple(sorted(set().union(*[row.source_versions for row in self.rows])))
