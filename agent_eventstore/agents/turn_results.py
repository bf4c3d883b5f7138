"""What came of an agent's turn: its steps, the tools in them, the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eventstore.events import TokenUsage

__all__ = ["ToolUse", "TurnResult", "TurnStatus", "TurnStep"]

TurnStatus = Literal["ok", "error", "max_steps", "cancelled", "aborted"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that the model asked for, and what came of it.

    Attributes:
        tool: Its name.
        input: What the model gave it, as it was written.
        observation: What the model is told of the result.
        status: ``success``, ``failed`` or ``denied``.
    """

    tool: str
    input: str
    observation: str
    status: str


@dataclass(frozen=True, slots=True)
class TurnStep:
    """One reply of the model, and what it set off; ``index`` counts from 0 within the turn.

    Attributes:
        index: Which step this is.
        assistant_text: The reply as it came.
        parsed_final: The answer to the user; None if there is none yet.
        tools: The tools that it asked for, in order.
        tokens: The tokens of the model call.
    """

    index: int
    assistant_text: str
    parsed_final: str | None = None
    tools: tuple[ToolUse, ...] = ()
    tokens: TokenUsage | None = None

    @property
    def parsed_action(self) -> ToolUse | None:
        """The first tool that it asked for; the only one in the ReAct protocol."""
        return self.tools[0] if self.tools else None

    @property
    def observation(self) -> str | None:
        """What came of that tool."""
        return self.tools[0].observation if self.tools else None


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of a turn.

    Attributes:
        status: As the log has it.
        final_text: The answer; None if the turn ended without one.
        steps: What was done, in order.
        tokens: Of all the turn's model calls; estimates where the provider reports none.
        error: Why it failed, in words.
        turn: The turn's number within the conversation.
    """

    status: TurnStatus
    final_text: str | None
    steps: tuple[TurnStep, ...] = ()
    tokens: TokenUsage | None = None
    error: str | None = None
    turn: int | None = None
