"""OpenAI's chat completions, also of the many compatible servers: chunks and whole answers.

Known differences: DeepSeek, xAI and others stream ``reasoning_content`` or ``reasoning``; Mistral
sends ``content`` as a list; Groq also puts usage under ``x_groq``; Azure begins with a chunk
without choices; usage may come last, with every chunk (as a running total), or not at all; an error
may come as ``{"error": ...}``, with or without choices. Only the first choice is the answer.

OpenAI numbers the tool calls and sends id and name once, in the first piece. Compatible servers
omit the number, the id or both, number every call 0 or every piece anew, repeat id and name with
each piece, invent a new id for each piece, or send the whole call again at the end. Some never send
a finish reason: the usage, or the end mark of the stream, then completes the answer.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from eventstore.events import TokenUsage
from eventstore.events.base import JsonObject
from projections.providers.answer import Answer, Kind
from projections.providers.parser import ChunkParser, as_text, object_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import Growing, seller_of, unknown_fields
from projections.providers.usage import chat_usage

__all__ = ["ChatCalls", "OpenAIChatParser"]


_KNOWN = frozenset({"arguments", "custom", "function", "id", "index", "name", "type"})
_LEGACY = -1
"""The number of the call in ``function_call``."""
_NO_REASON = frozenset({"", "none", "null"})
_ROLE = frozenset({"role"})

_REASONING = ("reasoning_content", "reasoning", "reasoning_text")
_DETAILS = ("summary", "text", "thinking")
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
    """The tool calls of one chat completion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._calls = ToolCalls(answer, RULES["openai_chat"])

    def add(self, pieces: Any, *, whole: bool = False) -> None:
        """Add the ``tool_calls`` of a delta, or of a whole message."""
        if isinstance(pieces, dict):
            pieces = [pieces] if pieces.keys() & _KNOWN else list(pieces.values())
        if not isinstance(pieces, list):
            self._answer.keep({"tool_calls": pieces})
            return
        for place, piece in enumerate(pieces):
            if isinstance(piece, dict):
                self._add(piece, place, len(pieces), whole)
            elif piece is not None:
                self._answer.keep({"tool_calls": [piece]})

    def add_legacy(self, piece: JsonObject) -> None:
        """Add the ``function_call`` of a delta; there is only one per message."""
        self._add({"index": _LEGACY, "function": piece}, 0, 1, whole=False)

    def without_repeated(self, pieces: Any) -> Any:
        """Return the ``tool_calls`` of a whole message without those that came in pieces."""
        if not isinstance(pieces, list):
            return pieces
        return [piece for place, piece in enumerate(pieces) if not self._is_repeated(place, piece)]

    def _is_repeated(self, place: int, piece: Any) -> bool:
        if place >= len(self._answer.calls) or not isinstance(piece, dict):
            return False
        call, (body, _) = self._answer.calls[place], _body_of(piece)
        same = _id(piece.get("id")) in (None, call.provider_id) and body.get("name") == call.name
        return same and call.repeats(as_text(body.get("arguments")))

    def has(self, name: str) -> bool:
        """Whether a tool is called."""
        return any(call.name == name for call in self._answer.calls)

    def end(self) -> None:
        """Complete the calls."""
        self._calls.close_all()

    def _add(self, piece: JsonObject, place: int, pieces: int, whole: bool) -> None:
        body, free_text = _body_of(piece)
        found = Piece.of_arguments(
            body.get("input" if free_text else "arguments"),
            name=text(body.get("name")),
            call_id=_id(piece.get("id")),
            index=place if whole else _number(piece.get("index")),
            place=place,
            of=pieces,
            free_text=free_text,
        )
        index = self._calls.begin(found) if whole else self._calls.add(found)
        if extra := unknown_fields(piece, _KNOWN):
            if index is not None:
                self._answer.calls[index].keep(extra)
            self._answer.keep({"tool_calls": [{"index": index, **extra}]})


def _body_of(piece: JsonObject) -> tuple[JsonObject, bool]:
    """Return the object that holds name and arguments, and whether it is of a custom tool.

    Some servers send all variants, and leave those that do not apply empty.
    """
    custom, function = object_of(piece.get("custom")), object_of(piece.get("function"))
    if unknown_fields(custom, frozenset()) or (
        not unknown_fields(function, frozenset()) and "custom" in piece
    ):
        return custom, True
    if unknown_fields(function, frozenset()):
        return function, False
    # Some servers omit the wrapper.
    flat = {"name": piece.get("name"), "arguments": piece.get("arguments")}
    return (flat if isinstance(flat["name"], str) else function), False


def _some(counts: TokenUsage | None) -> bool:
    return counts is not None and bool(counts.prompt_tokens or counts.completion_tokens)


