"""Products and frameworks that ask the SDK for the HTTP response itself.

LangChain calls ``with_raw_response.create(...).parse()``, the OpenAI Agents SDK
``with_streaming_response``: what goes that way was passed on and not recorded.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from agent_eventstore.clients import record
from agent_eventstore.clients.client_requests import Body
from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.integration.chatting import CHAT, MESSAGES, answer, payloads
from tests.integration.products import SURFACES, AsyncProduct, Product, Surface, ThreadProduct
from tests.integration.replay_server import Refused, ReplayServer, Streamed, Whole, sse
from tests.integration.test_clients import BROKEN, SAID, WHOLE, Log, text_of, text_of_final
from tests.unit.streams.recorded import as_sdk_object, chunks_of, fed

RAW = (openai._legacy_response.LegacyAPIResponse, anthropic._response.BaseAPIResponse)


@pytest.fixture(params=SURFACES)
def surface(request: pytest.FixtureRequest) -> Surface:
    """Give each of the APIs."""
    return SURFACES[request.param]


@pytest.fixture(params=[ThreadProduct, AsyncProduct], ids=["threads", "asyncio"])
def product(
    request: pytest.FixtureRequest,
    shared_store: EventStore,
    server: ReplayServer,
    surface: Surface,
) -> Product:
    """Give a product of each kind."""
    made: Product = request.param(shared_store, server, surface)
    return made


def test_raw_answer(server: ReplayServer, surface: Surface, product: Product) -> None:
    """The caller has the SDK's own response, parses it, and the answer is recorded."""
    server.will(Whole(WHOLE[surface.specification]))
    response, parsed = product.raw()
    log = Log(product)

    assert isinstance(response, RAW)
    assert WHOLE[surface.specification] == json.loads(response.http_response.content)
    assert SAID == text_of_final(parsed) == text_of(log.message())
    assert ["llm_request", "assistant_message"] == log.types


