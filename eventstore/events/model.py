"""Payloads of model calls: the request, the streamed chunks, the message, the error, the cost.

``llm_call_id`` ties the events of one model call together; the writer chooses it. The usage of
calls is kept when their content is erased. Sources: document 000
(persistence rules, errors), 001 (tokens), 004 (typed history, accumulators).
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from eventstore.events.base import JsonObject, Payload, UtcDatetime, Value
from eventstore.events.bounds import Count, Handle, Name, Ordinal, Size, Whole
from eventstore.events.values import (
    ContentPart,
    Invocation,
    LlmErrorKind,
    Mode,
    PartialToolCall,
    TextPart,
    TokenUsage,
    ToolCallDelta,
    ToolCallRequest,
    Ui,
    VersionRange,
    is_empty_part,
)

__all__ = [
    "AssistantChunk",
    "AssistantMessage",
    "BilledCall",
    "LlmError",
    "LlmRequest",
    "RetainedUsage",
]


class LlmRequest(Payload):
    """A model call is about to be made; with all that is needed to reproduce its exact bytes.

    ``retry_of`` names the failed call that this one repeats; ``attempt`` counts from 1.

    Attributes:
        versions: The events that the messages were rendered from.
        policy: How they were chosen: budget, settings, strategy and other inputs of rendering.
        digest: SHA-256 of the messages as sent, to verify that they are reproduced exactly.
        tools: The tool declarations, as sent.
        parameters: Temperature and other parameters, as sent.
        counted_tokens: Tokens of the request, as counted before it was sent.
        counted_exactly: Whether the count is exact for this model.
        attempt: The number of the attempt; 1 is the first.
        retry_of: The failed call that this one repeats.
    """

    type: ClassVar[str] = "llm_request"

    llm_call_id: Name
    invocation: Invocation = Field(default_factory=Invocation)
    versions: tuple[VersionRange, ...] = ()
    policy: JsonObject = Field(default_factory=dict)
    digest: Name | None = None
    tools: tuple[JsonObject, ...] = ()
    parameters: JsonObject = Field(default_factory=dict)
    counted_tokens: Count | None = None
    counted_exactly: bool = False
    attempt: Ordinal = 1
    retry_of: Name | None = None


class AssistantChunk(Payload):
    """A batch of a model's streamed output; ``index`` counts the batches of the call from 0.

    Attributes:
        index: The number of the batch within the call; 0 is the first.
        text: Text deltas, joined.
        reasoning: Reasoning deltas, joined.
        refusal: Refusal deltas, joined.
        tool_calls: Tool-call deltas.
        raw: The provider's chunks, verbatim, if they are kept.
    """

    type: ClassVar[str] = "assistant_chunk"

    llm_call_id: Name
    index: Count
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    raw: tuple[Any, ...] = ()


class AssistantMessage(Payload):
    """The model's answer; if it was streamed, it equals the concatenation of its chunks.

    The store's call id of ``tool_calls[i]`` is ``<version of this event>.<i>``. If
    ``tools_elsewhere`` is set, the recorder does not learn when these calls run, so a call without
    a result may have run.

    Attributes:
        parts: The content of the answer, in order.
        tool_calls: The tool calls that the model requests.
        finish_reason: The provider's finish reason, verbatim.
        usage: Tokens of the call.
        first_token_ms: Milliseconds from the request to the first delta.
        final: Whether it ends its turn, because it requests no tool.
        name: The participant that answered.
        response_id: The provider's id of the response.
        tools_elsewhere: Whether a framework runs the calls without reporting when.
    """

    type: ClassVar[str] = "assistant_message"
    schema_version: ClassVar[int] = 3

    llm_call_id: Name | None = None
    parts: tuple[ContentPart, ...] = ()
    tool_calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: Name | None = None
    usage: TokenUsage | None = None
    invocation: Invocation | None = None
    duration_ms: Size | None = None
    first_token_ms: Size | None = None
    final: bool = False
    name: Name | None = None
    response_id: Handle | None = None
    tools_elsewhere: bool = False
    raw: Any = None
    ui: Ui | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it is no answer: no content, no tool call and no finish reason.

        A provider may answer nothing and say so, with a finish reason: this is an answer.
        """
        return not (self.tool_calls or self.finish_reason) and all(map(is_empty_part, self.parts))

    @classmethod
    def of(cls, text: str | None, **fields: Any) -> AssistantMessage:
        """Create a message with one text part, or with no part if ``text`` is None."""
        return cls(parts=() if text is None else (TextPart(text=text),), **fields)


