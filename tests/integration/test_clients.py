"""Products that only wrapped their client: whatever the provider does, the log has it.

The official SDKs talk to a server that replays real streams; see `tests.integration.replay_server`.
"""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from agent_eventstore.clients.client_requests import UnrecordedCall
from agent_eventstore.requests import digest_of
from eventstore import EventStore
from eventstore import events as e
from tests.integration.frameworks import WIRES, Call
from tests.integration.products import SURFACES, AsyncProduct, Product, Surface, ThreadProduct
from tests.integration.replay_server import Refused, ReplayServer, Streamed, Whole
from tests.unit.streams.recorded import as_sdk_object, chunks_of, fed

SAID = "Hello there."
SDK_ERRORS = (anthropic.APIError, openai.APIError)
BROKEN = (*SDK_ERRORS, httpx2.HTTPError)

WHOLE: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4.1-nano",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": SAID},
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    },
    "openai_responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.3-codex",
        "status": "completed",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": SAID, "annotations": []}],
            }
        ],
        "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12},
    },
    "anthropic_messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [{"type": "text", "text": SAID}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    },
}


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


class Log:
    """What stands in the log of a product's conversation."""

    def __init__(self, product: Product) -> None:
        events = list(product.store.read(product.id))
        self.data = [event.data for event in events]
        self.metas = [event.meta for event in events]

    @property
    def types(self) -> list[str]:
        """The types of the events but for those of the turn, the session and the chunks."""
        told = ("llm_request", "assistant_message", "llm_error")
        return [data.type for data in self.data if data and data.type in told]

    @property
    def requests(self) -> list[e.LlmRequest]:
        """The requests."""
        return [data for data in self.data if isinstance(data, e.LlmRequest)]

    @property
    def streamed(self) -> str:
        """The text of all chunks."""
        return "".join(data.text for data in self.data if isinstance(data, e.AssistantChunk))

    def message(self) -> e.AssistantMessage:
        """Return the only message."""
        [message] = [data for data in self.data if isinstance(data, e.AssistantMessage)]
        return message

    def error(self) -> e.LlmError:
        """Return the only error."""
        [error] = [data for data in self.data if isinstance(data, e.LlmError)]
        return error


def text_of(message: e.AssistantMessage) -> str:
    """Return a message's text."""
    return "".join(part.text for part in message.parts if isinstance(part, e.TextPart))


def text_of_final(final: Any) -> str:
    """Return the text of what an SDK's helper has put together."""
    if hasattr(final, "choices"):
        return str(final.choices[0].message.content)
    if hasattr(final, "output_text"):
        return str(final.output_text)
    return "".join(block.text for block in final.content if block.type == "text")


def test_whole_answer(server: ReplayServer, surface: Surface, product: Product) -> None:
    """An answer that is not streamed reaches the caller as it is, and is recorded."""
    server.will(Whole(WHOLE[surface.specification]))
    answer = product.whole()
    log = Log(product)

    assert SAID == text_of_final(answer) == text_of(log.message())
    assert ["llm_request", "assistant_message"] == log.types
    usage = log.message().usage
    assert (9, 3) == (usage and (usage.prompt_tokens, usage.completion_tokens))


def test_request(server: ReplayServer, surface: Surface, product: Product) -> None:
    """The request is recorded with what was sent beside the messages, and with their digest."""
    server.will(Whole(WHOLE[surface.specification]))
    tool = {"type": "custom", "name": "look", "input_schema": {"type": "object"}}
    product.whole(tools=[tool])
    [asked] = Log(product).requests
    [sent] = server.asked

    rest = {key: sent.body[key] for key in sent.body.keys() & {"temperature", "max_tokens"}}
    assert rest == asked.parameters
    assert (surface.specification, sent.body["model"]) == (
        asked.invocation.specification,
        asked.invocation.model,
    )
    assert (tool,) == asked.tools
    assert digest_of(sent.body.get("messages", sent.body.get("input"))) == asked.digest


@pytest.mark.parametrize("taken", [True, False], ids=["by-default", "off"])
def test_tools_that_a_framework_runs(
    server: ReplayServer, surface: Surface, product: Product, taken: bool
) -> None:
    """Results that only a later request holds are recorded, unless the product says otherwise."""
    wire, call = WIRES[surface.specification], Call("call_1")
    server.will(Whole(wire.answer(call)), Whole(wire.answer(text=SAID)))
    if not taken:
        product.recorded["tools_from_messages"] = False
    prompt = "input" if "input" in surface.request else "messages"
    sent = [*wire.said, *wire.repeated(call), wire.result(call, "18 degrees")]
    product.several({}, {prompt: sent})
    results = [data for data in Log(product).data if isinstance(data, e.ToolResult)]

    assert ([("success", "18 degrees")] if taken else []) == [
        (result.status, result.content) for result in results
    ]


def test_answer_of_an_unknown_shape(server: ReplayServer, product: Product) -> None:
    """It reaches the product, which is warned; the log has what came, and no empty answer."""
    server.will(Whole({"generations": [{"text": SAID}]}))
    with pytest.warns(UnrecordedCall, match="its answer has an unknown format"):
        product.whole()
    log = Log(product)

    assert ["llm_request", "llm_error"] == log.types
    assert ("invalid", False) == (log.error().kind, log.error().retryable)
    assert SAID in str(log.error().raw)


