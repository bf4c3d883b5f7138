"""What the formats share: rows to messages, unique ids of tool calls, words for what has no place.

A format is a pure function of the chosen rows, in order: leading system part, then messages, each
assistant row with calls followed at once by one tool row for each call. The same rows give the
same bytes: key order is fixed, and nothing here reads a clock or makes a random id.

Every provider demands ids of tool calls that are unique within a request, and none makes them so:
here each call gets an id of its own, and its result the same one. A provider's id is kept where
that is possible, so that what was sent once is sent again to the byte; any other is replaced by one
made of the call's place in the log.

Where a provider's rules ask for a message that nobody wrote, formats add words of their own. They
are written for the model that reads them, and say no more than is true. They are stored nowhere;
changing one changes the bytes of later requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from eventstore.errors import RowDamaged
from projections.context.content import scrub
from projections.context.rows import ContextRow

__all__ = [
    "ANTHROPIC",
    "AUDIO",
    "CLOSING",
    "EMPTY_USER",
    "NOTHING_YET",
    "NO_USER",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "OUTCOMES",
    "Additions",
    "Format",
    "Json",
    "Wire",
    "arguments_of",
    "by",
    "call_ids",
    "compacted_for",
    "native_for",
    "note",
    "outcome",
    "parts_of",
    "split_front",
    "strict_json",
    "system_text",
    "text_in",
]

Json = dict[str, Any]

NOTHING_YET = "<system_note>\nThe conversation has no messages yet.\n</system_note>"
NO_USER = "<system_note>\nNo user message stands before the assistant's.\n</system_note>"
CLOSING = "<system_note>\nThe conversation stops here. Continue it.\n</system_note>"
EMPTY_USER = "[empty message]"
AUDIO = "[audio]"

OUTCOMES = {
    "TOOL_FAILED": "failed",
    "TOOL_DENIED": "denied",
    "TOOL_SKIPPED": "skipped",
    "TOOL_NOT_STARTED": "not_started",
    "TOOL_OUTCOME_UNKNOWN": "outcome_unknown",
    "TOOL_RESULT_MISSING": "missing",
    "TOOL_RESULT_WITHDRAWN": "withdrawn",
    "TOOL_RESULT_NOT_SHOWN": "not_shown",
}
"""The first lines of `projections.context.prompts` that stand for results, and their meaning."""

_FIELDS = {
    "anthropic_messages": ("system", "messages"),
    "openai_responses": ("instructions", "input"),
}
_FRONT = ("system", "notebook")
# Anthropic, "Extended thinking" (2025): signatures are compatible across these platforms.
_SELLERS_OF_CLAUDE = frozenset(
    {"anthropic", "amazon-bedrock", "aws", "azure", "bedrock", "google-vertex", "vertex"}
)


# Which ids a provider takes: those that match the pattern as a whole.
# OpenAI's chat endpoint answers "string_above_max_length" beyond 40 (observed, 2024 and 2025).
OPENAI_CHAT = re.compile(r"[A-Za-z0-9_-]{1,40}")
# OpenAI, API reference "Create a model response" (2025): call_id has 1 to 64 characters.
OPENAI_RESPONSES = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Anthropic, API reference "Create a Message" (2025): ^[a-zA-Z0-9_-]+$; ours end at 64.
ANTHROPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_ids(rows: Sequence[ContextRow], rule: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Return for each row the ids on the wire: of its calls, or of the call that it answers.

    Raises:
        RowDamaged: The answer to a call stands at no call's place.
    """
    used: set[str] = set()
    open_ids: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    accepted = rule.fullmatch
    for row in rows:
        if row.kind == "tool":
            if not 0 < row.part <= len(open_ids):
                raise RowDamaged("no place among the calls")
            found.append((open_ids[row.part - 1],))
        elif calls := row.message.get("tool_calls"):
            version, taken = row.version, list[str]()
            for index, call in enumerate(calls):
                wire_id = call["id"]
                if wire_id in used or accepted(wire_id) is None:
                    wire_id = _unused(version, index, used)
                used.add(wire_id)
                taken.append(wire_id)
            open_ids = tuple(taken)
            found.append(open_ids)
        else:
            found.append(())
    return found


def _unused(version: int, index: int, used: set[str]) -> str:
    chosen = own = f"call_{version}_{index}"
    number = 1
    while chosen in used:
        number += 1
        chosen = f"{own}_{number}"
    return chosen


