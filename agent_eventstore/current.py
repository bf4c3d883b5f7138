"""The current turn of a thread or task, and blocks that can be used only while they are open.

A turn, a model call and a tool call are used within their block. A use outside of it would be
recorded in the wrong place or not at all, so it raises at once, before anything is sent or
executed.

Entering a turn makes it the current turn of this thread or task, and of tasks started within it, so
a product need not pass it around. A turn that is over is never current, even if a context still
refers to it; nor is a turn that was never left, once it is garbage-collected. If the context is
lost, as between the threads and tasks of a web framework, `OpenTurn.client` binds a client to a
turn.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any, ClassVar, Generic, Literal, TypeVar

from agent_eventstore.errors import BlockNotOpen, TurnStopped
from agent_eventstore.machines import Branching, CallFacts, Executable, TurnScript
from agent_eventstore.requests import Request
from agent_eventstore.session import JournalT, Retry, Session, TurnOutcome
from agent_eventstore.stops import Stop
from eventstore import NewEvent
from eventstore.events import TokenUsage, UserMessage
from projections.context import ContextView
from projections.context.prompts import permitted
from projections.context.settings import ContextOptions

__all__ = [
    "Block",
    "CallBlock",
    "Plan",
    "TurnBlock",
    "current_turn",
    "dropped",
    "hold",
    "is_open",
    "is_over",
]

Plan = Callable[[], Branching]
"""Returns the branch that a turn replaces; called when the turn is entered."""

C = TypeVar("C")
CallT = TypeVar("CallT", bound=CallFacts)
ToolT = TypeVar("ToolT")


class Block:
    """A block that is entered once, and used until it is left."""

    _form: ClassVar[str] = ""  # the statement that enters it, for error messages
    _state: Literal["new", "open", "over", "repeated"] = "new"

    def _enter_once(self) -> None:
        """Refuse a second entry.

        Raises:
            BlockNotOpen: The block was entered before; a failed attempt does not count.
        """
        if self._state != "new":
            entered = "is already open" if self._state == "open" else "is over"
            raise BlockNotOpen(f"this block {entered}: make another, `{self._form}`")

    def _within(self, what: str) -> None:
        """Refuse a use outside of the block.

        Raises:
            BlockNotOpen: The block has not been entered, or has been left.
        """
        if self._state == "repeated":
            raise BlockNotOpen(
                f"{what}: the turn of this message was recorded before: return turn.outcome, which "
                "is None in a turn that must run"
            )
        if self._state != "open":
            when = "has not been entered" if self._state == "new" else "has been left"
            raise BlockNotOpen(f"{what}: its block {when}; use it within `{self._form}`")


class CallBlock(CallFacts, Block):
    """A model call's block, which accepts an answer until it has one."""

    _going: Callable[[], None]

    def _taking(self, what: str) -> None:
        """Refuse input before the request is recorded, or after the answer's end.

        Raises:
            BlockNotOpen: The call has not been entered, or already has an answer.
            TurnStopped: The turn has been stopped.
        """
        self._within(what)
        self._going()
        if self.answer is not None or self.error is not None:
            raise BlockNotOpen(f"{what}: this call already has an answer; make another call")


_current: ContextVar[weakref.ref[TurnBlock[Any, Any, Any]] | None] = ContextVar(
    "turn", default=None
)


