"""The base class of the parsers, and the parser for answers that a product reports itself.

Each subclass adds the content of one chunk, as a plain JSON object, to the `Answer`. Chunks are
copied into plain JSON first: later changes to an object do not affect what was received, and
parsers handle only JSON.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from eventstore.events import AssistantMessage, Invocation, TokenUsage, ToolCallRequest
from eventstore.events.base import JsonObject
from projections.errors import UnknownResponse
from projections.providers.answer import Answer
from projections.providers.failures import stream_error
from projections.providers.stream_base import (
    Delta,
    EventLines,
    Partial,
    StreamError,
    Unread,
    as_chunk,
    attribute,
    is_text,
    plain,
    unknown_fields,
    word,
)
from projections.providers.usage import any_usage, updated

__all__ = ["ByHand", "ChunkParser", "as_text", "object_of", "place_of", "text"]


_DERIVED = frozenset(
    {
        *("text", "thinking", "signature", "citation", "input_json"),
        *("content.delta", "content.done", "refusal.delta", "refusal.done"),
        *("tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"),
        *("logprobs.content.delta", "logprobs.content.done"),
        *("logprobs.refusal.delta", "logprobs.refusal.done"),
    }
)
"""Events that the SDKs' ``stream()`` derives from the provider's events and emits with them."""


class ChunkParser(ABC):
    """A `StreamParser` of one specification.

    Args:
        provider: The server of the model, if known; otherwise the chunks may identify it.

    Attributes:
        lines: Reads chunks that are text of an event stream.
        pending: The status of an answer that the provider is still making in the background.
        unread: Whether such text could not be read; it is in the deltas' ``raw``.
    """

    specification: ClassVar[str]
    server: ClassVar[str | None] = None
    """The server of the model unless another one is given."""
    unknown: ClassVar[bool] = False

    def __init__(self, provider: str | None = None) -> None:
        self.finished = False
        self.error: StreamError | None = None
        self.lines = EventLines()
        self.unread = False
        self.pending: str | None = None
        self._answer = Answer()
        self._provider = provider or self.server
        self._model: str | None = None
        self._response_id: str | None = None
        self._finish_reason: str | None = None
        self._counts: TokenUsage | None = None
        self._of_response: JsonObject = {}
        self._body: JsonObject = {}
        self._others = 0

    def feed(self, chunk: Any) -> Delta:
        """Take a chunk and return what it added; see `StreamParser.feed`."""
        if is_text(chunk):
            for event in self.lines.feed(chunk if isinstance(chunk, str) else bytes(chunk)):
                self._feed(event)
            return self._answer.take()
        kind = word(chunk, "type")
        if kind in _DERIVED:
            return Delta()
        # The SDK's wrapper also holds a snapshot of everything so far.
        inner = attribute(chunk, "chunk") if kind == "chunk" else None
        self._feed(as_chunk(chunk if inner is None else inner))
        return self._answer.take()

    def _feed(self, event: Any) -> None:
        if isinstance(event, dict):
            self._take_object(plain(event))
        elif event == "[DONE]":
            if self.error is None and (self.finished or not self._answer.has_cut_call):
                self._finish()
        elif event is not None:
            self.unread = self.unread or isinstance(event, Unread)
            self._answer.keep(str(event) if isinstance(event, Unread) else event)

    def end(self, *, closed: bool = False, marked: bool = False) -> Delta:
        """Take the end of the stream; see `StreamParser.end`."""
        for event in self.lines.end():
            self._feed(event)
        waiting = self.finished or self.pending is not None or self.error is not None
        if not waiting and self._ended_in_order(closed, marked):
            self._finish()
        return self._answer.take()

    def _finish(self) -> None:
        """Mark the answer complete."""
        self.finished = True

    def _ended_in_order(self, closed: bool, marked: bool) -> bool:
        """Whether the stream has ended in order, though nothing marked the answer complete."""
        return (closed or marked) and self._answer.can_be_complete

    def read(self, response: JsonObject) -> None:
        """Read a whole response that was not streamed."""
        self._read(response)
        self._answer.take()
        if not self._answer.parts() and not self._answer.calls:
            # Keep an unreadable response, so that it is at least in the log.
            self._body = response

    def message(self, **fields: Any) -> AssistantMessage:
        """Return what has been received; see `StreamParser.message`."""
        beside = {
            "body": self._body,
            "replaced": self._answer.replaced,
            "unnamed_calls": self._answer.unnamed(),
        }
        own: dict[str, Any] = {
            "parts": self._answer.parts(),
            "tool_calls": self._answer.requests(self.finished),
            "finish_reason": self._finish_reason,
            "usage": self._usage(),
            "invocation": Invocation(
                provider=self._seller(), specification=self.specification or None, model=self._model
            ),
            "response_id": self._response_id,
            "raw": self._raw() | unknown_fields(beside, frozenset()) or None,
        }
        return AssistantMessage(**own | fields)

    def partial(self) -> Partial:
        """Return what has been received; see `StreamParser.partial`."""
        answer = self._answer
        return Partial(
            text=answer.all_of("text"),
            reasoning=answer.all_of("reasoning"),
            tool_calls=answer.partial_calls(),
            usage=self._usage(),
            refusal=answer.all_of("refusal"),
        )

    def _take_object(self, event: JsonObject) -> None:
        kind = event.get("type")
        if kind == "chunk" and isinstance(event.get("chunk"), dict):
            event = event["chunk"]
        elif isinstance(kind, str) and kind in _DERIVED:
            return
        self._take(event)

    def _fail(self, error: Any, raw: JsonObject) -> None:
        if self.error is None:
            self.error = stream_error(error, raw)

    def _note(self, source: JsonObject) -> None:
        """Store id and model; some servers send both empty at first."""
        self._response_id = self._response_id or text(source.get("id")) or None
        self._model = self._model or text(source.get("model")) or None

    def _show_other(self, part: Any, delta: Any) -> None:
        """Add a part of an unknown kind, and ``delta`` to the delta's ``raw``."""
        self._others += 1
        if not isinstance(part, dict) or unknown_fields(part, frozenset()):
            self._answer.show(("other", self._others), part)
            self._answer.keep(delta)

    def _seller(self) -> str | None:
        return self._provider

    def _count(self, read: Callable[[Any], TokenUsage | None], usage: Any) -> None:
        """Take totals, which replace earlier ones except where they are empty or zero."""
        if isinstance(usage, dict):
            known = self._counts.raw if self._counts else None
            self._counts = read(updated(known, usage) if known else usage) or self._counts

    def _usage(self) -> TokenUsage | None:
        """Return the counts so far."""
        return self._counts

    def _raw(self) -> JsonObject:
        """Return what the message has no fields for, but the provider wants back."""
        return unknown_fields({"response": self._of_response}, frozenset())

    @abstractmethod
    def _take(self, event: JsonObject) -> None:
        """Add a chunk to the answer."""

    @abstractmethod
    def _read(self, response: JsonObject) -> None:
        """Add a whole response to the answer."""


