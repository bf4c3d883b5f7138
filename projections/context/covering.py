"""Which summary covers which rows. A new summary writes only the rows that it newly covers.

A covered row names its summary in ``summarised_by``. When a later summary covers everything that an
earlier one covers, those rows keep naming the earlier one: the later summary takes over its
*label*, and only rows that were not covered before are written. So a thousand summaries of one
range, or of the whole history so far, write each row once. Withdrawing a summary uncovers the rows
with its label.

The state's ``summaries`` holds, by version, the place of a summary, its label, its own ranges of
versions (None if there are too many; its label is then its own version), and whether it stands,
that is, is in effect. A summary that was covered only through its event no longer stands, but keeps
its rows; one that was kept out of the context does not stand and has no rows. When an entry is
forgotten, its rows get the summary's own version as their label, which needs no memory.

A label may be taken over only while every older summary placed among its rows has that label too.
An older summary that was covered only through its event may not have it: ``reaching`` marks a
summary that may have covered such a summary, and ``loose`` marks a label that can no longer be
taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from projections.context.rows import CONTEXT_MESSAGES
from projections.engine.folding import Range, joined, within, without
from projections.engine.projection import Change, Patch, Put, State

__all__ = ["cover", "initial", "keep_out", "placed", "reveal"]

MOST_SUMMARIES = 64
MOST_RANGES = 16
_TABLE = CONTEXT_MESSAGES.name
_Entry = dict[str, Any]


def initial() -> State:
    """Return the state's entries about summaries before the first event."""
    return {"summaries": {}, "summarised": 0, "lowest": 0, "forgotten": 0}


def cover(state: State, version: int, place: int, ranges: Sequence[Range]) -> list[Change]:
    """Cover the rows in the ranges, and summaries placed or created there, with a new summary.

    Replaces the state's entries from `initial`. The changes do not include the summary's own row.
    """
    wanted = joined(ranges)
    entries, changes = _replaced(state, wanted)
    taken, left = _divided(entries, wanted)
    covered = [
        (each["version"], -int(key))
        for key, each in entries.items()
        if within(wanted, int(key)) or within(wanted, each["version"])
    ]
    for key, outside in left.items():
        entry = entries[key]
        stands = entry["stands"] and (entry["version"], -int(key)) not in covered
        entries[key] = {**entry, "stands": stands}
        changes += _hold(entries[key], int(key), outside)
    taken.sort(key=lambda each: -sum(last - first for first, last in each["ranges"]))
    label = taken[0]["label"] if taken else version
    changes += [_labelled(each["label"], label) for each in taken[1:]]
    for first, last in without(wanted, _pairs(taken[0]["ranges"]) if taken else ()):
        for column in ("version", "summary_version"):
            changes.append(Patch(_TABLE, column, first, last, {"summarised_by": label}))
    changes += [Put(_TABLE, key, {"summarised_by": label}) for key in covered]
    entry = _entry(place, label=label, stands=True)
    entry["reaching"] = 0 < state["summarised"] <= max((last for _, last in wanted), default=0)
    changes += _hold(entry, version, wanted)
    kept = {key: each for key, each in entries.items() if key in left}
    if entry["reaching"] and (len(wanted) > 1 or place > state["lowest"]):
        # Summaries that it covers through their event may be placed among the rows of others.
        kept = _loosened(kept)
    return [*changes, *_remember(state, kept, version, entry)]


def keep_out(state: State, version: int, place: int) -> list[Change]:
    """Remember a summary that is kept out of the context and covers nothing."""
    entry = _entry(place, label=version, stands=False)
    return _remember(state, state["summaries"], version, entry)


def reveal(state: State, new: Sequence[Range], ranges: Sequence[Range]) -> list[Change]:
    """Uncover the rows of the summaries at withdrawn versions, and forget these summaries.

    Args:
        state: The state, whose entry ``summaries`` is replaced.
        new: The part of the ranges that had not been withdrawn before.
        ranges: The withdrawn versions.
    """
    entries = state["summaries"]
    gone = {key: each for key, each in entries.items() if within(ranges, int(key))}
    left = {key: each for key, each in entries.items() if key not in gone}
    taken = sorted(each["label"] for each in left.values())
    labels = without(joined(new), [(each, each) for each in taken])
    labels += [(each["label"], each["label"]) for each in gone.values()]
    unknown = any(first <= state["forgotten"] for first, _ in new)
    loose = unknown or any(each["reaching"] for each in gone.values())
    state["summaries"] = _loosened(left) if loose else left
    shown = {"summarised_by": None}
    return [Patch(_TABLE, "summarised_by", first, last, shown) for first, last in joined(labels)]


