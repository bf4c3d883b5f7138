"""Run mode's recorder: a run of a workflow, and the steps through its nodes.

`Conversation.start_run` and `Conversation.resume_run` return a run. As in `agent_eventstore.turn`,
entering a block commits the events of what it is about to do. `AsyncRun` and `AsyncStep` are the
same for event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Self

from agent_eventstore.current import Block
from agent_eventstore.inputs import UserInput
from agent_eventstore.journal import INTERRUPTIONS, Journal
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.machines.run_script import RunScript, StepScript
from agent_eventstore.open_conversation import TurnT
from agent_eventstore.session import JournalT
from agent_eventstore.stops import error_text
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore.errors import ErrorType, Traceback
from eventstore.events import Artifact, ToolPolicy

__all__ = ["AsyncRun", "AsyncStep", "Run", "Step"]


class _StepFacts(Block, Generic[JournalT]):
    """The base of `Step` and `AsyncStep`; its methods only prepare the step's end."""

    def __init__(self, journal: JournalT, script: StepScript) -> None:
        self._journal: JournalT = journal
        self._script = script

    @property
    def node_id(self) -> str:
        """The id of the active node."""
        return self._script.node_id

    def artifact(
        self,
        name: str,
        *,
        path: str | None = None,
        content: Any = None,
        media_type: str | None = None,
    ) -> Artifact:
        """Add an artifact of the node; a later one with the same name replaces it.

        It becomes durable with the step's end. Data that must survive a crash before that belongs
        in a file or in a tool's result.

        Args:
            name: Its name within the node.
            path: Its path, if it is a file.
            content: Its content, as a JSON value.
            media_type: Its media type, for example ``text/markdown``.

        Raises:
            BlockNotOpen: The step has not been entered, or has been left.
        """
        self._within("step.artifact")
        made = Artifact(name=name, path=path, content=content, media_type=media_type)
        self._script.artifacts[name] = made
        return made

    def fail(self, error: str) -> None:
        """Make the step end as failed, without an exception."""
        self._within("step.fail")
        self._script.error = error


class _RunFacts(Generic[JournalT, TurnT]):
    """The base of `Run` and `AsyncRun`."""

    def __init__(self, journal: JournalT, script: RunScript, turn: Callable[..., TurnT]) -> None:
        self._journal: JournalT = journal
        self._script = script
        self._turn = turn

    @property
    def run_id(self) -> str:
        """The run's id, unique within the conversation."""
        return self._script.run_id

    @property
    def workflow_id(self) -> str | None:
        """The id of the workflow."""
        return self._script.workflow_id

    @property
    def ended(self) -> bool:
        """Whether this object has ended the run."""
        return self._script.ended

    def turn(self, message: UserInput, *, tool_policy: ToolPolicy | None = None) -> TurnT:
        """Return a turn of this run, in Run mode even if the conversation's mode is another."""
        where = {"run_id": self.run_id, "workflow_id": self.workflow_id}
        return self._turn(message, **where, tool_policy=tool_policy)


class Step(_StepFacts[Journal]):
    """A visit to a node.

    Entering writes that the node is active. Leaving writes that it is ``completed``, ``failed``
    after an exception, or ``cancelled`` after a stop.
    """

    _form = "with run.step(...) as step:"

    def __enter__(self) -> Self:
        """Write the step's start.

        Raises:
            BlockNotOpen: The step was entered before; a failed attempt does not count.
        """
        self._enter_once()
        try:
            self._journal.write(self._script.begin())
            self._state = "open"
            return self
        except INTERRUPTIONS as error:
            self._state = "over"
            self._journal.abandon(self._script.begin(), self._script.end(error))
            raise

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Write the step's end, with its artifacts."""
        self._state = "over"
        self._journal.record(self._script.end(error))


class Run(_RunFacts[Journal, Turn]):
    """A run of a workflow; its start is already written.

    It can be used as a context manager: leaving the block completes the run, unless it has ended,
    or fails it after an exception. After a stop the run stays open, to be resumed.
    """

    def step(self, node_id: str, *, brief: str | None = None, context: str | None = None) -> Step:
        """Return a step: a visit to a node; enter it around the node's work.

        Args:
            node_id: The node; it may be one that the workflow did not name.
            brief: The node's purpose; by default that of the run's start.
            context: Further text for the model while the node is active.
        """
        return Step(self._journal, self._script.step(node_id, brief, context))

    def skip(self, node_id: str, reason: str | None = None) -> None:
        """Record that a node is skipped; nodes that depend on it may begin."""
        self._journal.record(self._script.skip(node_id, reason))

    def complete(self, post_run_protocol: str | None = None) -> None:
        """End the run as completed; its directive and protocol stay in force for later turns.

        Args:
            post_run_protocol: Replaces the protocol of the run's start.
        """
        self._journal.record(self._script.end("completed", post_run_protocol=post_run_protocol))

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed."""
        self._journal.record(self._script.end("failed", error=error_text(error)))

    def cancel(self) -> None:
        """End the run as cancelled."""
        self._journal.record(self._script.end("cancelled"))

    def __enter__(self) -> Self:
        """Return the run itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the run, unless it has ended or is interrupted."""
        self._journal.record(self._script.leave(error))


class AsyncStep(_StepFacts[AsyncJournal]):
    """`Step` for an event loop."""

    _form = "async with run.step(...) as step:"

    async def __aenter__(self) -> Self:
        """Write the step's start; see `Step`."""
        self._enter_once()
        try:
            await self._journal.write(self._script.begin())
        except asyncio.CancelledError as error:
            self._state = "over"
            await self._journal.abandon(self._script.begin(), self._script.end(error))
            raise
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Write the step's end, with its artifacts, even if the task has been cancelled."""
        self._state = "over"
        await self._journal.record(self._script.end(error))


class AsyncRun(_RunFacts[AsyncJournal, AsyncTurn]):
    """`Run` for an event loop."""

    def step(
        self, node_id: str, *, brief: str | None = None, context: str | None = None
    ) -> AsyncStep:
        """Return a step; see `Run.step`."""
        return AsyncStep(self._journal, self._script.step(node_id, brief, context))

    async def skip(self, node_id: str, reason: str | None = None) -> None:
        """Record that a node is skipped; see `Run.skip`."""
        await self._journal.record(self._script.skip(node_id, reason))

    async def complete(self, post_run_protocol: str | None = None) -> None:
        """End the run as completed; see `Run.complete`."""
        await self._journal.record(
            self._script.end("completed", post_run_protocol=post_run_protocol)
        )

    async def fail(self, error: BaseException | str) -> None:
        """End the run as failed."""
        await self._journal.record(self._script.end("failed", error=error_text(error)))

    async def cancel(self) -> None:
        """End the run as cancelled."""
        await self._journal.record(self._script.end("cancelled"))

    async def __aenter__(self) -> Self:
        """Return the run itself."""
        return self

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """End the run, unless it has ended or is interrupted."""
        await self._journal.record(self._script.leave(error))
