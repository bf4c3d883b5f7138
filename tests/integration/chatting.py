"""A chat with one client of OpenAI's, as the tests of the wrappers hold it."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.integration.replay_server import Whole

__all__ = ["CHAT", "MESSAGES", "answer", "ask", "payloads"]

CHAT = "openai-chat-text"
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]


def answer(text: str = "Hi.") -> Whole:
    """Return a chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Whole(body)


def ask(client: OpenAI, **options: Any) -> Any:
    """Call the model with the usual arguments."""
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **options})


def payloads(store: EventStore, conversation: Conversation, *kinds: type[e.Payload]) -> list[Any]:
    """Return the payloads of these types."""
    return [r.data for r in store.read(conversation.id) if isinstance(r.data, kinds)]