class TurnBlock(Block, Generic[CallT, JournalT, ToolT]):
    """The base of `Turn` and `AsyncTurn`: being current, and tracking the streams of its calls.

    ``last_call`` is the most recent model call, if any. ``outcome`` is the outcome of the first
    post if the turn's message was posted before; None in all other turns.
    """

    bind: ClassVar[Callable[[Any, TurnBlock[Any, Any, Any], str | None], Any]]
    """Wraps a client; set by `agent_eventstore.clients.proxy`, which `client` imports."""
    _model_call: ClassVar[Callable[..., Any]]
    _tool_call: ClassVar[Callable[..., Any]]
    _tell: Callable[..., Any]

    def __init__(
        self,
        journal: JournalT,
        session: Session,
        script: TurnScript,
        message: UserMessage | None,
        plan: Plan | None = None,
        connection: Any = None,
    ) -> None:
        self.last_call: CallT | None = None
        self.outcome: TurnOutcome | None = None
        self._journal: JournalT = journal
        self._session = session
        self._script = script
        self._message = message
        self._plan = plan
        self._connection = connection
        self._started = False
        self._retries = plan is not None or message is not None
        """Whether a posted message whose turn failed is answered again; a continuation has none."""
        self._status: Literal["ok", "max_steps"] = "ok"
        self._stop: Stop | None = None
        self._stop_requested = False
        self._before: weakref.ref[TurnBlock[Any, Any, Any]] | None = None
        self._waiting: list[tuple[CallT, weakref.ref[object]]] = []
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
        """Return a function that reads the messages of the next request; see `Turn.context`."""
        session, script = self._session, self._script
        if options.get("paths") is None:
            declared = permitted(options.get("tools", ()), script.policy)
            options = {**options, "paths": session.outputs.readable(declared)}
        rendering = script.rendering(
            options.get("mode", "active"), options.get("run"), options.get("agent")
        )
        request_options: dict[str, Any] = {**options, **rendering}

        def read() -> ContextView:
            view = session.views.context(session.id, **request_options)
            session.upkeep.has_requests = True
            session.outputs.provide(session.views.store, session.id, view)
            return view

        return read

    @property
    def stopped(self) -> str | None:
        """Why the turn was stopped, as text; None if it was not, or ended before it noticed."""
        return str(self._stop) if self._stop is not None and self._stop_requested else None

    def stop(self, reason: str = "user") -> None:
        """Stop the turn, from another thread or task, as for a stop button.

        Returns at once. The turn's thread gets `TurnStopped` at its next chunk of a stream or its
        next recorder call; a waiting task is cancelled. A tool that runs in a thread runs to its
        end. The partial answer is kept; answer and turn end as ``cancelled``, and the turn's block
        ends without an exception. A turn that has ended is unaffected.

        Args:
            reason: Who or what stops the turn, for the log; ``user`` for the user.
        """
        if self._stop is None and self._state != "over":
            self._stop = Stop.of(reason)
            self._interrupt()

    @property
    def aborted(self) -> bool:
        """Whether `abort` has ended the turn."""
        return self.stopped is not None and self._script.aborted is not None

    def abort(self, reason: Literal["replaced", "interrupted"]) -> None:
        """Stop the turn as `stop` does, but end it as ``aborted``, for a reason of the program.

        Args:
            reason: ``replaced`` if other work replaces it, ``interrupted`` if the conversation is
                destroyed.
        """
        self._script.aborted = reason
        self.stop(reason)

    def _interrupt(self) -> None:
        """Interrupt the turn's task; a thread cannot be interrupted."""

    def _going(self) -> None:
        """Refuse to continue after a stop.

        Raises:
            TurnStopped: The turn was stopped.
        """
        if self._stop is not None and self._state == "open":
            self._stop_requested = True
            raise TurnStopped(self._session.id, self.number, self._stop)

    def _within(self, what: str) -> None:
        self._going()
        super()._within(what)

    def _cause(self, error: BaseException | None) -> BaseException | None:
        """Return why the block is left: the turn's stop, even if the product caught its error."""
        by_stop = error is None or isinstance(error, TurnStopped | asyncio.CancelledError)
        if self._stop is None or not self._stop_requested or not by_stop:
            return error
        return TurnStopped(self._session.id, self.number, self._stop)

    def _is_own_stop(self, error: BaseException | None) -> bool:
        """Whether an exception is the `TurnStopped` of this turn."""
        own = isinstance(error, TurnStopped) and error.conversation_id == self._session.id
        return own and self._stop is not None

    def _beginning(self) -> list[NewEvent]:
        """Return the events that begin the turn; reads the log if the turn replaces another."""
        return self._script.begin(self._message, None if self._plan is None else self._plan())

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
        """Return a model call; enter it around the request to the provider.

        Args:
            request: The request that `context` returned, if that is what is sent.
            provider: The provider's name, for example ``openai``.
            specification: The API that is called: ``openai_chat``, ``openai_responses``,
                ``anthropic_messages``.
            model: The model; by default the request's.
            prompt: The messages that are sent, if not a request; the log keeps their digest. A
                prompt equal to the last request is recorded as that request; a prompt that has
                failed in this turn is recorded as a retry.
            parameters: Other parameters that are sent, such as the temperature.
            tools: The tool declarations that are sent.
            retry_of: The failed call that this one repeats.
            tools_from_messages: Whether a framework runs the tools: then tool results that the
                prompt contains, and the log does not, are recorded before the prompt is sent.
            agent: The participant that answers, if there are several: the ``agent_id`` of the
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
        """Return a tool call; enter it around the tool's execution. Threads may share a turn.

        Args:
            call: A call of `LlmCall.tool_calls` or of `Recovery.re_executable`.
            idempotent: Whether executing the call twice with the same key is harmless; after a
                crash, only such calls are offered for execution again.
        """
        self._within("turn.tool")
        script = self._script.tool(call, self._journal.conversation_id, idempotent=idempotent)
        made: ToolT = self._tool_call(self._journal, script, self._session.outputs, self._within)
        return made

    def max_steps(self) -> None:
        """Make the turn end with the status ``max_steps``."""
        self._status = "max_steps"

    def client(self, client: C, *, provider: str | None = None) -> C:
        """Return a client whose calls are recorded in this turn, in every thread and task.

        `record` finds the open turn in the context. New threads, tasks started elsewhere, and the
        steps of a generator in a web framework have no such context.

        Args:
            client: A client of an SDK, or a client that `record` returned.
            provider: The provider's name; by default derived from the client's URL.

        Raises:
            TypeError: The client cannot be recorded, or is of the other kind: an `AsyncTurn` needs
                an asynchronous client, a `Turn` a synchronous one.
        """
        import_module("agent_eventstore.clients.proxy")  # sets `bind`; it imports this module
        wrapped: C = type(self).bind(client, self, provider)
        return wrapped

    def _unfinished(self) -> list[CallT]:
        """Return the calls passed to `hold`, to be ended before the turn, once each.

        Includes calls that another task or thread is just ending: ending one again waits until its
        event is written, so that no event of the turn follows the turn's end.
        """
        with self._holding:
            waiting, self._waiting = self._waiting, []
        return [call for call, _ in waiting]

    def _require_beginnable(self) -> None:
        """Refuse a turn that has begun.

        Raises:
            BlockNotOpen: The turn has begun.
        """
        self._enter_once()
        if self._started:
            raise BlockNotOpen("turn.begin: this turn has already begun; enter it next")

    def _become_current(self) -> None:
        self._before, self._state = _current.get(), "open"
        _current.set(weakref.ref(self))

    def _repeat(self, posted: TurnOutcome | Retry | None) -> bool:
        """Adopt the outcome of the message's first post; return whether there is one."""
        if isinstance(posted, Retry):
            self._script.ids, branching = posted.ids, posted.branching
            self._message, self._plan = None, lambda: branching
            return False
        if posted is not None:
            self.outcome, self._state = posted, "repeated"
        return posted is not None

    def _step_back(self) -> None:
        self._state = "over"
        current = _current.get()
        if current is not None and current() is self:
            _current.set(self._before)


def current_turn() -> TurnBlock[Any, Any, Any] | None:
    """Return the innermost open turn of this context; None if none is open."""
    current = _current.get()
    while current is not None:
        turn = current()
        if turn is None or is_open(turn):
            return turn
        current = turn._before
    return None


def is_open(turn: TurnBlock[Any, Any, Any]) -> bool:
    """Whether a turn has been entered and not left."""
    return turn._state == "open"


def is_over(call: CallFacts) -> bool:
    """Whether a call has its message or its error, so nothing more of it is recorded."""
    return call.answer is not None or call.error is not None


def hold(turn: TurnBlock[CallT, Any, Any], call: CallT, stream: object) -> None:
    """End the call with its turn, or when its stream is garbage-collected."""
    with turn._holding:
        turn._waiting.append((call, weakref.ref(stream)))


def dropped(turn: TurnBlock[CallT, Any, Any]) -> list[CallT]:
    """Return the calls whose streams were garbage-collected before their end, once each."""
    with turn._holding:
        waiting = [(call, stream) for call, stream in turn._waiting if not is_over(call)]
        turn._waiting = [(call, stream) for call, stream in waiting if stream() is not None]
        return [call for call, stream in waiting if stream() is None]
