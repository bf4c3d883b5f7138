"""A provider within the process: recorded streams in the provider's wire format, without a socket.

Where a product is run again for each of its awaits, `ReplayServer` would take most of the time. The
SDKs' own code reads what comes, from a transport of their HTTP library.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

import httpx2

from tests.integration.replay_server import sse
from tests.unit.streams.recorded import chunks_of, fed, text_of

__all__ = ["FUNCTION_CALL", "TWO_MESSAGES", "Answer", "Provider", "said_in"]

C = TypeVar("C")
Answer = str | list[dict[str, Any]] | dict[str, Any]
"""The name of a recorded stream, the chunks of one, or a whole answer."""


class Provider:
    """Answers requests with these, in order; ``asked`` are their bodies."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = deque(answers)
        self.asked: list[dict[str, Any]] = []

    def client(self, kind: type[C]) -> C:
        """Return an SDK's client of a kind that asks this provider."""
        asynchronous = kind.__name__.startswith("Async")
        http = httpx2.AsyncClient if asynchronous else httpx2.Client
        made: Any = kind
        client: C = made(
            api_key="test",
            base_url="http://model.test",
            max_retries=0,
            http_client=http(transport=httpx2.MockTransport(self._answer)),
        )
        return client

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(json.loads(request.content))
        answer = self.answers.popleft()
        if isinstance(answer, dict):
            return httpx2.Response(200, json=answer)
        passing = _Passing(sse(answer) if isinstance(answer, str) else [_event(c) for c in answer])
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=passing)


class _Passing(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes message by message."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = messages

    def __iter__(self) -> Iterator[bytes]:
        yield from self._messages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._messages:
            await asyncio.sleep(0)
            yield message


def said_in(name: str) -> str:
    """Return the text of a recorded stream."""
    return text_of(fed(chunks_of(name)))


def _event(chunk: dict[str, Any]) -> bytes:
    return f"event: {chunk['type']}\ndata: {json.dumps(chunk)}\n\n".encode()


def _function_call() -> list[dict[str, Any]]:
    """Return the recorded call of a custom tool as one of a function: the same, by other names."""
    text = json.dumps(chunks_of("openai-responses-custom-tool"))
    for theirs, ours in (
        ("custom_tool_call_input", "function_call_arguments"),
        ("custom_tool_call", "function_call"),
        ('"input"', '"arguments"'),
        ("SELECT * ", '{\\"sql\\": \\"SELECT * '),
        ("age > 25", 'age > 25\\"}'),
    ):
        text = text.replace(theirs, ours)
    chunks: list[dict[str, Any]] = json.loads(text)
    return chunks


FUNCTION_CALL = _function_call()
"""A stream of the Responses API that calls ``write_sql(sql=...)``."""


def _two_messages() -> list[dict[str, Any]]:
    """Return a recorded answer whose deltas, of which most were left out, give its text again."""
    chunks = chunks_of("openai-responses-phase")
    for done in [chunk for chunk in chunks if chunk["type"] == "response.output_text.done"]:
        told = [c for c in chunks if c.get("delta") and c["item_id"] == done["item_id"]]
        told[-1]["delta"] = done["text"].removeprefix("".join(c["delta"] for c in told[:-1]))
    return chunks


TWO_MESSAGES = _two_messages()
"""A stream of the Responses API that says something, and says more."""
