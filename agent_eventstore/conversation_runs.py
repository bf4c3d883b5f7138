"""How a conversation begins a run of a workflow, and goes on with one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_eventstore.journal import Journal
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.open_conversation import OpenConversation
from agent_eventstore.resuming import ResumedRun, resume
from agent_eventstore.runs import AsyncRun, Run
from agent_eventstore.turn import Turn
from agent_eventstore.turn_aio import AsyncTurn
from eventstore import new_id
from eventstore.events import RunNode
from projections.models.runs import RunRow

__all__ = ["AsyncConversationRuns", "ConversationRuns"]


class ConversationRuns(OpenConversation[Journal, Turn]):
    """The runs of a conversation."""

    def start_run(
        self,
        workflow_id: str,
        *,
        directive: str = "",
        nodes: Sequence[RunNode] = (),
        post_run_protocol: str | None = None,
        config: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Run:
        """Begin a run of a workflow; its start is durable when this returns.

        Args:
            workflow_id: The workflow.
            directive: What requests in Run mode are told of the run.
            nodes: The workflow's nodes, in order.
            post_run_protocol: What they are told besides once the run is completed.
            config: Whatever else the product wants to find again when it resumes the run.
            run_id: The run's id, if the product has one; by default a new one.
        """
        script = self._session.run_script(run_id or str(new_id()), workflow_id)
        self._journal.write(script.begin(directive, nodes, post_run_protocol, config))
        return Run(self._journal, script, self.turn)

    def resume_run(self, run_id: str | None = None) -> ResumedRun[Run] | None:
        """Return how to go on with a run; None if it has ended, or if none is open.

        Args:
            run_id: Which run; by default the one last begun or stepped through.

        Raises:
            ValueError: There is no run of this id.
        """

        def handle(row: RunRow) -> Run:
            return Run(
                self._journal, self._session.run_script(row.run_id, row.workflow_id), self.turn
            )

        store = self._journal.store
        return resume(store, self.views, self.id, run_id, handle)


class AsyncConversationRuns(OpenConversation[AsyncJournal, AsyncTurn]):
    """The runs of an asynchronous conversation."""

    async def start_run(
        self,
        workflow_id: str,
        *,
        directive: str = "",
        nodes: Sequence[RunNode] = (),
        post_run_protocol: str | None = None,
        config: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> AsyncRun:
        """Begin a run of a workflow; see `Conversation.start_run`."""
        script = self._session.run_script(run_id or str(new_id()), workflow_id)
        await self._journal.write(script.begin(directive, nodes, post_run_protocol, config))
        return AsyncRun(self._journal, script, self.turn)

    async def resume_run(self, run_id: str | None = None) -> ResumedRun[AsyncRun] | None:
        """Return how to go on with a run; see `Conversation.resume_run`."""
        session = self._session

        def handle(row: RunRow) -> AsyncRun:
            script = session.run_script(row.run_id, row.workflow_id)
            return AsyncRun(self._journal, script, self.turn)

        store = self._journal.store.store
        return await asyncio.to_thread(resume, store, session.views, session.id, run_id, handle)
