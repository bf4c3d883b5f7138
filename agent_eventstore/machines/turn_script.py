"""The script of a turn: its start, numbered steps, token totals, and end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from agent_eventstore.machines.answers import Answers, RequestedCall, milliseconds
from agent_eventstore.machines.call_facts import CallFacts
from agent_eventstore.machines.call_script import CallScript
from agent_eventstore.machines.tool_script import Executable, ToolScript
from agent_eventstore.machines.tracing import Tracing, in_span
from agent_eventstore.requests import Request, SystemTexts, digest_of, sent_in
from agent_eventstore.stops import error_text, stopped_or_gone
from eventstore import NewEvent, new_id
from eventstore.errors import InvalidEvent
from eventstore.events import (
    BranchSwitch,
    Invocation,
    Meta,
    Payload,
    TokenUsage,
    ToolPolicy,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from projections.context.state import RequestMode
from projections.payload_text import spoken
from projections.providers.stream_base import plain

__all__ = ["Branching", "TurnScript", "add_usage"]

_UNSEEN = (
    "The turn ended before a result of this tool call was seen. It may or may not have taken "
    "effect: check before you repeat it."
)
_REPLACED = (
    "Not run: {} came first, and ended the turn in which this call was made. Make the call again "
    "if it is still needed."
)


@dataclass(frozen=True, slots=True)
class Branching:
    """The branch change of a turn that replaces another.

    Attributes:
        switch: The events that leave the active branch; None if none do.
        text: The text of the message, if the turn answers a message that stays.
    """

    switch: BranchSwitch | None
    text: str = ""


@dataclass(slots=True)
class TurnScript:
    """A turn: its start, numbered steps, token totals, and end."""

    meta: Meta
    started_at: float
    policy: ToolPolicy | None = None
    steps: int = 0
    usage: TokenUsage | None = None
    ended: bool = False
    aborted: Literal["replaced", "interrupted"] | None = None
    input: str = ""
    rendered: Request | None = None
    actor: str | None = None
    message_id: str | None = None
    ids: tuple[UUID, UUID] | None = None
    systems: SystemTexts = field(default_factory=SystemTexts)
    answers: Answers = field(default_factory=Answers)
    _sent: dict[str, CallScript] = field(default_factory=dict)
    conversation_id: UUID | None = None
    _start_events: list[NewEvent] | None = None
    tracing: Tracing = field(default_factory=Tracing)

    def begin(
        self, message: UserMessage | None, branching: Branching | None = None
    ) -> list[NewEvent]:
        """Return the events of the turn's start and the input, the same ones at every call."""
        self.meta = self.tracing.begin_again(self.meta)
        if self._start_events is None:
            facts = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.conversation.id": self.conversation_id,
                "gen_ai.agent.id": self.meta.agent_id,
            }
            self.meta = self.tracing.begin(self.meta, "invoke_agent", facts)
            parts = () if message is None else message.parts
            text = spoken(parts)
            if message is None and branching is not None:
                text = branching.text
            attributes = {"actor": self.actor, "causation_id": self.message_id}
            meta = self.meta.model_copy(
                update={k: v for k, v in attributes.items() if v is not None}
            )
            first, second = self.ids or (new_id(), new_id())
            self.input = text
            start = TurnStart(input=text if message is None else None)  # the message has it
            self._start_events = [NewEvent(start, first, meta)]
            if message is not None:
                self._start_events.append(NewEvent(message, second, meta))
            if branching is not None and branching.switch is not None:
                outside = self.meta.model_copy(update={"turn": None})
                self._start_events.insert(0, NewEvent(branching.switch, new_id(), outside))
        return self._start_events

    def next_step(self) -> Meta:
        """Return the metadata of the next step; steps count from 0, one per answer."""
        meta = self.meta.model_copy(update={"step": self.steps})
        self.steps += 1
        return meta

    def count(self, usage: TokenUsage | None) -> None:
        """Add a model call's tokens to the turn's."""
        self.usage = add_usage(self.usage, usage)

    def rendering(
        self, mode: RequestMode, run: bool | str | None, agent: str | None
    ) -> dict[str, Any]:
        """Return the rendering options of a request: mode, run, agent and tool policy.

        ``active`` is the turn's mode. With the mode None, the run defaults to none, not to the
        turn's.
        """
        own = None if mode is None else self.meta.run_id
        return {
            "mode": self.meta.mode if mode == "active" else mode,
            "run": own if run is None else run,
            "agent": agent or self.meta.agent_id,
            "tool_policy": self.policy,
        }

    def end(
        self, now: float, status: str = "ok", error: BaseException | str | None = None
    ) -> list[NewEvent]:
        """Return the event of the turn's end; none if it has already ended."""
        if self.ended:
            return []
        self.ended = True
        stop = stopped_or_gone(error) if isinstance(error, BaseException) else None
        if error is not None:
            status = "cancelled" if stop else "error"
        aborted = self.aborted if stop else None
        return [
            *self._unseen(),
            self.event(
                TurnEnd.model_validate(
                    {
                        "status": status if aborted is None else "aborted",
                        "reason": aborted,
                        "error": stop or (None if error is None else error_text(error)),
                        "step_count": self.steps,
                        "duration_ms": milliseconds(now - self.started_at),
                        "tokens": self.usage,
                    }
                )
            ),
        ]

    def replace(
        self, now: float, script: ToolScript, rest: Sequence[RequestedCall]
    ) -> list[NewEvent]:
        """Return the events that end the turn while one of its calls waits for its result."""
        skipped = (self.tool(call, script.conversation_id) for call in rest)
        words = _REPLACED.format(script.call.name)
        end = TurnEnd(
            status="aborted",
            reason="replaced",
            step_count=self.steps,
            duration_ms=milliseconds(now - self.started_at),
            tokens=self.usage,
        )
        return [
            *script.begin(),
            *(event for each in skipped for event in each.refuse("skipped", words)),
            self.event(end),
        ]

    def _unseen(self) -> list[NewEvent]:
        """Return ``outcome_unknown`` results for tools run elsewhere whose result was not seen."""
        return [
            NewEvent(
                ToolResult(
                    call_id=call.call_id,
                    status="outcome_unknown",
                    name=call.name,
                    content=_UNSEEN,
                    provider_id=call.provider_id,
                ),
                new_id(),
                call.meta,
            )
            for call in self.answers.unseen(self.meta.turn)
        ]

    def tool(
        self, call: Executable, conversation_id: UUID, *, idempotent: bool = False
    ) -> ToolScript:
        """Return the script of a tool call, which belongs to the step that requested it.

        A call that recovery found belongs to the turn that executes it again.
        """
        if not isinstance(call, Executable):
            raise TypeError(
                f"{call!r:.80} cannot be recorded as a tool call: pass one of "
                "call.tool_calls or recovery.re_executable; record the product's own actions "
                "in the turn's input or a notebook"
            )
        meta = self.meta
        if isinstance(call, RequestedCall):
            meta = in_span(call.meta, self.meta)
        else:
            idempotent = idempotent or call.idempotent
        self.answers.by_hand()
        now = time.monotonic()
        return ToolScript(call, meta, conversation_id, now, idempotent, self.answers, self.policy)

    def call(
        self,
        request: Request | None,
        *,
        provider: str | None,
        specification: str | None = None,
        model: str | None,
        prompt: Any = None,
        parameters: dict[str, Any] | None,
        tools: Sequence[dict[str, Any]],
        retry_of: CallFacts | None,
        tools_from_messages: bool = False,
        agent: str | None = None,
    ) -> CallScript:
        """Return the script of the next model call; see `Turn.llm_call` for the arguments."""
        if request is not None and not isinstance(request, Request):
            raise TypeError(
                f"turn.llm_call takes the result of turn.context(), not {type(request).__name__}: "
                "pass your own messages as prompt=..."
            )
        try:
            digest = None if prompt is None else digest_of(prompt)
        except InvalidEvent:  # it contains objects of an SDK, such as the message that it answers
            prompt = plain(prompt)
            digest = digest_of(prompt)
        if request is None and digest and self.rendered and self.rendered.digest == digest:
            request = self.rendered
        # Messages that were rendered from the log contain no new results.
        prompt_given = None if request else prompt
        model = model or (request.model if request else None)
        key = request.digest if request else digest
        before = retry_of.script if retry_of else self._failure_of(key)
        meta = in_span(before.meta, self.meta) if before else self.next_step()
        script = CallScript(
            meta=meta if agent is None else meta.model_copy(update={"agent_id": agent}),
            started_at=time.monotonic(),
            request=request,
            digest=digest,
            invocation=Invocation(provider=provider, specification=specification, model=model),
            parameters=parameters or {},
            tools=tuple(tools) or (request.tools if request else ()),
            systems=self.systems,
            answers=self.answers,
            prompt=prompt,
            speaker=agent,
            sent=tuple(sent_in(prompt_given)) if tools_from_messages else None,
            attempt=before.attempt + 1 if before else 1,
            retry_of=before.llm_call_id if before else None,
            conversation_id=self.conversation_id,
        )
        if key is not None:
            self._sent[key] = script
        return script

    def _failure_of(self, digest: str | None) -> CallScript | None:
        """Return the last call of this prompt if it failed; forget calls that succeeded."""
        self._sent = {key: sent for key, sent in self._sent.items() if sent.message is None}
        sent = self._sent.get(digest or "")
        return sent if sent is not None and sent.error is not None else None

    def event(self, payload: Payload) -> NewEvent:
        """Return an event of this turn."""
        if isinstance(payload, TurnEnd):
            failed = payload.status if payload.status in ("error", "aborted") else None
            self.tracing.end({}, failed)
        return NewEvent(payload, new_id(), self.meta)


def add_usage(total: TokenUsage | None, usage: TokenUsage | None) -> TokenUsage | None:
    """Return the sum of two usages; a number that neither has stays None.

    The total is always a number: not every provider reports one, and an estimate has none.
    """
    if usage is None:
        return total
    if total is None:
        return usage.model_copy(
            update={"raw": None, "total_tokens": _number(usage, "total_tokens")}
        )
    names = [name for name in TokenUsage.model_fields if name not in ("raw", "reported")]
    sums: dict[str, Any] = {}
    for name in names:
        values = [_number(each, name) for each in (total, usage)]
        known = [value for value in values if value is not None]
        sums[name] = sum(known) if known else None
    return TokenUsage(**sums, reported=total.reported and usage.reported)


def _number(usage: TokenUsage, name: str) -> int | None:
    value: int | None = getattr(usage, name)
    if value is None and name == "total_tokens":
        return usage.prompt_tokens + usage.completion_tokens
    return value