def placed(state: State, ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Return version and place of the summaries placed in the ranges but created outside them."""
    found = ((int(key), each) for key, each in state["summaries"].items() if each["stands"])
    return [
        (version, each["version"])
        for version, each in found
        if within(ranges, each["version"]) and not within(ranges, version)
    ]


def _entry(place: int, *, label: int, stands: bool) -> _Entry:
    return {
        "version": place,
        "label": label,
        "ranges": [],
        "stands": stands,
        "reaching": False,
        "loose": False,
    }


def _replaced(state: State, wanted: Sequence[Range]) -> tuple[dict[str, _Entry], list[Change]]:
    """Release summaries that are covered through their place only; return entries and changes.

    Rows that such a summary covers outside of the wanted ranges are shown again.
    """
    entries = dict(state["summaries"])
    changes: list[Change] = []
    for key, entry in state["summaries"].items():
        own = entry["ranges"]
        if (
            entry["stands"]
            and (own is None or without(own, wanted))
            and within(wanted, entry["version"])
            and not within(wanted, int(key))
        ):
            changes.append(_labelled(entry["label"], None))
            entries[key] = {**entry, "ranges": []}
            if entry["reaching"]:
                entries = _loosened(entries)
    return entries, changes


def _divided(
    entries: dict[str, _Entry], wanted: Sequence[Range]
) -> tuple[list[_Entry], dict[str, list[Range] | None]]:
    """Return the entries whose rows are all covered, and by key the ranges that others keep."""
    taken: list[_Entry] = []
    left: dict[str, list[Range] | None] = {}
    for key, entry in entries.items():
        own = entry["ranges"]
        outside = without(own, wanted) if own else own
        if outside:
            left[key] = outside
        elif own:
            if not entry["loose"]:
                taken.append(entry)
        elif not (within(wanted, int(key)) or within(wanted, entry["version"])):
            left[key] = outside
    return taken, left


def _loosened(entries: dict[str, _Entry]) -> dict[str, _Entry]:
    """Mark all labels loose: a summary placed among the rows of others may be shown again."""
    return {key: {**each, "loose": True} for key, each in entries.items()}


def _hold(entry: _Entry, version: int, ranges: Sequence[Range] | None) -> list[Change]:
    """Set a summary's own ranges; with more than ``MOST_RANGES``, give it its own label instead."""
    if ranges is not None and len(ranges) <= MOST_RANGES:
        entry["ranges"] = [list(each) for each in ranges]
        return []
    before, entry["ranges"], entry["label"] = entry["label"], None, version
    return [] if before == version else [_labelled(before, version)]


def _remember(
    state: State, entries: dict[str, _Entry], version: int, entry: _Entry
) -> list[Change]:
    """Add an entry; forget the oldest entry if there are too many."""
    left = entries | {str(version): entry}
    state["summarised"] = state["summarised"] or version
    state["lowest"] = min(entry["version"], state["lowest"] or version)
    changes: list[Change] = []
    if len(left) > MOST_SUMMARIES:
        oldest = min(map(int, left))
        gone = left.pop(str(oldest))
        state["forgotten"] = max(oldest, state["forgotten"])
        if gone["label"] != oldest:
            changes.append(_labelled(gone["label"], oldest))
        if not gone["ranges"]:
            # Only its place was known, which may be among the rows of another summary.
            left = _loosened(left)
    state["summaries"] = left
    return changes


def _labelled(label: int, other: int | None) -> Patch:
    return Patch(_TABLE, "summarised_by", label, label, {"summarised_by": other})


def _pairs(ranges: Iterable[Sequence[int]]) -> list[Range]:
    return [(first, last) for first, last in ranges]
