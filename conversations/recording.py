"""What is recorded of a turn, a model call and a tool call: pure, without a store or a clock.

Each script answers what happens with the events that are to be written, before the product's own
code goes on; `recorder` and `aio` write them, for threads and for event loops, and hand back what
the store answered. So both record the same, and neither holds a rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from conversations.batching import Batcher
from conversations.requests import Request
from conversations.streams import StreamParser, classify, from_response, parser_for
from eventstore import Appended, NewEvent, new_id
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    Invocation,
    LlmError,
    LlmRequest,
    Meta,
    Payload,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from eventstore.ids import call_id, derived_id

__all__ = ["CallScript", "RequestedCall", "ToolScript", "TurnScript", "add_usage"]


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
class TurnScript:
    """A turn: numbered steps, token totals, and how it ends."""

    meta: Meta
    started_at: float
    steps: int = 0
    usage: TokenUsage | None = None
    ended: bool = False

    def begin(self, said: str | UserMessage | Sequence[ContentPart]) -> list[NewEvent]:
        """Return the events of the turn's start and of the input."""
        message = _message(said)
        text = "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
        return [self.event(TurnStart(input=text)), self.event(message)]

    def next_step(self) -> Meta:
        """Return the metadata of the next step; steps count from 0."""
        meta = self.meta.model_copy(update={"step": self.steps})
        self.steps += 1
        return meta

    def count(self, usage: TokenUsage | None) -> None:
        """Add a model call's tokens to the turn's."""
        self.usage = add_usage(self.usage, usage)

    def end(
        self, now: float, status: str = "ok", error: BaseException | str | None = None
    ) -> list[NewEvent]:
        """Return the event of the turn's end; none if it has ended already."""
        if self.ended:
            return []
        self.ended = True
        aborted = isinstance(error, BaseException) and not isinstance(error, Exception)
        if error is not None:
            status = "aborted" if aborted else "error"
        return [
            self.event(
                TurnEnd.model_validate(
                    {
                        "status": status,
                        "reason": "interrupted" if aborted else None,
                        "error": None if error is None else _told(error),
                        "step_count": self.steps,
                        "duration_ms": _ms(now - self.started_at),
                        "tokens": self.usage,
                    }
                )
            )
        ]

    def event(self, payload: Payload) -> NewEvent:
        """Return an event of this turn."""
        return NewEvent(payload, new_id(), self.meta)


@dataclass(slots=True)
class CallScript:
    """A model call: the request, the chunks as they come, the message or the error."""

    meta: Meta
    started_at: float
    request: Request | None = None
    invocation: Invocation = field(default_factory=Invocation)
    parameters: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    attempt: int = 1
    retry_of: str | None = None
    llm_call_id: str = field(default_factory=lambda: str(new_id()))
    message: AssistantMessage | None = None
    error: LlmError | None = None
    tool_calls: tuple[RequestedCall, ...] = ()
    _parser: StreamParser | None = None
    _batcher: Batcher | None = None
    _first_at: float | None = None

    @property
    def due_at(self) -> float | None:
        """When the batch that is held must be written; None if none is."""
        return None if self._batcher is None else self._batcher.due_at

    def begin(self) -> list[NewEvent]:
        """Return the event of the request, to be durable before it is sent."""
        request = self.request
        asked = LlmRequest(
            llm_call_id=self.llm_call_id,
            invocation=self.invocation,
            versions=request.versions if request else (),
            policy=request.policy if request else {},
            digest=request.digest if request else None,
            tools=self.tools,
            parameters=self.parameters,
            counted_tokens=request.tokens.tokens if request else None,
            counted_exactly=request.tokens.exact if request else False,
            attempt=self.attempt,
            retry_of=self.retry_of,
        )
        return [self._event(asked)]

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
        """Take a whole response, not streamed; return the event of its message."""
        return self._answer(from_response(response), now)

    def end(self, now: float, error: BaseException | None = None) -> list[NewEvent]:
        """Return what is left to be written: the last batch, and the message or the error."""
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
        parser = self._parser
        if parser is not None and parser.error is not None:
            told = parser.error
            return [
                *last,
                self._fail(
                    now,
                    kind=told.kind,
                    message=told.message,
                    retryable=told.retryable,
                    raw=told.raw,
                ),
            ]
        if parser is None or not parser.finished:
            reason = "nothing was received" if parser is None else "the stream ended unfinished"
            return [*last, self._fail(now, kind="network", message=reason, retryable=True)]
        return [*last, *self._answer(parser.message(), now)]

    def recorded(self, done: Appended | None) -> None:
        """Learn the versions of what was written; our own call ids are made of them."""
        for event in done.events if done else ():
            if event.data is not None and isinstance(event.data, AssistantMessage):
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
                "duration_ms": _ms(now - self.started_at),
                "first_token_ms": None if first is None else _ms(first - self.started_at),
                "final": not message.tool_calls,
            }
        )
        return [self._event(self.message)]

    def _fail(self, now: float, **told: Any) -> NewEvent:
        partial = None if self._parser is None else self._parser.partial()
        self.error = LlmError(
            llm_call_id=self.llm_call_id,
            partial_text=partial.text if partial else "",
            partial_reasoning=partial.reasoning if partial else "",
            partial_tool_calls=partial.tool_calls if partial else (),
            usage=partial.usage if partial else None,
            attempt=self.attempt,
            invocation=self.invocation,
            duration_ms=_ms(now - self.started_at),
            **told,
        )
        return self._event(self.error)

    def _chunks(self, chunk: Payload | None) -> list[NewEvent]:
        return [] if chunk is None else [self._event(chunk)]

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.meta)