def test_stream(server: ReplayServer, surface: Surface, product: Product) -> None:
    """Chunks reach the caller unchanged, and their whole is recorded."""
    server.will(Streamed(surface.stream))
    product.streamed()
    log, chunks = Log(product), chunks_of(surface.stream)

    wanted = [as_sdk_object(surface.stream, chunk) for chunk in chunks if chunk != {"type": "ping"}]
    assert wanted == product.chunks
    assert ["llm_request", "assistant_message"] == log.types
    assert text_of(fed(chunks).message()) == text_of(log.message()) == log.streamed
    assert fed(chunks).message().usage == log.message().usage


def test_helper(server: ReplayServer, surface: Surface, product: Product) -> None:
    """The SDK's own helper puts together the same text as the recorder."""
    server.will(Streamed(surface.stream))
    final = product.helped()
    log = Log(product)

    assert ["llm_request", "assistant_message"] == log.types
    assert text_of_final(final) == text_of(log.message()) != ""


def test_cut_stream(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A connection that breaks in mid-chunk is an error with all that had arrived before."""
    server.will(Streamed(surface.stream, "cut", after=6))
    with pytest.raises(BROKEN):
        product.streamed()
    log = Log(product)

    assert ["llm_request", "llm_error"] == log.types
    assert ("network", True) == (log.error().kind, log.error().retryable)
    assert fed(product.chunks).partial().text == log.error().partial_text == log.streamed != ""


def test_stream_that_ends_without_a_mark(
    server: ReplayServer, surface: Surface, product: Product
) -> None:
    """A text is an answer if the server closed in good order, though it did not mark the end."""
    server.will(Streamed(surface.stream, "short", after=6))
    product.streamed()
    log = Log(product)

    assert ["llm_request", "assistant_message"] == log.types
    assert fed(product.chunks).partial().text == text_of(log.message()) != ""
    assert log.message().finish_reason is None


def test_stalled_stream(server: ReplayServer, surface: Surface, product: Product) -> None:
    """A stream that the client has lost patience with is a timeout."""
    server.will(Streamed(surface.stream, "stall", after=6))
    product.options["timeout"] = 0.3
    with pytest.raises(BROKEN):
        product.streamed()
    error = Log(product).error()

    partial = fed(product.chunks).partial().text if product.chunks else ""
    assert ("timeout", True, partial) == (error.kind, error.retryable, error.partial_text)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "dropped"])
def test_stream_that_nobody_reads_to_its_end(
    server: ReplayServer, surface: Surface, product: Product, close: bool
) -> None:
    """Leaving the loop records what had been read; at the latest when the turn ends."""
    server.will(Streamed(surface.stream))
    product.streamed(6, close=close)
    log = Log(product)

    assert ["llm_request", "llm_error"] == log.types
    assert ("cancelled", False) == (log.error().kind, log.error().retryable)
    assert fed(product.chunks).partial().text == log.error().partial_text != ""
    assert isinstance(log.data[-1], e.TurnEnd)


def test_helper_that_is_left(server: ReplayServer, surface: Surface, product: Product) -> None:
    """Leaving the SDK's helper early records a cancelled call."""
    server.will(Streamed(surface.stream))
    product.helped(leave=True)

    assert "cancelled" == Log(product).error().kind


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(429, "rate_limit", True), (500, "provider", True), (400, "invalid", False)],
)
def test_refusal(
    server: ReplayServer,
    product: Product,
    status: int,
    kind: str,
    retryable: bool,
) -> None:
    """The SDK's exception reaches the caller, and the log says what it means."""
    server.will(Refused(status, {"error": {"type": "told", "message": "not now"}}))
    with pytest.raises((anthropic.APIStatusError, openai.APIStatusError)) as raised:
        product.streamed()
    error = Log(product).error()

    assert status == getattr(raised.value, "status_code", None) == error.status_code
    assert (kind, retryable) == (error.kind, error.retryable)
    assert "not now" in error.message


def test_refusal_of_the_helper(server: ReplayServer, product: Product) -> None:
    """A refusal that the SDK's helper meets is recorded, too."""
    server.will(Refused(429, {"error": {"message": "not now"}}))
    with pytest.raises(SDK_ERRORS):
        product.helped()

    assert "rate_limit" == Log(product).error().kind


def test_another_try(server: ReplayServer, surface: Surface, product: Product) -> None:
    """The same prompt after an error is a retry of the call that failed, in the same step."""
    server.will(Refused(500, {"error": {"message": "oh"}}), Whole(WHOLE[surface.specification]))
    product.insistent()
    log = Log(product)
    failed, again = log.requests

    assert ["llm_request", "llm_error", "llm_request", "assistant_message"] == log.types
    assert [(1, None), (2, failed.llm_call_id)] == [
        (r.attempt, r.retry_of) for r in (failed, again)
    ]
    assert {0} == {meta.step for meta in log.metas if meta.step is not None}


def test_tries_of_the_sdk_are_its_own(
    server: ReplayServer, surface: Surface, product: Product
) -> None:
    """What the SDK tries again by itself is one call."""
    server.will(Refused(500, {"error": {}}), Whole(WHOLE[surface.specification]))
    product.options["max_retries"] = 1
    product.whole()
    log = Log(product)

    assert 2 == len(server.asked)
    assert ["llm_request", "assistant_message"] == log.types