class LlmError(Payload):
    """A model call failed; the partial answer is kept, so that it can be continued.

    ``usage`` is what the provider had reported so far; ``attempt`` counts from 1.

    Attributes:
        kind: The kind of failure.
        message: The error message.
        retryable: Whether the same request may succeed if it is repeated.
        partial_text: The text that had arrived.
        partial_reasoning: The reasoning that had arrived.
        partial_tool_calls: Tool calls that had begun to arrive.
        attempt: The number of the failed attempt; 1 is the first.
        usage: Tokens, as far as the provider had reported them.
        status_code: The status of the HTTP response, if there was one.
    """

    type: ClassVar[str] = "llm_error"
    schema_version: ClassVar[int] = 2

    llm_call_id: Name | None = None
    kind: LlmErrorKind
    message: str
    retryable: bool = False
    partial_text: str = ""
    partial_reasoning: str = ""
    partial_tool_calls: tuple[PartialToolCall, ...] = ()
    attempt: Ordinal = 1
    usage: TokenUsage | None = None
    invocation: Invocation | None = None
    duration_ms: Size | None = None
    status_code: Whole | None = None
    raw: Any = None
    ui: Ui | None = None


class BilledCall(Value):
    """The billing data of a model call: which model, how many tokens, when, and how it ended.

    Attributes:
        provider: The provider that was called.
        model: The model's name.
        specification: The API specification that was used.
        status: ``started``, ``ok``, or the kind of the error.
        estimated_prompt_tokens: Tokens of the request, as counted before it was sent.
        usage: Tokens, as the provider reported them or the writer estimated them.
        latency_ms: Milliseconds from the request to the end of the answer.
        first_token_ms: Milliseconds from the request to the first delta of the answer.
        attempt: The number of the attempt; 1 is the first.
        retry_of: The failed call that it repeats.
        version: The first event of the call.
        end_version: The last event of the call.
        turn: The turn that it belongs to.
        step: The step of that turn.
        session_id: The session.
        mode: The mode at that moment.
        agent_id: The agent that made the call, if there are several.
        started_at: The time of the first event.
        ended_at: The time of the last event.
        has_request: Whether its request is known, so that durations start there.
        copy_key: Of an imported call: the same for every imported copy of it.
    """

    llm_call_id: Name
    provider: Name | None = None
    model: Name | None = None
    specification: Name | None = None
    status: Name = "started"
    estimated_prompt_tokens: Count | None = None
    usage: TokenUsage | None = None
    latency_ms: Size | None = None
    first_token_ms: Size | None = None
    attempt: Ordinal | None = None
    retry_of: Name | None = None
    version: Ordinal
    end_version: Ordinal | None = None
    turn: Ordinal | None = None
    step: Count | None = None
    session_id: Name | None = None
    mode: Mode | None = None
    run_id: Name | None = None
    agent_id: Name | None = None
    started_at: UtcDatetime
    ended_at: UtcDatetime | None = None
    has_request: bool = False
    copy_key: Name | None = None


class RetainedUsage(Payload):
    """The usage of model calls whose content is erased, kept for billing.

    It comes just before the receipt of the erasure. An erasure that keeps no usage erases this
    event too. It also records usage that a framework reports only after the answer.

    Attributes:
        calls: The model calls that lost data, or whose usage was reported later.
    """

    type: ClassVar[str] = "kept_usage"

    calls: tuple[BilledCall, ...] = ()