def _id(value: Any) -> str | None:
    """Return an id, which some servers send as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(value) or None


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _detailed(delta: JsonObject) -> str:
    """Return the reasoning of a delta that has it in nothing but its details."""
    details = delta.get("reasoning_details") or delta.get("thinking_blocks")
    found = [object_of(each) for each in details] if isinstance(details, list) else []
    return "".join(text(each.get(name)) for each in found for name in _DETAILS)


class OpenAIChatParser(ChunkParser):
    """Parses the chunks of one chat completion."""

    specification: ClassVar[str] = "openai_chat"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ChatCalls(self._answer)
        self._of_message = Growing()
        self._logprobs = Growing()
        self._detected_seller: str | None = None
        self._whole = False
        self._in_deltas = False
        self._counted = False
        self._runs_on = False
        self._texts = 0
        self._reasoned = False

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
            number = _number(choice.get("index")) if isinstance(choice, dict) else None
            if isinstance(choice, dict) and not (place if number is None else number):
                self._choose(choice)
            else:
                self._answer.keep({"choices": [choice]})
        self._of_response |= unknown_fields(event, _OF_CHUNK)
        # Counts before the last content are a running total, which a cut stream has too.
        self._runs_on = self._runs_on or (self._counted and self._answer.has_spoken)
        self._counted = self._counted or _some(self._counts)

    def _read(self, response: JsonObject) -> None:
        choices = response.get("choices")
        self._whole = True
        self._take(response)
        if isinstance(choices, list) and len(choices) > 1:
            self._of_response["choices"] = choices[1:]
        if self.error is None:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._calls.end()

    def _ended_in_order(self, closed: bool, marked: bool) -> bool:
        """Whether the server ended the stream in order, though it sent no finish reason."""
        counted = self._counted and not self._runs_on
        if counted or (marked and self._answer.has_content):
            return not self._answer.has_cut_call
        return super()._ended_in_order(closed, marked)

    def _choose(self, choice: JsonObject) -> None:
        delta, message = choice.get("delta"), object_of(choice.get("message"))
        delta = {"content": delta} if isinstance(delta, str) else object_of(delta)
        if self._is_whole_again(delta, choice):
            delta, message = {}, delta
        if unknown_fields(message, _ROLE) and not unknown_fields(delta, _ROLE):
            self._add(message if self._whole else self._rest_of(message))
        else:
            self._add(delta)
            self._in_deltas = True
            self._texts += bool(text(delta.get("content")))
        if not text(object_of(delta or message).get("content")):
            self._say("text", choice.get("text"))
        if isinstance(logprobs := choice.get("logprobs"), dict):
            self._logprobs.add(unknown_fields(logprobs, frozenset()))
        if choice.get("error"):
            self._fail(choice["error"], choice)
        reason = text(choice.get("finish_reason"))
        if reason.lower() not in _NO_REASON:
            self._finish_reason = reason
            if reason == "error":
                self.finished = False
            else:
                self._finish()
        self._of_response |= unknown_fields(choice, _OF_CHOICE)
        self._count_all(choice)

    def _is_whole_again(self, delta: JsonObject, choice: JsonObject) -> bool:
        """Whether the last delta has the whole text again, with the role that begins a message."""
        ends = text(delta.get("role")) and text(choice.get("finish_reason"))
        if not ends or self._texts < 2:
            return False
        return text(delta.get("content")) == self._answer.all_of("text")

    def _rest_of(self, message: JsonObject) -> JsonObject:
        """Return what a stream's deltas lacked of a whole message."""
        if not self._in_deltas:
            return message
        rest = {**message, "tool_calls": self._calls.without_repeated(message.get("tool_calls"))}
        kinds: dict[str, Kind] = {"content": "text", **dict.fromkeys(_REASONING, "reasoning")}
        for name, kind in kinds.items():
            received, whole = self._answer.all_of(kind), text(message.get(name))
            if received and whole.startswith(received):
                rest[name] = whole[len(received) :]
            elif whole.strip() == received.strip():
                rest[name] = None
        return rest

    def _add(self, delta: JsonObject) -> None:
        # A server in transition sends the same reasoning under two names.
        reasoning = next((delta[key] for key in _REASONING if delta.get(key)), None)
        self._reasoned = self._reasoned or reasoning is not None
        self._say("reasoning", reasoning if self._reasoned else _detailed(delta))
        self._say("text", delta.get("content"))
        self._say("refusal", delta.get("refusal"))
        if delta.get("tool_calls"):
            self._calls.add(delta["tool_calls"], whole=self._whole)
        legacy = object_of(delta.get("function_call"))
        # Some servers send the same call under both names.
        if unknown_fields(legacy, frozenset()) and not (
            delta.get("tool_calls") and self._calls.has(text(legacy.get("name")))
        ):
            self._calls.add_legacy(legacy)
        if extra := unknown_fields(delta, _OF_DELTA):
            self._of_message.add(extra)
            self._answer.keep({"delta": extra})

    def _say(self, kind: Kind, content: Any) -> None:
        """Add a text, or the texts of a list of content parts."""
        if isinstance(content, str):
            self._answer.say(kind, kind, content)
            return
        if content == {}:
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
            self._detected_seller = "groq"
            if extra := unknown_fields(groq, frozenset({"error", "usage"})):
                self._of_response["x_groq"] = self._of_response.get("x_groq", {}) | extra
            self._count(chat_usage, groq.get("usage"))
            if groq.get("error"):
                self._fail(groq["error"], event)
        if "prompt_filter_results" in event:
            self._detected_seller = "azure"
        self._count(chat_usage, event.get("usage"))

    def _seller(self) -> str | None:
        seller = self._provider or self._detected_seller
        if seller or "provider" in self._of_response:
            return seller
        return seller_of(self._model)

    def _raw(self) -> JsonObject:
        found = {
            "message": self._of_message.value(),
            "response": self._of_response,
            "logprobs": self._logprobs.value(),
        }
        return unknown_fields(found, frozenset())
