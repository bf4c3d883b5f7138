"""`Scheduler`: several conversations, one task at a time (document 003).

The queue stands in the root conversation's log. A tool that interrupts ends the turn that calls it;
the task that answers comes ahead of all others, and behind it one that brings the answer back as
the tool's result. Where a task stands is told by the log alone, so a scheduler that was killed
anywhere is opened again by the root's id, and `run` goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, Unpack, cast
from uuid import UUID

from agent_eventstore.agents.agent_options import AgentOptions, config_of
from agent_eventstore.agents.function_tools import FunctionTool
from agent_eventstore.conversation import Conversation
from agent_eventstore.inputs import Said
from agent_eventstore.scheduling.conversation_tools import declared
from agent_eventstore.scheduling.queue import TaskPlan, TaskResult
from agent_eventstore.scheduling.task_runs import OnEvent, TaskRuns
from eventstore import EventStore
from eventstore.errors import ErrorType, Trace
from eventstore.events import JsonObject
from eventstore.ids import StreamId
from eventstore.options import require_known
from projections import Views

__all__ = ["Scheduler", "SchedulerOptions"]


class SchedulerOptions(AgentOptions, total=False):
    """How a scheduler and its agents go about it; all have defaults.

    Attributes:
        directory: The working directory, in which files of instructions are; by default the
            process's.
        max_interrupt_chain_depth: How many tasks may have enqueued one another by tools, at most;
            32.
        on_event: Told of ``task_started``, ``turn_aborted`` and ``task_ended``, and of all that a
            listener is told, with the conversation that it is about.
        conversation: How sessions of the other conversations are opened: ``state_directory``,
            ``if_busy``, ``lease_s`` and the like, as of `Conversation.open`.
    """

    directory: str | Path
    max_interrupt_chain_depth: int
    on_event: OnEvent | None
    conversation: dict[str, Any] | None


class Scheduler:
    """Runs tasks of several conversations, one at a time; a context manager that closes them.

    Models get the tools ``conv.create``, ``conv.send``, ``conv.list``, ``conv.history`` and
    ``conv.destroy`` besides those of the product.

    Args:
        root: The conversation whose log holds the queue, open for writing.
        model: Whom to ask; see `AgentSession`.
        options: Those of `SchedulerOptions`, and how its agents answer: see `AgentOptions`.
    """

    def __init__(
        self, root: Conversation, *, model: Any, **options: Unpack[SchedulerOptions]
    ) -> None:
        self._root, self._one = root, threading.Lock()
        self._runs = TaskRuns(
            root,
            model,
            Path(options.get("directory", ".")),
            options.get("max_interrupt_chain_depth", 32),
            options.get("on_event") or (lambda conversation_id, kind, text: None),
            options.get("conversation") or {},
            _of_agents(options),
        )

    @classmethod
    def create(cls, store: EventStore, *, model: Any, **options: Unpack[SchedulerOptions]) -> Self:
        """Begin a root conversation.

        Args:
            store: Where all conversations are kept.
            model: Whom to ask.
            options: As of the class; ``conversation`` may have all that `Conversation.start` takes:
                title, user, instructions. How its session is opened holds for the others, too.

        Raises:
            ConversationExists: There is a conversation of this id or key already.
        """
        told = config_of(model, _of_agents(options), None)
        how = options.get("conversation") or {}
        return cls(Conversation.start(store, session_config=told, **how), model=model, **options)

    @classmethod
    def open(
        cls,
        store: EventStore,
        root: StreamId,
        *,
        model: Any,
        **options: Unpack[SchedulerOptions],
    ) -> Self:
        """Open a root conversation again; `run` then goes on with the tasks that are left.

        Args:
            store: Where all conversations are kept.
            root: Its id, or the product's key for it.
            model: Whom to ask.
            options: As of the class.

        Raises:
            ConversationInUse: Another session has it open.
            ConversationNotFound: There is none of this id or key.
        """
        told = config_of(model, _of_agents(options), None)
        how = options.get("conversation") or {}
        opened = Conversation.open(store, root, session_config=told, **how)
        return cls(opened, model=model, **options)

    @property
    def root(self) -> UUID:
        """The root conversation's id, by which the scheduler is opened again."""
        return self._root.id

    @property
    def views(self) -> Views:
        """The read models; `Views.tasks` of the root tells where its tasks stand."""
        return self._root.views

    @property
    def tools(self) -> list[FunctionTool]:
        """The five tools that its agents have besides the product's, in the document's order."""
        return declared(self._runs.use)

    def enqueue(self, plans: Iterable[TaskPlan]) -> None:
        """Put tasks at the end of the queue, in one transaction; `run` runs them."""
        self._runs.queue.add(list(plans))

    def abort_current_and_enqueue(self, plans: Iterable[TaskPlan]) -> None:
        """End the task that runs, as ``aborted``, ``replaced``, and put tasks ahead of all others.

        From any thread. Its turn ends where it next looks: with the next piece of an answer, or
        ahead of the next tool.
        """
        self._runs.replace(list(plans))

    def run(self) -> list[TaskResult]:
        """Run tasks until none is left, those first that a process that was killed has left.

        A turn that was cut off is gone on with in a new one; what fails in the store, or in the
        product's own code, is raised, and the next `run` goes on from there.
        """
        found: list[TaskResult] = []
        with self._one:
            while (task := self._runs.queue.next()) is not None:
                found.append(self._runs.perform(task))
        return found

    def run_task(self, said: Said, *, conversation_id: UUID | None = None) -> TaskResult:
        """Enqueue a task, run all that there are, and return what came of the conversation's last.

        Args:
            said: What is said: text, or parts.
            conversation_id: To which conversation; by default to the root.
        """
        whom = conversation_id or self.root
        self.enqueue([TaskPlan(conversation_id=whom, input_items=said)])
        return [each for each in self.run() if each.conversation_id == whom][-1]

    def conversations(self) -> list[JsonObject]:
        """Return what ``conv.list`` tells of the conversations that exist."""
        return self._runs.members.listed()

    def history(self, conversation_id: UUID, limit: int | None = None) -> list[JsonObject]:
        """Return what ``conv.history`` tells of a conversation."""
        return self._runs.members.history(conversation_id, limit)

    def destroy(self, conversation_id: UUID | str) -> JsonObject:
        """End a conversation for good, as ``conv.destroy`` does; its open tasks are aborted.

        A turn that runs in it ends as ``aborted``, ``interrupted``. From any thread.
        """
        return self._runs.destroy(str(conversation_id))

    def close(self, reason: str | None = None) -> None:
        """End all sessions; what is enqueued stays so."""
        self._runs.close(reason)

    def __enter__(self) -> Self:
        """Return the scheduler itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """End all sessions."""
        self.close(None if error is None else type(error).__name__)


def _of_agents(options: SchedulerOptions) -> AgentOptions:
    """Return those of the options that are its agents'.

    Raises:
        TypeError: There is no such option.
    """
    require_known(options, SchedulerOptions)
    own = AgentOptions.__annotations__
    return cast("AgentOptions", {name: each for name, each in options.items() if name in own})
