"""The script of a model call: the request, the chunks as they come, the message or the error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from conversations.batching import Batcher
from conversations.requests import Request, SystemTexts
from conversations.scripts.words import milliseconds
from conversations.streams import StreamParser, classify, parser_for, read_response
from eventstore import Appended, NewEvent, new_id
from eventstore.events import (
    AssistantMessage,
    Invocation,
    LlmError,
    LlmRequest,
    Meta,
    Payload,
    TextPart,
    TokenUsage,
    ToolCallRequest,
)
from eventstore.ids import call_id

__all__ = ["CallFacts", "CallScript", "RequestedCall"]

CLOSED = "the stream was closed before its end"


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that the model asked for.

    ``arguments`` is the parsed object, or None with ``parse_error`` telling why; the model's text
    is ``arguments_text``. ``call_id`` is our own; the provider's is ``provider_id``.
    """

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_text: str
    parse_error: str | None
    provider_id: str | None
    meta: Meta

    @classmethod
    def of(cls, version: int, index: int, request: ToolCallRequest, meta: Meta) -> RequestedCall:
        """Make one of the ``index``-th call of the assistant message at ``version``."""
        return cls(
            call_id=call_id(version, index),
            name=request.name,
            arguments=request.arguments,
            arguments_text=request.arguments_text,
            parse_error=request.parse_error,
            provider_id=request.provider_id,
            meta=meta,
        )


