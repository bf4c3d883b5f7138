"""The result of an agent's turn: its steps, the tools in them, the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eventstore.events import TokenUsage

__all__ = ["ToolUse", "TurnResult", "TurnStatus", "TurnStep"]

TurnStatus = Literal["ok", "error", "max_steps", "cancelled", "aborted"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of the model, with its result.

    Attributes:
        tool: The tool's name.
        input: The model's arguments, verbatim.
        observation: The result that the model sees.
        status: ``success``, ``failed`` or ``denied``.
    """

    tool: str
    input: str
    observation: str
    status: str


@dataclass(frozen=True, slots=True)
class TurnStep:
    """One reply of the model, and the tool calls that it requested.

    Attributes:
        index: Number of the step within the turn, from 0.
        assistant_text: The reply verbatim.
        parsed_final: The answer to the user; None if there is none yet.
        tools: The tool calls that it requested, in order.
        tokens: The tokens of the model call.
    """

    index: int
    assistant_text: str
    parsed_final: str | None = None
    tools: tuple[ToolUse, ...] = ()
    tokens: TokenUsage | None = None

    @property
    def parsed_action(self) -> ToolUse | None:
        """The first tool call; the only one in the ReAct protocol."""
        return self.tools[0] if self.tools else None

    @property
    def observation(self) -> str | None:
        """The result of that call."""
        return self.tools[0].observation if self.tools else None


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        status: The status in the log.
        final_text: The answer; None if the turn ended without one.
        steps: The steps, in order.
        tokens: Tokens of all the turn's model calls; estimates if the provider reports none.
        error: Why it failed, in words.
        turn: The turn's number within the conversation.
    """

    status: TurnStatus
    final_text: str | None
    steps: tuple[TurnStep, ...] = ()
    tokens: TokenUsage | None = None
    error: str | None = None
    turn: int | None = None
