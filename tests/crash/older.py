"""A writer process that is thought dead, and goes on all the same."""

from __future__ import annotations

from multiprocessing.connection import Connection
from uuid import UUID

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore.errors import WriterFenced
from tests.crash.stand_in import answer

__all__ = ["write_on"]


def write_on(index: int, url: str, conversation_id: str, line: Connection) -> None:
    """Begin a conversation, stop in mid-stream until told to go on, and say how that ended."""
    with EventStore.open(url, migrate=False, pool_size=1) as store:
        conversation = Conversation.start(store, conversation_id=UUID(conversation_id))
        chunks = answer(["first", *["more "] * 300])
        try:
            with conversation, conversation.turn("hello") as turn, turn.llm_call() as call:
                for chunk in chunks:
                    call.feed(chunk)
                    if chunk["choices"][0]["delta"].get("content") == "first":
                        line.send("in mid-stream")
                        line.recv()
            line.send("completed")
        except WriterFenced:
            line.send("fenced")
