"""An answer that the product tells piece by piece, whatever SDK it came from.

It has no end of its own: leaving the model call without an exception is the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from agent_eventstore.errors import UnknownResponse
from agent_eventstore.providers.answer import Answer
from agent_eventstore.providers.base import Delta, plain
from agent_eventstore.providers.parser import ChunkParser, text
from agent_eventstore.providers.usage import any_usage
from eventstore.events import TokenUsage, ToolCallRequest
from eventstore.events.base import JsonObject

__all__ = ["ByHand"]

_WRAPPERS = ("function", "custom", "functionCall", "function_call", "toolUse")
_IDS = ("call_id", "id", "tool_call_id", "toolUseId", "provider_id")
_ARGUMENTS = ("arguments_text", "arguments", "args", "input")


class ByHand(ChunkParser):
    """Takes an answer in words."""

    specification: ClassVar[str] = ""

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self.finished = True
        self._counts: TokenUsage | None = None

    def say(self, said: str, reasoning: str = "") -> Delta:
        """Add pieces of the answer, and return them as a delta."""
        self._answer.say("reasoning", "reasoning", _words(reasoning, "reasoning"))
        self._answer.say("text", "text", _words(said, "text"))
        return self._answer.take()

    def tell(
        self,
        said: str | None,
        reasoning: str | None,
        tool_calls: Sequence[Any],
        usage: Any,
        finish_reason: str | None,
    ) -> None:
        """Take what makes the answer whole; text that was said piece by piece is not said again.

        Raises:
            UnknownResponse: A tool call or the usage is none.
        """
        calls = [_call(call) for call in tool_calls]
        counts = any_usage(plain(usage)) if usage is not None else None
        if usage is not None and counts is None:
            raise UnknownResponse(usage, "usage")
        self._counts = usage if isinstance(usage, TokenUsage) else counts
        self._finish_reason = finish_reason
        for kind, whole in (("reasoning", reasoning), ("text", said)):
            if whole is not None:
                self._complete(kind, _words(whole, kind))
        for call in calls:
            index = self._answer.open_call(name=call["name"], provider_id=call["id"])
            self._answer.add_to_call(index, call["arguments"])

    def _complete(self, kind: Any, whole: str) -> None:
        said = self._answer.all_of(kind)
        if whole.startswith(said):
            self._answer.say(kind, kind, whole[len(said) :])
        else:
            # What was streamed was something else: the message is what the product says it is.
            fresh, other = Answer(), "text" if kind == "reasoning" else "reasoning"
            fresh.say(other, other, self._answer.all_of(other))  # type: ignore[arg-type]
            fresh.say(kind, kind, whole)
            self._answer = fresh

    def _take(self, event: JsonObject) -> None:
        raise NotImplementedError

    def _read(self, response: JsonObject) -> None:
        raise NotImplementedError

    def _usage(self) -> TokenUsage | None:
        return self._counts

    def _raw(self) -> JsonObject:
        return {}


def _words(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UnknownResponse(value, what)
    return value


def _call(given: Any) -> dict[str, Any]:
    """Return name, id and arguments of a tool call in any provider's shape."""
    if isinstance(given, ToolCallRequest):
        return {"name": given.name, "id": given.provider_id, "arguments": given.arguments_text}
    value = plain(given)
    if not isinstance(value, dict):
        raise UnknownResponse(given, "tool call")
    wrapped = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), value)
    name = text(wrapped.get("name"))
    if not name:
        raise UnknownResponse(given, "tool call")
    ids = (each.get(key) for each in (value, wrapped) for key in _IDS)
    arguments = next((wrapped[key] for key in _ARGUMENTS if wrapped.get(key) is not None), "")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    found = next((each for each in ids if isinstance(each, str) and each), None)
    return {"name": name, "id": found, "arguments": arguments}
