"""Data for changing branches: which versions are active, and which belong to no branch.

Sessions, renames, mode switches and operations on the log itself belong to no branch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore import EventStore
from eventstore.database import get_stream
from projections import queries, version_ranges
from projections.engine.generations import Generation
from projections.models.branches import BranchRow, inactive_ranges
from projections.models.timeline import TIMELINE
from projections.models.timeline_items import TABLE
from projections.reading import read_current
from projections.replica import Copy
from projections.version_ranges import Range

__all__ = ["Branches", "read_branches"]

_OF_NO_BRANCH = ("conversation", "session", "mode", "branch", "retraction", "erasure")


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches of a conversation.

    Attributes:
        rows: All alternatives, including nested ones.
        end: The conversation's version.
        last_said: The version of the last user message on the active branch, if any.
        outside: The versions that are on an inactive branch or on none: ranges, in order.
    """

    rows: Sequence[BranchRow]
    end: int
    last_user_version: int | None
    outside: Sequence[Range]

    def is_inactive(self, version: int) -> bool:
        """Whether a version is on an inactive branch."""
        return version_ranges.within(inactive_ranges(self.rows), version)

    def active(self, first: int) -> list[Range]:
        """Return the versions of the active branch from ``first`` on, as ranges."""
        found: list[Range] = []
        for low, high in self.outside:
            if low > first:
                found.append((first, low - 1))
            first = max(first, high + 1)
        if first <= self.end:
            found.append((first, self.end))
        return found

    def before(self, version: int) -> int:
        """Return the last version on the active branch before this one; 0 if there is none."""
        version -= 1
        at = bisect_right(self.outside, (version, self.end)) - 1
        while at >= 0 and version <= self.outside[at][1]:
            version, at = self.outside[at][0] - 1, at - 1
        return max(version, 0)


def read_branches(store: EventStore, conversation_id: UUID) -> Branches:
    """Return the current branches of a conversation."""

    def read(copies: Sequence[Copy]) -> Branches:
        with queries.readable(TIMELINE.name):
            connection, generation = copies[0]
            return _read(connection, generation, conversation_id)

    return read_current(store, (TIMELINE,), conversation_id, read)


def _read(connection: Connection, generation: Generation, cid: UUID) -> Branches:
    rows = queries.branch_rows(connection, generation, cid)
    items = generation.tables[TABLE]
    mine = items.c.conversation_id == cid
    unaffected = connection.execute(
        select(items.c.version).where(mine, items.c.kind.in_(_OF_NO_BRANCH))
    )
    user_messages = select(items.c.version).where(
        mine,
        items.c.kind == "user",
        items.c.status != "withdrawn",
        items.c.inactive.is_not(True),
    )
    alone = [(row.version, row.version) for row in unaffected]
    return Branches(
        rows=rows,
        end=get_stream(connection, cid).version,
        last_user_version=connection.scalar(
            user_messages.order_by(items.c.version.desc()).limit(1)
        ),
        outside=version_ranges.joined([*inactive_ranges(rows), *alone]),
    )
