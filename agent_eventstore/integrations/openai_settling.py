"""Match the items that the runner stores with the events that a run has already recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agent_eventstore.integrations.openai_events import OpenAIItems
from agent_eventstore.integrations.openai_items import items_in
from agent_eventstore.integrations.openai_withdrawn import is_of
from agent_eventstore.integrations.openai_writing import ItemWriter
from agent_eventstore.providers.parser import text
from eventstore import NewEvent
from eventstore.events import Meta, Retraction, TokenUsage, VersionRange
from eventstore.sql.read import EventText

__all__ = ["Settling"]


class Settling:
    """The events of a recorded run that the session's items do not replace yet.

    Args:
        run: The metadata of the run's events.
        after: The version after which the run records.
    """

    def __init__(self, run: Meta, after: int) -> None:
        self.after = after
        self._run = run
        self._told: set[int] = set()

    def events(
        self,
        items: Sequence[Any],
        recorded: Iterable[EventText],
        writer: ItemWriter,
        usage: TokenUsage | None,
    ) -> list[NewEvent]:
        """Return the events of new items, some of which were ``recorded`` during the run.

        ``usage`` is that of the last answer, in case it was not recorded.
        """
        known = [
            (event.version, _kind(item))
            for event in recorded
            if event.version not in self._told and is_of(self._run, event)
            for item in items_in(event)
        ]
        events: list[NewEvent] = []
        new: list[Any] = []
        told: list[tuple[Any, int]] = []
        for item in items:
            found = next((each for each in known if each[1] == _kind(item)), None)
            if found is None:
                events += _telling(told, writer)
                new.append(item)
            else:
                events += writer.events(new)
                known.remove(found)
                told.append((item, found[0]))
            (told if found is None else new).clear()
        return [*events, *_telling(told, writer), *writer.events(new, usage)]

    def left(
        self, recorded: Sequence[EventText], writer: ItemWriter, *, blocked: bool
    ) -> list[NewEvent]:
        """Return the events that settle recorded events without an item when the run ends.

        If a tool raised, the runner leaves out the calls of the other tools: their results get
        their call back. If a guardrail ``blocked`` the run, the events without an item are
        withdrawn.
        """
        own = [event for event in recorded if is_of(self._run, event)]
        untold = [each for each in own if each.version not in self._told and items_in(each)]
        if blocked and untold:
            gone = VersionRange.of((each.version, each.version) for each in untold)
            return [writer.place(Retraction(versions=gone, reason="guardrail"))]
        calls = {
            item["call_id"]: item
            for event in own
            if event.version in self._told
            for item in items_in(event)
            if isinstance(item, dict) and item.get("type") == "function_call"
        }
        told = [
            (item, event.version)
            for event in untold
            for result in items_in(event)
            if (call := calls.get(result.get("call_id"))) is not None
            for item in (call, result)
        ]
        return _telling(told, writer)

    def note(self, appended: Iterable[NewEvent]) -> None:
        """Note which recorded events the appended items replace."""
        for event in appended:
            if isinstance(event.data, OpenAIItems):
                self._told.update(each.first for each in event.data.told)


def _telling(told: Sequence[tuple[Any, int]], writer: ItemWriter) -> list[NewEvent]:
    if not told:
        return []
    versions = VersionRange.of((v, v) for v in sorted({v for _, v in told}))
    return [writer.place(OpenAIItems(items=tuple(item for item, _ in told), told=versions))]


def _kind(item: Any) -> tuple[str, Any]:
    """Return the key by which an item and its recorded event are matched."""
    if not isinstance(item, dict):
        return "", None
    return text(item.get("type")) or text(item.get("role")), item.get("call_id")
