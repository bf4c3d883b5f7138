"""Two agent products, one with threads and one with an event loop, which only wrapped their client.

Each has a conversation, and methods that hold a turn in which the model is called once, in one of
the ways that the SDKs offer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from itertools import islice
from typing import Any, cast
from uuid import UUID

import httpx2
from anthropic import Anthropic, AnthropicError, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI, OpenAIError

from agent_eventstore import clients
from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from eventstore import AsyncEventStore, EventStore
from tests.integration.replay_server import ReplayServer

__all__ = ["SURFACES", "TLS", "AsyncProduct", "Product", "Surface", "ThreadProduct"]


@dataclass(frozen=True, slots=True)
class Surface:
    """An API of a provider: a recorded stream of it, and how a product asks."""

    specification: str
    stream: str
    path: tuple[str, ...]
    request: dict[str, Any]
    helper_result: str

    def of(self, client: Any) -> Any:
        """Return the client's resource."""
        for name in self.path:
            client = getattr(client, name)
        return client


# Read once: each client would read all the system's certificates, which takes a tenth of a second.
TLS = ssl.create_default_context()
_SAID = [{"role": "user", "content": "hello"}]
SURFACES = {
    surface.specification: surface
    for surface in (
        Surface(
            "openai_chat",
            "openai-chat-text",
            ("chat", "completions"),
            {"model": "gpt-4.1-nano", "messages": _SAID, "temperature": 0.5},
            "get_final_completion",
        ),
        Surface(
            "openai_responses",
            "openai-responses-phase",
            ("responses",),
            {"model": "gpt-5.3-codex", "input": _SAID, "temperature": 0.5},
            "get_final_response",
        ),
        Surface(
            "anthropic_messages",
            "anthropic-text",
            ("messages",),
            {"model": "claude-test", "messages": _SAID, "max_tokens": 100},
            "get_final_message",
        ),
    )
}


class ThreadProduct:
    """A product without an event loop."""

    def __init__(self, store: EventStore, server: ReplayServer, surface: Surface) -> None:
        self.surface = surface
        self.options: dict[str, Any] = {"api_key": "test", "max_retries": 0}
        self.recorded: dict[str, Any] = {}
        self.hooks: list[Any] = []
        self.chunks: list[Any] = []
        self.store = store
        self._session = Conversation.start(store)
        self._url = server.url

    @property
    def id(self) -> UUID:
        """The conversation's id."""
        return self._session.id

    def whole(self, **options: Any) -> Any:
        """Take an answer that is not streamed."""
        return self._in_turn(
            lambda client: self.surface.of(client).create(**self.surface.request, **options)
        )

    def several(self, *requests: dict[str, Any]) -> None:
        """Ask several times in one turn."""

        def work(client: Any) -> None:
            for request in requests:
                self.surface.of(client).create(**self.surface.request | request)

        self._in_turn(work)

    def insistent(self) -> Any:
        """Ask once more if the first answer is an error, in the same turn."""

        def work(client: Any) -> Any:
            try:
                return self.surface.of(client).create(**self.surface.request)
            except (AnthropicError, OpenAIError):
                return self.surface.of(client).create(**self.surface.request)

        return self._in_turn(work)

    def streamed(self, take: int | None = None, *, close: bool = True) -> None:
        """Read a stream, or just some chunks of it, and close it or simply drop it."""

        def work(client: Any) -> None:
            stream = self.surface.of(client).create(**self.surface.request, stream=True)
            for chunk in stream:
                self.chunks.append(chunk)
                if len(self.chunks) == take:
                    break
            if close:
                stream.close()

        self._in_turn(work)

    def helped(self, *, leave: bool = False) -> Any:
        """Let the SDK's helper put the stream together, or leave it after the first event."""

        def work(client: Any) -> Any:
            with self.surface.of(client).stream(**self.surface.request) as stream:
                if leave:
                    return next(iter(stream))
                return getattr(stream, self.surface.helper_result)()

        return self._in_turn(work)

    def raw(self, **options: Any) -> tuple[Any, Any]:
        """Take the SDK's raw response; return it and what it parses to, a stream as its chunks."""

        def work(client: Any) -> Any:
            response = self.surface.of(client).with_raw_response.create(
                **self.surface.request, **options
            )
            parsed = response.parse()
            return response, list(parsed) if "stream" in options else parsed

        return cast(tuple[Any, Any], self._in_turn(work))

    def piped(self, take: int | None = None, **options: Any) -> list[str]:
        """Read lines of the response as they come, all or some of them."""

        def work(client: Any) -> Any:
            resource = self.surface.of(client).with_streaming_response
            with resource.create(**self.surface.request, **options) as response:
                return list(islice(response.iter_lines(), take))

        return cast(list[str], self._in_turn(work))

    def _in_turn(self, work: Callable[[Any], Any]) -> Any:
        with self._client() as client, self._session.turn("hello"):
            return work(client)

    def _client(self) -> Any:
        http = httpx2.Client(verify=TLS, event_hooks={"response": self.hooks})
        if self.surface.specification == "anthropic_messages":
            own = Anthropic(base_url=self._url, http_client=http, **self.options)
            return clients.record(own, **self.recorded)
        openai = OpenAI(base_url=self._url, http_client=http, **self.options)
        return clients.record(openai, **self.recorded)


