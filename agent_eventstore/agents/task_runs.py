"""Runs a task: the session of its conversation, its turns, and its replacement by other work.

The next action is read from the log each time. The same code therefore handles a task that begins,
a task whose turn has ended, and a task that a killed process left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from agent_eventstore.agents.agent_options import AgentOptions, config_of
from agent_eventstore.agents.agent_session import CONTINUE, AgentSession
from agent_eventstore.agents.conversation_tools import (
    Create,
    Destroy,
    History,
    Send,
    declared,
    refusal,
    refused,
)
from agent_eventstore.agents.function_tools import ToolRefused
from agent_eventstore.agents.interrupts import (
    INTERRUPTING,
    Interrupts,
    Opening,
    answered,
    request_of,
)
from agent_eventstore.agents.queue import Members, TaskPlan, TaskQueue, TaskResult
from agent_eventstore.agents.turn_results import TurnResult
from agent_eventstore.conversation import Conversation, closed_on_error
from agent_eventstore.errors import ConversationInUse, ConversationNotFound, PromptTooLong
from agent_eventstore.machines import RequestedCall
from agent_eventstore.turn import Turn
from eventstore.events import JsonObject, SystemInstruction, TaskEnd
from eventstore.ids import uuid_in
from projections.models.open_items import OpenToolCall, OpenWork
from projections.models.tasks import TaskRow
from projections.payload_text import spoken

__all__ = ["ATTEMPTS", "OnEvent", "TaskRuns"]

ATTEMPTS = 5
"""How many times a task's turn is begun: a task that kills its process each time is given up."""

_OPENING = ("session_mode", "state_directory", "agent_id", "extra", "if_busy", "lease_s", "wait_s")


@dataclass(frozen=True, slots=True)
class _Left:
    """State of a task whose turn should run: the number of turns cut off, and open work."""

    number: int
    work: OpenWork


OnEvent = Callable[[UUID, str, str], None]
"""Called as things happen, with the conversation, the kind, and the text."""


