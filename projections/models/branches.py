"""The branches of a conversation: where there are alternatives, and which one is active.

An edit, a regeneration or a rewind leaves an alternative behind, and the next turn begins another.
The table has one row per alternative, so a conversation that never branches has no rows. The
timeline's fold maintains the table, because it is shown together with the timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eventstore.events import BranchSwitch
from projections import version_ranges
from projections.engine import folding
from projections.engine.folding import Row, RowDraft
from projections.engine.projection import ReadTable
from projections.version_ranges import Range

__all__ = [
    "BRANCHES",
    "Alternative",
    "BranchPoint",
    "BranchRow",
    "inactive_ranges",
    "points_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRow(Row):
    """An alternative.

    Attributes:
        version: Its first version, which identifies it.
        after: The version that it and its siblings follow; 0 at the beginning.
        kind: What it is an alternative to: ``message`` or ``answer``.
        turn: The number of its first turn.
        active: Whether it is the one chosen among its siblings.
        left_version: The version at which it was last left, if ever.
        versions: First and last versions of the ranges that are restored with it; empty until it is
            left.
    """

    version: int
    after: int | None = None
    kind: str | None = None
    turn: int | None = None
    active: bool | None = None
    left_version: int | None = None
    versions: Any = None


BRANCHES = ReadTable("timeline_branches", ("version",), folding.columns_of(BranchRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of several continuations of a conversation.

    Attributes:
        version: Its first version, the argument of `Conversation.switch_branch`.
        turn: The number of its first turn, which timeline items have too.
        active: Whether it is the one shown.
    """

    version: int
    turn: int | None
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A place on the active branch that has alternatives.

    Attributes:
        after: The version that all of them follow; for answers, that of the message.
        kind: ``message`` if the message was edited; ``answer`` if the answer was regenerated.
        alternatives: In order of creation. After a rewind, none of them is active.
    """

    after: int
    kind: Literal["message", "answer"]
    alternatives: tuple[Alternative, ...]


def begin(draft: RowDraft) -> None:
    """Make a turn the alternative to the branch that was left before it."""
    fork = draft.state["fork"]
    if fork is not None:
        event = draft.event
        values = {**fork, "turn": event.meta.turn, "active": True, "versions": []}
        draft.put(BRANCHES.name, (event.version,), values)
        draft.set(fork=None)


def change(draft: RowDraft, switched: BranchSwitch) -> None:
    """Record which alternative is left, and which one becomes active again."""
    fork = {"after": switched.after, "kind": switched.kind}
    if switched.left is not None:
        values: dict[str, Any] = {"active": False, "left_version": draft.event.version}
        gone = version_ranges.before(switched.withdrawn, draft.event)
        values |= {"turn": switched.turn, "versions": [list(each) for each in gone], **fork}
        draft.put(BRANCHES.name, (switched.left,), values)
    if switched.taken is not None:
        draft.put(BRANCHES.name, (switched.taken,), {"active": True})
    draft.set(fork=fork if switched.taken is None else None)


def inactive_ranges(rows: Iterable[BranchRow]) -> list[Range]:
    """Return the versions on inactive branches, as disjoint ranges in order."""
    left = (row.versions or () for row in rows if not row.active)
    return version_ranges.joined((first, last) for ranges in left for first, last in ranges)


def points_of(rows: Sequence[BranchRow]) -> list[BranchPoint]:
    """Return the places on the active branch that have alternatives, in order."""
    inactive = inactive_ranges(rows)
    points: dict[int, list[BranchRow]] = {}
    for row in sorted(rows, key=lambda row: row.version):
        if row.after is not None and not version_ranges.within(inactive, row.after):
            points.setdefault(row.after, []).append(row)
    return [
        BranchPoint(
            after=after,
            kind="answer" if beside[0].kind == "answer" else "message",
            alternatives=tuple(
                Alternative(version=row.version, turn=row.turn, active=bool(row.active))
                for row in beside
            ),
        )
        for after, beside in sorted(points.items())
        # An alternative that was left and returned to may have no sibling.
        if len(beside) > 1 or not beside[0].active
    ]
