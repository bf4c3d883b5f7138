"""Payloads of model calls: what was asked, what streamed back, the message, the error, the cost.

``llm_call_id`` ties the events of one model call together; the writer chooses it. What calls cost
is kept when their words are erased: the bill without the content. Sources: document 000
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
)

__all__ = [
    "AssistantChunk",
    "AssistantMessage",
    "BilledCall",
    "KeptUsage",
    "LlmError",
    "LlmRequest",
]


class LlmRequest(Payload):
    """A model call is about to be made, with what is needed to give back its exact bytes.

    ``retry_of`` names the failed call that this one repeats; ``attempt`` counts from 1.

    Attributes:
        versions: The events that the messages were rendered from.
        policy: How they were chosen: budget, settings, strategy and what else rendering needs.
        digest: SHA-256 of the messages as they were sent, to prove that they are given back.
        tools: The declarations of the tools, as they were sent.
        parameters: Temperature and the like, as they were sent.
        counted_tokens: Tokens of the request, as counted before it was sent.
        counted_exactly: Whether the count is exact for this model.
        attempt: Which attempt this is; 1 is the first.
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
    """A batch of what a model streamed; ``index`` counts the batches of the call from 0.

    Attributes:
        index: Which batch of the call this is; 0 is the first.
        text: Pieces of text, joined.
        reasoning: Pieces of reasoning, joined.
        refusal: Pieces of a refusal, joined.
        tool_calls: Pieces of tool calls.
        raw: The provider's chunks, verbatim, where they are kept.
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
    """What the model answered; equals the concatenation of its chunks when it was streamed.

    The own call id of ``tool_calls[i]`` is ``<version of this event>.<i>``. ``tools_elsewhere``
    says that nobody tells the recorder when these calls run: one without a result may have run.

    Attributes:
        parts: What the model said, in order.
        tool_calls: The tool calls that it wants.
        finish_reason: Why it ended, in the provider's word.
        usage: Tokens of the call.
        first_token_ms: Milliseconds from the request to the first piece.
        final: Whether it ends its turn, as it wants no tool.
        name: Which participant answered.
        response_id: The provider's own id of the response.
        tools_elsewhere: Whether a framework runs the calls, and nobody tells when.
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

    @classmethod
    def of(cls, text: str | None, **fields: Any) -> AssistantMessage:
        """Make a message of one text part, or of none when ``text`` is None."""
        return cls(parts=() if text is None else (TextPart(text=text),), **fields)


class LlmError(Payload):
    """A model call failed; what had arrived by then is kept, so that it can be continued.

    ``usage`` is what the provider had reported so far; ``attempt`` counts from 1.

    Attributes:
        kind: What sort of failure it was.
        message: What went wrong, in words.
        retryable: Whether the same request may succeed if it is made again.
        partial_text: The text that had arrived.
        partial_reasoning: The reasoning that had arrived.
        partial_tool_calls: Tool calls that had begun to arrive.
        attempt: Which attempt failed; 1 is the first.
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
    """A model call as it is billed: which model, how many tokens, when, and how it ended.

    Attributes:
        provider: Who was asked.
        model: The model's name.
        specification: The API that was spoken.
        status: ``started``, ``ok``, or the kind of the error.
        estimated_prompt_tokens: Tokens of the request, as counted before it was sent.
        usage: Tokens, as the provider reported them or the writer estimated them.
        latency_ms: Milliseconds from the request to the end of the answer.
        first_token_ms: Milliseconds from the request to the first piece of the answer.
        attempt: Which attempt it was; 1 is the first.
        retry_of: The failed call that it repeats.
        version: The first event of the call.
        end_version: The last event of the call.
        turn: The turn that it belongs to.
        step: The step of that turn.
        session_id: The session.
        mode: The mode at that moment.
        agent_id: The agent that called, where there are several.
        started_at: When the first event happened.
        ended_at: When the last one did.
        has_request: Whether its request is known, so that times count from it.
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


class KeptUsage(Payload):
    """The usage of model calls whose words are erased: the bill stays, the content goes.

    It comes just before the receipt of the erasure, and is erased in its turn by an erasure that
    keeps no usage. A framework that tells what calls have used after their answers is kept so, too.

    Attributes:
        calls: The model calls that lost something, or of which this was told later.
    """

    type: ClassVar[str] = "kept_usage"

    calls: tuple[BilledCall, ...] = ()