class TaskRuns:
    """Runs the tasks of a queue, each in a session of its conversation.

    Args:
        root: The conversation whose log holds the queue.
        model: The model.
        directory: The directory of instruction files.
        most: Maximum number of tasks that may enqueue one another by tools.
        on_event: Called as things happen.
        opening: How sessions are opened: arguments of `Conversation.open`.
        options: How the agents answer.
    """

    def __init__(
        self,
        root: Conversation,
        model: Any,
        directory: Path,
        most: int,
        on_event: OnEvent,
        opening: dict[str, Any],
        options: AgentOptions,
    ) -> None:
        self.queue = TaskQueue(root)
        self.members = Members(root.views, root.id, self.queue)
        self._store, self._views, self._root = root.views.store, root.views, root
        self._model, self._options, self._tell = model, options, on_event
        self._opening = {name: opening[name] for name in _OPENING if name in opening}
        self._interrupts = Interrupts(root.id, self.members, directory, most)
        self._running: tuple[TaskRow, AgentSession | None] | None = None
        self._found_open: tuple[str, int] | None = None
        self._changing = threading.RLock()
        self._sessions = {root.id: self._agent(root)}

    def perform(self, task: TaskRow) -> TaskResult:
        """Run a task to its end; work that it has done already is not repeated."""
        target = self.queue.target_of(task)
        with self._changing:
            if task.status == "pending":
                self.queue.start(task)
            self._running = task, None
            self._found_open = task.task_id, self._root.version
        try:
            if task.status == "pending":
                self._tell(target, "task_started", task.task_id)
            if uuid_in(task.target_conversation_id or "") is None:
                return self._end(task, "failed", error="the task names no conversation")
            try:
                session = self._session(target)
            except ConversationNotFound as error:
                return self._end(task, "failed", error=str(error))
            self._running = task, session
            while isinstance(found := self._settled(task, session), _Left):
                try:
                    self._answer(task, session, found)
                except PromptTooLong as error:
                    return self._end(task, "failed", error=str(error))
            return found
        finally:
            self._running = None

    def replace(self, plans: list[TaskPlan]) -> None:
        """Replace the running task by others."""
        with self._changing:
            task, session = self._running or (None, None)
            if task is None or not self._is_open(task):
                self.queue.add(plans, depth=1)
                return
            ended = TaskEnd(task_id=task.task_id, status="aborted", reason="replaced")
            self.queue.add(plans, depth=(task.depth or 0) + 1, ended=ended)
            if session is not None:
                session.abort("replaced")
        if session is not None:
            self._tell(session.id, "turn_aborted", "replaced")

    def destroy(self, conversation_id: str) -> JsonObject:
        """Destroy a conversation, and stop its running turn."""
        found = self.members.find(conversation_id)
        if found is None:
            return {"ok": False, "reason": "conversation not found"}
        if found == self._root.id:
            return {"ok": False, "reason": "the root conversation cannot be destroyed"}
        with self._changing:
            _, running = self._running or (None, None)
            if running is not None and running.id == found:
                running.conversation.destroy()
                running.abort("interrupted")
            else:
                running = None
        if running is not None:
            self._tell(found, "turn_aborted", "interrupted")
            return {"ok": True}
        with self._changing:
            try:
                self._session(found).conversation.destroy()
            except ConversationInUse:
                return {"ok": False, "reason": "the conversation is open elsewhere"}
            self._release(found)
        return {"ok": True}

    def close(self, reason: str | None) -> None:
        """End all sessions; an error of one of them is raised once all have been closed."""
        with ExitStack() as closing:
            while self._sessions:
                _, session = self._sessions.popitem()
                closing.callback(session.close, reason)

    def _agent(self, conversation: Conversation) -> AgentSession:
        here, options = conversation.id, self._options
        listener = options.get("listener")

        def tell(kind: str, text: str) -> None:
            self._tell(here, kind, text)
            if listener is not None:
                listener(kind, text)

        agent_options: AgentOptions = {
            **options,
            "tools": [*options.get("tools", ()), *declared(self.use)],
            "interrupt": partial(self._interrupt, here),
            "listener": tell,
        }
        return AgentSession(conversation, model=self._model, **agent_options)

    def _session(self, conversation_id: UUID) -> AgentSession:
        """Return the session of a conversation; opening one seals the work that a process left."""
        if conversation_id not in self._sessions:
            config = config_of(self._model, self._options, None)
            opened = Conversation.open(
                self._store, conversation_id, session_config=config, **self._opening
            )
            with closed_on_error(opened):
                self._sessions[conversation_id] = self._agent(opened)
        return self._sessions[conversation_id]

    def _release(self, conversation_id: UUID) -> None:
        if conversation_id != self._root.id and conversation_id in self._sessions:
            self._sessions.pop(conversation_id).close()

    def _is_open(self, task: TaskRow) -> bool:
        """Return whether a task has not ended; read only if the root has been written to since.

        No other process can have ended it: taking over the root fences this process's next append.
        """
        with self._changing:
            now = task.task_id, self._root.version
            if self._found_open == now:
                return True
            found = self.queue.find(task.task_id)
            is_open = found is not None and found.open
            self._found_open = now if is_open else None
            return is_open

    def _settled(self, task: TaskRow, session: AgentSession) -> TaskResult | _Left:
        """Return a task's result and record it; or the state of a task whose turn should run."""
        if not self._is_open(task):
            return self._result(task, "aborted", "replaced")
        work = self._views.open_work(session.id)
        if (cut := self._cut(task, work)) is not None:
            return self._hand_over(task, session.id, cut)
        if work.destroyed:
            return self._end(task, "aborted", "interrupted")
        number, result = self._tried(task, session)
        if result is None:
            if number < ATTEMPTS:
                return _Left(number, work)
            return self._end(task, "aborted", "interrupted")
        match result.status:
            case "ok":
                return self._end(task, "complete", answer=result.final_text)
            case "cancelled":
                return self._end(task, "aborted", "interrupted")
        return self._end(task, "failed", answer=result.final_text, error=_why(result))

    def _tried(self, task: TaskRow, session: AgentSession) -> tuple[int, TurnResult | None]:
        """Return how many turns were cut off, and the result of the one that was not, if any."""
        for number in range(ATTEMPTS):
            result = session.result_of(f"{task.task_id}/{number}")
            if result is None or result.status != "aborted":
                return number, result
        return ATTEMPTS, None

    def _answer(self, task: TaskRow, session: AgentSession, left: _Left) -> None:
        """Run a turn of the task: the first, or one after turns that were cut off."""
        number, calls = left.number, left.work.tool_calls
        message_id, task_input = f"{task.task_id}/{number}", self.queue.input_of(task)
        if task_input.closes_call_id is not None:
            waiting = (each for each in calls if each.call_id == task_input.closes_call_id)
            if (call := next(waiting, None)) is not None:
                content, failed = self._outcome(call, task_input.items)
                session.close_call(call, content, failed=failed, message_id=message_id)
                return
        if number or task_input.closes_call_id is not None:
            session.run_turn(CONTINUE, message_id=message_id)
            return
        if (instructions := task_input.base_instructions_override) is not None:
            session.conversation.append(SystemInstruction(text=instructions))
        session.run_turn(task_input.items, message_id=message_id)

    def _outcome(self, call: OpenToolCall, parts: tuple[Any, ...]) -> tuple[str, bool]:
        """Return the result of a waiting call, and whether it is a failure."""
        if parts:
            text = spoken(parts)
            return text, text.startswith('{"ok": false')
        target_task = self.queue.last_of(self._interrupts.task_id(call, "target"))
        if target_task is None or target_task.target_conversation_id is None:
            return refusal("the task of this call is unknown"), True
        end = self.queue.end_of(target_task)
        if target_task.status == "complete":
            answer = end.last_assistant_message if end is not None else None
            return answered(call, target_task.target_conversation_id, answer), False
        if self._is_destroyed(self.queue.target_of(target_task)):
            return refusal("the conversation was destroyed"), True
        if target_task.status == "aborted":
            return refusal("the task was aborted"), True
        why = "" if end is None or end.error is None else f": {end.error}"
        return refusal(f"the task failed{why}"), True

    def _is_destroyed(self, conversation_id: UUID) -> bool:
        with suppress(ConversationNotFound):
            return self._views.open_work(conversation_id).destroyed
        return False

    def _cut(self, task: TaskRow, work: OpenWork) -> OpenToolCall | None:
        """Return a waiting call for which nothing is enqueued yet."""
        for call in work.tool_calls:
            if call.awaited and call.name in INTERRUPTING:
                brings = self._interrupts.task_id(call, "result")
                if brings != task.task_id and self.queue.find(brings) is None:
                    return call
        return None

    def _hand_over(self, task: TaskRow, caller: UUID, call: OpenToolCall) -> TaskResult:
        """Replace a task by the tasks of its call."""
        depth = (task.depth or 0) + 1
        opening, plans = self._interrupts.plans(caller, call, depth)
        if opening is not None:
            self._open(opening)
        ended = TaskEnd(task_id=task.task_id, status="aborted", reason="replaced")
        with self._changing:
            if self._is_open(task):
                self.queue.put(plans, depth=depth, ended=ended)
        return self._result(task, "aborted", "replaced")

    def _open(self, opening: Opening) -> None:
        started = Conversation.start(
            self._store,
            mode=self._root.mode,
            conversation_id=opening.conversation_id,
            if_exists="open",
            parent=opening.parent,
            base_instructions=opening.base_instructions,
            tool_policy=opening.request.policy(),
            session_config=config_of(self._model, self._options, None),
            **{name: value for name, value in self._opening.items() if name != "wait_s"},
        )
        with closed_on_error(started):
            self._sessions[started.id] = self._agent(started)

    def _interrupt(self, here: UUID, turn: Turn, calls: list[RequestedCall]) -> bool:
        """Replace the turn if the next call interrupts and can be carried out."""
        call, (task, _) = calls[0], self._running or (None, None)
        if call.name not in INTERRUPTING or call.arguments is None or task is None:
            return False
        try:
            self._interrupts.look_at(request_of(call.name, call.arguments), (task.depth or 0) + 1)
        except ToolRefused:
            return False  # The tool itself reports the refusal.
        if not turn.replace(call, calls[1:]):
            return False
        self._tell(here, "turn_aborted", "replaced")
        return True

    def use(self, name: str, arguments: Any) -> JsonObject:
        """Run a tool that does not interrupt; for one that does, report why it cannot.

        Raises:
            ToolRefused: The call is refused; the exception has the text for the model.
        """
        if isinstance(arguments, Create | Send):
            task, _ = self._running or (None, None)
            self._interrupts.look_at(arguments, ((task and task.depth) or 0) + 1)
            raise refused(f"{name} is called within a task of the scheduler's")
        if isinstance(arguments, Destroy):
            return self.destroy(arguments.conversation_id)
        if isinstance(arguments, History):
            found = self.members.find(arguments.conversation_id)
            if found is None:
                raise refused("conversation not found")
            return {"entries": self.members.history(found, arguments.limit)}
        return {"conversations": self.members.listed()}

    def _end(
        self,
        task: TaskRow,
        status: Literal["complete", "failed", "aborted"],
        reason: Literal["interrupted"] | None = None,
        *,
        answer: str | None = None,
        error: str | None = None,
    ) -> TaskResult:
        with self._changing:
            if not self._is_open(task):
                return self._result(task, "aborted", "replaced")
            self._release(self.queue.target_of(task))  # first, so that none is left open
            self.queue.end(task, status, reason, answer, error)
        return self._result(task, status, reason, answer, error)

    def _result(
        self,
        task: TaskRow,
        status: Literal["complete", "failed", "aborted"],
        reason: Literal["replaced", "interrupted"] | None = None,
        answer: str | None = None,
        error: str | None = None,
    ) -> TaskResult:
        target = self.queue.target_of(task)
        self._tell(target, "task_ended", status)
        return TaskResult(
            task_id=task.task_id,
            conversation_id=target,
            status=status,
            reason=reason,
            last_assistant_message=answer,
            error=error,
        )


def _why(result: TurnResult) -> str:
    return result.error or f"the turn ended as {result.status}"
