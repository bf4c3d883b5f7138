"""Which tool call a piece of a streamed answer belongs to: one rule for all specifications.

A piece belongs to the call that its id says, otherwise its index, otherwise its place. A call
begins with the event that its specification has for that, or with a name; a piece without a name
continues a call. Arguments arrive as text in pieces, or as a value. A value is never concatenated
with text: text counts, and a value that is empty is a placeholder. `RULES` lists what each
specification allows; what a server sends beyond that is assigned by the same rule.

A call without a name never runs: it is not among the message's calls, and is kept in its ``raw``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from eventstore.events.base import JsonObject
from projections.providers.answer import Answer, Call

__all__ = ["RULES", "Piece", "Rules", "ToolCalls"]

Key = Literal["id", "index", "place"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a specification allows of the pieces of a tool call.

    Attributes:
        begins: What begins a call: an event of its own, or a piece that has a name.
        keys: What a later piece may have to say which call it belongs to, in order of precedence.
            Without any, it belongs to the latest call.
        arguments: How the arguments arrive: as text in pieces, or as a value.
        splits_names: Whether a name may arrive in pieces.
        repeats: Whether the pieces may be followed by the whole arguments once more.
    """

    begins: Literal["event", "name"]
    keys: tuple[Key, ...]
    arguments: tuple[Literal["text", "value"], ...]
    splits_names: bool = False
    repeats: bool = False


