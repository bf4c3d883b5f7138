"""The names of a session's branches, folded from the main conversation's events and cached."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from agent_eventstore.integrations.conversation_events import Head, events_after, news_of
from agent_eventstore.integrations.openai_events import MAIN, OpenAIBranch
from eventstore import EventStore
from eventstore.events.codec import loads_json
from eventstore.sql.read import EventText

__all__ = ["BranchNames"]


class BranchNames:
    """The branches of one session; each read fetches only the events since the last one."""

    def __init__(self, store: EventStore, main: UUID) -> None:
        self._store, self._main = store, main
        self._head: Head | None = None
        self._exists = {MAIN: True}

    def read(self, *, used: bool = False) -> list[str]:
        """Return the names of all branches; with ``used``, including deleted ones."""
        with self._store._on_driver() as connection:
            head, news = news_of(connection, self._main, self._head)
        if news is None:
            events = events_after(self._store, self._main, 0, before=head.version + 1)
            self._exists = _folded({MAIN: True}, events)
        else:
            self._exists = _folded(self._exists, news)
        self._head = head
        return [name for name, exists in self._exists.items() if exists or used]


def _folded(exists: dict[str, bool], events: Iterable[EventText]) -> dict[str, bool]:
    """Return whether each branch exists after more events."""
    exists = {**exists}
    for event in events:
        if event.type == OpenAIBranch.type and event.text is not None:
            branch = loads_json(event.text)
            exists[branch["name"]] = not branch["deleted"]
    return exists
