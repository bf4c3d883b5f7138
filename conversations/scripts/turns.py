"""The script of a turn: numbered steps, token totals, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from conversations.requests import Request, SystemTexts, digest_of
from conversations.scripts.calls import CallFacts, CallScript, RequestedCall
from conversations.scripts.tools import Executable, ToolScript
from conversations.scripts.words import milliseconds, told
from eventstore import NewEvent, new_id
from eventstore.events import (
    ContentPart,
    Invocation,
    Meta,
    Payload,
    TextPart,
    TokenUsage,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from eventstore.events.values import Mode

__all__ = ["TurnScript", "add_usage"]


@dataclass(slots=True)
class TurnScript:
    """A turn: numbered steps, token totals, and how it ends."""

    meta: Meta
    started_at: float
    steps: int = 0
    usage: TokenUsage | None = None
    ended: bool = False
    rendered: Request | None = None
    systems: SystemTexts = field(default_factory=SystemTexts)
    _sent: dict[str, CallScript] = field(default_factory=dict)
    _begun: list[NewEvent] | None = None

    def begin(self, said: str | UserMessage | Sequence[ContentPart]) -> list[NewEvent]:
        """Return the events of the turn's start and of the input; the same ones every time."""
        if self._begun is None:
            message = _message(said)
            text = "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
            self._begun = [self.event(TurnStart(input=text)), self.event(message)]
        return self._begun

    def next_step(self) -> Meta:
        """Return the metadata of the next step; steps count from 0, one for each answer."""
        meta = self.meta.model_copy(update={"step": self.steps})
        self.steps += 1
        return meta

    def count(self, usage: TokenUsage | None) -> None:
        """Add a model call's tokens to the turn's."""
        self.usage = add_usage(self.usage, usage)

    def rendering(
        self, mode: Mode | None, run: bool | str | None, agent: str | None
    ) -> dict[str, Any]:
        """Return in which mode, of which run and by which agent the next request is rendered."""
        return {
            "mode": mode or self.meta.mode,
            "run": self.meta.run_id if run is None else run,
            "agent": agent or self.meta.agent_id,
        }

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
                        "error": None if error is None else told(error),
                        "step_count": self.steps,
                        "duration_ms": milliseconds(now - self.started_at),
                        "tokens": self.usage,
                    }
                )
            )
        ]

    def tool(
        self, call: Executable, conversation_id: UUID, *, idempotent: bool = False
    ) -> ToolScript:
        """Return the script of a tool call, which belongs to the step that asked for it.

        One that recovery has found belongs to the turn that executes it again.
        """
        if isinstance(call, RequestedCall):
            return ToolScript(call, call.meta, conversation_id, time.monotonic(), idempotent)
        again = idempotent or call.idempotent
        return ToolScript(call, self.meta, conversation_id, time.monotonic(), again)

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
    ) -> CallScript:
        """Return the script of the next model call; see `Turn.llm_call` for what a prompt does."""
        digest = None if prompt is None else digest_of(prompt)
        if request is None and digest and self.rendered and self.rendered.digest == digest:
            request = self.rendered
        model = model or (request.model if request else None)
        before = retry_of.script if retry_of else self._failure_of(digest)
        script = CallScript(
            meta=before.meta if before else self.next_step(),
            started_at=time.monotonic(),
            request=request,
            digest=digest,
            invocation=Invocation(provider=provider, specification=specification, model=model),
            parameters=parameters or {},
            tools=tuple(tools) or (request.tools if request else ()),
            systems=self.systems,
            attempt=before.attempt + 1 if before else 1,
            retry_of=before.llm_call_id if before else None,
        )
        if digest is not None:
            self._sent[digest] = script
        return script

    def _failure_of(self, digest: str | None) -> CallScript | None:
        """Return the last call of this prompt, if it has failed; forget those that went well."""
        self._sent = {key: sent for key, sent in self._sent.items() if sent.message is None}
        sent = self._sent.get(digest or "")
        return sent if sent is not None and sent.error is not None else None

    def event(self, payload: Payload) -> NewEvent:
        """Return an event of this turn."""
        return NewEvent(payload, new_id(), self.meta)


def add_usage(total: TokenUsage | None, usage: TokenUsage | None) -> TokenUsage | None:
    """Return the sum of two usages; a number that neither knows stays unknown."""
    if total is None or usage is None:
        return total or (usage and usage.model_copy(update={"raw": None}))
    names = [name for name in TokenUsage.model_fields if name not in ("raw", "reported")]
    sums: dict[str, Any] = {}
    for name in names:
        values = [_number(each, name) for each in (total, usage)]
        known = [value for value in values if value is not None]
        sums[name] = sum(known) if known else None
    return TokenUsage(**sums, reported=total.reported and usage.reported)


def _number(usage: TokenUsage, name: str) -> int | None:
    value: int | None = getattr(usage, name)
    if value is None and name == "total_tokens":  # not every provider says it
        return usage.prompt_tokens + usage.completion_tokens
    return value


def _message(said: str | UserMessage | Sequence[ContentPart]) -> UserMessage:
    if isinstance(said, UserMessage):
        return said
    return UserMessage.text(said) if isinstance(said, str) else UserMessage(parts=tuple(said))
