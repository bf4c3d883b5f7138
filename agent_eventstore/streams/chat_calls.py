"""Which tool call a piece of a chat-completion stream belongs to.

OpenAI numbers the calls and says id and name once, in the first piece. Compatible servers leave
out the number, the id or both, give every call the number 0, repeat id and name with each piece,
make up a new id for each piece, or send the whole call again at the end.
"""

from __future__ import annotations

import json
from typing import Any

from eventstore.events.base import JsonObject

from .answer import Answer, Call
from .merging import told
from .parser import text

__all__ = ["ChatCalls"]

_KNOWN = frozenset({"custom", "function", "id", "index", "type"})


class ChatCalls:
    """The tool calls of one streamed chat completion."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._by_number: dict[int, int] = {}
        self._by_id: dict[str, int] = {}

    def add(self, pieces: Any) -> None:
        """Take what a delta holds under ``tool_calls``."""
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
        """Take what a delta holds under ``function_call``, of which there is only one."""
        self._add({"index": -1, "function": piece}, 0, 1)

    def _add(self, piece: JsonObject, place: int, pieces: int) -> None:
        free_text = isinstance(piece.get("custom"), dict)
        body = piece.get("custom") if free_text else piece.get("function")
        body = body if isinstance(body, dict) else {}
        name, given_id = text(body.get("name")), text(piece.get("id")) or None
        arguments = _arguments(body.get("input" if free_text else "arguments"))
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
    """Whether a piece with a known number is another call, from a server that numbers them all 0.

    A name comes before the arguments, so one that comes after them begins a call: under another
    name or id at once, under the same when the arguments so far are whole and new ones begin.
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
    """Whether a piece is a whole call sent again."""
    return (
        bool(arguments)
        and given_id is not None
        and given_id == call.provider_id
        and name == call.name
        and len(arguments) == call.size
        and arguments == call.arguments
        and call.is_whole()
    )


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
