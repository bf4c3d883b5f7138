"""The properties of a model call, common to both recorders, and its answer's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self

from agent_eventstore.machines.answers import RequestedCall
from agent_eventstore.machines.call_script import CallScript, T
from eventstore.events import AssistantMessage, LlmError, Meta, Ui
from projections.payload_text import spoken

__all__ = ["AnswerText", "CallFacts"]


class CallFacts:
    """The properties of a model call; shared by both recorders."""

    _script: CallScript

    @property
    def script(self) -> CallScript:
        """The script that makes the call's events."""
        return self._script

    @property
    def id(self) -> str:
        """The call's id, ``llm_call_id`` in its events."""
        return self._script.llm_call_id

    @property
    def meta(self) -> Meta:
        """The metadata of the call's events: turn, step, session."""
        return self._script.meta

    def show(self, ui: Ui) -> None:
        """Set how a user interface shows the answer; call it before the answer is recorded."""
        self._script.ui = ui

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._script.attempt

    @property
    def answer(self) -> AssistantMessage | None:
        """The message, once the call has succeeded."""
        return self._script.message

    @property
    def error(self) -> LlmError | None:
        """The error, once the call has failed."""
        return self._script.error

    @property
    def tool_calls(self) -> tuple[RequestedCall, ...]:
        """The model's tool calls, once the call has succeeded."""
        return self._script.tool_calls

    def _current_text(self) -> str:
        parts = self.answer.parts if self.answer else ()
        return spoken(parts, joint="")


class AnswerText(str, Generic[T]):
    """The text of a model's answer; calling it with a text records that text as the answer."""

    _tell: Callable[[str], T]

    def __new__(cls, text: str, tell: Callable[[str], T]) -> Self:
        """Make the text; ``tell`` records a whole answer."""
        text_value = super().__new__(cls, text)
        text_value._tell = tell
        return text_value

    def __call__(self, text: str) -> T:
        """Record a text as the whole answer."""
        return self._tell(text)
