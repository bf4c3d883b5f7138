"""Record the calls of OpenAI's and Anthropic's clients, without changes to the product's loop.

::

    client = record(OpenAI())
    with conversation.turn("hello") as turn:
        client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)

Neither SDK is imported here: a client is recognised by its interface.
"""

from agent_eventstore.clients.client_requests import UnrecordedCall, recorded
from agent_eventstore.clients.proxy import record

__all__ = ["UnrecordedCall", "record", "recorded"]
