"""Posts that a product sends again: by their message's id, the first one's turn is found.

A browser that lost the connection posts a message a second time, to another process perhaps. The
events of a turn that has a message's id have ids made of it, so that the log itself holds it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from agent_eventstore.errors import TurnRunning
from eventstore import EventStore
from eventstore.events import AssistantMessage, TextPart, TokenUsage, TurnEnd
from eventstore.ids import derived_id
from eventstore.sql.streams import version_of

__all__ = ["TurnOutcome", "first_outcome", "posted_ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What came of a turn.

    Attributes:
        turn: Its number.
        version: That of its first event.
        status: How it ended: ``ok``, ``error``, ``max_steps``, ``cancelled`` or
            ``aborted``; None if erased.
        text: The text of its last answer; empty if there was none, or it has been erased.
        error: What went wrong, in words.
        tokens: Those of its model calls.
    """

    turn: int | None
    version: int
    status: Literal["ok", "error", "max_steps", "cancelled", "aborted"] | None
    text: str = ""
    error: str | None = None
    tokens: TokenUsage | None = None


def posted_ids(conversation_id: UUID, message_id: str) -> tuple[UUID, UUID]:
    """Return the ids of a posted turn's start and of its message."""
    return (
        derived_id(conversation_id, "turn of", message_id),
        derived_id(conversation_id, "message", message_id),
    )


def first_outcome(store: EventStore, conversation_id: UUID, message_id: str) -> TurnOutcome | None:
    """Return what came of the turn of a message; None if it was not posted yet.

    Raises:
        TurnRunning: It has not ended.
    """
    start, _ = posted_ids(conversation_id, message_id)
    with store.reading() as connection:
        version = version_of(connection, conversation_id, start)
    if version is None:
        return None
    turn, text = None, ""
    for event in store.read(conversation_id, after=version - 1):
        turn = event.meta.turn if event.version == version else turn
        if event.meta.turn != turn:
            continue
        if isinstance(event.data, AssistantMessage):
            text = "".join(part.text for part in event.data.parts if isinstance(part, TextPart))
        if event.type == TurnEnd.type:
            end = event.data
            return TurnOutcome(
                turn=turn,
                version=version,
                status=end.status if isinstance(end, TurnEnd) else None,
                text=text,
                error=end.error if isinstance(end, TurnEnd) else None,
                tokens=end.tokens if isinstance(end, TurnEnd) else None,
            )
    raise TurnRunning(conversation_id, turn, message_id)