def test_raw_stream(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A stream that was parsed from a raw response gives its chunks unchanged, and is recorded."""
    server.will(Streamed(surface.stream))
    response, chunks = product.raw(stream=True)
    log, wanted = Log(product), chunks_of(surface.stream)

    assert isinstance(response, RAW)
    sent = [chunk for chunk in wanted if chunk != {"type": "ping"}]
    assert [as_sdk_object(surface.stream, chunk) for chunk in sent] == chunks
    assert ["llm_request", "assistant_message"] == log.types
    assert text_of(fed(wanted).message()) == text_of(log.message()) == log.streamed
    assert fed(wanted).message().usage == log.message().usage


def test_lines_of_an_answer(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A body that the caller reads by lines is read along, and recorded at its end."""
    server.will(Whole(WHOLE[surface.specification]))
    lines = product.piped()

    assert WHOLE[surface.specification] == json.loads("".join(lines))
    assert SAID == text_of(Log(product).message())


def test_lines_of_a_stream(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A stream that the caller reads by lines is recorded as its chunks pass."""
    server.will(Streamed(surface.stream))
    lines = product.piped(stream=True)
    log = Log(product)

    assert b"".join(sse(surface.stream)).decode().split("\n")[:-1] == lines
    assert text_of(fed(chunks_of(surface.stream)).message()) == text_of(log.message())
    assert log.streamed == text_of(log.message())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("way", ["raw", "piped"])
def test_body_read_by_a_hook(
    server: ReplayServer, surface: Surface, product: Product, way: str, stream: bool
) -> None:
    """A body that a hook has read before the response is handed out is recorded whole."""
    threads = isinstance(product, ThreadProduct)
    product.hooks.append(httpx2.Response.read if threads else httpx2.Response.aread)
    server.will(Streamed(surface.stream) if stream else Whole(WHOLE[surface.specification]))
    getattr(product, way)(**({"stream": True} if stream else {}))
    wanted = text_of(fed(chunks_of(surface.stream)).message()) if stream else SAID

    assert wanted == text_of(Log(product).message())


def test_lines_that_are_left(server: ReplayServer, surface: Surface, product: Product) -> None:
    """Leaving the response early is a cancelled call, with what had passed."""
    server.will(Streamed(surface.stream, "stall", after=6))
    lines = product.piped(8, stream=True)
    log = Log(product)

    assert 8 == len(lines)
    assert ["llm_request", "llm_error"] == log.types
    assert ("cancelled", log.streamed) == (log.error().kind, log.error().partial_text)


def test_answer_that_is_not_read(server: ReplayServer, surface: Surface, product: Product) -> None:
    """Nothing is read that the caller does not read: the call is cancelled, and the turn ends."""
    server.will(Whole(WHOLE[surface.specification]))
    product.piped(0)

    assert "cancelled" == Log(product).error().kind


def test_raw_stream_that_is_cut(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A connection that breaks is an error of the network, with all that had passed before."""
    server.will(Streamed(surface.stream, "cut", after=6))
    with pytest.raises(BROKEN):
        product.raw(stream=True)
    error = Log(product).error()

    assert ("network", True) == (error.kind, error.retryable)
    assert fed(chunks_of(surface.stream)[:6]).partial().text == error.partial_text != ""


def test_raw_refusal(server: ReplayServer, product: Product) -> None:
    """The SDK's exception reaches the caller, and the log says what it means."""
    server.will(Refused(429, {"error": {"type": "told", "message": "not now"}}))
    with pytest.raises((anthropic.APIStatusError, openai.APIStatusError)):
        product.raw()

    assert ("rate_limit", 429) == (Log(product).error().kind, Log(product).error().status_code)


def test_raw_client(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """The raw face of the whole client is the same: ``client.with_raw_response.chat...``."""
    server.will(answer(), Streamed(CHAT))
    raw: Any = client.with_raw_response
    with conversation.turn("hello"):
        said = raw.chat.completions.create(model="m", messages=MESSAGES).parse()
        for _ in raw.chat.completions.create(model="m", messages=MESSAGES, stream=True).parse():
            pass
    messages = payloads(shared_store, conversation, e.AssistantMessage)

    assert 2 == len(messages)
    assert said.choices[0].message.content == messages[0].parts[0].text


def test_body_that_is_read_twice(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """A body that was read, and so is kept, may be looked at again; it is recorded once."""
    server.will(answer())
    create: Any = client.chat.completions.with_streaming_response.create
    with conversation.turn("hello"), create(model="m", messages=MESSAGES) as response:
        read, parsed = response.read(), response.parse()
        again = b"".join(response.iter_bytes())
    [message] = payloads(shared_store, conversation, e.AssistantMessage)

    assert read == again
    assert parsed.choices[0].message.content == message.parts[0].text


def test_methods_beside_the_models(server: ReplayServer) -> None:
    """Raw methods that ask no model are the client's own."""
    with OpenAI(base_url=server.url, api_key="test") as plain:
        raw: Any = plain.chat.completions.with_raw_response
        wrapped: Any = record(plain).chat.completions.with_raw_response

        assert raw.list == wrapped.list


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.integers(1, 40), st.booleans())
def test_stream_in_any_pieces(end: bytes, size: int, spaced: bool) -> None:
    """However the bytes of a stream are cut and its lines ended, its chunks are the same."""
    said = [{"a": "\u2028é\x0b"}, {"b": [1, {"c": "data: x"}]}, {"d": "\\n"}]
    lines = [b": a comment", b"event: told", b"id: 7"]
    for chunk in [json.dumps(each, ensure_ascii=False).encode() for each in said]:
        lines += [b"data:" + b" " * spaced + chunk, b""]
    sent = end.join([*lines, b"data: [DONE]", b"", b'data: {"cut', b""])
    body = Body("text/event-stream; charset=utf-8")

    passed = [sent[i : i + size] for i in range(0, len(sent), size)]
    assert [*said, "[DONE]"] == [chunk for piece in passed for chunk in body.feed(piece)]
    assert body.whole() is None


def test_unknown_document() -> None:
    """What is not JSON is text."""
    body = Body("text/html")
    body.feed("<p>é".encode())

    assert "<p>é" == body.whole()


def test_errors_of_the_http_library_are_the_callers(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer, client: OpenAI
) -> None:
    """Reading a response that was closed raises what the HTTP library raises."""
    server.will(Streamed(CHAT, "stall", after=3))
    create: Any = client.chat.completions.with_streaming_response.create
    with (
        conversation.turn("hello"),
        create(model="m", messages=MESSAGES, stream=True) as response,
    ):
        response.close()
        with pytest.raises(httpx2.StreamClosed):
            next(response.iter_bytes())
    [error] = payloads(shared_store, conversation, e.LlmError)

    assert "cancelled" == error.kind
