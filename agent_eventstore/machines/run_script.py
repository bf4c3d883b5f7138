"""The scripts of a run and of its steps, which do no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_eventstore.stops import error_text, stopped_or_gone
from eventstore import NewEvent, new_id
from eventstore.events import (
    Artifact,
    Meta,
    Payload,
    RunEnd,
    RunNode,
    RunStart,
    RunStepEnd,
    RunStepStart,
)

__all__ = ["RunScript", "StepScript"]


@dataclass(slots=True)
class StepScript:
    """A visit to a node: its start, written before it begins, and its end."""

    meta: Meta
    run_id: str
    node_id: str
    brief: str | None = None
    context: str | None = None
    error: str | None = None
    ended: bool = False
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    _start_events: list[NewEvent] | None = None

    def begin(self) -> list[NewEvent]:
        """Return the event of the step's start, the same one at every call."""
        if self._start_events is None:
            start = RunStepStart(
                run_id=self.run_id, node_id=self.node_id, brief=self.brief, context=self.context
            )
            self._start_events = [NewEvent(start, new_id(), self.meta)]
        return self._start_events

    def end(self, error: BaseException | None = None) -> list[NewEvent]:
        """Return the event of the step's end, with its artifacts; none if it has already ended."""
        if self.ended:
            return []
        self.ended = True
        status: Literal["completed", "failed", "cancelled"] = "completed"
        if error is not None:
            status = "cancelled" if stopped_or_gone(error) else "failed"
        elif self.error is not None:
            status = "failed"
        end = RunStepEnd(
            run_id=self.run_id,
            node_id=self.node_id,
            status=status,
            artifacts=tuple(self.artifacts.values()),
            error=self.error if error is None else stopped_or_gone(error) or error_text(error),
        )
        return [NewEvent(end, new_id(), self.meta)]


@dataclass(slots=True)
class RunScript:
    """A run of a workflow: its start, its steps, its end."""

    meta: Meta
    run_id: str
    workflow_id: str | None
    ended: bool = False

    @classmethod
    def of(cls, session: Meta, run_id: str, workflow_id: str | None) -> RunScript:
        """Return a run's script; its events belong to the session and have the mode ``run``."""
        where = {"run_id": run_id, "workflow_id": workflow_id, "mode": "run"}
        return cls(session.model_copy(update=where), run_id, workflow_id)

    def begin(
        self,
        directive: str,
        nodes: Sequence[RunNode],
        post_run_protocol: str | None,
        config: dict[str, Any] | None,
    ) -> list[NewEvent]:
        """Return the event of the run's start."""
        start = RunStart(
            run_id=self.run_id,
            workflow_id=self.workflow_id or "",
            directive=directive,
            nodes=tuple(nodes),
            post_run_protocol=post_run_protocol,
            config=config or {},
        )
        return [self._event(start)]

    def step(self, node_id: str, brief: str | None, context: str | None) -> StepScript:
        """Return the script of a visit to a node."""
        return StepScript(self.meta, self.run_id, node_id, brief, context)

    def skip(self, node_id: str, reason: str | None) -> list[NewEvent]:
        """Return the event of a skipped node."""
        return [
            self._event(
                RunStepEnd(run_id=self.run_id, node_id=node_id, status="skipped", error=reason)
            )
        ]

    def end(
        self,
        status: Literal["completed", "failed", "cancelled"],
        *,
        post_run_protocol: str | None = None,
        error: str | None = None,
    ) -> list[NewEvent]:
        """Return the event of the run's end; none if it has already ended."""
        if self.ended:
            return []
        self.ended = True
        return [
            self._event(
                RunEnd(
                    run_id=self.run_id,
                    status=status,
                    post_run_protocol=post_run_protocol,
                    error=error,
                )
            )
        ]

    def leave(self, error: BaseException | None) -> list[NewEvent]:
        """Return the events to write when the run's block is left.

        A stop leaves the run open, as a crash does, so that it can be resumed.
        """
        if error is None:
            return self.end("completed")
        if stopped_or_gone(error):
            return []
        return self.end("failed", error=error_text(error))

    def _event(self, payload: Payload) -> NewEvent:
        return NewEvent(payload, new_id(), self.meta)