def note(text: str) -> str:
    """Return a system message as text within a user's turn, told apart from what the user said."""
    return f"<system_note>\n{text.strip()}\n</system_note>"


def by(name: str, text: str) -> str:
    """Return a text with who said it, for formats that know no names."""
    return f"{name}: {text}" if text else f"{name}:"


@dataclass(frozen=True, slots=True)
class Wire:
    """A view in one provider's format.

    Attributes:
        specification: Name of the format.
        messages: What is sent: messages, or for OpenAI's Responses the input items.
        system: The system part, where the provider wants it apart; None where it stands in
            ``messages``, and where there is none.
        added: Texts that the format put in beyond those of the rows, for whoever counts.
    """

    specification: str
    messages: tuple[Json, ...]
    system: str | None = None
    added: tuple[str, ...] = ()

    @property
    def body(self) -> Json:
        """The fields of the request body, under the provider's own names, in a fixed order."""
        apart, listed = _FIELDS.get(self.specification, ("system", "messages"))
        front = {} if self.system is None else {apart: self.system}
        return {**front, listed: list(self.messages)}


@dataclass(frozen=True, slots=True)
class Additions:
    """The most that a format may put in beyond the texts of the rows.

    Known before rows are chosen, so that what is chosen does not depend on what is added to it.

    Attributes:
        once: Texts that a request may hold, each of them once.
        notes: Kinds of rows whose texts stand in a note.
        note: What a note adds to its text.
    """

    once: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()
    note: str = ""


class Format(Protocol):
    """Writes rows in one format; ``provider`` is who will be asked, where that is known.

    What a provider made for itself (thinking with its signature, encrypted reasoning) goes back
    only in the same specification, and to the same provider if both are named.
    """

    def __call__(self, rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
        """Return the rows in this format."""


def split_front(
    rows: Iterable[ContextRow],
) -> tuple[tuple[ContextRow, ...], tuple[ContextRow, ...]]:
    """Return the leading rows of the system part, and all others."""
    held = tuple(rows)
    end = next((i for i, row in enumerate(held) if row.kind not in _FRONT), len(held))
    return held[:end], held[end:]


def system_text(front: Sequence[ContextRow]) -> str | None:
    """Return the system part as one text, or None if it says nothing."""
    texts = [text_in(row.message) for row in front]
    return "\n\n".join(text for text in texts if text.strip()) or None


def parts_of(message: Json) -> list[Json]:
    """Return the content of a chat message as parts; none for null and for an empty text."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def text_in(message: Json) -> str:
    """Return the text of a chat message, the words of a refusal included."""
    texts = [part["text"] for part in parts_of(message) if isinstance(part.get("text"), str)]
    return "\n".join(text for text in (*texts, message.get("refusal")) if text)


def native_for(row: ContextRow, specification: str, provider: str | None) -> Json | None:
    """Return what the row holds for exactly this provider, if it does."""
    native = row.native
    if native is None or native.get("specification") != specification:
        return None
    maker = native.get("provider")
    if provider is None or maker is None or provider == maker:
        return native
    return native if {provider, maker} <= _SELLERS_OF_CLAUDE else None


def compacted_for(row: ContextRow, specification: str, provider: str | None) -> bool:
    """Whether a row holds, for exactly this provider, all that was said before it."""
    if not row.native_tokens or row.kind != "assistant":
        return False
    blocks = (native_for(row, specification, provider) or {}).get("content", ())
    return any(block.get("type") == "compaction" for block in blocks)


def outcome(row: ContextRow) -> str:
    """Return what became of a tool call: a status, or missing, withdrawn, not_shown.

    A shortened row has lost its status, and is told by the words that stand for it.
    """
    status = (row.native or {}).get("status")
    if isinstance(status, str):
        return status
    return OUTCOMES.get(text_in(row.message).split("\n", 1)[0], "success")


def arguments_of(text: str) -> Json | None:
    """Return arguments as the object that they are, or None if they are none in strict JSON."""
    try:
        value = strict_json(text)
        return scrub(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def strict_json(text: str) -> Any:
    """Return the value of a JSON text that holds finite numbers alone.

    Raises:
        ValueError: It is no such text.
        RecursionError: It nests too deeply.
    """
    return _STRICT.decode(text)


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON value")


def _finite(token: str) -> float:
    value = float(token)
    if abs(value) == float("inf"):
        raise ValueError(f"{token[:40]} is out of range")
    return value


# Made once: `json.loads` would make a decoder for every call.
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
