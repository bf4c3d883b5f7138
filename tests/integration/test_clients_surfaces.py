"""All that the SDKs offer is recorded, or reported as not recorded, or known to be neither."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI
from openai._models import FinalRequestOptions

from agent_eventstore.clients import UnrecordedCall, record
from agent_eventstore.clients.proxy import _METHODS, _UNSEEN, _wrapping
from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from eventstore import events as e
from tests.integration.chatting import MESSAGES, answer, payloads
from tests.integration.replay_server import ReplayServer, Streamed
from tests.unit.streams.recorded import chunks_of, fed, text_of

_OPENAI = OpenAI(base_url="http://127.0.0.1:1", api_key="test")
_ANTHROPIC = Anthropic(base_url="http://127.0.0.1:1", api_key="test")
_ASKED = {"messages", "input", "prompt"}
_OTHERS = ("audio.", "embeddings.", "images.", "moderations.", "realtime.", "videos.")
_KNOWN = {
    "beta.messages.thread",  # it calls `create`, as `tool_runner` does
    "beta.messages.tool_runner",
}


def methods(resource: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the public methods of a client and of its resources."""
    for name in dir(type(resource)):
        if name.startswith(("_", "with_")) or name in ("copy", "qs"):
            continue
        found = getattr(resource, name, None)
        if inspect.ismethod(found):
            yield (*path, name), found
        elif ".resources." in type(found).__module__:
            yield from methods(found, (*path, name))


@pytest.mark.parametrize("client", [_OPENAI, _ANTHROPIC], ids=["openai", "anthropic"])
def test_no_method_that_asks_a_model_is_passed_over(client: Any) -> None:
    """A new version of an SDK brings new ones: each is decided upon."""
    surfaces = _wrapping(client, None).surfaces
    silent = {
        ".".join(path)
        for path, method in methods(client)
        if "model" in (asked := {*inspect.signature(method).parameters})
        and asked & _ASKED
        and not (path[:-1] in surfaces and path[-1] in _METHODS)
        and path not in _UNSEEN
    }
    counted = {each for each in silent if each.endswith((".count_tokens", ".input_tokens.count"))}
    assert set() == {x for x in silent - counted - _KNOWN if not x.startswith(_OTHERS)}


def test_responses_of_the_beta(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """They were passed on in silence."""
    server.will(Streamed("openai-responses-phase"))
    with (
        record(OpenAI(base_url=f"{server.url}/v1", api_key="test")) as client,
        conversation.turn("hello"),
    ):
        for _ in client.beta.responses.create(model="m", input="hello", stream=True):
            pass
    [message] = payloads(shared_store, conversation, e.AssistantMessage)
    whole = fed(chunks_of("openai-responses-phase"))
    assert text_of(whole) == "".join(part.text for part in message.parts) != ""


def test_a_client_with_middleware(
    shared_store: EventStore, conversation: Conversation, server: ReplayServer
) -> None:
    """A copy of the client: it was not a recorded one, and nothing said so."""
    server.will(Streamed("anthropic-text"))

    def unchanged(request: Any, call_next: Any) -> Any:
        return call_next(request)

    with (
        record(Anthropic(base_url=server.url, api_key="test")) as client,
        conversation.turn("hello"),
    ):
        copied = client.with_middleware(unchanged)
        for _ in copied.messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True):
            pass
    assert 1 == len(payloads(shared_store, conversation, e.AssistantMessage))


def test_a_request_that_the_product_makes_by_itself(server: ReplayServer) -> None:
    """`post` said so; what it is made of did not."""
    client = record(OpenAI(base_url=f"{server.url}/v1", api_key="test"))
    server.will(answer())
    options = FinalRequestOptions.construct(
        method="post", url="/chat/completions", json_data={"messages": MESSAGES}
    )
    with client, pytest.warns(UnrecordedCall, match="OpenAI.request is not recorded"):
        client.request(object, options)
    assert 1 == len(server.asked)
