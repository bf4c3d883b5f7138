"""What a plan is: of each group of the history, at what level of detail a request holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from projections.compression.items import Item, Level
from projections.context.budget import Group

__all__ = ["Plan", "Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A group, and what became of it.

    Attributes:
        group: The group, whole.
        level: The level of detail that is sent.
        item: The group as a strategy sees it; None where none was asked.
        facts: At the level ``gist``, the facts that the digest tells.
        why: Why it lost detail; empty if it did not.
        tokens: Of what is sent; of a gist, those of its line.
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
        return cls(group, "live", group.tokens)

    @classmethod
    def dropped(cls, group: Group, why: str) -> Planned:
        """Return a group that is not sent."""
        return cls(group, "dropped", 0, why=why)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request holds of the history.

    Attributes:
        groups: Oldest first: all that were looked at, those that are dropped among them.
        all_read: Whether these are all that there are.
        step: The place of the newest group before the last step; None if none fell.
        recalled: The places of groups that were retrieved from beyond those that were read.
        covered: What became of the groups that the last step has covered, and the place of the
            newest of these.
    """

    groups: tuple[Planned, ...]
    all_read: bool
    step: tuple[int, int] | None = None
    recalled: frozenset[tuple[int, int]] = frozenset()
    covered: tuple[Plan, tuple[int, int]] | None = field(default=None, repr=False, compare=False)

    @property
    def trimmed(self) -> bool:
        """Whether the budget made anything lose detail."""
        return not self.all_read or any(
            each.level != "live" or each.group.whole is not None for each in self.groups
        )
