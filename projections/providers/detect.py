"""Detection of the specification of a chunk or response, by the SDK's class or the fields.

If the first chunk does not identify the specification, chunks are kept unparsed until one does;
parsing starts with that chunk.
"""

from __future__ import annotations

from typing import Any

from eventstore.events import AssistantMessage
from eventstore.events.base import JsonObject
from projections.providers.anthropic.stream import AnthropicParser
from projections.providers.bedrock.stream import EVENTS, BedrockParser
from projections.providers.cohere import COHERE_EVENTS, CohereParser
from projections.providers.gemini.interactions import InteractionsParser
from projections.providers.gemini.stream import GeminiParser, field
from projections.providers.ollama import OllamaParser
from projections.providers.openai_chat.stream import OpenAIChatParser
from projections.providers.openai_responses.stream import OpenAIResponsesParser
from projections.providers.parser import ChunkParser, text
from projections.providers.stream_base import (
    Delta,
    EventLines,
    Partial,
    StreamError,
    StreamParser,
    as_chunk,
    is_text,
    joined,
)

__all__ = ["parser_for", "read_response", "says_nothing"]

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
_KEPT = 100
_ANTHROPIC_FIELDS = frozenset({"content", "role", "stop_reason"})


def parser_for(chunk: Any, *, provider: str | None = None) -> StreamParser:
    """Return the parser for the stream that begins with this chunk, without feeding the chunk.

    Args:
        chunk: An SDK object, a dict, or a line of a server-sent stream.
        provider: The server of the model (such as ``groq`` or ``azure``), if known.
    """
    kind = _kind_of(chunk)
    return _Undetected(provider) if kind is None else kind(provider)


def read_response(response: Any, *, provider: str | None = None) -> StreamParser:
    """Return a parser that has read a whole response, an SDK object or a dict."""
    body = as_chunk(response)
    kind = _by_response(body) if isinstance(body, dict) else None
    if kind is None:
        undetected = _Undetected(provider)
        undetected.feed(response)
        return undetected
    parser = kind(provider)
    parser.read(body)
    return parser


def says_nothing(parser: StreamParser) -> bool:
    """Whether a response has no answer and no error; see `AssistantMessage.is_empty`."""
    message = parser.message()
    return parser.error is None and message.is_empty


class _Undetected:
    """Keeps chunks until one identifies the specification, and parses from there on."""

    def __init__(self, provider: str | None) -> None:
        self._provider = provider
        self._inner: ChunkParser | None = None
        self._before: list[Any] = []
        self._lines = EventLines()

    @property
    def unknown(self) -> bool:
        return self._inner is None

    @property
    def finished(self) -> bool:
        return self._inner is not None and self._inner.finished

    @property
    def error(self) -> StreamError | None:
        return None if self._inner is None else self._inner.error

    @property
    def pending(self) -> str | None:
        return None if self._inner is None else self._inner.pending

    @property
    def unread(self) -> bool:
        return self._inner is not None and self._inner.unread

    def feed(self, chunk: Any) -> Delta:
        if self._inner is not None:
            return self._inner.feed(chunk)
        if is_text(chunk):
            events = self._lines.feed(chunk if isinstance(chunk, str) else bytes(chunk))
            return joined([self._detect(event) for event in events])
        return self._detect(chunk)

    def end(self, *, closed: bool = False, marked: bool = False) -> Delta:
        rest = [self._detect(event) for event in self._lines.end()] if self._inner is None else []
        if self._inner is not None:
            rest.append(self._inner.end(closed=closed, marked=marked))
        return joined(rest)

    def _detect(self, chunk: Any) -> Delta:
        if self._inner is None:
            kind = _kind_of(chunk)
            if kind is None:
                return self._keep(chunk)
            self._inner = kind(self._provider)
            self._inner.lines = self._lines
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
        if len(self._before) < _KEPT:
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
    if text(chunk.get("event_type")).startswith(("interaction.", "step.")):
        return InteractionsParser
    if kind in COHERE_EVENTS:
        return CohereParser
    if kind == "error":
        ours = chunk.keys() & {"code", "message", "param", "sequence_number"}
        return OpenAIResponsesParser if ours else AnthropicParser
    if kind == "chunk" and isinstance(chunk.get("chunk"), dict):
        return _by_fields(chunk["chunk"])
    if chunk.keys() & {"choices", "x_groq"}:
        return OpenAIChatParser
    if (other := _by_other_fields(chunk)) is not None:
        return other
    if "error" in chunk:
        return OpenAIChatParser
    if text(chunk.get("object")) in ("chat.completion.chunk", "chat.completion", "error"):
        return OpenAIChatParser
    return None


def _by_other_fields(body: JsonObject) -> type[ChunkParser] | None:
    """Detect Gemini and Ollama, whose chunks are shaped like their answers, and Bedrock."""
    if isinstance(body.get("candidates"), list):
        return GeminiParser
    if any(isinstance(field(body, name), dict) for name in ("usageMetadata", "promptFeedback")):
        return GeminiParser
    has_answer = isinstance(body.get("message"), dict) or isinstance(body.get("response"), str)
    if isinstance(body.get("done"), bool) and has_answer:
        return OllamaParser
    if len(body) == 1 and isinstance(body.get(next(iter(body))), dict) and body.keys() & EVENTS:
        return BedrockParser
    return None


def _by_response(response: JsonObject) -> type[ChunkParser] | None:
    if isinstance(response.get("choices"), list):
        return OpenAIChatParser
    if response.get("object") == "interaction":
        return InteractionsParser
    output = response.get("output")
    if isinstance(output, dict) and isinstance(output.get("message"), dict):
        return BedrockParser
    if response.get("object") == "response" or isinstance(response.get("output"), list):
        return OpenAIResponsesParser
    if response.get("type") == "message" or response.keys() >= _ANTHROPIC_FIELDS:
        return AnthropicParser
    if isinstance(response.get("message"), dict) and "finish_reason" in response:
        return CohereParser
    other = _by_other_fields(response)
    return None if other is BedrockParser else other
