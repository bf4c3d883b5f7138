"""What model calls cost, kept when their words are erased: the bill without the content."""

from __future__ import annotations

from typing import ClassVar

from eventstore.events.base import Payload, UtcDatetime, Value
from eventstore.events.bounds import Count, Name, Ordinal, Size
from eventstore.events.values import Mode, TokenUsage

__all__ = ["BilledCall", "KeptUsage"]


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
    keeps no usage.

    Attributes:
        calls: The model calls that lost something.
    """

    type: ClassVar[str] = "kept_usage"

    calls: tuple[BilledCall, ...] = ()
