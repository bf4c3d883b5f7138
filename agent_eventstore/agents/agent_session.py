"""`AgentSession`: an agent in a conversation, turn by turn (document 001).

It builds on a `Conversation` and adds the loop: which model to call, which tools to run, when to
stop. Every action is durable before it runs, so a killed session resumes when it is opened again by
the conversation's id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self, Unpack
from uuid import UUID

from agent_eventstore.agents.agent_options import AgentOptions, agent_of, config_of
from agent_eventstore.agents.agent_turns import AgentTurn, ToolFailed
from agent_eventstore.agents.function_tools import FunctionTool
from agent_eventstore.agents.history_lines import session_before
from agent_eventstore.agents.react import parse_reply
from agent_eventstore.agents.sinks import SessionSinks
from agent_eventstore.agents.turn_results import TurnResult, TurnStatus
from agent_eventstore.agents.widgets import with_screen
from agent_eventstore.conversation import Conversation, closed_on_error
from agent_eventstore.errors import CallAnswered, PromptTooLong
from agent_eventstore.inputs import Content, UserInput, message_of
from agent_eventstore.machines.answers import UNSETTLED
from agent_eventstore.session import TurnOutcome, first_outcome
from agent_eventstore.stops import error_text
from agent_eventstore.turn import Turn
from eventstore import EventStore
from eventstore.errors import ErrorType, Traceback
from eventstore.events import AssistantMessage, JsonObject, TokenUsage, TurnEnd
from eventstore.ids import StreamId
from eventstore.telemetry.log import get_logger
from projections.models.open_items import OpenToolCall
from projections.payload_text import spoken
from projections.tokens.text import estimated_tokens

__all__ = ["AgentSession", "run_agent"]

_log = get_logger("agent_eventstore")

STOPPED = frozenset({"aborted", "cancelled"})

CONTINUE = "Please go on: the program was stopped before you had answered."


class AgentSession:
    """An agent in a conversation that is open for writing; a context manager that closes it.

    Args:
        conversation: The conversation to record in.
        model: An OpenAI or Anthropic client, or one with the same interface; a callable that takes
            a `ModelRequest` and returns a text, a response, or its pieces; or a `ProviderRouter`.
        options: How it answers: see `AgentOptions`.

    Raises:
        TypeError: The model is not valid, or a tool cannot be declared.
        ValueError: Two tools have the same name, or a number is below 1.
    """

    def __init__(
        self, conversation: Conversation, *, model: Any, **options: Unpack[AgentOptions]
    ) -> None:
        self.conversation = conversation
        self._agent = agent_of(model, options)
        self._over = options.get("over_max_prompt", "refuse")
        self._warn = options.get("warn_prompt_tokens") or self._agent.settings.warn_prompt_tokens
        store, sinks = conversation.views.store, tuple(options.get("sinks", ()))
        self._store, self._history = (
            store,
            SessionSinks(store, conversation, sinks, self._agent.tell),
        )
        if self._agent.tools:
            reader = conversation.tools.read_output
            if reader.name not in self._agent.tools:
                declared = reader.declaration()["function"]
                own = FunctionTool(**declared, function=reader.run, idempotent=True)
                self._agent.tools[reader.name] = own
        self._turn: Turn | None = None
        for widget in options.get("widgets", ()):
            widget.open(conversation)
        self._history.follow()

    @classmethod
    def create(
        cls,
        store: EventStore,
        *,
        model: Any,
        config: JsonObject | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Self:
        """Begin a conversation and its first session, in one transaction.

        Args:
            store: The store.
            model: The model; see the class.
            config: Further data for the session's start: temperature, working directory.
            conversation: Further arguments of `Conversation.start`: title, key, user, instructions.
            options: How the agent answers; see `AgentOptions`.

        Raises:
            ConversationExists: A conversation with this id or key already exists.
        """
        session_config = config_of(model, options, config)
        started = Conversation.start(store, session_config=session_config, **(conversation or {}))
        with closed_on_error(started):
            return cls(started, model=model, **options)

    @classmethod
    def open(
        cls,
        store: EventStore,
        conversation_id: StreamId,
        *,
        model: Any,
        config: JsonObject | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Self:
        """Open a conversation again, after sealing the work that a dead session left open.

        Args:
            store: The store.
            conversation_id: Its id, or your product's key for it.
            model: The model; see the class.
            config: As for `create`.
            conversation: Further arguments of `Conversation.open`.
            options: How the agent answers; see `AgentOptions`.

        Raises:
            ConversationInUse: Another session has it open.
            ConversationNotFound: No conversation has this id or key.
        """
        session_config = config_of(model, options, config)
        opened = Conversation.open(
            store, conversation_id, session_config=session_config, **(conversation or {})
        )
        with closed_on_error(opened):
            return cls(opened, model=model, **options)

    @classmethod
    def fork(
        cls,
        store: EventStore,
        source: StreamId,
        *,
        model: Any,
        before: int | None = None,
        config: JsonObject | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[AgentOptions],
    ) -> Self:
        """Begin a conversation that continues from a turn of another one; no event is copied.

        Args:
            store: The store of the source.
            source: The conversation to continue from.
            model: The model; see the class.
            before: The first version that is not shared; by default, all turns are shared.
            config: As for `create`.
            conversation: Further arguments of `Conversation.fork`.
            options: How the agent answers; see `AgentOptions`.

        Raises:
            ConversationNotFound: The source does not exist.
            ForkRefused: There is nothing to share before that version.
        """
        session_config = config_of(model, options, config)
        forked = Conversation.fork(
            store, source, before=before, session_config=session_config, **(conversation or {})
        )
        with closed_on_error(forked):
            return cls(forked, model=model, **options)

    @property
    def id(self) -> UUID:
        """The conversation's id, with which it can be opened again."""
        return self.conversation.id

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.conversation.session_id

    @property
    def tokens(self) -> TokenUsage | None:
        """The tokens of the session's turns so far; not ``reported`` if some are estimates."""
        return self.conversation.usage

    def run_turn(self, message: UserInput, *, message_id: str | None = None) -> TurnResult:
        """Answer an input, with as many model calls and tool calls as needed.

        A failing model or tool ends the turn with the status ``error``. Errors of the store or of
        your product's own code are raised.

        Args:
            message: The user's message: text, or parts.
            message_id: Your product's own id of the message. A message that is posted again is not
                answered again: the result is that of the first time, without its steps.

        Raises:
            PromptTooLong: The request would exceed the limit and is refused; nothing is written.
            TurnRunning: The message was posted before, and its turn has not ended.
        """
        message = with_screen(message, self._agent.screen())
        self._require_room(message)
        return self._go(self.conversation.turn(message, message_id=message_id))

    def close_call(
        self,
        call: OpenToolCall,
        content: Content,
        *,
        failed: bool = False,
        message_id: str | None = None,
    ) -> TurnResult:
        """Record the result of a call whose turn was replaced, and continue in a new turn.

        Args:
            call: A call of `Views.open_work` that is ``awaited``.
            content: The result for the model: text, parts, or any JSON value.
            failed: Whether the result is a failure.
            message_id: As for `run_turn`.

        Raises:
            CallAnswered: The call already has a result, or was erased; nothing is written.
        """
        if message_id is None or self.result_of(message_id) is None:
            self._require_unsettled(call)
        turn = self.conversation.continuation(message_id=message_id)

        def close() -> None:
            with turn.tool(call) as block:
                block.fail(content) if failed else block.result(content)

        return self._go(turn, close)

    def _require_unsettled(self, call: OpenToolCall) -> None:
        rows = self.conversation.views.tool_calls(conversation_id=self.id, call_id=call.call_id)
        status = (rows[0].status if rows else None) or "erased"
        if status not in UNSETTLED:
            raise CallAnswered(self.id, call.call_id, call.name, status)

    def result_of(self, message_id: str) -> TurnResult | None:
        """Return the result of a message's turn, without its steps; None if no turn has it.

        Raises:
            TurnRunning: The turn has not ended.
        """
        outcome = first_outcome(self.conversation.views, self.id, message_id)
        return None if outcome is None else self._first(outcome)

    def abort(self, reason: Literal["replaced", "interrupted"]) -> None:
        """End the running turn as ``aborted``, from this thread or another."""
        if self._turn is not None:
            self._turn.abort(reason)

    def _go(self, turn: Turn, first: Callable[[], None] = lambda: None) -> TurnResult:
        running: AgentTurn | None = None
        status: TurnStatus = "cancelled"
        try:
            with turn:
                if turn.outcome is not None:
                    return self._first(turn.outcome)
                self._turn = turn
                first()
                self._history.follow()
                running = AgentTurn(turn, self._agent, self._history.follow)
                status = running.run()
            error = None
        except Exception as problem:
            failed = turn.last_call is not None and turn.last_call.error is not None
            if running is None or not (failed or isinstance(problem, ToolFailed)):
                raise
            status, error = "error", error_text(problem)
        finally:
            if self._turn is turn:  # not if it was refused, while another thread's turn runs
                self._turn = None
                self._history.follow()
        if turn.stopped is not None:
            status, error = "aborted" if turn.aborted else "cancelled", turn.stopped
        steps = tuple(running.steps)
        final = steps[-1].parsed_final if steps and status == "ok" else None
        return TurnResult(status, final, steps, turn.usage, error, turn.number)

    def go_on(self) -> TurnResult | None:
        """Resume the last turn if it was stopped before its answer; return None if it was not.

        A kill or an interrupt may have stopped it. The new turn begins with a note about that
        instead of the user's words. The model sees what was done, with its results. A turn that was
        replaced is not resumed: `close_call` continues it, or other work has taken its place.

        Raises:
            PromptTooLong: As for `run_turn`.
        """
        version = self.conversation.version
        while events := session_before(self._store, self.id, version + 1):
            turns = [each for each in events if each.meta.turn is not None]
            if turns:
                last = [each.data for each in turns if each.meta.turn == turns[-1].meta.turn]
                answered = any(isinstance(each, AssistantMessage) and each.final for each in last)
                stopped = any(_is_stopped(each) for each in last)
                return self.run_turn(CONTINUE) if stopped and not answered else None
            version = events[0].version - 1
        return None

    def _first(self, outcome: TurnOutcome) -> TurnResult:
        """Return the result of a message that was posted before."""
        text: str | None = outcome.text
        if self._agent.protocol == "react":
            reply = parse_reply(outcome.text)
            text = reply.of(reply.final)
        status = outcome.status or "aborted"
        final = text if status == "ok" else None
        return TurnResult(
            status, final, tokens=outcome.tokens, error=outcome.error, turn=outcome.turn
        )

    def close(self, reason: str | None = None) -> None:
        """End the session; closing again does nothing."""
        self.conversation.close(reason)
        self._history.follow()

    def _require_room(self, message: UserInput) -> None:
        """Refuse an input whose request would exceed the limit, before anything is written."""
        most = self._agent.max_prompt_tokens
        if most is None and self._warn is None:
            return
        limit = most if self._over == "trim" else None
        parts = message_of(message).parts
        text = spoken(parts)
        own = estimated_tokens([text, self._agent.instructions], self._agent.tokenizer)
        if limit is not None and own > limit:
            raise PromptTooLong(self.id, own, limit)
        rendering = replace(self._agent, max_prompt_tokens=None).rendering()
        views = self.conversation.views
        tokens = own + views.context(self.id, **rendering).tokens.tokens
        if self._over == "refuse" and most is not None and tokens > most:
            raise PromptTooLong(self.id, tokens, most)
        if self._warn is not None and tokens >= self._warn:
            _log.warning("long prompt", conversation_id=str(self.id), tokens=tokens)
            self._agent.tell("note", f"the next request has about {tokens:,} tokens")

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the session."""
        self.close(None if error is None else error_text(error))


def _is_stopped(data: object) -> bool:
    return isinstance(data, TurnEnd) and data.status in STOPPED and data.reason != "replaced"


def run_agent(
    question: str,
    *,
    store: EventStore,
    model: Any,
    config: JsonObject | None = None,
    conversation: dict[str, Any] | None = None,
    **options: Unpack[AgentOptions],
) -> TurnResult:
    """Answer one question in its own session (mode ``once``); arguments as for `create`."""
    once = {"session_mode": "once", **(conversation or {})}
    with AgentSession.create(
        store, model=model, config=config, conversation=once, **options
    ) as session:
        return session.run_turn(question)