def text(value: Any) -> str:
    """Return a text, or an empty text for any other type."""
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> JsonObject:
    """Return an object, or an empty object for any other type."""
    return value if isinstance(value, dict) else {}


def place_of(value: Any) -> Any:
    """Return the key of a piece's block: a number or a text."""
    return value if isinstance(value, int | str) else str(value)


def as_text(arguments: Any) -> str:
    """Return a tool's arguments as text; an object is serialised as JSON."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


_WRAPPERS = ("function", "custom", "functionCall", "function_call", "toolUse")
_IDS = ("call_id", "id", "tool_call_id", "toolUseId", "provider_id")
_ARGUMENTS = ("arguments_text", "arguments", "args", "input")


class ByHand(ChunkParser):
    """Takes an answer as text and tool calls instead of chunks."""

    specification: ClassVar[str] = ""

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self.finished = True

    def say(self, content: str, reasoning: str = "") -> Delta:
        """Add pieces of the answer, and return them as a delta."""
        self._answer.say("reasoning", "reasoning", _words(reasoning, "reasoning"))
        self._answer.say("text", "text", _words(content, "text"))
        return self._answer.take()

    def tell(
        self,
        content: str | None,
        reasoning: str | None,
        tool_calls: Sequence[Any],
        usage: Any,
        finish_reason: str | None,
    ) -> None:
        """Complete the answer; text that was already added is not added again.

        Raises:
            UnknownResponse: A tool call or the usage has an unknown shape.
        """
        calls = [_call(call) for call in tool_calls]
        counts = any_usage(_object(usage)) if usage is not None else None
        if usage is not None and counts is None:
            raise UnknownResponse(usage, "usage")
        self._counts = usage if isinstance(usage, TokenUsage) else counts
        self._finish_reason = finish_reason
        for kind, whole in (("reasoning", reasoning), ("text", content)):
            if whole is not None:
                self._complete(kind, _words(whole, kind))
        for call in calls:
            index = self._answer.open_call(name=call["name"], provider_id=call["id"])
            self._answer.add_to_call(index, call["arguments"])

    def _complete(self, kind: Any, whole: str) -> None:
        received = self._answer.all_of(kind)
        if whole.startswith(received):
            self._answer.say(kind, kind, whole[len(received) :])
        else:
            # The streamed text was different: the product's final text is the message.
            fresh, other = Answer(), "text" if kind == "reasoning" else "reasoning"
            fresh.say(other, other, self._answer.all_of(other))  # type: ignore[arg-type]
            fresh.say(kind, kind, whole)
            self._answer = fresh

    def _take(self, event: JsonObject) -> None:
        raise NotImplementedError

    def _read(self, response: JsonObject) -> None:
        raise NotImplementedError


def _words(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UnknownResponse(value, what)
    return value


def _object(usage: Any) -> Any:
    """Return the plain form of a usage object, even of a class that has only attributes."""
    value = plain(usage)
    return value if isinstance(value, dict) else plain(getattr(usage, "__dict__", None))


def _call(given: Any) -> dict[str, Any]:
    """Return name, id and arguments of a tool call in any provider's form."""
    if isinstance(given, ToolCallRequest):
        return {"name": given.name, "id": given.provider_id, "arguments": given.arguments_text}
    value = plain(given)
    if not isinstance(value, dict):
        raise UnknownResponse(given, "tool call")
    wrapped = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), value)
    name = text(wrapped.get("name"))
    if not name:
        named = f", since its name is {wrapped['name']!r:.40}" if "name" in wrapped else ""
        raise UnknownResponse(given, "tool call", named)
    ids = (each.get(key) for each in (value, wrapped) for key in _IDS)
    arguments = next((wrapped[key] for key in _ARGUMENTS if wrapped.get(key) is not None), "")
    found = next((each for each in ids if isinstance(each, str) and each), None)
    return {"name": name, "id": found, "arguments": as_text(arguments)}
