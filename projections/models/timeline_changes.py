"""Changes to a timeline: the items and text that each event adds, changes or withdraws.

A screen that has the items of a version applies the later updates, in order, and then shows the
same items as the timeline view. For a streaming text, an update contains the appended part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal
from uuid import UUID

from eventstore.events import RecordedEvent
from projections.engine.folding import one_line
from projections.engine.projection import Change, Patch, Put, State
from projections.models.timeline_items import TABLE, TimelineItem

__all__ = [
    "ItemAdded",
    "ItemChanged",
    "ItemsWithdrawn",
    "TextAppended",
    "TimelineChange",
    "TimelineReset",
    "TimelineUpdate",
    "changes_of",
    "item_changes",
    "texts_of",
]

Key = tuple[int, int]
_COLUMNS = frozenset(field.name for field in fields(TimelineItem)) - {"conversation_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded:
    """An item that was not there before."""

    item: TimelineItem
    kind: Literal["added"] = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAppended:
    """Text to append to the item at a version and part, which is still streaming."""

    version: int
    part: int
    text: str
    kind: Literal["appended"] = "appended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChanged:
    """New values of an item's attributes, by name; all other attributes are unchanged."""

    version: int
    part: int
    values: Mapping[str, Any]
    kind: Literal["changed"] = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsWithdrawn:
    """Items were withdrawn: those whose ``message_version`` is in the range, inclusive."""

    first: int
    last: int
    kind: Literal["withdrawn"] = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsLeft:
    """Items left the active branch: remove those whose ``message_version`` is in the range."""

    first: int
    last: int
    kind: Literal["left"] = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineReset:
    """The whole timeline, replacing all items: sent after an erasure or a return to a branch."""

    items: tuple[TimelineItem, ...]
    kind: Literal["reset"] = "reset"


TimelineChange = ItemAdded | TextAppended | ItemChanged | ItemsWithdrawn | ItemsLeft | TimelineReset


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineUpdate:
    """The changes that the events up to a version made to a timeline, in order.

    Attributes:
        version: The version of the last of these events; continue following after it, in this or
            another process. It is the id of a server-sent event.
        changes: The changes; empty in a heartbeat.
    """

    version: int
    changes: tuple[TimelineChange, ...] = ()

    def apply(self, items: Iterable[TimelineItem]) -> list[TimelineItem]:
        """Return the items of a timeline after this update, in reading order."""
        by_key = {(item.version, item.part): item for item in items}
        for change in self.changes:
            _apply(by_key, change, self.version)
        return [by_key[key] for key in sorted(by_key)]


def _apply(items: dict[Key, TimelineItem], change: TimelineChange, version: int) -> None:
    match change:
        case ItemAdded():
            items[change.item.version, change.item.part] = change.item
        case TextAppended():
            item = items[change.version, change.part]
            text = (item.text or "") + change.text
            items[change.version, change.part] = replace(
                item, text=text, preview=one_line(text), end_version=version
            )
        case ItemChanged():
            item = items[change.version, change.part]
            items[change.version, change.part] = replace(item, **change.values)
        case ItemsWithdrawn():
            for key, item in items.items():
                named = item.message_version
                if named is not None and change.first <= named <= change.last:
                    items[key] = replace(item, status="withdrawn", end_version=version)
        case ItemsLeft():
            for key, item in list(items.items()):
                named = item.message_version
                if named is not None and change.first <= named <= change.last:
                    del items[key]
        case TimelineReset():
            items.clear()
            items.update(((item.version, item.part), item) for item in change.items)


def texts_of(state: State) -> dict[Key, str]:
    """Return the streaming texts in the timeline's state, by version and part."""
    return {
        (place[0], place[1]): call["texts"][slot]
        for call in state["llm"].values()
        for slot, place in call["at"].items()
        if slot in call["texts"]
    }


def changes_of(
    event: RecordedEvent, before: State, changes: Sequence[Change]
) -> Iterator[TimelineChange]:
    """Yield an event's changes to the items on a screen.

    Args:
        event: The event.
        before: The state of the timeline's fold before the event.
        changes: The changes that the fold returned.
    """
    texts = texts_of(before)
    added: set[Key] = set()
    for change in changes:
        if change.table != TABLE:
            continue
        if isinstance(change, Patch):
            change_type = ItemsLeft if "inactive" in change.values else ItemsWithdrawn
            yield change_type(first=change.first, last=change.last)
            continue
        key = change.key[0], change.key[1]
        if key[0] == event.version and key not in added:
            added.add(key)
            yield ItemAdded(item=_item(event.conversation_id, key, change))
        else:
            yield from _of_item(key, change, texts.get(key), event.version)


def _item(conversation_id: UUID, key: Key, put: Put) -> TimelineItem:
    values = {name: value for name, value in put.values.items() if name in _COLUMNS}
    return TimelineItem(conversation_id=conversation_id, version=key[0], part=key[1], **values)


def _of_item(key: Key, put: Put, was: str | None, version: int) -> Iterator[TimelineChange]:
    values = {name: value for name, value in put.values.items() if name in _COLUMNS}
    text = values.get("text")
    if was is not None and text is not None and text.startswith(was):
        del values["text"], values["preview"]
        if more := text[len(was) :]:
            yield TextAppended(version=key[0], part=key[1], text=more)
            if values == {"status": "streaming", "end_version": version}:
                return
    yield ItemChanged(version=key[0], part=key[1], values=values)


def item_changes(items: Iterable[TimelineItem], after: int) -> Iterator[TimelineChange]:
    """Yield the changes that bring a timeline from version ``after`` to these changed items."""
    for item in items:
        if item.version > after:
            yield ItemAdded(item=item)
        else:
            values = {name: getattr(item, name) for name in _COLUMNS - {"version", "part"}}
            yield ItemChanged(version=item.version, part=item.part, values=values)
