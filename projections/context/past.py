"""The history as the planner reads it: whole groups, newest first, no further than asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from projections.context.compression.strategy import interval
from projections.context.plans import AT_THE_STEP, COMPACTED, ERROR, Group, Plan, Planned
from projections.context.rows import ContextRow
from projections.context.table_rows import note_tables

__all__ = ["Past", "groups_of", "since_compaction", "whole"]


def groups_of(rows: Iterable[ContextRow]) -> Iterator[tuple[ContextRow, ...]]:
    """Yield whole groups, newest first, from rows in descending order of (version, part).

    Rows are taken one at a time, and none beyond the first row of the group after the last that
    the caller asks for. Results without their assistant message make no group.
    """
    results: list[ContextRow] = []
    for row in rows:
        if results and results[0].version != row.version:
            results = []
        if row.kind == "tool":
            results.append(row)
        else:
            yield (row, *reversed(results)) if row.kind == "assistant" else (row,)
            results = []


def since_compaction(
    rows: Iterator[ContextRow], compacts: Callable[[ContextRow], bool], page: int, *, tables: bool
) -> Iterator[ContextRow]:
    """Yield rows, newest first, down to the answer in which their maker compacted the rest.

    Where results are sent as tables, those of a page of rows are counted at once.
    """
    for row in rows:
        read: Sequence[ContextRow] = (row,)
        if tables and row.kind == "tool" and row.table is None:
            read = [row, *islice(rows, page - 1)]
            note_tables(read)
        for each in read:
            yield each
            if each.native_tokens and compacts(each):
                return


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
        label = ERROR if group.kind == "error" else AT_THE_STEP
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
                yield replace(group, label=AT_THE_STEP)
            if users == 2:
                return


def whole(past: Past) -> Plan:
    """Return the plan that keeps everything."""
    past.read_all()
    groups = past.with_standing(past.groups, 0)
    return Plan(tuple(map(Planned.whole, groups)), all_read=True)
