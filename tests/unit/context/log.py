"""A log and its table in memory, for tests that need neither a database nor the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from eventstore.events import Meta, NewEvent, Payload, RecordedEvent, UnknownEvent
from projections.context import (
    CONTEXT_MESSAGES,
    ContextProjection,
    ContextRow,
    ContextView,
    build,
)
from projections.context.counting import CountedMessages
from projections.engine.projection import Change, Patch, Put, State
from projections.tokens.counts import TokenCounts
from tests.list_row_source import ListRowSource

Entry = Payload | UnknownEvent | NewEvent | None
_COLUMNS = tuple(column.name for column in CONTEXT_MESSAGES.columns)


class Log:
    """Events of one conversation, folded as they come; the state is kept as JSON in between.

    What rows hold is counted with ``counts``, as the engine does it with those of a conversation.
    """

    def __init__(self, entries: Iterable[Entry] = (), counts: TokenCounts | None = None) -> None:
        self.counts = counts or TokenCounts()
        self.projection = ContextProjection()
        self.state = json.dumps(self.projection.initial())
        self.version = 0
        self.table: dict[tuple[Any, ...], dict[str, Any]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> int:
        """Append an event (None stands for an erased one), fold it, and return its version."""
        self.version += 1
        data, meta = (entry.data, entry.meta) if isinstance(entry, NewEvent) else (entry, None)
        state: State = json.loads(self.state)
        event = recorded(self.version, data, meta)
        state, changes = self.projection.fold(state, event)
        self.state = json.dumps(state)
        for change in changes:
            if change.table == CONTEXT_MESSAGES.name:
                self._apply(change)
        return self.version

    def rows(self) -> list[ContextRow]:
        """Return all rows in order of their key."""
        return [ContextRow.of(self.table[key]) for key in sorted(self.table)]

    def row(self, version: int, part: int = 0) -> ContextRow:
        """Return one row."""
        return ContextRow.of(self.table[version, part])

    def view(self, **options: Any) -> ContextView:
        """Build the messages of a request from the rows."""
        return build(ListRowSource(self.rows()), **options)

    def said(self) -> list[tuple[str, Any]]:
        """Return role and content of every message of the unlimited view."""
        return [(message["role"], message["content"]) for message in self.view().messages]

    def _apply(self, change: Change) -> None:
        filled = dict(change.values)
        CountedMessages().fill(filled, self.counts)
        values = json.loads(json.dumps(filled))
        assert set(values) <= set(_COLUMNS)
        if isinstance(change, Put):
            empty = dict.fromkeys(_COLUMNS)
            row = self.table.setdefault(change.key, empty)
            row.update(dict(zip(CONTEXT_MESSAGES.key, change.key, strict=True)) | values)
        elif isinstance(change, Patch):
            for row in self.table.values():
                place = row[change.column]
                if place is not None and change.first <= place <= change.last:
                    row.update(values)


def recorded(version: int, data: Any, meta: Meta | None = None) -> RecordedEvent:
    """Return an event as a store would give it back."""
    return RecordedEvent(
        conversation_id=UUID(int=1),
        version=version,
        event_id=UUID(int=version),
        position=version,
        type=data.type if data is not None else "user_message",
        schema_version=1,
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
        data=data,
        meta=meta or Meta(),
        data_digest=b"",
        chain=b"",
    )
