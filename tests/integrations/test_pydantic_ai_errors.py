"""What the conversation store of Pydantic AI does about errors while it reads."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart

from agent_eventstore import EventStore
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [KeyError, IndexError])
async def test_a_bug_is_not_taken_for_a_message_that_is_gone(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """It is raised, and not hidden by reading again in the framework's slower way."""
    conversations = EventStoreConversations(store)
    said = [ModelRequest(parts=[UserPromptPart("Hello")])]
    await conversations.save(Conversation(conversation_id="c", messages=said))
    up_to = conversations._histories.up_to

    def fails_once(*args: Any) -> Any:
        monkeypatch.setattr(conversations._histories, "up_to", up_to)
        raise error("a bug")

    monkeypatch.setattr(conversations._histories, "up_to", fails_once)
    with pytest.raises(error, match="a bug"):
        await conversations.load("c")
