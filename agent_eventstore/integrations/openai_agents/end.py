"""The end of an OpenAI Agents SDK session, as one object has seen it: where it appends."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from agent_eventstore.integrations.conversation_events import attempts, newest_events
from agent_eventstore.integrations.openai_agents.events import MAIN, OpenAIBranch
from agent_eventstore.integrations.openai_agents.history import has_changes
from agent_eventstore.integrations.openai_agents.items import ItemWriter
from eventstore import NO_STREAM, EventStore
from eventstore.database import EventText, erase_for
from eventstore.errors import WrongExpectedVersion
from eventstore.events import Erasure, Meta, NewEvent
from eventstore.events.codec import loads_json
from eventstore.owners import Owned

__all__ = ["BranchDeleted", "SessionTail"]

_TAIL = 200  # newest events to read to find where a session ends


class BranchDeleted(ValueError):
    """The branch that a session object is on was deleted.

    Attributes:
        cleared: Whether the whole session was cleared.
    """

    def __init__(self, branch: str, *, cleared: bool) -> None:
        super().__init__(f"Branch {branch!r} was deleted: switch to another branch")
        self.cleared = cleared


class SessionTail:
    """The end of a session as one object has seen it: to detect changes, and to append.

    Args:
        store: The store.
        key: The conversation's key, or its id.
        owner: The conversation's owner.
        branch: The session's branch that the conversation is.
        is_listed: Returns whether the session has this branch.

    Attributes:
        seen: The version up to which items were read; None if none were.
        run: The metadata of the run that is being recorded, if any.
    """

    def __init__(
        self,
        store: EventStore,
        key: str,
        owner: Owned,
        branch: str = MAIN,
        is_listed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self.key, self._owner = store, key, owner
        self._branch, self._is_listed = branch, is_listed
        self.seen: int | None = None
        self.run: Meta | None = None
        self._writer: ItemWriter | None = None

    @property
    def id(self) -> UUID:
        """The conversation's id."""
        return self._store.stream(self.key, **self._owner)

    def checked_key(self) -> str:
        """Return the conversation's key.

        Raises:
            BranchDeleted: The branch was deleted.
        """
        self.newest(_TAIL)
        return self.key

    def move(self) -> None:
        """Read the session's end again before the next append."""
        self._writer = None

    def append(
        self, make: Callable[[ItemWriter], list[NewEvent]], *, compare: bool = False
    ) -> list[NewEvent]:
        """Append the events that ``make`` returns; call it again if another writer was faster.

        Raises:
            WrongExpectedVersion: With ``compare``: the items have changed since they were read.
            BranchDeleted: The branch was deleted.
        """
        for attempt in attempts():
            writer, self._writer = self._writer, None
            if writer is None or writer.version < (self.seen or 0):
                writer = self._at_end()
            base = writer.version
            if compare and self.seen is not None and self.seen != base:
                if self.seen > base or has_changes(self._store, self.id, self.seen, self.run):
                    raise WrongExpectedVersion(self.id, self.seen, base)
                self.seen = base
            start_events = writer.begin()
            events = make(writer)
            if not events:
                return []
            with attempt:
                done = self._store.append(
                    self.key,
                    [*start_events, *events],
                    expected_version=base or NO_STREAM,
                    allow_empty=True,
                    **self._owner,
                )
                if self.seen == base:
                    self.seen = done.version
                self._writer = writer
                return events
        raise AssertionError("the last attempt raises")

    def erase(
        self,
        find: Callable[[], set[int] | None],
        make: Callable[[ItemWriter], list[NewEvent]],
        reason: str,
    ) -> None:
        """Erase events, and append what ``make`` returns, in one transaction.

        ``find`` returns the versions, or None for all events. Both are called again if another
        writer was faster. Does nothing if ``find`` returns no version.

        Raises:
            BranchDeleted: The branch was deleted.
        """
        for attempt in attempts():
            writer, self._writer = self._at_end(), None
            base, versions = writer.version, find()
            if not base or versions == set():
                return

            def follow(version: int, writer: ItemWriter = writer) -> list[NewEvent]:
                writer.version = version
                return make(writer)

            with attempt:
                last = erase_for(
                    self._store,
                    self.key,
                    follow,
                    reason=reason,
                    versions=versions,
                    expected_version=base,
                    **self._owner,
                )
                if self.seen == base:
                    self.seen = last
                return

    def newest(self, limit: int) -> list[EventText]:
        """Return the newest events, newest first.

        Raises:
            BranchDeleted: They record that the branch was deleted, or was erased with the session.
        """
        found = newest_events(self._store, self.id, limit)
        payloads = (loads_json(e.text) for e in found if e.type == OpenAIBranch.type and e.text)
        for each in payloads:
            if each["name"] == self._branch and each["deleted"]:
                raise BranchDeleted(self._branch, cleared=each.get("cleared", False))
        if any(each.type == Erasure.type for each in found) and not self._is_listed():
            raise BranchDeleted(self._branch, cleared=True)
        return found

    def _at_end(self) -> ItemWriter:
        writer = ItemWriter.after(self.newest(_TAIL))
        writer.within = None if self.run is None else self.run.turn
        return writer
