"""The turn that is open where a model is called, and the blocks that may be used only while open.

A turn, a model call and a tool call are used within their block. What is done outside of it would
be recorded in the wrong place or not at all, so it is refused, where it is done and before anything
is sent or executed.

Entering a turn makes it the current one of this thread or task, and of the tasks begun within, so
that a product need not hand it around. One that is over is never current, whichever context still
refers to it; nor is one that was abandoned without being left, once nobody has it any more. Where
the context is lost, as it is between the threads and tasks of a web framework, `OpenTurn.client`
names the turn instead.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Literal, TypeVar

from agent_eventstore.errors import BlockNotOpen, TurnStopped
from agent_eventstore.machines import Branching, CallFacts, Executable, TurnScript
from agent_eventstore.requests import Request
from agent_eventstore.session import JournalT, Session, TurnOutcome
from agent_eventstore.stops import Stop
from eventstore import NewEvent
from eventstore.events import TokenUsage, UserMessage
from projections.context import ContextView
from projections.context.options import ContextOptions
from projections.context.system_part import permitted

__all__ = ["Block", "CallBlock", "OpenTurn", "Plan", "current_turn", "is_open", "is_over"]

Plan = Callable[[], Branching]
"""Reads what a turn takes the place of, once it is entered."""

C = TypeVar("C")
CallT = TypeVar("CallT", bound=CallFacts)
ToolT = TypeVar("ToolT")


class Block:
    """A block that is entered once, and used until it is left.

    Attributes:
        form: How a product enters it, for who has not.
    """

    form: ClassVar[str] = ""
    _state: Literal["new", "open", "over", "repeated"] = "new"

    def _enter_once(self) -> None:
        """Refuse to be entered again.

        Raises:
            BlockNotOpen: It has been entered; a failed attempt does not count.
        """
        if self._state != "new":
            entered = "is open already" if self._state == "open" else "is over"
            raise BlockNotOpen(f"this block {entered}: make another, `{self.form}`")

    def _within(self, what: str) -> None:
        """Refuse what is done outside of the block.

        Raises:
            BlockNotOpen: It has not been entered, or has been left.
        """
        if self._state == "repeated":
            raise BlockNotOpen(
                f"{what}: the turn of this message was recorded before: return turn.outcome, which "
                "is None in a turn that is to be gone through"
            )
        if self._state != "open":
            when = "has not been entered" if self._state == "new" else "has been left"
            raise BlockNotOpen(f"{what}: its block {when}; use it within `{self.form}`")


class CallBlock(CallFacts, Block):
    """A model call's block, which takes an answer until it has one."""

    _going: Callable[[], None]

    def _taking(self, what: str) -> None:
        """Refuse what comes before the request is recorded, or after the answer's end.

        Raises:
            BlockNotOpen: The call has not been entered, or has its answer.
            TurnStopped: Its turn has been stopped.
        """
        self._within(what)
        self._going()
        if self.answer is not None or self.error is not None:
            raise BlockNotOpen(f"{what}: this call has its answer already; make another one")


_current: ContextVar[weakref.ref[OpenTurn[Any, Any, Any]] | None] = ContextVar("turn", default=None)


