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


def sent(*deltas: dict[str, Any]) -> bytes:
    """Return a stream of chunks with these deltas, without a finish reason."""
    chunks = [chat(delta, id="x", created=1, model="m") for delta in deltas]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode()


def calling(arguments: str) -> bytes:
    """Return a stream of a text and a call whose arguments have come so far."""
    function = {"name": "look", "arguments": arguments}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    return sent({"content": "4"}, {"tool_calls": [call]})


ENDS = [
    ("marked", sent({"content": "4"}) + DONE, True),
    ("closed", sent({"content": "4"}), True),
    ("closed after a comment", sent({"content": "4"}) + b": bye\r\n\r\n", True),
    ("closed after a whole call", calling("{}"), True),
    ("marked after a call without arguments", calling("") + DONE, True),
    ("closed after a name", calling(""), False),
    ("closed within arguments", calling('{"at": '), False),
    ("marked within arguments", calling('{"at": ') + DONE, False),
    ("closed within an event", sent({"content": "4"}) + b'data: {"choices": [', False),
    ("closed before the blank line", sent({"content": "4"}) + sent({"content": "2"})[:-1], False),
    ("closed while thinking", sent({"reasoning": "4"}), False),
    ("closed before any text", sent({"role": "assistant", "content": ""}), False),
]


@pytest.mark.parametrize("raw", [False, True], ids=["stream", "bytes"])
@pytest.mark.parametrize(
    ("content", "whole"), [each[1:] for each in ENDS], ids=[each[0] for each in ENDS]
)
def test_stream_without_a_finish_reason(
    shared_store: EventStore,
    conversation: Conversation,
    content: bytes,
    whole: bool,
    raw: bool,
) -> None:
    """It is an answer if the server closed it in order, and no call may have been cut."""
    request: dict[str, Any] = {"model": "m", "messages": MESSAGES, "stream": True}
    with conversation.turn("hello"):
        completions = record(client(content)).chat.completions
        if raw:
            with completions.with_streaming_response.create(**request) as response:
                response.read()
        else:
            list(completions.create(**request))
    messages = payloads(shared_store, conversation, e.AssistantMessage)
    errors = payloads(shared_store, conversation, e.LlmError)

    if whole:
        assert [] == errors
        assert [(None, 1)] == [(each.finish_reason, len(each.parts)) for each in messages]
    else:
        assert [] == messages
        assert [("network", True)] == [(each.kind, each.retryable) for each in errors]


def test_stream_without_a_finish_reason_that_is_fed(
    shared_store: EventStore, conversation: Conversation
) -> None:
    """How the connection ended is not known then: nothing tells the answer from half of it."""
    with conversation.turn("hello") as turn, turn.llm_call() as call:
        call.feed(chat({"content": "4"}))
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert ("network", "4") == (error.kind, error.partial_text)


def test_end_mark_in_an_event_loop(shared_store: EventStore) -> None:
    """An asynchronous client reads other methods of the response."""
    assert "4" == asyncio.run(_streamed(shared_store))


async def _streamed(shared_store: EventStore) -> str:
    content = sent({"content": "4"}) + DONE
    http = httpx2.AsyncClient(transport=answering(content, "text/event-stream"))
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
