"""Answers of Gemini's ``generateContent``, whole or streamed: each chunk is shaped like an answer.

The REST interface has ``usageMetadata``, older SDKs ``usage_metadata``: both are read. Only the
first candidate is the answer. A function call arrives complete, often without an id; or it begins
with its name and goes on while ``willContinue`` is true, each piece of its arguments with the place
of the value that it adds to. Source: Gemini's API reference, "FunctionCall" (2026).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, ClassVar

from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, object_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import Growing, unknown_fields
from projections.providers.usage import gemini_usage, snake

__all__ = ["GeminiParser", "field"]

_OF_CANDIDATE = frozenset(
    {"content", "finishReason", "finish_reason", "index", "tokenCount", "token_count"}
)
_REASONS = ("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""The finish reasons that older SDKs give as numbers."""


class GeminiParser(ChunkParser):
    """Parses the chunks of one answer."""

    specification: ClassVar[str] = "gemini_generate_content"
    server: ClassVar[str | None] = "google"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._of_candidate = Growing()
        self._feedback: JsonObject = {}
        self._calls = ToolCalls(self._answer, RULES[self.specification])
        self._open: int | None = None
        self._built = Built()

    def _take(self, event: JsonObject) -> None:
        self._note({"id": field(event, "responseId"), "model": field(event, "modelVersion")})
        self._count(gemini_usage, field(event, "usageMetadata"))
        if event.get("error"):
            self._fail(event["error"], event)
        feedback = field(event, "promptFeedback")
        if isinstance(feedback, dict):
            self._feedback = feedback
            self._end(field(feedback, "blockReason"))
        candidates = event.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict) and not candidate.get("index", place):
                self._choose(candidate)
            else:
                self._answer.keep({"candidates": [candidate]})

    def _read(self, response: JsonObject) -> None:
        self._take(response)
        if self.error is None:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._calls.close_all()

    def _ended_in_order(self, closed: bool, marked: bool) -> bool:
        """Whether the stream ended in order, and no call announced further pieces."""
        return self._open is None and super()._ended_in_order(closed, marked)

    def _choose(self, candidate: JsonObject) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._part(part)
            elif part is not None:
                self._show_other(part, {"parts": [part]})
        self._of_candidate.add(unknown_fields(candidate, _OF_CANDIDATE))
        self._end(field(candidate, "finishReason"))

    def _part(self, part: JsonObject) -> None:
        call, content = field(part, "functionCall"), part.get("text")
        signature = field(part, "thoughtSignature")
        placeholder = (
            isinstance(call, dict) and not unknown_fields(call, frozenset()) and bool(content)
        )
        if isinstance(call, dict) and not placeholder:
            self._call(call, unknown_fields({"thoughtSignature": signature}, frozenset()))
        elif isinstance(content, str):
            kind: Any = "reasoning" if part.get("thought") is True else "text"
            self._answer.say(kind, kind, content)
            if text(signature):
                self._answer.sign("reasoning", text(signature))
        elif unknown_fields(part, frozenset()):
            self._show_other(part, {"parts": [part]})

    def _call(self, call: JsonObject, raw: JsonObject) -> None:
        """Add a function call, or a piece of one that is streamed."""
        partial = field(call, "partialArgs")
        goes_on = field(call, "willContinue") is True
        piece = Piece.of_arguments(
            call.get("args"),
            name=text(call.get("name")),
            call_id=text(call.get("id")) or None,
            partial=goes_on or bool(partial),
            raw=raw,
        )
        if not piece.name and not piece.call_id and self._open is not None:
            index: int | None = self._calls.add_to(self._open, piece)
        else:
            index = self._calls.add(piece)
        if index is None:
            return
        if index != self._open:
            self._calls.close(self._open)
            self._open, self._built = index, Built()
        for each in partial if isinstance(partial, list) else [partial]:
            if each is not None:
                self._answer.keep({"functionCall": {"partialArgs": [each]}})
                self._built.add(each)
        if partial:
            self._calls.add_to(index, Piece(value=self._built.value, partial=True))
        if not goes_on:
            self._calls.close(index)
            self._open = None

    def _end(self, reason: Any) -> None:
        if isinstance(reason, int) and not isinstance(reason, bool):
            reason = _REASONS[reason] if 0 <= reason < len(_REASONS) else str(reason)
        if text(reason) and not text(reason).endswith("_UNSPECIFIED"):
            self._finish_reason = reason
            self._finish()

    def _raw(self) -> JsonObject:
        raw = {"candidate": self._of_candidate.value(), "promptFeedback": self._feedback}
        return unknown_fields(raw, frozenset())


def field(value: JsonObject, name: str) -> Any:
    """Return a field by its name in camel case, or in snake case."""
    found = value.get(name)
    return value.get(snake(name)) if found is None else found


_QUOTED = r"\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
_STEP = re.compile(rf"\.([^.\[\]]+)|\[(\d{{1,6}})\]|{_QUOTED}")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_DEEPEST = 50


class Built:
    """The arguments of a function call, from pieces that name the place of each value."""

    def __init__(self) -> None:
        self.value: JsonObject = {}

    def add(self, piece: Any) -> None:
        """Add a piece: a string continues the one at the same place; what has no place is left."""
        path = _path_of(text(field(object_of(piece), "jsonPath")))
        name = next((name for name in _VALUES if field(object_of(piece), name) is not None), None)
        if not path or (name is None and "nullValue" not in object_of(piece)):
            return
        value = field(piece, name) if name and name != "nullValue" else None
        holder: Any = self.value
        for key, following in pairwise(path):
            inner = _at(holder, key)
            if not isinstance(inner, dict | list):
                inner = [] if isinstance(following, int) else {}
                if not _put(holder, key, inner):
                    return
            holder = inner
        before = _at(holder, path[-1])
        if isinstance(value, str) and isinstance(before, str):
            value = before + value
        _put(holder, path[-1], value)


def _path_of(path: str) -> list[str | int]:
    """Return the steps of a JSON path such as ``$.a[0].b``; none if it is another kind of path."""
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path) and len(steps) <= _DEEPEST:
        found = _STEP.match(path, at)
        if found is None:
            return []
        number = found[2]
        steps.append(int(number) if number is not None else found[1] or found[3] or found[4] or "")
        at = found.end()
    return steps if len(steps) <= _DEEPEST else []


def _at(holder: Any, key: str | int) -> Any:
    if isinstance(holder, dict):
        return holder.get(str(key))
    return holder[key] if isinstance(key, int) and key < len(holder) else None


def _put(holder: Any, key: str | int, value: Any) -> bool:
    """Set a value; the items of a list come in order."""
    if isinstance(holder, dict):
        holder[str(key)] = value
    elif isinstance(key, int) and key < len(holder):
        holder[key] = value
    elif key == len(holder):
        holder.append(value)
    else:
        return False
    return True
