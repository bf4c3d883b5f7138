"""OpenAI's chat completions, also of the many compatible servers: chunks and whole answers.

Known differences: DeepSeek, xAI and others stream ``reasoning_content`` or ``reasoning``; Mistral
sends ``content`` as a list; Groq also puts usage under ``x_groq``; Azure begins with a chunk
without choices; usage may come last, with every chunk (as a running total), or not at all; an error
may come as ``{"error": ...}``, with or without choices. Only the first choice is the answer.

`ChatCalls` assigns each piece of a stream to its tool call. OpenAI numbers the calls and sends id
and name once, in the first piece. Compatible servers omit the number, the id or both, number every
call 0, repeat id and name with each piece, invent a new id for each piece, or send the whole call
again at the end.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from agent_eventstore.providers.answer import Answer, Call, Kind
from agent_eventstore.providers.base import Growing, seller_of, told
from agent_eventstore.providers.parser import ChunkParser, as_text, text
from agent_eventstore.providers.usage import chat_usage
from eventstore.events.base import JsonObject

__all__ = ["ChatCalls", "OpenAIChatParser"]


_KNOWN = frozenset({"custom", "function", "id", "index", "type"})

_REASONING = ("reasoning_content", "reasoning", "reasoning_text")
_OF_CHUNK = frozenset(
    {
        *("choices", "created", "error", "id", "model", "obfuscation", "object", "usage"),
        "x_groq",
    }
)
_OF_CHOICE = frozenset(
    {"delta", "error", "finish_reason", "index", "logprobs", "message", "text", "usage"}
)
_OF_DELTA = frozenset(
    {"content", "function_call", "obfuscation", "refusal", "role", "tool_calls", *_REASONING}
)


class ChatCalls:
    """The tool calls of one streamed chat completion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._by_number: dict[int, int] = {}
        self._by_id: dict[str, int] = {}

    def add(self, pieces: Any) -> None:
        """Add the ``tool_calls`` of a delta."""
        if isinstance(pieces, dict):
            pieces = [pieces]
        if not isinstance(pieces, list):
            self._answer.keep({"tool_calls": pieces})
            return
        for place, piece in enumerate(pieces):
            if isinstance(piece, dict):
                self._add(piece, place, len(pieces))
            elif piece is not None:
                self._answer.keep({"tool_calls": [piece]})

    def add_legacy(self, piece: JsonObject) -> None:
        """Add the ``function_call`` of a delta; there is only one per message."""
        self._add({"index": -1, "function": piece}, 0, 1)

    def _add(self, piece: JsonObject, place: int, pieces: int) -> None:
        free_text = isinstance(piece.get("custom"), dict)
        body = piece.get("custom") if free_text else piece.get("function")
        body = body if isinstance(body, dict) else {}
        name, given_id = text(body.get("name")), text(piece.get("id")) or None
        arguments = as_text(body.get("input" if free_text else "arguments"))
        number = _number(piece.get("index"))
        index = self._find(number, given_id, name, place, pieces)
        if index is not None and _begins_anew(self._call(index), given_id, name, arguments):
            index = None
        elif index is not None and _repeats(self._call(index), given_id, name, arguments):
            return
        if index is None:
            index = self._answer.open_call(provider_id=given_id, name=name, free_text=free_text)
            self._answer.add_to_call(index, arguments)
        else:
            more = "" if name == self._call(index).name else name
            self._answer.add_to_call(index, arguments, more, given_id)
        if number is not None:
            self._by_number[number] = index
        if given_id is not None:
            self._by_id[given_id] = index
        if extra := told(piece, _KNOWN):
            self._call(index).keep(extra)
            self._answer.keep({"tool_calls": [{"index": index, **extra}]})

    def _find(
        self, number: int | None, given_id: str | None, name: str, place: int, pieces: int
    ) -> int | None:
        if number is not None:
            return self._by_number.get(number)
        if given_id is not None and given_id in self._by_id:
            return self._by_id[given_id]
        calls = len(self._answer.calls)
        if not calls:
            return None
        if name and (given_id or self._call(calls - 1).name):
            return None
        return min(place, calls - 1) if pieces > 1 else calls - 1

    def _call(self, index: int) -> Call:
        return self._answer.calls[index]


def _begins_anew(call: Call, given_id: str | None, name: str, arguments: str) -> bool:
    """Whether a piece with a known number begins another call: some servers number every call 0.

    A name precedes the arguments, so a name after arguments begins a call: always if the name or id
    differs; if both are the same, only if the arguments so far are complete and new ones begin.
    """
    if not name or not call.name:
        return False
    if given_id and call.provider_id and given_id != call.provider_id:
        return True
    if not call.size:
        return False
    if name != call.name:
        return True
    return not given_id and arguments.lstrip().startswith("{") and call.is_whole()


def _repeats(call: Call, given_id: str | None, name: str, arguments: str) -> bool:
    """Whether a piece is a complete call sent again."""
    return (
        bool(arguments)
        and given_id is not None
        and given_id == call.provider_id
        and name == call.name
        and len(arguments) == call.size
        and arguments == call.arguments
        and call.is_whole()
    )


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class OpenAIChatParser(ChunkParser):
    """Parses the chunks of one chat completion."""

    specification: ClassVar[str] = "openai_chat"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ChatCalls(self._answer)
        self._of_message = Growing()
        self._logprobs = Growing()
        self._told_seller: str | None = None

    def _take(self, event: JsonObject) -> None:
        if not event.keys() & {"choices", "error", "id", "model", "usage", "x_groq"}:
            if event.get("object") == "error" or event.keys() == {"detail"}:
                self._fail(event.get("message", event.get("detail")), event)
            elif event and event.get("type") != "ping":
                self._answer.keep(event)
            return
        self._note(event)
        self._count_all(event)
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
        self._count_all(choice)

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
        """Add a text, or the texts of a list of content parts."""
        if isinstance(content, str):
            self._answer.say(kind, kind, content)
            return
        if isinstance(content, dict) and not content.keys() & {"text", "thinking", "type"}:
            # A structured answer, which some servers send as an object.
            self._answer.say(kind, kind, json.dumps(content, ensure_ascii=False))
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
                self._show_other(part, {"delta": {"content": [part]}})

    def _count_all(self, event: JsonObject) -> None:
        """Update the counts, which Groq and Azure put beside their own fields."""
        groq = event.get("x_groq")
        if isinstance(groq, dict):
            self._told_seller = "groq"
            if extra := told(groq, frozenset({"error", "usage"})):
                self._of_response["x_groq"] = self._of_response.get("x_groq", {}) | extra
            self._count(chat_usage, groq.get("usage"))
            if groq.get("error"):
                self._fail(groq["error"], event)
        if "prompt_filter_results" in event:
            self._told_seller = "azure"
        self._count(chat_usage, event.get("usage"))

    def _seller(self) -> str | None:
        told_of = self._provider or self._told_seller
        if told_of or "provider" in self._of_response:
            return told_of
        return seller_of(self._model)

    def _raw(self) -> JsonObject:
        found = {
            "message": self._of_message.value(),
            "response": self._of_response,
            "logprobs": self._logprobs.value(),
        }
        return told(found, frozenset())


def _numbered(choice: Any) -> Any:
    """Return a whole choice with its calls numbered; an id may repeat only within a stream."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(calls := message.get("tool_calls"), list):
        return choice
    numbered = [
        {**call, "index": place} if isinstance(call, dict) else call
        for place, call in enumerate(calls)
    ]
    return {**choice, "message": {**message, "tool_calls": numbered}}
