"""`ChatSession`: a chat of several participants, each a model with a persona (document 002).

Who answers, and what each is told, `agent_eventstore.participants` decides; here the messages and
answers are recorded, in the order in which they come about. What was durable before a kill is not
done again: the session is opened by its conversation's id, and `go_on` asks who has not answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack
from uuid import UUID

from agent_eventstore.agents.agent_options import MODEL_NAME, ChatOptions, agent_for
from agent_eventstore.agents.agent_turns import Agent
from agent_eventstore.agents.chat_replies import (
    ChatReply,
    ChatResult,
    LastMessage,
    ask_all,
    chat_history,
    last_message,
    mode_state,
)
from agent_eventstore.agents.turn_results import TurnStatus
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import WrongThread
from agent_eventstore.participants import (
    HISTORY,
    WORKFLOW,
    ChatContext,
    ChatMessage,
    Participant,
    build_chat_context,
    build_lookup,
    build_mode_prompt,
    next_mode_state,
    select_effective_targets,
)
from agent_eventstore.stops import told
from agent_eventstore.turn import Turn
from eventstore import EventStore
from eventstore.errors import ErrorType, Trace
from eventstore.events import ConversationStart, JsonObject, ModeState, UserMessage
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from eventstore.options import require_known

__all__ = ["ChatSession"]


class _Unanswered(Exception):
    """Somebody has not answered: the turn ends with that."""


class ChatSession:
    """A chat of several participants in a conversation that is open for writing.

    Made by `create` or `open`; a context manager that closes it. One message at a time.
    """

    def __init__(
        self,
        conversation: Conversation,
        participants: Sequence[Participant],
        config: JsonObject,
        agents: Mapping[str, Agent],
        options: ChatOptions,
    ) -> None:
        self.conversation, self.participants = conversation, tuple(participants)
        self.thread_slug: str | None = config.get("thread_slug")
        self._roles: Mapping[str, str] = config.get("role_map") or {}
        self._limit = options.get("history", HISTORY)
        self._settings, self._model = options.get("settings"), options.get("model_name", MODEL_NAME)
        self._agents = agents

    @classmethod
    def create(
        cls,
        store: EventStore,
        *,
        participants: Sequence[Participant],
        model: Any,
        mode: Mode = "free_chat",
        role_map: Mapping[str, str] | None = None,
        thread_slug: str | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Self:
        """Begin a conversation and its first session, in one transaction.

        Args:
            store: Where it is kept.
            participants: Who answers.
            model: Whom they ask: as of `AgentSession`.
            mode: ``workflow``, or any other: then those answer that a message mentions, or all.
            role_map: For workflow mode, who has which role: coder, reviewer and tester.
            thread_slug: The thread that the session belongs to; `open` must name the same.
            conversation: Further arguments of `Conversation.start`.
            options: How they are asked; see `ChatOptions`.

        Raises:
            TypeError: There is no such option, or the model is none; nothing was written.
            ValueError: Nobody takes part, two have one name, or a role is nobody's.
            ConversationExists: There is a conversation of this id or key already.
        """
        require_known(options, ChatOptions)
        if not participants:
            raise ValueError("a chat needs a participant who answers")
        _require_roles(participants, mode, role_map)
        agents = {each.id: agent_for(each, model, options) for each in participants}
        given = dict(conversation or {})
        own = {"thread_slug": thread_slug, "role_map": dict(role_map) if role_map else None}
        config = {**given.pop("config", {}), **{k: v for k, v in own.items() if v is not None}}
        kept = [each.to_json() for each in participants]
        begun = Conversation.start(store, mode=mode, config=config, participants=kept, **given)
        return cls(begun, participants, config, agents, options)

    @classmethod
    def open(
        cls,
        store: EventStore,
        conversation_id: StreamId,
        *,
        model: Any,
        thread_slug: str | None = None,
        participants: Sequence[Participant] | None = None,
        conversation: dict[str, Any] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Self:
        """Open a chat again: what a session that died left open gets an honest end first.

        Args:
            store: Where it is kept.
            conversation_id: Its id, or the product's key for it.
            model: As of `create`.
            thread_slug: The thread that it must belong to; None for one of no thread.
            participants: Who answers from now on; by default those that it began with.
            conversation: Further arguments of `Conversation.open`.
            options: How they are asked; see `ChatOptions`.

        Raises:
            WrongThread: It belongs to another thread; nothing was changed.
            ConversationInUse: Another session has it open.
            ConversationNotFound: There is none of this id or key.
        """
        require_known(options, ChatOptions)
        given = dict(conversation or {})
        owner = {name: given[name] for name in ("tenant_id", "user_id") if name in given}
        stream = store.stream(conversation_id, **owner)
        first = next(iter(store.read(stream, limit=1)), None)
        start = first.data if first is not None else None
        config = start.config if isinstance(start, ConversationStart) else {}
        if first is not None and config.get("thread_slug") != thread_slug:
            raise WrongThread(stream, thread_slug)
        if participants is None:
            kept = start.participants if isinstance(start, ConversationStart) else ()
            participants = [Participant.of(each) for each in kept]
        agents = {each.id: agent_for(each, model, options) for each in participants}
        opened = Conversation.open(store, conversation_id, **given)
        return cls(opened, participants, config, agents, options)

    @property
    def id(self) -> UUID:
        """The conversation's id, by which it is opened again."""
        return self.conversation.id

    @property
    def mode(self) -> Mode:
        """The mode in which messages are answered."""
        return self.conversation.mode or "free_chat"

    @property
    def mode_state(self) -> JsonObject:
        """Where the mode stands, as the log has it; empty if it never went anywhere."""
        return mode_state(self._store, self.id)

    @property
    def _store(self) -> EventStore:
        return self.conversation.views.store

    def switch_mode(self, mode: Mode, role_map: Mapping[str, str] | None = None) -> None:
        """Switch the mode, and in workflow mode begin with the first role; the history stays.

        Args:
            mode: From now on.
            role_map: Who has which role from now on; by default as before.

        Raises:
            ValueError: A role is nobody's.
        """
        roles = role_map or self._role_map(self.mode_state)
        _require_roles(self.participants, mode, roles)
        self.conversation.switch_mode(mode)
        if mode == WORKFLOW:
            state = {"current_node": None, "role_map": dict(roles)}
            self.conversation.append(ModeState(mode=mode, state=state))

    def send(
        self, text: str, *, name: str | None = None, message_id: str | None = None
    ) -> ChatResult:
        """Record a message, and have it answered by whom it concerns.

        Several answer at a time, in threads, and share the history before the message. In
        workflow mode the roles answer one after the other, from the one whose turn it is.

        Args:
            text: What the user says.
            name: What the user is called, where several people write.
            message_id: The product's own id of the message: posted again, it is not answered again.

        Raises:
            ValueError: In workflow mode, a role is nobody's; nothing is written.
            TurnRunning: The message was posted before, and its turn has not ended.
        """
        routed = self._context(text, [], None, self.mode_state)
        said = UserMessage.text(text, name=name, mentions=routed.mentions)
        turn = self.conversation.turn(said, message_id=message_id)
        return self._within(turn, text, ())

    def go_on(self) -> ChatResult | None:
        """Have the last message answered by those who have not; None if all have.

        A process that was killed, an interrupt or a failing model has kept them from it.
        """
        last = last_message(self._store, self.id)
        if last is None or last.answered:
            return None
        speakers = [each.speaker for each in last.answers]
        done = self._is_through(last) if self.mode == WORKFLOW else not self._missing(last)
        return (
            None
            if done
            else self._within(self.conversation.answering(last.text), last.text, speakers)
        )

    def _is_through(self, last: LastMessage) -> bool:
        """Whether all roles have answered; the state learns of an answer that it does not know."""
        if last.state is not None and last.state.get("status") == "done":
            return True
        state = self.mode_state
        [target] = self._context(last.text, [], None, state).targets
        if target.id not in [each.speaker for each in last.since_state]:
            return False
        return bool(self._advance(state)["status"] == "done")

    def _missing(self, last: LastMessage) -> bool:
        """Whether somebody has not answered."""
        targets = self._context(last.text, [], None, {}).targets
        return not {each.id for each in targets} <= {each.speaker for each in last.answers}

    def close(self, reason: str | None = None) -> None:
        """End the session; closing again does nothing."""
        self.conversation.close(reason)

    def _role_map(self, state: JsonObject) -> Mapping[str, str]:
        return state.get("role_map") or self._roles

    def _context(
        self, text: str, history: Sequence[ChatMessage], current: int | None, state: JsonObject
    ) -> ChatContext:
        return build_chat_context(
            text,
            participants=self.participants,
            mode=self.mode,
            history=history,
            current=current,
            role_map=self._role_map(state),
            mode_state=state,
            limit=self._limit,
        )

    def _within(self, turn: Turn, text: str, answered: Sequence[str]) -> ChatResult:
        replies: list[ChatReply] = []
        error: str | None = None
        try:
            with turn:
                if turn.outcome is not None:
                    return self._first(text, turn.number, turn.outcome)
                workflow = self.mode == WORKFLOW
                answering = self._go_through if workflow else self._together
                answering(turn, text, answered, replies)
                if unanswered := [each for each in replies if each.error is not None]:
                    raise _Unanswered(
                        "; ".join(f"{each.participant}: {each.error}" for each in unanswered)
                    )
        except _Unanswered as problem:
            error = str(problem)
        state = self.mode_state if self.mode == WORKFLOW else None
        status: TurnStatus = "ok" if error is None else "error"
        return ChatResult(status, text, tuple(replies), turn.number, state, error)

    def _together(
        self, turn: Turn, text: str, answered: Sequence[str], replies: list[ChatReply]
    ) -> None:
        """Have all targets answer, with the history before the message."""
        version = self._message_version()
        before = [each for each in self._history() if each.version < version]
        context = self._context(text, before, None, {})
        asked = {
            each: build_mode_prompt(each, context, self.participants)
            for each in context.targets
            if each.id not in answered
        }
        replies += ask_all(turn, asked, self._agents)

    def _go_through(
        self, turn: Turn, text: str, answered: Sequence[str], replies: list[ChatReply]
    ) -> None:
        """Have the roles answer one after the other, from the one whose turn it is."""
        version, state = self._message_version(), self.mode_state
        while True:
            context = self._context(text, self._history(), version, state)
            [target] = context.targets
            prompt = build_mode_prompt(target, context, self.participants)
            replies += ask_all(turn, {target: prompt}, self._agents)
            if replies[-1].error is not None:
                return
            state = self._advance(state)
            if state["status"] == "done":
                return

    def _advance(self, state: JsonObject) -> JsonObject:
        after = {**state, **next_mode_state(state)}
        self.conversation.append(ModeState(mode=self.mode, state=after))
        return after

    def _history(self) -> list[ChatMessage]:
        return chat_history(self.conversation.views, self.id, self._settings, self._model)

    def _message_version(self) -> int:
        last = last_message(self._store, self.id)
        return 0 if last is None else last.version

    def _first(self, text: str, turn: int, outcome: Any) -> ChatResult:
        """Return what came of a message that was posted before."""
        number = outcome.turn or turn
        last = last_message(self._store, self.id, turn=number)
        replies = tuple(
            ChatReply(each.speaker, each.text, tokens=each.tokens)
            for each in (last.answers if last else ())
        )
        state = self.mode_state if self.mode == WORKFLOW else None
        return ChatResult(outcome.status or "aborted", text, replies, number, state, outcome.error)

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Trace) -> None:
        """End the session."""
        self.close(None if error is None else told(error))


def _require_roles(
    participants: Sequence[Participant], mode: str, roles: Mapping[str, str] | None
) -> None:
    build_lookup(participants)
    if mode == WORKFLOW:
        state: JsonObject = {}
        while state.get("status") != "done":
            select_effective_targets(mode, participants, role_map=roles, mode_state=state)
            state = next_mode_state(state)
