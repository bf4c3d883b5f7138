"""`Scheduler`: several conversations, one task at a time (document 003).

The queue is in the root conversation's log. A tool that interrupts ends the turn that calls it. The
task that answers goes ahead of all others, followed by one that returns the answer as the tool's
result. Only the log holds the state of a task, so after a kill at any point, `open` the scheduler
by the root's id, and `run` resumes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, Unpack, cast
from uuid import UUID

from agent_eventstore.agents.agent_options import AgentOptions, config_of
from agent_eventstore.agents.conversation_tools import declared
from agent_eventstore.agents.function_tools import FunctionTool
from agent_eventstore.agents.queue import TaskPlan, TaskResult
from agent_eventstore.agents.task_runs import OnEvent, TaskRuns
from agent_eventstore.conversation import Conversation, closed_on_error
from agent_eventstore.inputs import UserInput
from eventstore import EventStore, new_id
from eventstore.arguments import require_known
from eventstore.errors import ErrorType, Traceback
from eventstore.events import JsonObject
from eventstore.ids import StreamId
from projections import Views

__all__ = ["Scheduler", "SchedulerOptions"]


class SchedulerOptions(AgentOptions, total=False):
    """How a scheduler and its agents work; all options have defaults.

    Attributes:
        directory: The working directory with instruction files; by default the process's.
        max_interrupt_chain_depth: Maximum number of tasks that may enqueue one another by tools;
            32 by default.
        on_event: Called with ``task_started``, ``turn_aborted``, ``task_ended``, and everything
            that a listener receives, together with the conversation concerned.
        conversation: How sessions of the other conversations are opened: ``state_directory``,
            ``if_busy``, ``lease_s`` and other arguments of `Conversation.open`.
    """

    directory: str | Path
    max_interrupt_chain_depth: int
    on_event: OnEvent | None
    conversation: dict[str, Any] | None


class Scheduler:
    """Runs tasks of several conversations, one at a time; a context manager that closes them.

    Models have the tools ``conv.create``, ``conv.send``, ``conv.list``, ``conv.history`` and
    ``conv.destroy`` in addition to your product's.

    Args:
        root: The conversation whose log holds the queue, open for writing.
        model: The model; see `AgentSession`.
        options: `SchedulerOptions`, including the `AgentOptions` of its agents.
    """

    def __init__(
        self, root: Conversation, *, model: Any, **options: Unpack[SchedulerOptions]
    ) -> None:
        self._root, self._one, self._closed = root, threading.Lock(), False
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
            store: The store of all conversations.
            model: The model.
            options: As for the class; ``conversation`` may have all arguments of
                `Conversation.start`: title, user, instructions. Those that say how its session is
                opened apply to the others, too.

        Raises:
            ConversationExists: A conversation with this id or key already exists.
        """
        session_config = config_of(model, _of_agents(options), None)
        how = options.get("conversation") or {}
        started = Conversation.start(store, session_config=session_config, **how)
        with closed_on_error(started):
            return cls(started, model=model, **options)

    @classmethod
    def open(
        cls,
        store: EventStore,
        root: StreamId,
        *,
        model: Any,
        **options: Unpack[SchedulerOptions],
    ) -> Self:
        """Open a root conversation again; `run` then resumes the remaining tasks.

        Args:
            store: The store of all conversations.
            root: Its id, or your product's key for it.
            model: The model.
            options: As for the class.

        Raises:
            ConversationInUse: Another session has it open.
            ConversationNotFound: No conversation has this id or key.
        """
        session_config = config_of(model, _of_agents(options), None)
        how = options.get("conversation") or {}
        opened = Conversation.open(store, root, session_config=session_config, **how)
        with closed_on_error(opened):
            return cls(opened, model=model, **options)

    @property
    def root(self) -> UUID:
        """The root conversation's id, with which the scheduler can be opened again."""
        return self._root.id

    @property
    def views(self) -> Views:
        """The read models; `Views.tasks` of the root shows the state of its tasks."""
        return self._root.views

    @property
    def tools(self) -> list[FunctionTool]:
        """The five tools of its agents besides your product's, in the document's order."""
        return declared(self._runs.use)

    def enqueue(self, plans: Iterable[TaskPlan]) -> None:
        """Put tasks at the end of the queue, in one transaction; `run` runs them.

        Raises:
            RuntimeError: The scheduler is closed, as in all calls that write.
        """
        self._require_open()
        self._runs.queue.add(list(plans))

    def abort_current_and_enqueue(self, plans: Iterable[TaskPlan]) -> None:
        """End the running task as ``aborted``, ``replaced``, and put tasks ahead of all others.

        May be called from any thread. The turn ends at its next check: at the next piece of an
        answer, or before the next tool.
        """
        self._require_open()
        self._runs.replace(list(plans))

    def run(self) -> list[TaskResult]:
        """Run tasks until none is left, beginning with those that a killed process left.

        A turn that was cut off resumes in a new one. Errors of the store or of your product's own
        code are raised, and the next `run` resumes from there.
        """
        self._require_open()
        found: list[TaskResult] = []
        with self._one:
            while (task := self._runs.queue.next()) is not None:
                found.append(self._runs.perform(task))
        return found

    def run_task(self, message: UserInput, *, conversation_id: UUID | None = None) -> TaskResult:
        """Enqueue a task, run all tasks, and return its result.

        That of the task that resumed it, if a tool interrupted it; if it was replaced by
        `abort_current_and_enqueue`, that of the conversation's last task. Threads may call it at
        once: one of them runs all tasks, and each gets the result of its own.

        Args:
            message: The input: text, or parts.
            conversation_id: The conversation; by default the root.
        """
        whom = conversation_id or self.root
        task_id = str(new_id())
        self.enqueue([TaskPlan(conversation_id=whom, input_items=message, task_id=task_id)])
        ran = [each for each in self.run() if each.conversation_id == whom]
        own = self._runs.queue.result_of(task_id)
        if own is not None and (own.reason != "replaced" or not ran):
            return own
        return ran[-1]

    def conversations(self) -> list[JsonObject]:
        """Return the existing conversations, as ``conv.list`` does."""
        return self._runs.members.listed()

    def history(self, conversation_id: UUID, limit: int | None = None) -> list[JsonObject]:
        """Return the messages of a conversation, as ``conv.history`` does."""
        return self._runs.members.history(conversation_id, limit)

    def destroy(self, conversation_id: UUID | str) -> JsonObject:
        """End a conversation permanently, as ``conv.destroy`` does; its open tasks are aborted.

        A turn that runs in it ends as ``aborted``, ``interrupted``. May be called from any thread.
        """
        self._require_open()
        return self._runs.destroy(str(conversation_id))

    def close(self, reason: str | None = None) -> None:
        """End all sessions; enqueued tasks stay in the queue."""
        self._closed = True
        self._runs.close(reason)

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the scheduler is closed: open its root {self.root} again")

    def __enter__(self) -> Self:
        """Return the scheduler itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End all sessions."""
        self.close(None if error is None else type(error).__name__)


def _of_agents(options: SchedulerOptions) -> AgentOptions:
    """Return the options for the scheduler's agents.

    Raises:
        TypeError: An option is unknown, or the depth is not a number.
        ValueError: The depth is negative.
    """
    require_known(options, SchedulerOptions)
    depth = options.get("max_interrupt_chain_depth", 0)
    if not isinstance(depth, int):
        raise TypeError(f"max_interrupt_chain_depth must be an integer, not {depth!r}")
    if depth < 0:
        raise ValueError(f"max_interrupt_chain_depth must not be negative: {depth}")
    own = AgentOptions.__annotations__
    return cast("AgentOptions", {name: each for name, each in options.items() if name in own})
