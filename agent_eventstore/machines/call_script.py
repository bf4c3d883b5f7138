"""The script of a model call: its request, its chunks, and its message or error."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from agent_eventstore.batching import Batcher
from agent_eventstore.errors import UnknownResponse
from agent_eventstore.machines.answers import Answers, RequestedCall, milliseconds
from agent_eventstore.machines.tracing import Tracing
from agent_eventstore.requests import Request, SentCall, SentResult, SystemTexts, estimated_usage
from agent_eventstore.stops import BY_SOMEBODY, mark_failure, stopped, stopped_or_gone
from agent_eventstore.transcripts.otlp import of_call
from eventstore import Appended, NewEvent, new_id
from eventstore.errors import InvalidEvent
from eventstore.events import (
    AssistantMessage,
    Invocation,
    LlmError,
    LlmRequest,
    Meta,
    Payload,
    TokenUsage,
    ToolResult,
    Ui,
)
from eventstore.telemetry.log import get_logger
from projections.providers import (
    ByHand,
    Delta,
    StreamParser,
    classify,
    parser_for,
    read_response,
    says_nothing,
)
from projections.providers.stream_base import as_chunk

__all__ = ["CLOSED", "CallScript", "UnknownChunk"]

_log = get_logger("agent_eventstore")

T = TypeVar("T")

_NO_EVENT = (
    "the stream contains text that is no event of it: it is in the log unchanged, but not part of "
    "the answer"
)
_GOES_ON = (
    "the provider had not finished the answer when the call ended (status {}): retrieve it, and "
    "record it with call.response() before leaving the call, or as a call of its own"
)
_BOTH = (
    "this model call was fed {}, which make up its message: use either feed(), or delta(), text() "
    "and message(), but not both"
)
NEVER_SENT = "{}, before the request was sent"
EMPTY = "the answer is empty: it has no content, no tool call and no finish reason"
NOT_KEPT = "the answer is not in the log: {}"
CLOSED = "the stream was closed before its end"
"""The message of a stream that its reader closed early."""

TOLD = "request"
"""The ``meta.actor`` of tool results that were read from a later request."""


class UnknownChunk(UserWarning):
    """A model call was fed chunks of an unknown format: it has no answer so far."""


@dataclass(slots=True)
class CallScript:
    """A model call: its request, its chunks, and its message or error."""

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
    ui: Ui | None = None
    answers: Answers = field(default_factory=Answers)
    prompt: Any = None
    sent: tuple[SentCall | SentResult, ...] | None = None
    speaker: str | None = None
    message: AssistantMessage | None = None
    error: LlmError | None = None
    tool_calls: tuple[RequestedCall, ...] = ()
    in_lines: bool = False
    """Whether chunks are split at line ends, since a redactor checks them."""
    closed: bool = False
    """Whether the server has closed the connection in order, after a whole event."""
    marked: bool = False
    """Whether the server has ended the stream with a mark that its SDK hides."""
    _start_events: list[NewEvent] | None = None
    _parser: StreamParser | None = None
    _batcher: Batcher | None = None
    _first_at: float | None = None
    _strange: UnknownResponse | None = None
    _untold: Any = None
    _warned: bool = False
    _estimate: TokenUsage | None = None
    _in_log: bool = False
    conversation_id: UUID | None = None
    tracing: Tracing = field(default_factory=Tracing)

    @property
    def usage(self) -> TokenUsage | None:
        """The call's tokens, once it has ended."""
        payload = self.message or self.error
        return payload.usage if payload else None

    @property
    def unreported(self) -> bool:
        """Whether there is a complete answer, but the provider has reported no usage."""
        parser = self._parser
        if parser is None or self.message is not None or self.error is not None:
            return False
        whole = parser.finished and parser.error is None and self._strange is None
        return whole and parser.partial().usage is None

    def estimate(self) -> None:
        """Estimate the tokens if the provider has reported none; slow the first time."""
        if self._estimate is None and self.unreported and self._parser is not None:
            counted = self.request.tokens.tokens if self.request else None
            model, partial = self.invocation.model, self._parser.partial()
            self._estimate = estimated_usage(model, self.prompt, counted, self.tools, partial)

    @property
    def brings_results(self) -> bool:
        """Whether the request contains tool results, which the log may not have."""
        return any(isinstance(each, SentResult) for each in self.sent or ())

    @property
    def _tools_elsewhere(self) -> bool:
        return self.sent is not None and self.answers.elsewhere

    @property
    def due_at(self) -> float | None:
        """When the held batch must be written; None if none is held."""
        return None if self._batcher is None else self._batcher.due_at

    def take_pending(self) -> list[NewEvent]:
        """Return the events of results that the request contains and the log lacks, once each."""
        return [
            NewEvent(
                ToolResult(
                    call_id=call.call_id,
                    status="failed" if result.failed else "success",
                    name=call.name,
                    content=result.content,
                    error=result.first_line or None if result.failed else None,
                    provider_id=call.provider_id,
                ),
                new_id(),
                call.meta.model_copy(update={"actor": TOLD, "causation_id": self.llm_call_id}),
            )
            for call, result in self.answers.news(self.sent or ())
        ]

    def begin(self) -> list[NewEvent]:
        """Return the event of the request, to commit before it is sent; the same at every call."""
        self.meta = self.tracing.begin_again(self.meta)
        if self._start_events is None:
            model = self.invocation.model
            facts = {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": self.conversation_id,
                "gen_ai.request.model": model,
            }
            self.meta = self.tracing.begin(self.meta, f"chat {model}" if model else "chat", facts)
            self._start_events = [self._event(self._llm_request())]
        return self._start_events

    def started(self, done: Appended | None, now: float) -> None:
        """Note that the request is durable; durations start now, after the write."""
        self.started_at = now
        if done is not None and self._start_events is not None:
            request = self._start_events[0].data
            if isinstance(request, LlmRequest):
                self.systems.stored(request.policy, done.version)

    def _llm_request(self) -> LlmRequest:
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
        """Add a chunk of the stream; return the batch to write now, if one is due.

        Chunks of a call that has ended, for example with its turn, are ignored.
        """
        if self.message is not None or self.error is not None:
            return []
        if self._parser is None:
            self._parser = parser_for(chunk)
        if isinstance(self._parser, ByHand):
            raise InvalidEvent(_BOTH.format("pieces of text"))
        delta = self._parser.feed(chunk)
        if not self._parser.unknown:
            self._strange = None
            self._warn_of_text(self._parser)
        elif delta and self._strange is None:
            self._strange = UnknownResponse(chunk, "chunk")
            _log.warning("chunk of an unknown format", seen=self._strange.seen)
            warnings.warn(str(self._strange), UnknownChunk, stacklevel=3)
        return self._streamed(delta, now)

    def _warn_of_text(self, parser: StreamParser) -> None:
        """Warn once of text in the stream that is no event of it."""
        if parser.unread and not self._warned:
            self._warned = True
            _log.warning("text in a stream that is no event of it")
            warnings.warn(_NO_EVENT, UnknownChunk, stacklevel=4)

    def say(self, text: str, reasoning: str, now: float) -> list[NewEvent]:
        """Add a piece of an answer that the product passes as text; see `feed`."""
        return self._streamed(self._by_hand().say(text, reasoning), now)

    def _streamed(self, delta: Delta, now: float) -> list[NewEvent]:
        if self._batcher is None:
            self._batcher = Batcher(self.llm_call_id, in_lines=self.in_lines)
        if delta and self._first_at is None:
            self._first_at = now
        return self._chunks(self._batcher.add(delta, now))

    def _by_hand(self) -> ByHand:
        if self._parser is None or self._parser.unknown:
            self._parser, self._strange = ByHand(), None
        if not isinstance(self._parser, ByHand):
            raise InvalidEvent(_BOTH.format("a provider's chunks"))
        return self._parser

    def flush(self, now: float, *, last: bool = False) -> list[NewEvent]:
        """Return the held batch, if any."""
        return [] if self._batcher is None else self._chunks(self._batcher.take(now, last=last))

    def respond(self, response: Any, now: float) -> list[NewEvent]:
        """Take a whole response, not streamed; return the event of its message or its error.

        A response that the provider is still making in the background is no answer: nothing is
        recorded, and a later one takes its place.

        Raises:
            UnknownResponse: Its format is unknown, or it contains no answer.
        """
        self._parser = read_response(response)
        if self._parser.pending is not None:
            self._strange = None
            return []
        if self._parser.unknown or says_nothing(self._parser):
            self._strange, self._untold = UnknownResponse(response), as_chunk(response)
            raise self._strange
        self._strange = None
        if self._parser.error is not None:
            return self.end(now)
        return self._answer(self._parser.message(), now)

    def tell(self, now: float, **facts: Any) -> list[NewEvent]:
        """Take an answer that the product passes by its parts; return the event of its message."""
        parser = self._by_hand()
        parser.tell(**facts)
        if says_nothing(parser):
            raise UnknownResponse(None)
        return [*self.flush(now, last=True), *self._answer(parser.message(), now)]

    def end(
        self, now: float, error: BaseException | None = None, *, cancelled: str | None = None
    ) -> list[NewEvent]:
        """Return the last events of the call: the last batch, and the message or the error.

        A stream that ends unfinished, and not in order, was cut off, or closed by its reader if
        ``cancelled`` gives a reason. A connection error after the provider has begun to answer may
        come from the product's own client, and then counts as a stop.
        """
        if self.message is not None or self.error is not None:
            return []
        rest: list[NewEvent] = []
        if self._parser is not None and error is None and cancelled is None:
            delta = self._parser.end(closed=self.closed, marked=self.marked)
            rest = self._streamed(delta, now) if delta else []
        last = [*rest, *self.flush(now, last=True)]
        stop = stopped(error) if self._parser is None else stopped_or_gone(error)
        if error is not None and stop is None:
            mark_failure(error)
            failure = classify(error, stop=stopped(error))
            return [
                *last,
                self._fail(
                    now,
                    kind=failure.kind,
                    message=failure.message,
                    retryable=failure.retryable,
                    status_code=failure.status_code,
                    raw=failure.raw,
                ),
            ]
        return [*last, *self._received(now, stop or cancelled)]

    def refused(self, error: InvalidEvent, now: float) -> list[NewEvent]:
        """Return the error that replaces a message which the store refuses, with its start.

        None for other events, and for a message that was written before other facts were refused.
        """
        message = self.message
        if message is None or self._in_log:
            return []
        self.message = None
        return [self._fail(now, message.usage, kind="invalid", message=NOT_KEPT.format(error))]

    def abandoned(self, error: BaseException) -> list[NewEvent]:
        """Return the event that ends a request which was written but never sent."""
        stop = stopped(error) or BY_SOMEBODY
        return [self._fail(self.started_at, kind="cancelled", message=NEVER_SENT.format(stop))]

    def _received(self, now: float, cancelled: str | None) -> list[NewEvent]:
        parser = self._parser
        if parser is not None and parser.error is not None:
            error = parser.error
            failed = self._fail(
                now,
                kind=error.kind,
                message=error.message,
                retryable=error.retryable,
                raw=error.raw,
            )
            return [failed]
        if self._strange is not None:
            raw = parser.message().raw if self._untold is None and parser else self._untold
            return [self._fail(now, kind="invalid", message=str(self._strange), raw=raw)]
        # An answer passed as text has no end marker: only the end of its block completes it.
        cut = cancelled is not None and isinstance(parser, ByHand)
        if parser is not None and parser.finished and not cut:
            if says_nothing(parser):
                # What the server sent stays in the log, as with a response that is not streamed.
                return [self._fail(now, kind="invalid", message=EMPTY, raw=parser.message().raw)]
            return self._answer(parser.message(), now)
        if parser is not None and parser.pending is not None:
            raw = {"response_id": parser.message().response_id, "status": parser.pending}
            reason = _GOES_ON.format(parser.pending)
            return [self._fail(now, kind="interrupted", message=reason, retryable=False, raw=raw)]
        if cancelled is not None:
            return [self._fail(now, kind="cancelled", message=cancelled)]
        reason = "nothing was received" if parser is None else "the stream ended unfinished"
        return [self._fail(now, kind="network", message=reason, retryable=True)]

    def recorded(self, done: Appended) -> None:
        """Take the versions of written events; the ids of tool calls are made from them."""
        for event in done.events:
            if isinstance(event.data, AssistantMessage):
                self._in_log = True
                self.tool_calls = tuple(
                    RequestedCall.of(event, index, request, self.meta)
                    for index, request in enumerate(event.data.tool_calls)
                )
                self.answers.requested(self.tool_calls, elsewhere=event.data.tools_elsewhere)

    def _answer(self, message: AssistantMessage, now: float) -> list[NewEvent]:
        first = self._first_at
        self.estimate()
        given_invocation = message.invocation or Invocation()
        invocation = {
            name: getattr(given_invocation, name) or getattr(self.invocation, name)
            for name in Invocation.model_fields
        }
        self.message = message.model_copy(
            update={
                "llm_call_id": self.llm_call_id,
                "usage": message.usage or self._estimate,
                "invocation": Invocation(**invocation),
                "duration_ms": milliseconds(now - self.started_at),
                "first_token_ms": None if first is None else milliseconds(first - self.started_at),
                "final": not message.tool_calls,
                "ui": self.ui,
                "name": self.speaker or message.name,
                "tools_elsewhere": bool(message.tool_calls) and self._tools_elsewhere,
            }
        )
        return [self._event(self.message)]

    def _fail(self, now: float, usage: TokenUsage | None = None, **facts: Any) -> NewEvent:
        partial = None if self._parser is None else self._parser.partial()
        self.error = LlmError(
            llm_call_id=self.llm_call_id,
            # `LlmError` has no refusal field; the user saw the refusal as the answer's text.
            partial_text=partial.text + partial.refusal if partial else "",
            partial_reasoning=partial.reasoning if partial else "",
            partial_tool_calls=partial.tool_calls if partial else (),
            usage=usage or (partial.usage if partial else None),
            attempt=self.attempt,
            invocation=self.invocation,
            duration_ms=milliseconds(now - self.started_at),
            **facts,
        )
        return self._event(self.error)

    def _chunks(self, chunk: Payload | None) -> list[NewEvent]:
        return [] if chunk is None else [self._event(chunk)]

    def _event(self, payload: Payload) -> NewEvent:
        if self.tracing.is_open and isinstance(payload, AssistantMessage | LlmError):
            request = self._start_events[0].data if self._start_events else None
            attributes = of_call(request if isinstance(request, LlmRequest) else None, payload)
            self.tracing.end(attributes, payload.kind if isinstance(payload, LlmError) else None)
        return NewEvent(payload, new_id(), self.meta)
