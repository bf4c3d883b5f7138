"""A plugin of pytest: `EventStoreChatMessageHistory` in the place of LangChain's own history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import langchain_core.chat_history
from langchain_core.messages import BaseMessage
from stores import temporary_store  # type: ignore[import-not-found]

from agent_eventstore.integrations.langchain import EventStoreChatMessageHistory


class History(EventStoreChatMessageHistory):
    """A history on a store of its own, made and compared like `InMemoryChatMessageHistory`."""

    def __init__(self, *, messages: Sequence[BaseMessage] = ()) -> None:
        super().__init__(temporary_store(), "history")
        if messages:
            self.add_messages(messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.messages == other.messages

    __hash__ = None  # type: ignore[assignment]


chat_history: Any = langchain_core.chat_history
chat_history.InMemoryChatMessageHistory = History
