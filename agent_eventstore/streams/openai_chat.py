"""Chunks of OpenAI's chat completions and of the many servers that speak the same.

Known peculiarities: DeepSeek, xAI and others stream ``reasoning_content`` or ``reasoning``;
Mistral sends ``content`` as a list; Groq also puts usage under ``x_groq``; Azure begins with a
chunk without choices; usage may come last, with every chunk (counting up), or not at all; an error
may come as ``{"error": ...}``, with or without choices. Only the first choice is the answer.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject

from .answer import Kind
from .chat_calls import ChatCalls
from .merging import Growing, told
from .parser import ChunkParser, text
from .sellers import seller_of
from .usage import chat_usage

__all__ = ["OpenAIChatParser"]

_REASONING = ("reasoning_content", "reasoning", "reasoning_text")
_OF_CHUNK = frozenset(
    {
        *("choices", "created", "error", "id", "model", "obfuscation", "object"),
        *("system_fingerprint", "usage", "x_groq"),
    }
)
_OF_CHOICE = frozenset(
    {"delta", "error", "finish_reason", "index", "logprobs", "message", "text", "usage"}
)
_OF_DELTA = frozenset(
    {"content", "function_call", "obfuscation", "refusal", "role", "tool_calls", *_REASONING}
)


class OpenAIChatParser(ChunkParser):
    """Takes the chunks of one chat completion."""

    specification: ClassVar[str] = "openai_chat"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ChatCalls(self._answer)
        self._counts: TokenUsage | None = None
        self._of_message = Growing()
        self._of_response: JsonObject = {}
        self._logprobs = Growing()
        self._told_seller: str | None = None
        self._others = 0

    def _take(self, event: JsonObject) -> None:
        if not event.keys() & {"choices", "error", "id", "model", "usage", "x_groq"}:
            if event.get("object") == "error" or event.keys() == {"detail"}:
                self._fail(event.get("message", event.get("detail")), event)
            elif event and event.get("type") != "ping":
                self._answer.keep(event)
            return
        self._note(event)
        self._count(event)
        if event.get("error"):
            self._fail(event["error"], event)
        choices = event.get("choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            number = choice.get("index") if isinstance(choice, dict) else None
            if isinstance(choice, dict) and not (place if number is None else number):
                self._choose(choice)
            else:
                self._answer.keep({"choices": [choice]})
        self._of_response |= told(event, _OF_CHUNK)

    def _read(self, response: JsonObject) -> None:
        choices = response.get("choices")
        if isinstance(choices, list):
            response = {**response, "choices": [_numbered(choice) for choice in choices]}
        self._take(response)
        if isinstance(choices, list) and len(choices) > 1:
            self._of_response["choices"] = choices[1:]
        self.finished = self.finished or self.error is None

    def _choose(self, choice: JsonObject) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else choice.get("message")
        if isinstance(delta, dict):
            self._add(delta)
        self._say("text", choice.get("text"))
        if isinstance(logprobs := choice.get("logprobs"), dict):
            self._logprobs.add(told(logprobs, frozenset()))
        if choice.get("error"):
            self._fail(choice["error"], choice)
        if reason := text(choice.get("finish_reason")):
            self._finish_reason = reason
            self.finished = reason != "error"
        self._of_response |= told(choice, _OF_CHOICE)
        self._count(choice)

    def _add(self, delta: JsonObject) -> None:
        # A server in transition sends the same reasoning under two names.
        self._say("reasoning", next((delta[key] for key in _REASONING if delta.get(key)), None))
        self._say("text", delta.get("content"))
        self._say("refusal", delta.get("refusal"))
        if delta.get("tool_calls"):
            self._calls.add(delta["tool_calls"])
        if isinstance(legacy := delta.get("function_call"), dict):
            self._calls.add_legacy(legacy)
        if extra := told(delta, _OF_DELTA):
            self._of_message.add(extra)
            self._answer.keep({"delta": extra})

    def _say(self, kind: Kind, content: Any) -> None:
        """Add a text, or the texts in a list of content parts."""
        if isinstance(content, str):
            self._answer.say(kind, kind, content)
            return
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                self._answer.say(kind, kind, part)
            elif isinstance(part, dict) and "thinking" in part:
                self._say("reasoning", part["thinking"])
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                self._answer.say(kind, kind, part["text"])
            elif isinstance(part, dict) and isinstance(part.get("refusal"), str):
                self._answer.say("refusal", "refusal", part["refusal"])
            elif part is not None:
                self._others += 1
                self._answer.show(self._others, part)
                self._answer.keep({"delta": {"content": [part]}})

    def _count(self, event: JsonObject) -> None:
        """Take the counts, which are totals: the last ones are right."""
        groq = event.get("x_groq")
        if isinstance(groq, dict):
            self._told_seller = "groq"
            self._counts = chat_usage(groq.get("usage")) or self._counts
            if groq.get("error"):
                self._fail(groq["error"], event)
        if "prompt_filter_results" in event:
            self._told_seller = "azure"
        self._counts = chat_usage(event.get("usage")) or self._counts

    def _seller(self) -> str | None:
        told_of = self._provider or self._told_seller
        if told_of or "provider" in self._of_response:
            return told_of
        return seller_of(self._model)

    def _usage(self) -> TokenUsage | None:
        return self._counts

    def _raw(self) -> JsonObject:
        found = {
            "message": self._of_message.value(),
            "response": self._of_response,
            "logprobs": self._logprobs.value(),
        }
        return told(found, frozenset())


def _numbered(choice: Any) -> Any:
    """Return a whole choice with its calls numbered: only pieces of a stream share an id."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(calls := message.get("tool_calls"), list):
        return choice
    numbered = [
        {**call, "index": place} if isinstance(call, dict) else call
        for place, call in enumerate(calls)
    ]
    return {**choice, "message": {**message, "tool_calls": numbered}}
