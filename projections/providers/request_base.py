"""Shared by all formats: reading rows, unique ids of tool calls, texts for what has no place.

A format is a pure function of the selected rows, in order: the leading system part, then messages.
Each assistant row with calls is followed directly by one tool row for each call. The same rows give
the same bytes: key order is fixed, and formats use no clock and no random ids.

Providers require tool call ids to be unique within a request, but do not issue unique ids. Here,
each call gets its own id, and its result the same one. A provider's id is kept if possible, so that
the same message is sent again with the same bytes; otherwise it is replaced by an id made from the
position of the call in the log.

If a provider's rules require a message that nobody wrote, a format adds its own text. Such texts
are addressed to the model, and claim nothing untrue. They are not stored; changing one changes the
bytes of later requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eventstore.errors import RowDamaged
from projections.context import prompts
from projections.context.payload_messages import is_blank, scrub, strict_json, strict_object
from projections.context.rows import ContextRow
from projections.providers.provider_limits import LIMITS

__all__ = [
    "AUDIO",
    "CLOSING",
    "EMPTY_USER",
    "NOTHING_YET",
    "NO_USER",
    "OUTCOMES",
    "SELLERS_OF_GEMINI",
    "Additions",
    "Format",
    "Json",
    "Wire",
    "arguments_of",
    "by",
    "call_ids",
    "compacted_for",
    "is_blank",
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
EMPTY_USER = prompts.EMPTY_USER
AUDIO = prompts.AUDIO

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
"""The first lines of the texts in `projections.context.prompts` for results, and the outcomes."""

_FIELDS = {
    "anthropic_messages": ("system", "messages"),
    "openai_responses": ("instructions", "input"),
}
_FRONT = ("system", "notebook")
# Anthropic, "Extended thinking" (2025): signatures are compatible across these platforms.
_SELLERS_OF_CLAUDE = frozenset(
    {"anthropic", "amazon-bedrock", "aws", "azure", "bedrock", "google-vertex", "vertex"}
)
SELLERS_OF_GEMINI = frozenset({"gemini", "google", "google-vertex", "vertex"})


def call_ids(rows: Sequence[ContextRow], specification: str) -> list[tuple[str, ...]]:
    """Return for each row the ids to send: those of its calls, or of the call that it answers.

    Raises:
        RowDamaged: The part of a tool row is not the position of a call.
    """
    used: set[str] = set()
    open_ids: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    accepted = LIMITS[specification].call_id.fullmatch
    for row in rows:
        if row.kind == "tool":
            if not 0 < row.part <= len(open_ids):
                raise RowDamaged("a result without a call")
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
    """Return a system message as text for a user's turn, marked as not written by the user."""
    return f"<system_note>\n{text.strip()}\n</system_note>"


def by(name: str, text: str) -> str:
    """Return a text with its author's name in front, for formats without a field for names."""
    return f"{name}: {text}" if text else f"{name}:"


@dataclass(frozen=True, slots=True)
class Wire:
    """The messages of a request in one provider's format.

    Attributes:
        specification: Name of the format.
        messages: The messages to send; for OpenAI's Responses, the input items.
        system: The system part, if the provider has a separate field for it; None if it is in
            ``messages``, or if there is none.
        added: The texts that the format added to those of the rows, for counting tokens.
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
    """The most that a format may add to the texts of the rows.

    Known before rows are selected, so that the selection does not depend on what is added to it.

    Attributes:
        once: Texts that a request may contain, each of them once.
        notes: Kinds of rows whose texts are sent as a note.
        note: The text that a note adds.
    """

    once: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()
    note: str = ""


class Format(Protocol):
    """Writes rows in one format; ``provider`` is the provider that will be called, if known.

    Content that a provider made for its own use (thinking with its signature, encrypted reasoning)
    is returned only in the same specification and, if both are named, to the same provider.
    """

    def __call__(self, rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
        """Return the rows in this format."""


def split_front(
    rows: Iterable[ContextRow],
) -> tuple[tuple[ContextRow, ...], tuple[ContextRow, ...]]:
    """Return the leading rows, which are the system part, and all others."""
    all_rows = tuple(rows)
    end = next((i for i, row in enumerate(all_rows) if row.kind not in _FRONT), len(all_rows))
    return all_rows[:end], all_rows[end:]


def system_text(front: Sequence[ContextRow]) -> str | None:
    """Return the system part as one text, or None if it is empty."""
    texts = [text_in(row.message) for row in front]
    return "\n\n".join(text for text in texts if text.strip()) or None


def parts_of(message: Json) -> list[Json]:
    """Return the content of a chat message as parts; an empty list for null or an empty text."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def text_in(message: Json) -> str:
    """Return the text of a chat message, including that of a refusal."""
    texts = [part["text"] for part in parts_of(message) if isinstance(part.get("text"), str)]
    return "\n".join(text for text in (*texts, message.get("refusal")) if text)


def native_for(row: ContextRow, specification: str, provider: str | None) -> Json | None:
    """Return the row's content in a provider's own form if this provider accepts it, else None."""
    native = row.native
    if native is None or native.get("specification") != specification:
        return None
    maker = native.get("provider")
    if provider is None or maker is None or provider == maker:
        return native
    same = (_SELLERS_OF_CLAUDE, SELLERS_OF_GEMINI)
    return native if any({provider, maker} <= sellers for sellers in same) else None


def compacted_for(row: ContextRow, specification: str, provider: str | None) -> bool:
    """Whether a row holds a compaction, which for this provider replaces everything before it."""
    if not row.native_tokens or row.kind != "assistant":
        return False
    blocks = (native_for(row, specification, provider) or {}).get("content", ())
    return any(block.get("type") == "compaction" for block in blocks)


def outcome(row: ContextRow) -> str:
    """Return the outcome of a tool call: its status, or missing, withdrawn, not_shown.

    A shortened row has lost its status; the first line of its text tells the outcome.
    """
    status = (row.native or {}).get("status")
    if isinstance(status, str):
        return status
    return OUTCOMES.get(text_in(row.message).split("\n", 1)[0], "success")


def arguments_of(text: str) -> Json | None:
    """Return arguments as an object, or None if they are not an object in strict JSON."""
    value = strict_object(text)
    return None if value is None else scrub(value)
