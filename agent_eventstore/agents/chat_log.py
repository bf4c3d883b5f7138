"""What the log has of a chat: its history, where its mode stands, and who has not answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from agent_eventstore.participants import ChatMessage
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    ModeState,
    TextPart,
    TokenUsage,
    TurnEnd,
    UserMessage,
)
from eventstore.events.values import ContentPart
from projections import Views
from projections.context import ContextSettings

__all__ = ["LastMessage", "Said", "chat_history", "last_message", "mode_state", "text_of"]

_WHOLE = ContextSettings(max_tokens=None)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer of a participant, after a message."""

    speaker: str
    text: str
    tokens: TokenUsage | None


@dataclass(frozen=True, slots=True)
class LastMessage:
    """What a user said, and what came after it.

    Attributes:
        version: Of the message.
        text: Its text.
        answers: Who has answered since.
        since_state: Those that have answered since the mode's state was written last.
        state: The mode's state, if it was written since the message.
        answered: Whether the turn that answered it last has ended well.
    """

    version: int
    text: str
    answers: tuple[Said, ...]
    since_state: tuple[Said, ...]
    state: JsonObject | None
    answered: bool


def chat_history(views: Views, conversation_id: UUID) -> list[ChatMessage]:
    """Return what was said on the active branch, oldest first; a summary stands for its part."""
    view = views.context(conversation_id, mode=None, format="neutral", settings=_WHOLE)
    found = []
    for message in view.messages:
        if message["kind"] not in ("user", "assistant", "summary"):
            continue
        texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
        user, name = message["kind"] == "user", message["name"]
        found.append(
            ChatMessage(
                "\n".join(texts),
                speaker=None if user else name or message["kind"],
                name=name if user else None,
                version=message["versions"][-1],
            )
        )
    return found


def mode_state(store: EventStore, conversation_id: UUID) -> JsonObject:
    """Return the state of the mode as it was written last; empty if it never was."""
    for event in store.read(conversation_id, backward=True):
        if isinstance(event.data, ModeState):
            return event.data.state
    return {}


def last_message(
    store: EventStore, conversation_id: UUID, *, turn: int | None = None
) -> LastMessage | None:
    """Return the last message of a user's with what came after it; None if there is none.

    Args:
        store: Where the conversation is.
        conversation_id: The conversation.
        turn: Of this turn, instead of the last one that has a message.
    """
    answers: list[Said] = []
    since: list[Said] | None = None
    state: JsonObject | None = None
    status: str | None = None
    for event in store.read(conversation_id, backward=True):
        data = event.data
        if isinstance(data, AssistantMessage):
            who = data.name or ""
            answers.insert(0, Said(who, text_of(data.parts), data.usage))
        elif isinstance(data, ModeState) and since is None:
            state, since = data.state, list(answers)
        elif isinstance(data, TurnEnd):
            status = status or data.status
        elif isinstance(data, UserMessage):
            if turn in (None, event.meta.turn):
                told = tuple(answers if since is None else since)
                text = text_of(data.parts)
                return LastMessage(event.version, text, (*answers,), told, state, status == "ok")
            answers, since, state, status = [], None, None, None
    return None


def text_of(parts: Sequence[ContentPart]) -> str:
    """Return the text of a message."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))