@dataclass(slots=True)
class ToolScript:
    """A tool call: written before the tool runs, and what came of it."""

    call: RequestedCall
    conversation_id: Any
    started_at: float
    idempotent: bool = False
    outcome: ToolResult | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every execution of this call, and for no other call."""
        return str(derived_id(self.conversation_id, "tool call", self.call.call_id))

    def begin(self) -> list[NewEvent]:
        """Return the event of the call, to be durable before the tool runs."""
        return [
            self._event(
                ToolCall(
                    call_id=self.call.call_id,
                    name=self.call.name,
                    arguments=self.call.arguments,
                    provider_id=self.call.provider_id,
                    idempotency_key=self.idempotency_key,
                    idempotent=self.idempotent,
                )
            )
        ]

    def end(
        self, now: float, *, ran: bool = True, error: BaseException | None = None, **result: Any
    ) -> list[NewEvent]:
        """Return the event of the result; none if there is one already."""
        if self.outcome is not None:
            return []
        if isinstance(error, Exception):
            result = {"status": "failed", "content": _told(error), "error": _told(error)}
        elif error is not None:
            told = "the tool was interrupted; it may or may not have taken effect"
            result = {"status": "outcome_unknown", "content": told, "error": _told(error)}
        self.outcome = ToolResult(
            call_id=self.call.call_id,
            name=self.call.name,
            provider_id=self.call.provider_id,
            duration_ms=_ms(now - self.started_at) if ran else None,
            **result,
        )
        return [self._event(self.outcome)]

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.call.meta)


def add_usage(total: TokenUsage | None, usage: TokenUsage | None) -> TokenUsage | None:
    """Return the sum of two usages; a number that neither knows stays unknown."""
    if total is None or usage is None:
        return total or (usage and usage.model_copy(update={"raw": None}))
    names = [name for name in TokenUsage.model_fields if name not in ("raw", "reported")]
    sums: dict[str, Any] = {}
    for name in names:
        values = [getattr(each, name) for each in (total, usage)]
        known = [value for value in values if value is not None]
        sums[name] = sum(known) if known else None
    return TokenUsage(**sums, reported=total.reported and usage.reported)


def _message(said: str | UserMessage | Sequence[ContentPart]) -> UserMessage:
    if isinstance(said, UserMessage):
        return said
    return UserMessage.text(said) if isinstance(said, str) else UserMessage(parts=tuple(said))


def _told(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
