"""Clients of OpenAI and Anthropic whose calls are recorded; the product's loop stays as it is.

::

    client = record(OpenAI())
    with conversation.turn("hello") as turn:
        client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)

Neither SDK is imported here: a client is told by its shape.
"""

from agent_eventstore.clients.asked import UnrecordedCall, recorded
from agent_eventstore.clients.proxy import record

__all__ = ["UnrecordedCall", "record", "recorded"]
