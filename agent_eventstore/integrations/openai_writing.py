"""Convert items of the OpenAI Agents SDK to events, and append them to a session.

An item is stored verbatim under the payload's ``raw``, next to its parsed form: a user message, the
model's answer (its reasoning, messages and calls are one event), or the result of a call. An item
without a form in the catalogue is an `OpenAIItem`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self
from uuid import UUID

from agent_eventstore.formats.response_items import (
    ITEM,
    answer_of,
    grouped,
    is_answer,
    parts_in,
    result_of,
)
from agent_eventstore.integrations.conversation_events import attempts, newest_events
from agent_eventstore.integrations.conversation_places import Places
from agent_eventstore.integrations.openai_events import MAIN, OpenAIBranch, OpenAIItem
from agent_eventstore.integrations.openai_withdrawn import has_changes
from eventstore import NO_STREAM, EventStore
from eventstore.errors import WrongExpectedVersion
from eventstore.events import (
    Meta,
    NewEvent,
    Payload,
    SystemInstruction,
    TokenUsage,
    UserMessage,
)
from eventstore.events.codec import loads_json
from eventstore.owners import Owned
from eventstore.sql.read import EventText
from projections.engine.folding import text_of

__all__ = ["BranchDeleted", "ItemWriter", "SessionEnd"]

_SYSTEM = ("system", "developer")
_TAIL = 200  # newest events to read to find where a session ends


class ItemWriter(Places):
    """Builds the events of items, each with its version, turn and step."""

    def __init__(self) -> None:
        super().__init__()
        self._instructed = False

    @classmethod
    def after(cls, newest: Sequence[EventText]) -> Self:
        """Return a writer that continues after the newest events, given newest first."""
        writer = super().after(newest)
        writer._instructed = writer.version > 1
        return writer

    def events(self, items: Sequence[Any], usage: TokenUsage | None = None) -> list[NewEvent]:
        """Return the events of items, to be appended next.

        Args:
            items: The items.
            usage: The tokens of the model call that gave the last answer among them.
        """
        groups, last = list(grouped(items)), -1
        if usage is not None:
            answers = (place for place, each in enumerate(groups) if is_answer(each[0]))
            last = max(answers, default=-1)
        return [
            self.place(self._payload(group, usage if place == last else None))
            for place, group in enumerate(groups)
        ]

    def place(self, data: Payload) -> NewEvent:
        """Return a payload as the next event, with its turn and step."""
        # A later instruction is history: the SDK sends the agent's instructions itself.
        is_late = isinstance(data, SystemInstruction) and self.turn > 0
        return self.put(data, in_context=not is_late)

    def _payload(self, group: Sequence[Any], usage: TokenUsage | None) -> Payload:
        if is_answer(group[0]):
            return answer_of(group, usage)
        (item,) = group
        if isinstance(item, dict):
            raw = {ITEM: item}
            if item.get("role") == "user":
                return UserMessage(parts=parts_in(item.get("content")), raw=raw)
            if item.get("role") in _SYSTEM:
                continues, self._instructed = self._instructed, True
                said = text_of(parts_in(item.get("content")))
                return SystemInstruction(text=said, role=item["role"], continues=continues, raw=raw)
            if (result := result_of(item, self.calls)) is not None:
                return result
        return OpenAIItem(item=item)


class BranchDeleted(ValueError):
    """The branch that a session object is on was deleted.

    Attributes:
        cleared: Whether the whole session was cleared.
    """

    def __init__(self, branch: str, *, cleared: bool) -> None:
        super().__init__(f"Branch {branch!r} was deleted: switch to another branch")
        self.cleared = cleared


class SessionEnd:
    """The end of a session as one object has seen it: to detect changes, and to append.

    Args:
        store: The store.
        key: The conversation's key, or its id.
        owner: The conversation's owner.
        branch: The session's branch that the conversation is.

    Attributes:
        seen: The version up to which items were read; None if none were.
        run: The metadata of the run that is being recorded, if any.
    """

    def __init__(self, store: EventStore, key: str, owner: Owned, branch: str = MAIN) -> None:
        self._store, self.key, self._owner = store, key, owner
        self._branch = branch
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
            writer, self._writer = self._writer or self._at_end(), None
            base = writer.version
            if compare and self.seen is not None and self.seen < base:
                if has_changes(self._store, self.id, self.seen, self.run):
                    raise WrongExpectedVersion(self.id, self.seen, base)
                self.seen = base
            begun = writer.begin()
            events = make(writer)
            if not events:
                return []
            with attempt:
                done = self._store.append(
                    self.key,
                    [*begun, *events],
                    expected_version=base or NO_STREAM,
                    **self._owner,
                )
                if self.seen == base:
                    self.seen = done.version
                self._writer = writer
                return events
        raise AssertionError("the last attempt raises")

    def newest(self, limit: int) -> list[EventText]:
        """Return the newest events, newest first.

        Raises:
            BranchDeleted: They record that the branch was deleted.
        """
        found = newest_events(self._store, self.id, limit)
        told = (loads_json(e.text) for e in found if e.type == OpenAIBranch.type and e.text)
        for each in told:
            if each["name"] == self._branch and each["deleted"]:
                raise BranchDeleted(self._branch, cleared=each.get("cleared", False))
        return found

    def _at_end(self) -> ItemWriter:
        writer = ItemWriter.after(self.newest(_TAIL))
        writer.within = None if self.run is None else self.run.turn
        return writer
