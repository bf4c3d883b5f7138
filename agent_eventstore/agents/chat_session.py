"""`ChatSession`: a chat of several participants, each a model with a persona (document 002).

`agent_eventstore.participants` decides who answers, and what each participant is sent. This module
records the messages and answers in the order in which they occur. Work that was durable before a
kill is not repeated: open the session by its conversation's id, and `go_on` calls the participants
that have not answered.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, Unpack
from uuid import UUID

from agent_eventstore.agents.agent_options import MODEL_NAME, ChatOptions, agents_for
from agent_eventstore.agents.agent_turns import Agent, AgentTurn
from agent_eventstore.agents.model_calls import ModelRequest
from agent_eventstore.agents.turn_results import TurnStatus
from agent_eventstore.conversation import Conversation, closed_on_error
from agent_eventstore.errors import WrongThread
from agent_eventstore.llm_call import LlmCall
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
from agent_eventstore.stops import error_text
from agent_eventstore.turn import Turn
from eventstore import EventStore
from eventstore.arguments import require_known
from eventstore.errors import ErrorType, Traceback
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    JsonObject,
    ModeState,
    TokenUsage,
    TurnEnd,
    UserMessage,
)
from eventstore.events.values import Mode
from eventstore.ids import StreamId
from projections import Views
from projections.context import ContextSettings
from projections.payload_text import spoken

__all__ = [
    "ChatReply",
    "ChatResult",
    "ChatSession",
    "LastMessage",
    "ask_all",
    "chat_history",
    "last_message",
    "mode_state",
]


_NO_TOOLS = "There are no tools in this chat: answer in words."


_WHOLE = ContextSettings(max_tokens=None)


@dataclass(frozen=True, slots=True)
class ParticipantAnswer:
    """A participant's answer to a message."""

    speaker: str
    text: str
    tokens: TokenUsage | None


@dataclass(frozen=True, slots=True)
class LastMessage:
    """A user's message, and what followed it.

    Attributes:
        version: Version of the message.
        text: Its text.
        answers: The answers since then.
        since_state: The answers since the mode's state was last written.
        state: The mode's state, if it has been written since the message.
        answered: Whether the last turn that answered it ended successfully.
    """

    version: int
    text: str
    answers: tuple[ParticipantAnswer, ...]
    since_state: tuple[ParticipantAnswer, ...]
    state: JsonObject | None
    answered: bool


def chat_history(
    views: Views, conversation_id: UUID, settings: ContextSettings | None, model: str
) -> list[ChatMessage]:
    """Return the messages of the active branch, oldest first; a summary replaces those it covers.

    With settings, return only what fits their limits, counted in tokens of the model.

    Raises:
        BudgetInfeasible: The mandatory messages are over the budget.
    """
    view = views.context(
        conversation_id, mode=None, format="neutral", settings=settings or _WHOLE, model=model
    )
    found = []
    for message in view.messages:
        if message["kind"] not in ("user", "assistant", "summary"):
            continue
        texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
        user, name = message["kind"] == "user", message["name"]
        found.append(
            ChatMessage(
                "\n".join(texts),
                speaker=None if user else name or message["kind"],
                name=name if user else None,
                version=message["versions"][-1],
            )
        )
    return found


def mode_state(store: EventStore, conversation_id: UUID) -> JsonObject:
    """Return the state of the mode as last written; empty if it never was."""
    for event in store.read(conversation_id, backward=True):
        if isinstance(event.data, ModeState):
            return event.data.state
    return {}


