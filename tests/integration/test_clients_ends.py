"""How streams of recorded clients end, and answers that are made in the background."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from agent_eventstore import AsyncConversation, AsyncEventStore
from agent_eventstore.clients import UnrecordedCall, record
from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.integration.chatting import MESSAGES, payloads
from tests.unit.streams.test_pieces import chat

DONE = b"data: [DONE]\n\n"
_RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
_RESPONSE |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def answering(content: bytes, kind: str) -> httpx2.MockTransport:
    """Return a transport that answers every request with this body."""
    headers = {"content-type": kind}
    return httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(content))
    )


def client(content: bytes, kind: str = "text/event-stream") -> OpenAI:
    """Return a client whose server answers with this body."""
    http = httpx2.Client(transport=answering(content, kind))
    return OpenAI(api_key="x", base_url="http://127.0.0.1:9", max_retries=0, http_client=http)


def said(text: str) -> bytes:
    """Return a stream of a chunk with this text, which has no finish reason."""
    chunk = chat({"content": text}, id="x", created=1, model="m")
    return f"data: {json.dumps(chunk)}\n\n".encode()


@pytest.mark.parametrize(
    ("sent", "kinds"),
    [
        (said("4") + DONE, ["llm_request", "assistant_chunk", "assistant_message"]),
        (said("4"), ["llm_request", "assistant_chunk", "llm_error"]),
        # The text of an answer is no mark of its end.
        (said("\ndata: [DONE]"), ["llm_request", "assistant_chunk", "llm_error"]),
    ],
    ids=["marked", "unmarked", "quoted"],
)
def test_end_mark_without_a_finish_reason(
    shared_store: EventStore, conversation: Conversation, sent: bytes, kinds: list[str]
) -> None:
    """The SDK hides the mark; the answer is complete if it was there."""
    with conversation.turn("hello"):
        stream = record(client(sent)).chat.completions.create(
            model="m", messages=MESSAGES, stream=True
        )
        assert 1 == len(list(stream))
    found = [each.type for each in shared_store.read(conversation.id)]

    assert kinds == [kind for kind in found if kind in ("llm_error", *kinds)]


def test_end_mark_in_an_event_loop(shared_store: EventStore) -> None:
    """An asynchronous client reads other methods of the response."""
    assert "4" == asyncio.run(_streamed(shared_store))


async def _streamed(shared_store: EventStore) -> str:
    http = httpx2.AsyncClient(transport=answering(said("4") + DONE, "text/event-stream"))
    sdk = AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9", http_client=http)
    conversation = await AsyncConversation.start(AsyncEventStore(shared_store))
    async with conversation, conversation.turn("hello") as turn:
        create: Any = record(sdk).chat.completions.create
        async for _ in await create(model="m", messages=MESSAGES, stream=True):
            pass
    assert turn.last_call is not None
    return turn.last_call.text


def test_answer_that_is_retrieved_is_reported(
    shared_store: EventStore, conversation: Conversation
) -> None:
    """It was neither recorded nor reported."""
    body = json.dumps({**_RESPONSE, "status": "completed"}).encode()
    with (
        conversation.turn("hello"),
        pytest.warns(UnrecordedCall, match=r"retrieve is not recorded"),
    ):
        record(client(body, "application/json")).responses.retrieve("r")


def test_background_answer_recorded_by_hand(
    shared_store: EventStore, conversation: Conversation
) -> None:
    """Polling within the block of the call records the answer once, when it is there."""
    text = {"type": "output_text", "text": "hi", "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        for status, output in (("queued", []), ("in_progress", []), ("completed", [item])):
            call.response({**_RESPONSE, "status": status, "output": output})
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

    assert ("hi", "completed") == (call.text, message.finish_reason)


def test_background_answer_of_a_client(
    shared_store: EventStore, conversation: Conversation
) -> None:
    """What has only been queued is an error that says how to go on, not an empty answer."""
    body = json.dumps({**_RESPONSE, "status": "queued"}).encode()
    with conversation.turn("hello"):
        record(client(body, "application/json")).responses.create(
            model="m", input="hello", background=True
        )
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert [] == payloads(shared_store, conversation, e.AssistantMessage)
    assert ("interrupted", {"response_id": "r", "status": "queued"}) == (error.kind, error.raw)
    assert "retrieve it" in error.message
