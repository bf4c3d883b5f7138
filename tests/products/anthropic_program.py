"""A program of its own: the loop around Anthropic's SDK, with threads; told where its model is.

It prints what the model says as it says it, and ends when it is told to stop.
"""

from __future__ import annotations

import signal
import sys

from anthropic import Anthropic

from agent_eventstore.conversation import Conversation
from eventstore import EventStore


def main(url: str, conversation_id: str, model: str) -> None:
    """Hold one turn in a conversation."""
    # A shell starts what runs behind it with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        EventStore.open(url, migrate=False) as store,
        Anthropic(base_url=model, api_key="test") as client,
        Conversation.open(store, conversation_id, if_busy="take_over") as conversation,
        conversation.turn("hello") as turn,
        turn.client(client).messages.stream(
            model="claude-test", max_tokens=100, messages=[{"role": "user", "content": "hello"}]
        ) as stream,
    ):
        for text in stream.text_stream:
            sys.stdout.write(text)
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