def last_message(
    store: EventStore, conversation_id: UUID, *, turn: int | None = None
) -> LastMessage | None:
    """Return the last user message and what followed it, or None.

    Args:
        store: The store.
        conversation_id: The conversation.
        turn: Number of the message's turn; by default the last turn with a message.
    """
    answers: list[ParticipantAnswer] = []
    since: list[ParticipantAnswer] | None = None
    state: JsonObject | None = None
    status: str | None = None
    for event in store.read(conversation_id, backward=True):
        data = event.data
        if isinstance(data, AssistantMessage):
            who = data.name or ""
            answers.insert(0, ParticipantAnswer(who, spoken(data.parts, joint=""), data.usage))
        elif isinstance(data, ModeState) and since is None:
            state, since = data.state, list(answers)
        elif isinstance(data, TurnEnd):
            status = status or data.status
        elif isinstance(data, UserMessage):
            if turn in (None, event.meta.turn):
                since_state = tuple(answers if since is None else since)
                text = spoken(data.parts, joint="")
                return LastMessage(
                    event.version, text, (*answers,), since_state, state, status == "ok"
                )
            answers, since, state, status = [], None, None, None
    return None


_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A participant's answer.

    Attributes:
        participant: The participant's id.
        text: The answer; None if there is none.
        error: Why there is no answer.
        tokens: Tokens of the model call; estimates if the provider reports none.
    """

    participant: str
    text: str | None
    error: str | None = None
    tokens: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class ChatResult:
    """The result of a message.

    Attributes:
        status: ``ok``, or ``error`` if a participant has not answered.
        user_message: The message.
        responses: The answers, in the order of the targets.
        turn: The turn's number within the conversation.
        mode_state: In workflow mode, the current state of the workflow.
        error: Which participants have not answered, and why.
    """

    status: TurnStatus
    user_message: str
    responses: tuple[ChatReply, ...]
    turn: int
    mode_state: JsonObject | None = None
    error: str | None = None


class _Asking(AgentTurn):
    """A participant's model call, tried until it is answered."""

    def __init__(
        self,
        turn: Turn,
        agent: Agent,
        participant: Participant,
        messages: list[JsonObject],
        lock: threading.Lock,
    ) -> None:
        super().__init__(turn, agent, lambda: None)
        self._participant, self._messages, self._lock = participant, messages, lock
        self.last: LlmCall | None = None

    def reply(self) -> ChatReply:
        """Return the answer; if the model fails, it has the error."""
        who = self._participant.id
        try:
            call = self._ask()
        except Exception as error:
            if self.last is None or self.last.error is None:
                raise
            return ChatReply(who, None, error_text(error))
        self._skip(call.tool_calls, _NO_TOOLS)
        self._agent.tell("said", str(call.text))
        tokens = call.answer.usage if call.answer else None
        return ChatReply(who, str(call.text), tokens=tokens)

    def _next_request(self) -> tuple[ModelRequest, dict[str, Any]]:
        agent = self._agent
        request = ModelRequest(agent.model, self._messages, None, (), agent.parameters)
        return request, {"prompt": self._messages}

    def _call(self, **recorded: Any) -> LlmCall:
        with self._lock:  # a turn numbers its calls sequentially
            self.last = super()._call(agent=self._participant.id, **recorded)
        return self.last


def ask_all(
    turn: Turn,
    prompts: Mapping[Participant, list[JsonObject]],
    agents: Mapping[str, Agent],
) -> list[ChatReply]:
    """Return the answers of all, in order; all models are called at the same time.

    An interrupt stops the turn: models that are still answering stop at their next piece.
    """
    lock = threading.Lock()
    asking = [
        _Asking(turn, agents[who.id], who, messages, lock) for who, messages in prompts.items()
    ]
    if len(asking) < 2:
        return [each.reply() for each in asking]
    with ThreadPoolExecutor(max_workers=min(len(asking), _AT_A_TIME)) as threads:
        running = [threads.submit(each.reply) for each in asking]
        try:
            return [each.result() for each in running]
        except BaseException:
            turn.stop()
            raise


class _Unanswered(Exception):
    """A participant has not answered: the turn ends with this error."""


