"""Histories that a provider has compacted itself: its answer stands for all that is older."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from projections.context.grouping import Grouping
from projections.context.plans import Plan
from projections.context.rows import ContextRow
from projections.context.source import RowSource
from projections.context.table_rows import note_tables

__all__ = ["is_compacted", "since_compaction"]


def since_compaction(
    rows: Iterator[ContextRow], grouping: Grouping, page: int
) -> Iterator[ContextRow]:
    """Yield rows, newest first, down to the answer in which their maker compacted the rest.

    Where results are sent as tables, those of a page of rows are counted at once.
    """
    for row in rows:
        read = [row]
        if grouping.tables and row.kind == "tool" and row.table is None:
            read += islice(rows, page - 1)
            note_tables(read)
        for each in read:
            yield each
            if grouping.compacts(each):
                return


def is_compacted(chosen: Plan, grouping: Grouping, source: RowSource, page: int) -> bool:
    """Whether a plan goes back to such an answer only, however far it was read for that."""
    for each in chosen.groups:
        group = each.group.whole or each.group
        if group.key not in chosen.recalled and grouping.compacts(group.rows[0]):
            return any(row.key < group.key for row in source.newest(page))
    return False
