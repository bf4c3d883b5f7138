"""Answers of participants: each is one model call, and several may be made at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from agent_eventstore.agents.agent_turns import Agent, AgentTurn
from agent_eventstore.agents.model_calls import ModelRequest
from agent_eventstore.agents.turn_results import TurnStatus
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.participants import Participant
from agent_eventstore.stops import told
from agent_eventstore.turn import Turn
from eventstore.events import JsonObject, TokenUsage

__all__ = ["ChatReply", "ChatResult", "ask_all"]

_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a participant answered.

    Attributes:
        participant: Who, by id.
        text: The answer; None if there is none.
        error: Why there is none.
        tokens: Of the model call; estimates where the provider reports none.
    """

    participant: str
    text: str | None
    error: str | None = None
    tokens: TokenUsage | None = None


@dataclass(frozen=True, slots=True)
class ChatResult:
    """What came of a message.

    Attributes:
        status: ``ok``, or ``error`` if somebody has not answered.
        user_message: The message.
        responses: The answers, in the order of the targets.
        turn: The turn's number within the conversation.
        mode_state: In workflow mode, where the workflow stands now.
        error: Who has not answered, and why.
    """

    status: TurnStatus
    user_message: str
    responses: tuple[ChatReply, ...]
    turn: int
    mode_state: JsonObject | None = None
    error: str | None = None


class _Asking(AgentTurn):
    """One model call of a participant's, tried until it is answered."""

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
        """Return the answer; a model that fails is told of in it."""
        who = self._participant.id
        try:
            call = self._ask()
        except Exception as error:
            if self.last is None or self.last.error is None:
                raise
            return ChatReply(who, None, told(error))
        self._agent.tell("said", str(call.text))
        tokens = call.answer.usage if call.answer else None
        return ChatReply(who, str(call.text), tokens=tokens)

    def _asked(self) -> tuple[ModelRequest, dict[str, Any]]:
        agent = self._agent
        request = ModelRequest(agent.model, self._messages, None, (), agent.parameters)
        return request, {"prompt": self._messages}

    def _call(self, **told: Any) -> LlmCall:
        with self._lock:  # a turn numbers its calls one after the other
            self.last = super()._call(agent=self._participant.id, **told)
        return self.last


def ask_all(
    turn: Turn,
    prompts: Mapping[Participant, list[JsonObject]],
    agents: Mapping[str, Agent],
) -> list[ChatReply]:
    """Return the answers of all, in order; they are asked at the same time.

    An interrupt stops the turn, so that those that are still answering end with their next piece.
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
