"""The history for the planner: whole groups, newest first, read only as far as requested."""

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

    Rows are read one at a time, and none beyond the first row of the group after the last one
    requested. Results without their assistant message make no group.
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
    """Yield rows, newest first, down to the answer with its provider's compaction of the rest.

    If results are sent as tables, those of a page of rows are counted at once.
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
    """The groups of a history, newest first.

    Attributes:
        groups: The groups read so far.
        mandatory: The first and the latest user message, in this order, and an error from which the
            latest message continues.
        standing: The groups considered in every plan, however old: the first user message, and the
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
        """Return a group by its index from the end, 0 being the newest; None if there is none."""
        while len(self.groups) <= index:
            group = next(self._newest, None)
            if group is None:
                return None
            self.groups.append(self._marked.get(group.key, group))
        return self.groups[index]

    def labelled(self, group: Group) -> Group:
        """Return a mandatory group with its current label: the latest message may have changed."""
        if group.label == COMPACTED:
            return group
        label = ERROR if group.kind == "error" else AT_THE_STEP
        return self._marked.get(group.key) or replace(group, label=label)

    def read_all(self) -> None:
        """Read all groups."""
        while self.at(len(self.groups)) is not None:
            pass

    def size(self, group: Group) -> int:
        """Return the tokens of a group; 0 for a standing group, which is always counted."""
        return 0 if group.key in self._standing else group.tokens

    def anchor(
        self, limit: int, room: int, passes: Callable[[Counter[str], Group], bool]
    ) -> tuple[int, bool]:
        """Return the index from the end at which steps begin, and whether a step occurred there.

        This is the newest group before the last anchor. A step occurs at it if the groups up to it
        exceed the room. Without an anchor, it is the beginning of the history.

        Args:
            limit: The most tokens of the request.
            room: The tokens of groups up to which no step occurs.
            passes: Adds a group to the tokens of sections; whether its section exceeds its room.
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
        """Return the index from the end of the newest group before the last anchor, if any."""
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
        """Return groups oldest first, with all that a request at a place would always consider.

        Args:
            newest: Groups from the place on, newest first.
            start: The index from the end; a request there knew no newer group.
            asked: The request also had a newer user message, which is sent in any case.
        """
        found = {group.key: group for group in newest}
        if start:
            found |= {group.key: group for group in _mandatory_then(newest, asked=asked)}
        # The current latest message is considered only if it was the latest then too: the result
        # of a step must not depend on later messages.
        until = self.groups[start].key if start else None
        present = found.keys() | self._standing
        for group in (*self.standing, *self.mandatory):
            if until is None or (group.key <= until and group.key in present):
                found[group.key] = group
        return [found[key] for key in sorted(found)]


def _mandatory_then(newest: Sequence[Group], *, asked: bool) -> Iterator[Group]:
    """Yield the groups mandatory in a request that knew no newer group, with their labels.

    These are the latest user message, unless the request also had a newer one, and the latest error
    if it is newer than the last but one user message.
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
