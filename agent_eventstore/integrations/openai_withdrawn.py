"""Which versions of a session are withdrawn or replaced, and whether its items have changed."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from agent_eventstore.integrations.conversation_events import events_after
from agent_eventstore.integrations.openai_items import answered_by, is_placeholder, items_in
from eventstore import EventStore
from eventstore.events import BranchSwitch, Erasure, Meta, Retraction, ToolResult
from eventstore.events.codec import loads_json
from eventstore.sql.read import EventText

__all__ = ["WITHDRAWING", "Answered", "Withdrawn", "has_changes", "is_of"]

WITHDRAWING = (Retraction.type, BranchSwitch.type)
"""The types of events that withdraw items."""

_CHANGING = (*WITHDRAWING, Erasure.type)
_SMALL = 64


class Withdrawn:
    """Statements about ranges of versions, added from the newest: the first one wins."""

    def __init__(self) -> None:
        self._single: dict[int, bool] = {}
        self._large: list[tuple[int, int, bool]] = []
        self._passed: list[tuple[int, int]] = []

    def add(self, ranges: Iterable[dict[str, int]], said: bool, *, all_below: bool = False) -> None:
        """Add a statement about ranges; with ``all_below``, a reader may skip these ranges."""
        for each in ranges:
            first, last = each["first"], each["last"]
            if all_below:
                self._passed.append((first, last))
            if last - first < _SMALL:
                for version in range(first, last + 1):
                    if self.says(version) is None:
                        self._single[version] = said
            else:
                self._large.append((first, last, said))

    def says(self, version: int) -> bool | None:
        """Return the first statement about a version; None if there is none."""
        if (said := self._single.get(version)) is not None:
            return said
        for first, last, said in self._large:
            if first <= version <= last:
                return said
        return None

    def below(self, version: int) -> int:
        """Return the version before which to read on, skipping ranges that hold only dead items."""
        return min([version, *(first for first, last in self._passed if last >= version - 1)])


class Answered:
    """The calls that have a later result, for a reader that goes from the newest event back."""

    def __init__(self, store: EventStore, stream: UUID) -> None:
        self._store, self._stream = store, stream
        self._calls = set[str]()
        self._results: list[EventText] = []  # whose calls are looked up once they are needed
        self._skipped: list[tuple[int, int]] = []

    def skip(self, first: int, before: int) -> None:
        """Note events that the reader skips: from one version to before another."""
        if first < before:
            self._skipped.append((first, before))

    def replaces(self, event: EventText) -> bool:
        """Whether the next tool result is a placeholder of recovery's that has a real one."""
        self._results.append(event)
        if not is_placeholder(event):
            return False
        *later, call = map(answered_by, self._results)
        self._calls.update(later)
        self._results.clear()
        for first, before in self._skipped:
            skipped = events_after(self._store, self._stream, first - 1, before=before)
            results = (each for each in skipped if each.type == ToolResult.type and each.text)
            self._calls.update(map(answered_by, results))
        self._skipped.clear()
        if call in self._calls:
            return True
        self._calls.add(call)
        return False


def has_changes(store: EventStore, stream: UUID, after: int, own: Meta | None) -> bool:
    """Whether items were added, withdrawn, replaced or erased after a version.

    Args:
        store: The store.
        stream: The conversation.
        after: The version.
        own: The metadata of the caller's own recorded run, whose events do not count.
    """
    return any(
        (each.type in _CHANGING or items_in(each)) and not is_of(own, each)
        for each in events_after(store, stream, after)
    )


def is_of(run: Meta | None, event: EventText) -> bool:
    """Whether a run has recorded an event."""
    return run is not None and loads_json(event.meta).get("session_id") == run.session_id
