"""Which specification a chunk or a response belongs to, told from the SDK's class or its fields.

A stream whose first chunk tells nothing is not lost: its chunks are kept as they came until one
tells, and from then on they are parsed.
"""

from __future__ import annotations

from typing import Any

from eventstore.events import AssistantMessage
from eventstore.events.base import JsonObject

from .anthropic import AnthropicParser
from .base import Delta, Partial, StreamError, StreamParser
from .openai_chat import OpenAIChatParser
from .openai_responses import OpenAIResponsesParser
from .parser import ChunkParser, text
from .plain import as_chunk, plain

__all__ = ["from_response", "parser_for", "read_response"]

_MODULES: tuple[tuple[str, type[ChunkParser]], ...] = (
    ("anthropic.", AnthropicParser),
    ("openai.types.responses.", OpenAIResponsesParser),
    ("openai.lib.streaming.responses.", OpenAIResponsesParser),
    ("openai.types.chat.", OpenAIChatParser),
    ("openai.lib.streaming.chat.", OpenAIChatParser),
)
_ANTHROPIC_EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "ping"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
_ANTHROPIC_FIELDS = frozenset({"content", "role", "stop_reason"})


def parser_for(chunk: Any, *, provider: str | None = None) -> StreamParser:
    """Return the parser for the stream that begins with this chunk; the chunk is not yet fed.

    Args:
        chunk: An SDK's object, a dict, or a line of a server-sent stream.
        provider: Who serves the model, where the caller knows (``groq``, ``azure``).
    """
    kind = _kind_of(chunk)
    return _Undetected(provider) if kind is None else kind(provider)


def read_response(response: Any, *, provider: str | None = None) -> StreamParser:
    """Return a parser that has taken a whole response, an SDK's object or a dict."""
    body = plain(response)
    kind = _by_response(body) if isinstance(body, dict) else None
    if kind is None:
        undetected = _Undetected(provider)
        undetected.feed(response)
        return undetected
    parser = kind(provider)
    parser.read(body)
    return parser


def from_response(response: Any, *, provider: str | None = None, **fields: Any) -> AssistantMessage:
    """Return the message of a response that was not streamed; what nobody knows is its ``raw``."""
    return read_response(response, provider=provider).message(**fields)


class _Undetected:
    """Keeps what comes until a chunk tells its specification, then parses from there on."""

    def __init__(self, provider: str | None) -> None:
        self._provider = provider
        self._inner: ChunkParser | None = None
        self._before: list[Any] = []

    @property
    def finished(self) -> bool:
        return self._inner is not None and self._inner.finished

    @property
    def error(self) -> StreamError | None:
        return None if self._inner is None else self._inner.error

    def feed(self, chunk: Any) -> Delta:
        if self._inner is None:
            kind = _kind_of(chunk)
            if kind is None:
                return self._keep(chunk)
            self._inner = kind(self._provider)
        return self._inner.feed(chunk)

    def message(self, **fields: Any) -> AssistantMessage:
        if self._inner is not None:
            return self._inner.message(**fields)
        raw = {"raw": self._before} if self._before else {}
        return AssistantMessage(**raw | fields)

    def partial(self) -> Partial:
        return Partial("", "", (), None) if self._inner is None else self._inner.partial()

    def _keep(self, chunk: Any) -> Delta:
        value = as_chunk(chunk)
        if value in (None, "[DONE]", {}):
            return Delta()
        self._before.append(value)
        return Delta(raw=(value,))


def _kind_of(chunk: Any) -> type[ChunkParser] | None:
    found = _by_module(chunk)
    if found is not None:
        return found
    value = as_chunk(chunk)
    return _by_fields(value) if isinstance(value, dict) else None


def _by_module(chunk: Any) -> type[ChunkParser] | None:
    module = f"{type(chunk).__module__}."
    return next((kind for prefix, kind in _MODULES if module.startswith(prefix)), None)


def _by_fields(chunk: JsonObject) -> type[ChunkParser] | None:
    kind = text(chunk.get("type"))
    if kind.startswith("response."):
        return OpenAIResponsesParser
    if kind in _ANTHROPIC_EVENTS:
        return AnthropicParser
    if kind == "error":
        ours = chunk.keys() & {"code", "message", "param", "sequence_number"}
        return OpenAIResponsesParser if ours else AnthropicParser
    if kind == "chunk" and isinstance(chunk.get("chunk"), dict):
        return _by_fields(chunk["chunk"])
    if chunk.keys() & {"choices", "error", "x_groq"}:
        return OpenAIChatParser
    if text(chunk.get("object")) in ("chat.completion.chunk", "chat.completion", "error"):
        return OpenAIChatParser
    return None


def _by_response(response: JsonObject) -> type[ChunkParser] | None:
    if isinstance(response.get("choices"), list):
        return OpenAIChatParser
    if response.get("object") == "response" or isinstance(response.get("output"), list):
        return OpenAIResponsesParser
    if response.get("type") == "message" or response.keys() >= _ANTHROPIC_FIELDS:
        return AnthropicParser
    return None