@dataclass(slots=True)
class CallScript:
    """A model call: the request, the chunks as they come, the message or the error."""

    meta: Meta
    started_at: float
    request: Request | None = None
    digest: str | None = None
    invocation: Invocation = field(default_factory=Invocation)
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    attempt: int = 1
    retry_of: str | None = None
    llm_call_id: str = field(default_factory=lambda: str(new_id()))
    systems: SystemTexts = field(default_factory=SystemTexts)
    message: AssistantMessage | None = None
    error: LlmError | None = None
    tool_calls: tuple[RequestedCall, ...] = ()
    _begun: list[NewEvent] | None = None
    _parser: StreamParser | None = None
    _batcher: Batcher | None = None
    _first_at: float | None = None

    @property
    def usage(self) -> TokenUsage | None:
        """The call's tokens, once it has ended."""
        told = self.message or self.error
        return told.usage if told else None

    @property
    def due_at(self) -> float | None:
        """When the batch that is held must be written; None if none is."""
        return None if self._batcher is None else self._batcher.due_at

    def begin(self) -> list[NewEvent]:
        """Return the event of the request, to be durable before it is sent; always the same."""
        if self._begun is None:
            self._begun = [self._event(self._asked())]
        return self._begun

    def begun(self, done: Appended | None, now: float) -> None:
        """Take note that the request is durable; what follows is timed, not the write."""
        self.started_at = now
        if done is not None and self._begun is not None:
            asked = self._begun[0].data
            if isinstance(asked, LlmRequest):
                self.systems.stored(asked.policy, done.version)

    def _asked(self) -> LlmRequest:
        request = self.request
        return LlmRequest(
            llm_call_id=self.llm_call_id,
            invocation=self.invocation,
            versions=request.versions if request else (),
            policy=self.systems.shared(request.policy) if request else {},
            digest=request.digest if request else self.digest,
            tools=self.tools,
            parameters=self.parameters,
            counted_tokens=request.tokens.tokens if request else None,
            counted_exactly=request.tokens.exact if request else False,
            attempt=self.attempt,
            retry_of=self.retry_of,
        )

    def feed(self, chunk: Any, now: float) -> list[NewEvent]:
        """Take a chunk of the stream; return the batch that is to be written now, if one is."""
        if self._parser is None:
            self._parser = parser_for(chunk)
            self._batcher = Batcher(self.llm_call_id)
        assert self._batcher is not None  # noqa: S101 - made with the parser
        delta = self._parser.feed(chunk)
        if delta and self._first_at is None:
            self._first_at = now
        return self._chunks(self._batcher.add(delta, now))

    def flush(self, now: float) -> list[NewEvent]:
        """Return the batch that is held, if any."""
        return [] if self._batcher is None else self._chunks(self._batcher.take(now))

    def respond(self, response: Any, now: float) -> list[NewEvent]:
        """Take a whole response, not streamed; return the event of its message or its error."""
        self._parser = read_response(response)
        if self._parser.error is not None:
            return self.end(now)
        return self._answer(self._parser.message(), now)

    def end(
        self, now: float, error: BaseException | None = None, *, cancelled: bool = False
    ) -> list[NewEvent]:
        """Return what is left to be written: the last batch, and the message or the error.

        A stream that ends unfinished was cut off, or ``cancelled`` by who read it.
        """
        if self.message is not None or self.error is not None:
            return []
        last = self.flush(now)
        if error is not None:
            failure = classify(error)
            return [
                *last,
                self._fail(
                    now,
                    kind=failure.kind,
                    message=failure.message,
                    retryable=failure.retryable,
                    status_code=failure.status_code,
                ),
            ]
        return [*last, *self._received(now, cancelled)]

    def _received(self, now: float, cancelled: bool) -> list[NewEvent]:
        parser = self._parser
        if parser is not None and parser.error is not None:
            told = parser.error
            failed = self._fail(
                now, kind=told.kind, message=told.message, retryable=told.retryable, raw=told.raw
            )
            return [failed]
        if parser is not None and parser.finished:
            return self._answer(parser.message(), now)
        if cancelled:
            return [self._fail(now, kind="cancelled", message=CLOSED)]
        reason = "nothing was received" if parser is None else "the stream ended unfinished"
        return [self._fail(now, kind="network", message=reason, retryable=True)]

    def recorded(self, done: Appended) -> None:
        """Learn the versions of what was written; our own call ids are made of them."""
        for event in done.events:
            if isinstance(event.data, AssistantMessage):
                self.tool_calls = tuple(
                    RequestedCall.of(event.version, index, request, self.meta)
                    for index, request in enumerate(event.data.tool_calls)
                )

    def _answer(self, message: AssistantMessage, now: float) -> list[NewEvent]:
        first = self._first_at
        told = message.invocation or Invocation()
        invocation = {
            name: getattr(told, name) or getattr(self.invocation, name)
            for name in Invocation.model_fields
        }
        self.message = message.model_copy(
            update={
                "llm_call_id": self.llm_call_id,
                "invocation": Invocation(**invocation),
                "duration_ms": milliseconds(now - self.started_at),
                "first_token_ms": None if first is None else milliseconds(first - self.started_at),
                "final": not message.tool_calls,
            }
        )
        return [self._event(self.message)]

    def _fail(self, now: float, **told: Any) -> NewEvent:
        partial = None if self._parser is None else self._parser.partial()
        self.error = LlmError(
            llm_call_id=self.llm_call_id,
            # A refusal has no field of its own here; it is what the user saw of the answer.
            partial_text=partial.text + partial.refusal if partial else "",
            partial_reasoning=partial.reasoning if partial else "",
            partial_tool_calls=partial.tool_calls if partial else (),
            usage=partial.usage if partial else None,
            attempt=self.attempt,
            invocation=self.invocation,
            duration_ms=milliseconds(now - self.started_at),
            **told,
        )
        return self._event(self.error)

    def _chunks(self, chunk: Payload | None) -> list[NewEvent]:
        return [] if chunk is None else [self._event(chunk)]

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.meta)


class CallFacts:
    """What a product may ask of a model call; shared by both recorders."""

    _script: CallScript

    @property
    def script(self) -> CallScript:
        """What is recorded of the call, and how."""
        return self._script

    @property
    def id(self) -> str:
        """The call's own id, which its events carry."""
        return self._script.llm_call_id

    @property
    def meta(self) -> Meta:
        """Where the call belongs: turn, step, session."""
        return self._script.meta

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._script.attempt

    @property
    def message(self) -> AssistantMessage | None:
        """The message, once the call has ended well."""
        return self._script.message

    @property
    def error(self) -> LlmError | None:
        """The error, once the call has failed."""
        return self._script.error

    @property
    def tool_calls(self) -> tuple[RequestedCall, ...]:
        """The tool calls that the model asks for, once the call has ended well."""
        return self._script.tool_calls

    @property
    def text(self) -> str:
        """The message's text, once the call has ended well."""
        parts = self.message.parts if self.message else ()
        return "".join(part.text for part in parts if isinstance(part, TextPart))
