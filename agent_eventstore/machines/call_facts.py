"""What a product may ask of a model call, and how it tells the answer by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self

from agent_eventstore.machines.answers import RequestedCall
from agent_eventstore.machines.calls import CallScript, T
from eventstore.events import AssistantMessage, LlmError, Meta, Ui
from projections.engine.folding import spoken

__all__ = ["AnswerText", "CallFacts"]


class CallFacts:
    """What a product may ask of a model call; shared by both recorders."""

    _script: CallScript

    @property
    def script(self) -> CallScript:
        """What is recorded of the call, and how."""
        return self._script

    @property
    def id(self) -> str:
        """The call's own id, which its events carry."""
        return self._script.llm_call_id

    @property
    def meta(self) -> Meta:
        """Where the call belongs: turn, step, session."""
        return self._script.meta

    def show(self, ui: Ui) -> None:
        """Say how a user interface shows the answer, while the call is going on."""
        self._script.ui = ui

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._script.attempt

    @property
    def answer(self) -> AssistantMessage | None:
        """The message, once the call has ended well."""
        return self._script.message

    @property
    def error(self) -> LlmError | None:
        """The error, once the call has failed."""
        return self._script.error

    @property
    def tool_calls(self) -> tuple[RequestedCall, ...]:
        """The tool calls that the model asks for, once the call has ended well."""
        return self._script.tool_calls

    def _said(self) -> str:
        parts = self.answer.parts if self.answer else ()
        return spoken(parts, joint="")


class AnswerText(str, Generic[T]):
    """The text of a model's answer; called with a text, it tells the recorder the answer."""

    _tell: Callable[[str], T]

    def __new__(cls, text: str, tell: Callable[[str], T]) -> Self:
        """Make one of what was said, and of what takes what is to be said."""
        said = super().__new__(cls, text)
        said._tell = tell
        return said

    def __call__(self, text: str) -> T:
        """Record a text as the whole answer."""
        return self._tell(text)
