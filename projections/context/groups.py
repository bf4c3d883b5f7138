"""The history as the planner reads it: whole groups, newest first, read only as far as needed."""

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

    Reads rows one at a time, and none beyond the rows of the groups that the caller consumes.
    Results without their assistant message are skipped.
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
    """Yield rows, newest first, down to the answer in which its provider compacted the history.

    If results are sent as tables, the tables of a page of rows are counted at once.
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
    """The groups of a history, newest first; an index counts from the newest group, which has 0.

    Attributes:
        groups: The groups that were read so far.
        mandatory: The first and the latest user message, in this order, and the error from which
            the latest one continues.
        standing: The groups in every plan, however old: the first user message and the summaries in
            effect.
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
        self.fixed = (*users[:1], *summaries)
        self._newest = newest
        self._marked = {group.key: group for group in self.mandatory}
        self._fixed_keys = {group.key for group in self.fixed}

    def at(self, index: int) -> Group | None:
        """Return the group at an index, or None if the history has fewer groups."""
        while len(self.groups) <= index:
            group = next(self._newest, None)
            if group is None:
                return None
            self.groups.append(self._marked.get(group.key, group))
        return self.groups[index]

    def labelled(self, group: Group) -> Group:
        """Return a mandatory group with its current label: it may not be the latest any more."""
        if group.label == COMPACTED:
            return group
        label = ERROR if group.kind == "error" else AT_THE_STEP
        return self._marked.get(group.key) or replace(group, label=label)

    def read_all(self) -> None:
        """Read all groups."""
        while self.at(len(self.groups)) is not None:
            pass

    def size(self, group: Group) -> int:
        """Return the tokens of a group; 0 for those in every plan, which are counted separately."""
        return 0 if group.key in self._fixed_keys else group.tokens

    def anchor(
        self, limit: int, room: int, passes: Callable[[Counter[str], Group], bool]
    ) -> tuple[int, bool]:
        """Return the index from which steps are computed, and whether a step happens there.

        That is the newest group before the last anchor. A step happens there if the history up to
        it exceeds the room. Otherwise, and without an anchor, steps are computed from the
        beginning.

        Args:
            limit: Upper limit for the request's tokens.
            room: The most tokens of groups without a step.
            passes: Adds a group to the tokens by section; returns whether its section is too large.
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
        """Return the index of the newest group before the last anchor, or None."""
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

    def with_fixed(
        self, newest: Sequence[Group], start: int, *, with_question: bool = False
    ) -> list[Group]:
        """Return groups, oldest first, with the groups that a request at an index always includes.

        Args:
            newest: Groups from the index on, newest first.
            start: The index; a request there knew no newer group.
            with_question: Whether that request also knew the next newer group, a user
                message, which is sent in any case.
        """
        found = {group.key: group for group in newest}
        if start:
            found |= {
                group.key: group for group in _mandatory_then(newest, with_question=with_question)
            }
        # Include the current latest message only if the request at ``start`` would have: the
        # result of a step must not depend on later messages.
        until = self.groups[start].key if start else None
        present = found.keys() | self._fixed_keys
        for group in (*self.fixed, *self.mandatory):
            if until is None or (group.key <= until and group.key in present):
                found[group.key] = group
        return [found[key] for key in sorted(found)]


def _mandatory_then(newest: Sequence[Group], *, with_question: bool) -> Iterator[Group]:
    """Yield the mandatory groups, with their labels, of a request that knew no newer group.

    These are the latest user message, unless the request knew a newer one (``with_question``), and
    the latest error, if it is newer than the second-latest user message.
    """
    users, error = int(with_question), False
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
    """Return the plan that sends everything in full."""
    past.read_all()
    groups = past.with_fixed(past.groups, 0)
    return Plan(tuple(map(Planned.whole, groups)), all_read=True)
