"""The branches of a conversation: where there are alternatives, and which one is active.

An edit, a regeneration or a rewind leaves an alternative behind, and the next turn begins another.
The table has a row for each of them, so that a conversation that never branches has none. The
timeline's fold keeps it, since it is shown with the timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eventstore.events import BranchSwitch
from projections.engine import folding
from projections.engine.folding import Draft, Row
from projections.engine.projection import ReadTable

__all__ = [
    "BRANCHES",
    "Alternative",
    "BranchPoint",
    "BranchRow",
    "Range",
    "inactive_ranges",
    "points_of",
]

Range = tuple[int, int]
"""Versions from the first to the second, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRow(Row):
    """An alternative.

    Attributes:
        version: Its first version, by which it is named.
        after: The version that it follows, as those beside it do; 0 at the beginning.
        kind: ``message`` or ``answer``: what it is an alternative of.
        turn: The number of its first turn.
        active: Whether it was chosen among those beside it.
        left_version: When it was left last, if it was.
        versions: The first and last versions of what comes back with it; empty until it was left.
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
    """One of several ways in which a conversation goes on.

    Attributes:
        version: Its first version, by which `Conversation.switch_branch` names it.
        turn: The number of its first turn: items of the timeline have it, too.
        active: Whether it is the one that is shown.
    """

    version: int
    turn: int | None
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A place of the active branch at which there are alternatives.

    Attributes:
        after: The version that all of them follow; of answers, that of the message.
        kind: ``message``, where it was said in other words; ``answer``, where it was answered
            again.
        alternatives: In the order in which they came. None is active after a rewind.
    """

    after: int
    kind: Literal["message", "answer"]
    alternatives: tuple[Alternative, ...]


def begin(draft: Draft) -> None:
    """Let a turn be the alternative to what was left before it."""
    fork = draft.state["fork"]
    if fork is not None:
        event = draft.event
        values = {**fork, "turn": event.meta.turn, "active": True, "versions": []}
        draft.put(BRANCHES.name, (event.version,), values)
        draft.set(fork=None)


def change(draft: Draft, switched: BranchSwitch) -> None:
    """Note which alternative is left, and which one is gone back to."""
    fork = {"after": switched.after, "kind": switched.kind}
    if switched.left is not None:
        values: dict[str, Any] = {"active": False, "left_version": draft.event.version}
        gone = folding.before(switched.withdrawn, draft.event)
        values |= {"turn": switched.turn, "versions": [list(each) for each in gone], **fork}
        draft.put(BRANCHES.name, (switched.left,), values)
    if switched.taken is not None:
        draft.put(BRANCHES.name, (switched.taken,), {"active": True})
    draft.set(fork=fork if switched.taken is None else None)


def inactive_ranges(rows: Iterable[BranchRow]) -> list[Range]:
    """Return the versions that are on no active branch, in ranges that are apart and in order."""
    left = (row.versions or () for row in rows if not row.active)
    return folding.joined((first, last) for ranges in left for first, last in ranges)


def points_of(rows: Sequence[BranchRow]) -> list[BranchPoint]:
    """Return where on the active branch there are alternatives, in their order."""
    inactive = inactive_ranges(rows)
    points: dict[int, list[BranchRow]] = {}
    for row in sorted(rows, key=lambda row: row.version):
        if row.after is not None and not folding.within(inactive, row.after):
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
        # One that was left and gone back to has no other beside it.
        if len(beside) > 1 or not beside[0].active
    ]