RULES = {
    "openai_chat": Rules(
        "name", ("id", "index", "place"), ("text", "value"), splits_names=True, repeats=True
    ),
    "openai_responses": Rules("event", ("id", "index"), ("text", "value"), repeats=True),
    "anthropic_messages": Rules("event", ("index",), ("text", "value")),
    "gemini_generate_content": Rules("name", ("id",), ("value",)),
    "gemini_interactions": Rules("event", ("index",), ("text", "value")),
    "ollama_chat": Rules("name", (), ("value", "text")),
    "cohere_chat": Rules("event", ("index",), ("text", "value")),
    "bedrock_converse": Rules("event", ("index",), ("text", "value")),
}
"""The rules by specification."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a tool call.

    Attributes:
        call_id: The id of the call.
        index: The number of the call or of its block.
        place: The place of the piece among the ``of`` pieces of its chunk.
        text: A piece of the arguments as text.
        value: The arguments as a value.
        partial: Whether the value is still incomplete.
        free_text: Whether the arguments are not JSON by design.
        raw: Further fields of the call.
    """

    name: str = ""
    call_id: str | None = None
    index: Any = None
    place: int = 0
    of: int = 1
    text: str = ""
    value: Any = None
    partial: bool = False
    free_text: bool = False
    raw: JsonObject = field(default_factory=dict)

    @classmethod
    def of_arguments(cls, arguments: Any, **fields: Any) -> Piece:
        """Return a piece whose arguments are text or a value."""
        if isinstance(arguments, str):
            return cls(text=arguments, **fields)
        return cls(value=arguments, **fields)

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing but placeholders."""
        return not (self.name or self.call_id or self.text or self.value)


class ToolCalls:
    """Puts the tool calls of one answer together from their pieces.

    Args:
        answer: The answer that the calls are added to.
        rules: What the specification allows.
    """

    def __init__(self, answer: Answer, rules: Rules) -> None:
        self._answer = answer
        self._rules = rules
        self._by_id: dict[str, int] = {}
        self._by_index: dict[Any, int] = {}
        self._latest: int | None = None
        self._nothing: set[Any] = set()

    def begin(self, piece: Piece) -> int | None:
        """Begin a call, from an event that does; return the call's index, None for a placeholder.

        An event that begins the same call again, with the same id under the same number, is a
        repetition.
        """
        if piece.is_empty:
            # Pieces with this number may follow.
            self._by_index.pop(piece.index, None)
            self._nothing.add(piece.index)
            return None
        self._nothing.discard(piece.index)
        known = self._by_index.get(piece.index)
        if known is not None and piece.call_id and self._call(known).provider_id == piece.call_id:
            return known
        return self._open(piece)

    def add(self, piece: Piece) -> int | None:
        """Add a piece; return the index of the call that it belongs to, None for a placeholder."""
        index = self._find(piece)
        if index is None:
            return None if piece.is_empty else self._open(piece)
        return self.add_to(index, piece)

    def add_to(self, index: int, piece: Piece) -> int:
        """Add a piece to a call that is known; return the call's index."""
        if not piece.is_empty:
            more = _more_of_name(self._call(index).name, piece.name)
            if more or piece.call_id:
                self._answer.add_to_call(index, name=more, provider_id=piece.call_id)
            self._arguments(index, piece)
            self._note(index, piece)
        return index

    def complete(self, index: int, arguments: Any) -> None:
        """Take the whole arguments of a call: what the pieces lacked is added.

        If they contradict the pieces, they win; empty ones are a placeholder.
        """
        call = self._call(index)
        if not isinstance(arguments, str):
            call.value = arguments
            self._settle(index)
        elif arguments.startswith(streamed := call.arguments):
            call.pieces[:] = [streamed] if streamed else []
            self._answer.add_to_call(index, arguments[call.size :])
        elif arguments and not (arguments.strip() == "{}" and call.is_whole()):
            self._answer.replace_call(index, arguments)

    def close(self, index: int | None) -> None:
        """End a call: arguments that came as a value, and without text, become its text.

        Where a call has no event that ends it, pieces of it may follow nevertheless.
        """
        if index is not None:
            if self._rules.begins == "event":
                self._call(index).ended = True
            if (snapshot := self._call(index).snapshot()) is not None:
                self._answer.replace_call(index, snapshot)
            self._settle(index)

    def stop(self, number: Any) -> None:
        """End the call with this number."""
        self.close(self._by_index.get(number))

    def close_all(self) -> None:
        """End all calls, since the answer is complete."""
        for index in range(len(self._answer.calls)):
            self.close(index)

    def _find(self, piece: Piece) -> int | None:
        """Return the index of the call that a piece continues, or None if it begins one."""
        if self._rules.begins == "event":
            known = self._by_index.get(piece.index)
        else:
            known = self._known(piece)
            if known is not None and self._starts_new_call(self._call(known), known, piece):
                return None
        if known is not None and not self._is_over(known, piece):
            return known
        begins = piece.name or (piece.call_id and not piece.text)
        return None if begins or piece.index in self._nothing else self._going_on(piece)

    def _known(self, piece: Piece) -> int | None:
        """Return the call that a piece's id, index or place says."""
        keys = self._rules.keys
        if "id" in keys and piece.call_id is not None and piece.call_id in self._by_id:
            return self._by_id[piece.call_id]
        if "index" in keys and piece.index is not None:
            return self._by_index.get(piece.index)
        latest = self._latest
        if latest is None or "place" not in keys:
            return None
        call = self._call(latest)
        if piece.name and (piece.call_id or call.name):
            return latest if not piece.call_id and _continues(call, piece) else None
        return min(piece.place, len(self._answer.calls) - 1) if piece.of > 1 else latest

    def _going_on(self, piece: Piece) -> int | None:
        """Return the call that a piece of unknown identity continues: the latest, if it can."""
        latest = self._latest
        if latest is None or self._is_over(latest, piece):
            return None
        call = self._call(latest)
        another = piece.value and call.is_whole() and not _repeats(call, piece)
        return None if another else latest

    def _is_over(self, index: int, piece: Piece) -> bool:
        """Whether the arguments of a call are complete, so that these belong to another one."""
        call = self._call(index)
        if _repeats(call, piece) or self._supersedes(index, piece):
            return False
        return call.ended or bool(piece.text.strip() and call.is_whole())

    def _supersedes(self, index: int, piece: Piece) -> bool:
        """Whether a piece has the arguments of a call again, and more of them.

        Some servers send ``{}`` before the real arguments, or whole objects that grow.
        """
        call = self._call(index)
        if call.ended or not piece.text.lstrip().startswith("{") or not call.is_whole():
            return False
        numbered = piece.index is not None and self._by_index.get(piece.index) == index
        if not piece.name and call.arguments.strip() == "{}":
            return True
        same_id = bool(piece.call_id) and piece.call_id == call.provider_id
        same = piece.name in ("", call.name) and (same_id or not piece.name) and numbered
        return same and call.grows_into(piece.text)

    def _starts_new_call(self, call: Call, index: int, piece: Piece) -> bool:
        """Whether a piece with a known id or number begins another call.

        Some servers number every call 0, or give them all the same id. A name precedes the
        arguments, so a name after arguments begins a call, unless the piece goes on with them.
        """
        if not piece.name or not call.name:
            return False
        if _repeats(call, piece) or self._supersedes(index, piece):
            return False
        if piece.call_id and call.provider_id and piece.call_id != call.provider_id:
            return not _continues(call, piece)
        moved = piece.index is not None and self._by_index.get(piece.index) != index
        if not call.size:
            return moved and piece.name != call.name
        if piece.name != call.name:
            return True
        if "value" in self._rules.arguments and piece.value and call.is_whole():
            return moved or not piece.call_id
        whole = call.is_whole() or call.snapshot() not in (None, piece.text)
        return piece.text.lstrip().startswith("{") and whole

    def _open(self, piece: Piece) -> int:
        index = self._answer.open_call(
            name=piece.name,
            provider_id=piece.call_id,
            free_text=piece.free_text,
            raw=dict(piece.raw),
        )
        self._arguments(index, piece)
        self._note(index, piece)
        return index

    def _note(self, index: int, piece: Piece) -> None:
        if piece.call_id is not None:
            self._by_id[piece.call_id] = index
        if piece.index is not None:
            self._by_index[piece.index] = index
        self._latest = index

    def _arguments(self, index: int, piece: Piece) -> None:
        call = self._call(index)
        if piece.value is not None and not _repeats(call, piece):
            self._take_value(index, piece)
        if not piece.text or _repeats(call, piece):
            return
        call.value = None
        if call.from_value or self._supersedes(index, piece):
            # The same arguments as text, or more of them: the text alone counts.
            call.from_value = False
            self._answer.replace_call(index, piece.text)
        else:
            self._answer.add_to_call(index, piece.text)

    def _take_value(self, index: int, piece: Piece) -> None:
        call = self._call(index)
        if call.value is None or piece.value:
            call.value = piece.value
        if piece.value and not piece.partial and (call.size or self._rules.begins == "name"):
            self._settle(index)

    def _settle(self, index: int) -> None:
        """Turn arguments that came as a value into the text of the call."""
        call = self._call(index)
        value, call.value = call.value, None
        if not value and (call.size or not isinstance(value, dict)):
            return
        text = json.dumps(value, ensure_ascii=False)
        if not call.size:
            self._answer.add_to_call(index, text)
        elif not call.says(value):
            self._answer.replace_call(index, text)
        call.from_value = True

    def _call(self, index: int) -> Call:
        return self._answer.calls[index]


def _more_of_name(name: str, piece: str) -> str:
    """Return what a piece adds to a name; some servers repeat the whole name in each piece."""
    return piece[len(name) :] if piece.startswith(name) else piece


def _continues(call: Call, piece: Piece) -> bool:
    """Whether a piece with the same name goes on with arguments that are not whole yet."""
    if piece.name != call.name or not call.size or not piece.text or call.is_whole():
        return False
    return not piece.text.lstrip().startswith("{")


def _repeats(call: Call, piece: Piece) -> bool:
    """Whether a piece has the arguments of a call again, which are complete."""
    if piece.name not in ("", call.name) or not call.is_whole():
        return False
    if piece.call_id and call.provider_id and piece.call_id != call.provider_id:
        return False
    if piece.value:
        return call.says(piece.value)
    return bool(piece.text) and call.repeats(piece.text)