class AsyncProduct:
    """A product with an event loop."""

    def __init__(self, store: EventStore, server: ReplayServer, surface: Surface) -> None:
        self.surface = surface
        self.options: dict[str, Any] = {"api_key": "test", "max_retries": 0}
        self.recorded: dict[str, Any] = {}
        self.hooks: list[Any] = []
        self.chunks: list[Any] = []
        self.store = store
        self._session = Conversation.start(store)
        self._url = server.url

    @property
    def id(self) -> UUID:
        """The conversation's id."""
        return self._session.id

    def whole(self, **options: Any) -> Any:
        """Take an answer that is not streamed."""
        request = {**self.surface.request, **options}
        return self._in_turn(lambda client: self.surface.of(client).create(**request))

    def several(self, *requests: dict[str, Any]) -> None:
        """Ask several times in one turn."""

        async def work(client: Any) -> None:
            for request in requests:
                await self.surface.of(client).create(**self.surface.request | request)

        self._in_turn(work)

    def insistent(self) -> Any:
        """Ask once more if the first answer is an error, in the same turn."""

        async def work(client: Any) -> Any:
            try:
                return await self.surface.of(client).create(**self.surface.request)
            except (AnthropicError, OpenAIError):
                return await self.surface.of(client).create(**self.surface.request)

        return self._in_turn(work)

    def streamed(self, take: int | None = None, *, close: bool = True) -> None:
        """Read a stream, or just some chunks of it, and close it or simply drop it."""

        async def work(client: Any) -> None:
            stream = await self.surface.of(client).create(**self.surface.request, stream=True)
            async for chunk in stream:
                self.chunks.append(chunk)
                if len(self.chunks) == take:
                    break
            if close:
                await stream.close()

        self._in_turn(work)

    def helped(self, *, leave: bool = False) -> Any:
        """Let the SDK's helper put the stream together, or leave it after the first event."""

        async def work(client: Any) -> Any:
            async with self.surface.of(client).stream(**self.surface.request) as stream:
                if leave:
                    return await anext(stream)
                return await getattr(stream, self.surface.helper_result)()

        return self._in_turn(work)

    def raw(self, **options: Any) -> tuple[Any, Any]:
        """Take the SDK's raw response; return it and what it parses to, a stream as its chunks."""

        async def work(client: Any) -> Any:
            response = await self.surface.of(client).with_raw_response.create(
                **self.surface.request, **options
            )
            parsed = response.parse()
            parsed = await parsed if isawaitable(parsed) else parsed
            return response, [chunk async for chunk in parsed] if "stream" in options else parsed

        return cast(tuple[Any, Any], self._in_turn(work))

    def piped(self, take: int | None = None, **options: Any) -> list[str]:
        """Read lines of the response as they come, all or some of them."""

        async def work(client: Any) -> Any:
            lines: list[str] = []
            resource = self.surface.of(client).with_streaming_response
            async with resource.create(**self.surface.request, **options) as response:
                passing = response.iter_lines()
                while len(lines) != take:
                    try:
                        lines.append(await anext(passing))
                    except StopAsyncIteration:
                        break
            return lines

        return cast(list[str], self._in_turn(work))

    def _in_turn(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            opening = AsyncEventStore.open(self.store.url, migrate=False)
            async with await opening as store, self._client() as client:
                conversation = AsyncConversation(store, self._session._session)
                async with conversation.turn("hello"):
                    return await work(client)

        return asyncio.run(run())

    def _client(self) -> Any:
        http = httpx2.AsyncClient(verify=TLS, event_hooks={"response": self.hooks})
        if self.surface.specification == "anthropic_messages":
            own = AsyncAnthropic(base_url=self._url, http_client=http, **self.options)
            return clients.record(own, **self.recorded)
        openai = AsyncOpenAI(base_url=self._url, http_client=http, **self.options)
        return clients.record(openai, **self.recorded)


Product = ThreadProduct | AsyncProduct