class ChatSession:
    """A chat of several participants in a conversation that is open for writing.

    Use `create` or `open`; a context manager that closes it. It takes one message at a time.
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
            store: The store.
            participants: The participants, who answer.
            model: Their model, as for `AgentSession`.
            mode: ``workflow``, or any other name: then a message is answered by the participants
                that it mentions, or by all.
            role_map: For workflow mode, the participants of the roles coder, reviewer and tester.
            thread_slug: The thread to which the session belongs; `open` must name the same.
            conversation: Further arguments of `Conversation.start`.
            options: How they answer; see `ChatOptions`.

        Raises:
            TypeError: An option is unknown, or the model is not valid; nothing is written.
            ValueError: There are no participants, two have the same name, a role has no
                participant, or ``models`` names somebody else.
            ConversationExists: A conversation with this id or key already exists.
        """
        require_known(options, ChatOptions)
        if not participants:
            raise ValueError("a chat needs at least one participant")
        _require_roles(participants, mode, role_map)
        agents = agents_for(participants, model, options)
        start_options = dict(conversation or {})
        own = {"thread_slug": thread_slug, "role_map": dict(role_map) if role_map else None}
        config = {
            **start_options.pop("config", {}),
            **{k: v for k, v in own.items() if v is not None},
        }
        stored = [each.to_json() for each in participants]
        started = Conversation.start(
            store, mode=mode, config=config, participants=stored, **start_options
        )
        with closed_on_error(started):
            return cls(started, participants, config, agents, options)

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
        """Open a chat again, after sealing the work that a dead session left open.

        Args:
            store: The store.
            conversation_id: Its id, or your product's key for it.
            model: As for `create`.
            thread_slug: The thread to which it must belong; None for no thread.
            participants: The participants from now on; by default those of its start.
            conversation: Further arguments of `Conversation.open`.
            options: How they answer; see `ChatOptions`.

        Raises:
            ValueError: ``models`` names no participant; nothing is changed.
            WrongThread: It belongs to another thread; nothing is changed.
            ConversationInUse: Another session has it open.
            ConversationNotFound: No conversation has this id or key.
        """
        require_known(options, ChatOptions)
        open_options = dict(conversation or {})
        owner = {
            name: open_options[name] for name in ("tenant_id", "user_id") if name in open_options
        }
        stream = store.stream(conversation_id, **owner)
        first = next(iter(store.read(stream, limit=1)), None)
        start = first.data if first is not None else None
        config = start.config if isinstance(start, ConversationStart) else {}
        if first is not None and config.get("thread_slug") != thread_slug:
            raise WrongThread(stream, thread_slug)
        if participants is None:
            stored = start.participants if isinstance(start, ConversationStart) else ()
            participants = [Participant.of(each) for each in stored]
        agents = agents_for(participants, model, options)
        opened = Conversation.open(store, conversation_id, **open_options)
        with closed_on_error(opened):
            return cls(opened, participants, config, agents, options)

    @property
    def id(self) -> UUID:
        """The conversation's id, with which it can be opened again."""
        return self.conversation.id

    @property
    def mode(self) -> Mode:
        """The mode in which messages are answered."""
        return self.conversation.mode or "free_chat"

    @property
    def mode_state(self) -> JsonObject:
        """The mode's state in the log; empty if it has never changed."""
        return mode_state(self._store, self.id)

    @property
    def _store(self) -> EventStore:
        return self.conversation.views.store

    def switch_mode(self, mode: Mode, role_map: Mapping[str, str] | None = None) -> None:
        """Switch the mode; workflow mode begins with the first role. The history stays the same.

        Args:
            mode: The new mode.
            role_map: The participants of the roles from now on; by default as before.

        Raises:
            ValueError: A role has no participant.
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
        """Record a message, and let the participants concerned answer it.

        Several answer at the same time, in threads, and share the history before the message. In
        workflow mode the roles answer one after the other, starting with the current one.

        Args:
            text: The user's message.
            name: The user's name, if several people write.
            message_id: Your product's id of the message: posted again, it is not answered again.

        Raises:
            ValueError: In workflow mode, a role has no participant; nothing is written.
            TurnRunning: The message was posted before, and its turn has not ended.
        """
        routed = self._context(text, [], None, self.mode_state if self.mode == WORKFLOW else {})
        message = UserMessage.text(text, name=name, mentions=routed.mentions)
        turn = self.conversation.turn(message, message_id=message_id)
        return self._within(turn, text, ())

    def edit(
        self, version: int, text: str, *, name: str | None = None, message_id: str | None = None
    ) -> ChatResult:
        """Replace a message, and let the participants concerned answer it; see `Conversation.edit`.

        Args:
            version: The version of the user's message, on the active branch.
            text: The new message.
            name: The user's name, if several people write.
            message_id: Your product's id of the new message: posted again, it is not answered
                again.

        Raises:
            BranchRefused: That version is not a user message of the active branch.
            TurnRunning: The message was posted before, and its turn has not ended.
        """
        routed = self._context(text, [], None, self.mode_state if self.mode == WORKFLOW else {})
        message = UserMessage.text(text, name=name, mentions=routed.mentions)
        turn = self.conversation.edit(version, message, message_id=message_id)
        return self._within(turn, text, ())

    def regenerate(self) -> ChatResult:
        """Let the participants answer the last message again; see `Conversation.regenerate`.

        Raises:
            BranchRefused: The active branch has no user message.
        """
        turn = self.conversation.regenerate()
        views = self.conversation.views
        history = chat_history(views, self.id, None, self._model)
        last = next(each for each in reversed(history) if each.speaker is None)
        return self._within(turn, last.text, (), last.version)

    def go_on(self) -> ChatResult | None:
        """Let the participants that have not answered the last message do so; None if all have.

        They may be missing after a kill, an interrupt or a failed model call.
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
        """Whether all roles have answered; records the state if it lacks the last answer."""
        if last.state is not None and last.state.get("status") == "done":
            return True
        state = self.mode_state
        [target] = self._context(last.text, [], None, state).targets
        if target.id not in [each.speaker for each in last.since_state]:
            return False
        return bool(self._advance(state)["status"] == "done")

    def _missing(self, last: LastMessage) -> bool:
        """Whether a participant has not answered."""
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

    def _within(
        self, turn: Turn, text: str, answered: Sequence[str], version: int | None = None
    ) -> ChatResult:
        replies: list[ChatReply] = []
        error: str | None = None
        try:
            with turn:
                if turn.outcome is not None:
                    return self._first(text, turn.number, turn.outcome)
                workflow = self.mode == WORKFLOW
                answering = self._go_through if workflow else self._together
                at = self._message_version() if version is None else version
                answering(turn, text, at, answered, replies)
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
        self,
        turn: Turn,
        text: str,
        version: int,
        answered: Sequence[str],
        replies: list[ChatReply],
    ) -> None:
        """Let all targets answer, with the history before the message."""
        before = [each for each in self._history() if each.version < version]
        context = self._context(text, before, None, {})
        prompts = {
            each: build_mode_prompt(each, context, self.participants)
            for each in context.targets
            if each.id not in answered
        }
        replies += ask_all(turn, prompts, self._agents)

    def _go_through(
        self,
        turn: Turn,
        text: str,
        version: int,
        answered: Sequence[str],
        replies: list[ChatReply],
    ) -> None:
        """Let the roles answer one after the other, starting with the current one."""
        state = self.mode_state
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
        """Return the result of a message that was posted before."""
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

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """End the session."""
        self.close(None if error is None else error_text(error))


def _require_roles(
    participants: Sequence[Participant], mode: str, roles: Mapping[str, str] | None
) -> None:
    build_lookup(participants)
    if mode == WORKFLOW:
        state: JsonObject = {}
        while state.get("status") != "done":
            select_effective_targets(mode, participants, role_map=roles, mode_state=state)
            state = next_mode_state(state)
