"""The open work of a conversation, as `Views.open_work` returns it.

The values come from the row that `projections.models.open_work` keeps. This module does not depend
on the fold or its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import index
from typing import Any, Self
from uuid import UUID

from eventstore.events import Invocation, Meta, PartialToolCall, TokenUsage

__all__ = [
    "OpenModelCall",
    "OpenRunStep",
    "OpenSession",
    "OpenTask",
    "OpenToolCall",
    "OpenWork",
    "UnfinishedTurn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """Something that has begun and not ended.

    Attributes:
        version: Version of the event that began it.
        began_at: Time of that event.
        meta: Where it belongs: turn, step, session, run; and whether it is part of the context.
    """

    version: int
    began_at: datetime
    meta: Meta

    @classmethod
    def of(cls, entry: Mapping[str, Any], **values: Any) -> Self:
        """Create one from its JSON object in the table; ``values`` override the object's."""
        began = datetime.fromisoformat(entry["began_at"])
        return cls(**{**entry, "began_at": began, "meta": Meta(**entry["meta"]), **values})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModelCall(_Open):
    """A model call without an end, and everything that it has streamed."""

    llm_call_id: str
    attempt: int
    invocation: Invocation
    text: str
    reasoning: str
    refusal: str
    tool_calls: tuple[PartialToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenToolCall(_Open):
    """A tool call without a result; ``started_at`` is set right before the call is executed.

    ``elsewhere`` means that the tool runs outside the recorder, which does not learn when.
    ``awaited`` means that its turn was replaced and that a task delivers the result.
    """

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    provider_id: str | None
    started_at: datetime | None
    idempotency_key: str | None
    idempotent: bool
    elsewhere: bool = False
    awaited: bool = False

    @property
    def started(self) -> bool:
        """Whether the tool may have run."""
        return self.started_at is not None or self.elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedTurn(_Open):
    """A turn without an end, with its steps and tokens so far."""

    turn: int | None
    steps: int
    tokens: TokenUsage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession(_Open):
    """A session without an end, with its turns and tokens so far."""

    session_id: str | None
    turns: int
    tokens: TokenUsage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRunStep(_Open):
    """The node that a run began last and has not ended; a run continues after a crash."""

    run_id: str
    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTask(_Open):
    """A scheduler's task that is queued or running; it continues after a crash."""

    task_id: str
    target_conversation_id: str | None
    closes_call_id: str | None
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """The open work of a conversation after the event ``last_version``, oldest first.

    ``last_event_at`` is the time of that event, and so the last sign of life of its writer.
    ``tasks`` are the tasks in the conversation's queue, at most 256, for a `Scheduler` to resume.
    ``destroyed`` means that the conversation has ended and accepts no turns.
    """

    conversation_id: UUID
    last_version: int
    last_event_at: datetime
    model_calls: tuple[OpenModelCall, ...] = ()
    tool_calls: tuple[OpenToolCall, ...] = ()
    turn: UnfinishedTurn | None = None
    session: OpenSession | None = None
    run_step: OpenRunStep | None = None
    tasks: tuple[OpenTask, ...] = ()
    destroyed: bool = False

    @classmethod
    def from_row(cls, row: Mapping[Any, Any]) -> Self:
        """Create one from a row of the table."""
        turn, session, step = row["turn"], row["session"], row["run_step"]
        return cls(
            conversation_id=row["conversation_id"],
            last_version=index(row["last_version"]),
            last_event_at=row["last_event_at"],
            model_calls=tuple(map(_model_call, row["model_calls"])),
            tool_calls=tuple(map(_tool_call, row["tool_calls"])),
            turn=turn and UnfinishedTurn.of(turn, tokens=_usage(turn)),
            session=session and OpenSession.of(session, tokens=_usage(session)),
            run_step=step and OpenRunStep.of(step),
            tasks=tuple(map(OpenTask.of, row["tasks"] or ())),
            destroyed=bool(row["destroyed"]),
        )

    @property
    def open_count(self) -> int:
        """How many model calls, tool calls and turns are open.

        Neither an idle session nor a call whose result a task delivers is open work.
        """
        calls = sum(not call.awaited for call in self.tool_calls)
        return len(self.model_calls) + calls + (self.turn is not None)

    @property
    def any(self) -> bool:
        """Whether there is anything to seal: open work or a session that was not closed."""
        return self.open_count > 0 or self.session is not None


def _model_call(entry: Mapping[str, Any]) -> OpenModelCall:
    pieces = sorted(entry["tool_calls"].values(), key=lambda piece: int(piece["index"]))
    return OpenModelCall.of(
        entry,
        invocation=Invocation(**entry["invocation"]),
        tool_calls=tuple(PartialToolCall(**piece) for piece in pieces),
    )


def _tool_call(entry: Mapping[str, Any]) -> OpenToolCall:
    started = entry["started_at"]
    return OpenToolCall.of(entry, started_at=started and datetime.fromisoformat(started))


def _usage(entry: Mapping[str, Any]) -> TokenUsage | None:
    return TokenUsage(**entry["tokens"]) if entry["tokens"] else None
