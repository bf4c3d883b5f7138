"""The application layer: what an agent product calls to record its conversations and go on.

::

    from conversations import Conversation

    conversation = Conversation.start(store, mode="agent", title="...")
    with conversation.turn("hello") as turn:
        ...
"""

from conversations.aio import AsyncConversation
from conversations.conversation import Conversation
from conversations.recovery import Recovery, recover, recover_all

__all__ = ["AsyncConversation", "Conversation", "Recovery", "recover", "recover_all"]
