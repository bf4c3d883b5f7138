"""`EventStoreChatMessageHistory`: LangChain's history of messages as a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from agent_eventstore.integrations.langchain_messages import message_payload
from eventstore import NO_STREAM, EventStore, NewEvent
from eventstore.errors import ConversationNotFound, InvalidEvent, WrongExpectedVersion
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Meta,
    Retraction,
    UserMessage,
    VersionRange,
)
from eventstore.ids import call_id

__all__ = ["EventStoreChatMessageHistory"]

_RAW = "langchain"
_ATTEMPTS = 20


class EventStoreChatMessageHistory(BaseChatMessageHistory):
    """A session's messages, each an event: what was said, asked of tools and spent.

    Args:
        store: Where to; one of `EventStore.for_owner` for the sessions of one tenant or user.
        session_id: The conversation's key, or its id where it is a UUID.
    """

    def __init__(self, store: EventStore, session_id: str) -> None:
        self.store, self.session_id = store, session_id

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages in order, without those that were cleared."""
        return messages_from_dict([*self._read().messages.values()])  # type: ignore[no-any-return]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all of them in one transaction or none.

        Raises:
            InvalidEvent: A message is of a kind that the log has no event for, or is not JSON.
        """
        for attempt in range(_ATTEMPTS if messages else 0):
            said = self._read()
            events = said.adding(messages)
            expected = said.version or NO_STREAM
            try:
                self.store.append(self.session_id, events, expected_version=expected)
            except WrongExpectedVersion:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    def clear(self, *, erase: bool = False) -> None:
        """Take all messages out of the history; with ``erase`` what they said is gone for good."""
        said = self._read()
        if erase:
            try:
                self.store.erase(self.session_id, reason="the history was cleared")
            except ConversationNotFound:
                return
        elif said.messages:
            ranges = tuple(VersionRange(first=each, last=each) for each in said.messages)
            self.store.append(
                self.session_id, Retraction(versions=ranges, reason="the history was cleared")
            )

    def _read(self) -> _Said:
        said = _Said()
        for event in self.store.read(self.session_id):
            said.take(event.version, event.data, event.meta)
        return said


class _Said:
    """What has been said in a session, by version."""

    def __init__(self) -> None:
        self.version, self.turn, self.step = 0, 0, -1
        self.messages: dict[int, dict[str, Any]] = {}
        self.calls: dict[str, str] = {}

    def take(self, version: int, data: Any, meta: Meta) -> None:
        """Fold one event."""
        self.version = version
        if meta.turn is not None:
            self.turn, self.step = meta.turn, -1 if meta.step is None else meta.step
        if isinstance(data, Retraction):
            for part in data.versions:
                for each in range(part.first, part.last + 1):
                    self.messages.pop(each, None)
        raw = getattr(data, "raw", None)
        if isinstance(raw, dict) and isinstance(raw.get(_RAW), dict):
            self.messages[version] = raw[_RAW]
        if isinstance(data, AssistantMessage):
            for index, request in enumerate(data.tool_calls):
                if request.provider_id is not None:
                    self.calls[request.provider_id] = call_id(version, index)

    def adding(self, messages: Sequence[BaseMessage]) -> list[NewEvent]:
        """Return the events of further messages, and fold them."""
        events = [] if self.version else [NewEvent(ConversationStart())]
        version = self.version + len(events)
        for message in messages:
            version += 1
            raw = {_RAW: message_to_dict(message)}
            data = message_payload(message, raw, version, self.calls)
            if data is None:
                raise InvalidEvent(
                    f"a message of type {message.type!r} has no event; "
                    "human, ai, system and tool messages have"
                )
            if isinstance(data, UserMessage):
                self.turn, self.step = self.turn + 1, -1
            elif isinstance(data, AssistantMessage):
                self.step += 1
            meta = Meta(turn=self.turn or None, step=self.step if self.step >= 0 else None)
            events.append(NewEvent(data, meta=meta))
            expected, self.version = self.version, version
            self.take(version, data, meta)
            self.version = expected
        return events
