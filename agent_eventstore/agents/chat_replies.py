"""A chat's history in the log, and the answers of its participants.

An answer is one model call; several may run at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agent_eventstore.agents.agent_turns import Agent, AgentTurn
from agent_eventstore.agents.model_calls import ModelRequest
from agent_eventstore.agents.turn_results import TurnStatus
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.participants import ChatMessage, Participant
from agent_eventstore.stops import error_text
from agent_eventstore.turn import Turn
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    ModeState,
    TokenUsage,
    TurnEnd,
    UserMessage,
)
from projections import Views
from projections.context import ContextSettings
from projections.engine.folding import spoken

__all__ = [
    "ChatReply",
    "ChatResult",
    "LastMessage",
    "ask_all",
    "chat_history",
    "last_message",
    "mode_state",
]


_NO_TOOLS = "There are no tools in this chat: answer in words."
_WHOLE = ContextSettings(max_tokens=None)


@dataclass(frozen=True, slots=True)
class Said:
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
    answers: tuple[Said, ...]
    since_state: tuple[Said, ...]
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
    answers: list[Said] = []
    since: list[Said] | None = None
    state: JsonObject | None = None
    status: str | None = None
    for event in store.read(conversation_id, backward=True):
        data = event.data
        if isinstance(data, AssistantMessage):
            who = data.name or ""
            answers.insert(0, Said(who, spoken(data.parts, joint=""), data.usage))
        elif isinstance(data, ModeState) and since is None:
            state, since = data.state, list(answers)
        elif isinstance(data, TurnEnd):
            status = status or data.status
        elif isinstance(data, UserMessage):
            if turn in (None, event.meta.turn):
                told = tuple(answers if since is None else since)
                text = spoken(data.parts, joint="")
                return LastMessage(event.version, text, (*answers,), told, state, status == "ok")
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

    def _asked(self) -> tuple[ModelRequest, dict[str, Any]]:
        agent = self._agent
        request = ModelRequest(agent.model, self._messages, None, (), agent.parameters)
        return request, {"prompt": self._messages}

    def _call(self, **told: Any) -> LlmCall:
        with self._lock:  # a turn numbers its calls sequentially
            self.last = super()._call(agent=self._participant.id, **told)
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
