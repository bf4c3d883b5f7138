"""OpenAI's Agents SDK: its ``SQLiteSession``, which stores a conversation's items as JSON.

It runs with its write-ahead log and SQLite's default sync level, FULL, in a separate thread for
each call, as the SDK does. Each event becomes one item: a role and the payload's JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from agents import SQLiteSession
from sqlalchemy import make_url

from eventstore import NewEvent
from eventstore.events.base import Payload

__all__ = ["Session"]


class Session:
    """A file of sessions, and an event loop to call them from."""

    name = "openai-agents SQLiteSession"

    def __init__(self, url: str) -> None:
        self.path = f"{make_url(url).database}.agents"
        self._runner = asyncio.Runner()
        self._sessions: list[SQLiteSession] = []

    def _session(self) -> SQLiteSession:
        made = SQLiteSession(f"s{len(self._sessions)}", self.path)
        self._sessions.append(made)
        return made

    def stream(self) -> Callable[[Sequence[NewEvent]], object]:
        """Begin a session; return the function that appends events to it, in one call."""
        session = self._session()
        return lambda events: self._runner.run(session.add_items(_items(events)))

    def turns(
        self, events: Sequence[NewEvent], history: Sequence[NewEvent]
    ) -> Callable[[], object]:
        """Return a function that appends events one by one, then loads the whole session."""
        session = self._session()
        self._runner.run(session.add_items(_items(history)))

        async def turn() -> None:
            for event in events:
                await session.add_items(_items([event]))
            await session.get_items()

        return lambda: self._runner.run(turn())

    def close(self) -> None:
        """Close the sessions' connections."""
        for session in self._sessions:
            session.close()
        self._runner.close()


def _items(events: Sequence[NewEvent]) -> list[Any]:
    """Return events as items of a session."""
    made = []
    for event in events:
        assert isinstance(event.data, Payload)
        made.append({"role": "user", "content": event.data.model_dump_json()})
    return made
