"""`EventStoreChatMessageHistory`: a LangChain message history stored as a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from agent_eventstore.integrations.conversation_events import attempts, followed
from agent_eventstore.transcripts.langchain_messages import calls_of, message_payload
from eventstore import NO_STREAM, EventStore, NewEvent, RecordedEvent
from eventstore.errors import InvalidEvent
from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ConversationStart,
    Meta,
    Retraction,
    ToolResult,
    UserMessage,
    VersionRange,
)

__all__ = ["EventStoreChatMessageHistory"]

_RAW = "langchain"


class EventStoreChatMessageHistory(BaseChatMessageHistory):
    """A session's message history, each message an event with its tool calls and usage.

    Args:
        store: The store; a store from `EventStore.for_owner` sees only the sessions of its tenant
            or user.
        session_id: The conversation's key, or its id if it is a UUID.
    """

    def __init__(self, store: EventStore, session_id: str) -> None:
        self.store, self.session_id = store, session_id
        self._session = _HistorySession()
        self._lock = RLock()

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages in order, without cleared ones."""
        return messages_from_dict([*self._read().messages.values()])  # type: ignore[no-any-return]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in one transaction.

        Raises:
            InvalidEvent: The log has no event for a message's type, or a message is not JSON.
        """
        with self._lock:
            for attempt in attempts() if messages else ():
                session = self._read()
                events = session.events_of(messages)
                expected = session.version or NO_STREAM
                with attempt:
                    appended = self.store.append(
                        self.session_id, events, expected_version=expected, allow_empty=True
                    )
                    for event in appended.events:
                        session.fold(event)
                    return

    def clear(self, *, erase: bool = False) -> None:
        """Retract all messages; with ``erase``, erase the conversation."""
        with self._lock:
            session = self._read()
            if erase and session.version:
                self.store.erase(self.session_id, reason="the history was cleared")
                self._session = _HistorySession()
            elif session.messages:
                ranges = VersionRange.of((each, each) for each in session.messages)
                gone = Retraction(versions=ranges, reason="the history was cleared")
                self.store.append(self.session_id, gone)

    def _read(self) -> _HistorySession:
        """Return the session's messages, reading only new events."""
        self._session = followed(self.store, self.store.stream(self.session_id), self._session)
        return self._session


class _HistorySession:
    """A session's state up to a version.

    Attributes:
        messages: The messages of the active branch, in order, by version.
        left: The messages of branches that were left, by version.
    """

    def __init__(self) -> None:
        self.version, self.turn, self.step, self.chain = 0, 0, -1, b""
        self.messages: dict[int, dict[str, Any]] = {}
        self.left: dict[int, dict[str, Any]] = {}
        self.calls: dict[str, str] = {}

    def fold(self, event: RecordedEvent) -> None:
        """Fold the next event."""
        self.version, self.chain, data = event.version, event.chain, event.data
        if event.meta.turn is not None:
            self.turn, step = event.meta.turn, event.meta.step
            self.step = -1 if step is None else step
        if isinstance(data, Retraction):
            for messages in (self.messages, self.left):
                _take(messages, data.versions)
        elif isinstance(data, BranchSwitch):
            # A withdrawn version that is also restored is active.
            self.left |= _take(self.messages, data.withdrawn)
            self.messages |= _take(self.left, data.restored)
            self.messages = dict(sorted(self.messages.items()))
        raw = getattr(data, "raw", None)
        if isinstance(raw, dict) and isinstance(raw.get(_RAW), dict):
            self.messages[event.version] = raw[_RAW]
        if isinstance(data, AssistantMessage):
            self.calls |= calls_of(event.version, data)

    def events_of(self, messages: Sequence[BaseMessage]) -> list[NewEvent]:
        """Return the events of new messages."""
        events = [] if self.version else [NewEvent(ConversationStart())]
        turn, step, calls = self.turn, self.step, {**self.calls}
        for version, message in enumerate(messages, start=self.version + len(events) + 1):
            data = message_payload(message, {_RAW: message_to_dict(message)}, version, calls)
            if data is None:
                raise InvalidEvent(
                    f"a message of type {message.type!r} cannot be stored: "
                    "only human, ai, system and tool messages can"
                )
            if isinstance(data, UserMessage):
                turn, step = turn + 1, -1
            elif isinstance(data, AssistantMessage):
                step += 1
                calls |= calls_of(version, data)
            in_step = isinstance(data, AssistantMessage | ToolResult) and step >= 0
            meta = Meta(turn=turn or None, step=step if in_step else None)
            events.append(NewEvent(data, meta=meta))
        return events


def _take(messages: dict[int, dict[str, Any]], ranges: Sequence[VersionRange]) -> dict[int, Any]:
    """Remove the messages in ranges of versions, and return them."""
    found = [each for each in messages if any(r.first <= each <= r.last for r in ranges)]
    return {version: messages.pop(version) for version in found}
