"""Which summary stands for which rows, so that each costs what it newly covers.

A row that a summary covers names it in ``summarised_by``. When a later summary covers all that an
earlier one stands for, those rows go on naming the earlier one: the later takes its *label*, and
only what had not been covered is written. So a thousand summaries of one range, or of all that was
said so far, write each row once. What is withdrawn with a summary are the rows with its label.

The state's ``summaries`` holds, by version, the place of a summary, its label, the ranges of
versions that are its own (None if they are too many; its label is then its own version), and
whether it stands: what was covered by its event alone keeps its rows, and what was kept out of the
context has none. Whichever is forgotten gives its rows its own version, which needs no memory.

A label may be taken only while every older summary that stands at its places names it too. One that
is covered by its event alone may not: ``reaching`` tells of a summary that there may be such, and
``loose`` that a label is not taken any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from projections.context.rows import CONTEXT_MESSAGES
from projections.engine.folding import joined, within, without
from projections.engine.projection import Change, Patch, Put, State

__all__ = ["cover", "initial", "keep_out", "placed", "reveal"]

Range = tuple[int, int]
"""Versions from the first to the second, both included."""

MOST_SUMMARIES = 64
MOST_RANGES = 16
_TABLE = CONTEXT_MESSAGES.name
_Entry = dict[str, Any]


def initial() -> State:
    """Return what is remembered of summaries before the first event."""
    return {"summaries": {}, "summarised": 0, "lowest": 0, "forgotten": 0}


def cover(state: State, version: int, place: int, ranges: Sequence[Range]) -> list[Change]:
    """Make the summary at a version stand for what stands in the ranges, or was made there.

    Replaces what `initial` returns. The summary's own row is not among the changes.
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
        # Those that it covers by their event may stand in what others stand for.
        kept = _loosened(kept)
    return [*changes, *_remember(state, kept, version, entry)]


def keep_out(state: State, version: int, place: int) -> list[Change]:
    """Note a summary that is out of the context, and covers nothing."""
    entry = _entry(place, label=version, stands=False)
    return _remember(state, state["summaries"], version, entry)


def reveal(state: State, new: Sequence[Range], ranges: Sequence[Range]) -> list[Change]:
    """Show again what the summaries of withdrawn versions stood for; these are forgotten.

    Args:
        state: Its entry ``summaries`` is replaced.
        new: Those of the ranges that had not been withdrawn before.
        ranges: What is withdrawn.
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
    """Return version and place of the summaries that stand in the ranges, but were made outside."""
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
    """Return the entries after those that are replaced with their place have let go, and how.

    What else such a summary stood for shows again.
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
    """Return whose rows are all covered, and by key what the others keep."""
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
    """Note that a summary may show again whose place lies in what others stand for."""
    return {key: {**each, "loose": True} for key, each in entries.items()}


def _hold(entry: _Entry, version: int, ranges: Sequence[Range] | None) -> list[Change]:
    """Set what a summary's own ranges are; beyond a number it has its own label instead."""
    if ranges is not None and len(ranges) <= MOST_RANGES:
        entry["ranges"] = [list(each) for each in ranges]
        return []
    before, entry["ranges"], entry["label"] = entry["label"], None, version
    return [] if before == version else [_labelled(before, version)]


def _remember(
    state: State, entries: dict[str, _Entry], version: int, entry: _Entry
) -> list[Change]:
    """Add an entry, and forget the oldest one if there are too many."""
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
            # It was known by its place alone, which may lie in what another one stands for.
            left = _loosened(left)
    state["summaries"] = left
    return changes


def _labelled(label: int, other: int | None) -> Patch:
    return Patch(_TABLE, "summarised_by", label, label, {"summarised_by": other})


def _pairs(ranges: Iterable[Sequence[int]]) -> list[Range]:
    return [(first, last) for first, last in ranges]