class OpenTurn(Block, Generic[CallT, JournalT, ToolT]):
    """What both recorders' turns share: being current, and the calls whose streams they hold.

    ``last_call`` is the model call that was begun last, if any. ``outcome`` is what came of the
    turn if its message was posted before; None in all other turns.
    """

    bind: ClassVar[Callable[[Any, OpenTurn[Any, Any, Any], str | None], Any]]
    """Wraps a client; `agent_eventstore.clients`, which is made of turns, hands it in."""
    _model_call: ClassVar[Callable[..., Any]]
    _tool_call: ClassVar[Callable[..., Any]]
    _tell: Callable[..., Any]

    def __init__(
        self,
        journal: JournalT,
        session: Session,
        script: TurnScript,
        said: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> None:
        self.last_call: CallT | None = None
        self.outcome: TurnOutcome | None = None
        self._journal: JournalT = journal
        self._session = session
        self._script = script
        self._said = said
        self._plan = plan
        self._connection = connection
        self._begun = False
        self._status: Literal["ok", "max_steps"] = "ok"
        self._stop: Stop | None = None
        self._told_to_stop = False
        self._before: weakref.ref[OpenTurn[Any, Any, Any]] | None = None
        self._held: list[tuple[CallT, weakref.ref[object]]] = []
        self._holding = threading.RLock()

    @property
    def number(self) -> int:
        """The turn's number, from 1."""
        return self._script.meta.turn or 0

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of the turn's model calls so far; not ``reported`` if some are estimates."""
        return self._script.usage

    def _rendering(self, options: ContextOptions) -> Callable[[], ContextView]:
        """Return what reads the messages of the next request; see `Turn.context`."""
        session, script = self._session, self._script
        if options.get("paths") is None:
            declared = permitted(options.get("tools", ()), script.policy)
            options = {**options, "paths": session.outputs.readable(declared)}
        told = script.rendering(
            options.get("mode", "active"), options.get("run"), options.get("agent")
        )
        asked: dict[str, Any] = {**options, **told}

        def read() -> ContextView:
            view = session.views.context(session.id, **asked)
            session.outputs.provide(session.views.store, session.id, view)
            return view

        return read

    @property
    def stopped(self) -> str | None:
        """Why the turn was stopped, in words; None if it was not, or had ended by itself."""
        return str(self._stop) if self._stop is not None and self._told_to_stop else None

    def stop(self, reason: str = "user") -> None:
        """Have the turn end now: the stop button, for another thread or task to press.

        Returns at once. Who has the turn gets `TurnStopped` with the next chunk of a stream, or
        where it goes on next; a task that waits is cancelled. A tool that runs in a thread runs to
        its end. What was said by then stays; answer and turn end as ``cancelled``, and the turn's
        block is left without an exception. A turn that has ended stays as it is.

        Args:
            reason: Who or what stops it, as the log is to tell; ``user`` stands for the user.
        """
        if self._stop is None and self._state != "over":
            self._stop = Stop.of(reason)
            self._interrupt()

    @property
    def aborted(self) -> bool:
        """Whether `abort` has ended the turn."""
        return self.stopped is not None and self._script.aborted is not None

    def abort(self, reason: Literal["replaced", "interrupted"]) -> None:
        """Have the turn end now, as `stop` does, but as ``aborted`` for a reason of the program's.

        Args:
            reason: Whether other work takes its place, or the conversation is destroyed.
        """
        self._script.aborted = reason
        self.stop(reason)

    def _interrupt(self) -> None:
        """Wake who has the turn, where that can be done."""

    def _going(self) -> None:
        """Refuse to go on once the turn was stopped.

        Raises:
            TurnStopped: It was.
        """
        if self._stop is not None and self._state == "open":
            self._told_to_stop = True
            raise TurnStopped(self._session.id, self.number, self._stop)

    def _within(self, what: str) -> None:
        self._going()
        super()._within(what)

    def _cause(self, error: BaseException | None) -> BaseException | None:
        """Return why the block is left: the stop, where somebody has caught what told of it."""
        by_stop = error is None or isinstance(error, TurnStopped | asyncio.CancelledError)
        if self._stop is None or not self._told_to_stop or not by_stop:
            return error
        return TurnStopped(self._session.id, self.number, self._stop)

    def _is_own_stop(self, error: BaseException | None) -> bool:
        """Whether an exception does nothing but tell of this turn's stop."""
        own = isinstance(error, TurnStopped) and error.conversation_id == self._session.id
        return own and self._stop is not None

    def _beginning(self) -> list[NewEvent]:
        """Return the events with which the turn begins; reads where it takes another's place."""
        return self._script.begin(self._said, None if self._plan is None else self._plan())

    def llm_call(
        self,
        request: Request | None = None,
        *,
        provider: str | None = None,
        specification: str | None = None,
        model: str | None = None,
        prompt: Any = None,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        retry_of: CallT | None = None,
        tools_from_messages: bool = False,
        agent: str | None = None,
    ) -> CallT:
        """Return a model call to be entered around the request to the provider.

        Args:
            request: What `context` returned, if that is what is sent.
            provider: Who is asked, for example ``openai``.
            specification: Which API is called: ``openai_chat``, ``openai_responses``,
                ``anthropic_messages``.
            model: Which model; by default the request's.
            prompt: What is sent, if not a request; the log keeps its digest. One that equals the
                last request stands for it, and one that has failed in this turn is a retry.
            parameters: Whatever else is sent: temperature and the like.
            tools: The tool declarations that are sent.
            retry_of: The failed call that this one repeats.
            tools_from_messages: Whether somebody else runs the tools: then results that the prompt
                holds, and the log does not, are recorded before it is sent.
            agent: Which participant is asked, where several answer: the ``agent_id`` of the
                call's events, and the ``name`` of its message.
        """
        self._within("turn.llm_call")
        script = self._script.call(
            request,
            provider=provider,
            specification=specification,
            model=model,
            prompt=prompt,
            parameters=parameters,
            tools=tools,
            retry_of=retry_of,
            tools_from_messages=tools_from_messages,
            agent=agent,
        )
        call: CallT = self._model_call(
            self._journal, script, self._script.count, self._tell, self._within, self._going
        )
        self.last_call = call
        return call

    def tool(self, call: Executable, *, idempotent: bool = False) -> ToolT:
        """Return a tool call to be entered around the tool's execution; threads may share a turn.

        Args:
            call: One of `LlmCall.tool_calls`, or of `Recovery.re_executable`.
            idempotent: Whether executing it twice with the same key is harmless; after a crash
                only such calls are offered for execution again.
        """
        self._within("turn.tool")
        script = self._script.tool(call, self._journal.conversation_id, idempotent=idempotent)
        made: ToolT = self._tool_call(self._journal, script, self._session.outputs, self._within)
        return made

    def max_steps(self) -> None:
        """Let the turn end as one that reached its limit of steps."""
        self._status = "max_steps"

    def client(self, client: C, *, provider: str | None = None) -> C:
        """Return a client whose calls are recorded in this turn, in every thread and task.

        `record` tells the open turn from the context; a new thread, a task that was begun
        elsewhere, and the steps of a generator in a web framework know of none.

        Args:
            client: A client of an SDK, or what `record` has made of one.
            provider: Who is asked; by default told from the client's URL.

        Raises:
            TypeError: It is not a client that can be recorded, or one of the other kind: a client
                that is to be awaited belongs to a turn that is, and the other way round.
        """
        wrapped: C = type(self).bind(client, self, provider)
        return wrapped

    def hold(self, call: CallT, stream: object) -> None:
        """Have the call ended with the turn, or once nobody has the stream any more."""
        with self._holding:
            self._held.append((call, weakref.ref(stream)))

    def dropped(self) -> list[CallT]:
        """Return the calls whose streams were dropped before their end, once."""
        with self._holding:
            waiting = [(call, stream) for call, stream in self._held if not is_over(call)]
            self._held = [(call, stream) for call, stream in waiting if stream() is not None]
            return [call for call, stream in waiting if stream() is None]

    def unfinished(self) -> list[CallT]:
        """Return the calls whose streams are held, to be ended before the turn, once.

        Also those that another task or thread ends at this moment: ending one again waits until
        it is written, so that nothing of the turn comes after its end.
        """
        with self._holding:
            held, self._held = self._held, []
        return [call for call, _ in held]

    def _begin_ahead(self) -> list[NewEvent]:
        """Return the events of the start, for a turn that may begin ahead of its block.

        Raises:
            BlockNotOpen: It was made without a connection, or has begun.
        """
        self._enter_once()
        if self._connection is None or self._begun:
            why = "has begun already" if self._begun else "begins with its block"
            raise BlockNotOpen(f"turn.begin: this turn {why}; hand conversation.turn a connection")
        return self._beginning()

    def _become_current(self) -> None:
        self._before, self._state = _current.get(), "open"
        _current.set(weakref.ref(self))

    def _repeat(self, outcome: TurnOutcome | None) -> bool:
        """Have the first post's outcome as one's own; return whether there is one."""
        if outcome is not None:
            self.outcome, self._state = outcome, "repeated"
        return outcome is not None

    def _step_back(self) -> None:
        self._state = "over"
        current = _current.get()
        if current is not None and current() is self:
            _current.set(self._before)


def current_turn() -> OpenTurn[Any, Any, Any] | None:
    """Return the innermost turn that is open in this context."""
    current = _current.get()
    while current is not None:
        turn = current()
        if turn is None or is_open(turn):
            return turn
        current = turn._before
    return None


def is_open(turn: OpenTurn[Any, Any, Any]) -> bool:
    """Whether a turn has been entered and not left."""
    return turn._state == "open"


def is_over(call: CallFacts) -> bool:
    """Whether a call has its message or its error, so that nothing more is recorded of it."""
    return call.answer is not None or call.error is not None
