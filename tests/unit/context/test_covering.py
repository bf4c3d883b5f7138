"""Which rows summaries hide: as a rule without memory says, which looks at every row each time."""

from __future__ import annotations

import random

import pytest

from eventstore import events as e
from eventstore.events import Meta, RecordedEvent
from projections.context import CONTEXT, fold
from projections.engine.folds import RowBuffer
from tests.unit.projections.history import Entry, history

EVERYTHING = e.VersionRange(first=1, last=2**31 - 1)


class Rule:
    """By place, the summary that stands for a row: the latest that covered it."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], int | None] = {}
        self._standing: dict[int, int] = {}

    def add(self, event: RecordedEvent) -> None:
        """Follow an event; every entry is a message, a summary or a retraction."""
        data, version = event.data, event.version
        if isinstance(data, e.Summary):
            place = min((each.first for each in data.versions), default=version)
            if event.meta.in_context:
                self._cover(data, version)
                self._standing[version] = place
            self.owners[place, -version] = None
        elif isinstance(data, e.Retraction):
            for key, owner in self.owners.items():
                if owner is not None and _within(data, owner):
                    self.owners[key] = None
            self._standing = {
                made: place for made, place in self._standing.items() if not _within(data, made)
            }
        else:
            self.owners[version, 0] = None

    def _cover(self, data: e.Summary, version: int) -> None:
        for made, place in list(self._standing.items()):
            if _within(data, place) and not _within(data, made):
                for key, owner in self.owners.items():
                    if owner == made:
                        self.owners[key] = None
            if _within(data, place) or _within(data, made):
                del self._standing[made]
        for key in self.owners:
            if _within(data, key[0]) or (key[1] < 0 and _within(data, -key[1])):
                self.owners[key] = version


def _within(data: e.Summary | e.Retraction, version: int) -> bool:
    return any(each.first <= version <= each.last for each in data.versions)


def _drawn(seed: int, count: int) -> list[Entry]:
    drawn = random.Random(seed)  # noqa: S311 - the same each time
    entries: list[Entry] = []
    for version in range(1, count + 1):
        kind, first = drawn.random(), drawn.randint(1, version)
        within = e.VersionRange(first=first, last=first + drawn.choice([0, 1, 3, 8, 30]))
        if drawn.random() < 0.2:
            within = EVERYTHING
        if version < 6 or kind < 0.3:
            entries.append(e.UserMessage.text("x"))
        elif kind < 0.85:
            meta = Meta(in_context=drawn.random() > 0.1)
            entries.append((e.Summary(text="s", versions=(within,)), meta))
        else:
            withdrawn = e.VersionRange(first=first, last=first + drawn.choice([0, 0, 4]))
            entries.append(e.Retraction(versions=(withdrawn,)))
    return entries


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_what_is_shown_is_what_the_rule_says(start: int) -> None:
    """After each event, of whatever order of summaries, older ones and withdrawn ones."""
    for seed in range(start, start + 100):
        state, buffer, rule = CONTEXT.initial(), RowBuffer(CONTEXT, fresh=True), Rule()
        for event in history(*_drawn(seed, 25)):
            state, changes = CONTEXT.fold(state, event)
            buffer.add(changes)
            rule.add(event)
            rows = buffer.new_rows("context_messages")
            shown = {key for key, row in rows.items() if row.get("summarised_by") is None}
            standing = {key for key, owner in rule.owners.items() if owner is None}
            withdrawn = {key for key, row in rows.items() if row["hidden"] == "withdrawn"}
            assert standing - withdrawn == shown - withdrawn, (seed, event.version)


def test_little_memory_shows_nothing_that_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten of summaries costs time, and is told by the rows themselves."""
    monkeypatch.setattr(fold, "MOST_SUMMARIES", 2)
    monkeypatch.setattr(fold, "MOST_RANGES", 1)
    for seed in range(100):
        state, buffer = CONTEXT.initial(), RowBuffer(CONTEXT, fresh=True)
        for event in history(*_drawn(seed, 25)):
            state, changes = CONTEXT.fold(state, event)
            buffer.add(changes)
            data = event.data
            if not isinstance(data, e.Summary) or not event.meta.in_context:
                continue
            for key, row in buffer.new_rows("context_messages").items():
                made = row.get("summary_version") or key[0]
                if made != event.version and (_within(data, key[0]) or _within(data, made)):
                    assert row.get("summarised_by") is not None, (seed, event.version, key)


def test_withdrawing_the_last_of_many_shows_what_it_stood_for() -> None:
    """Its rows name the first of those that replaced each other."""
    span = (e.VersionRange(first=1, last=2),)
    told = [e.Summary(text=str(number), versions=span) for number in range(100)]
    last = e.Retraction(versions=(e.VersionRange(first=102, last=102),))
    state, buffer = CONTEXT.initial(), RowBuffer(CONTEXT, fresh=True)
    hidden = []
    for event in history(*[e.UserMessage.text("x")] * 2, *told, last):
        state, changes = CONTEXT.fold(state, event)
        buffer.add(changes)
        rows = buffer.new_rows("context_messages")
        hidden.append({rows[key].get("summarised_by") for key in rows if key[1] == 0})
    assert {3} == hidden[-2]
    assert {None} == hidden[-1]
