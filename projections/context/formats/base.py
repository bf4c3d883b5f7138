"""Common parts of the formats: rows to messages, unique ids of tool calls, added texts.

A format is a pure function of the chosen rows in order: the leading system part, then messages, in
which each assistant row with calls is immediately followed by one tool row per call. The same rows
give the same bytes: key order is fixed, and no clock or random id is used.

Every provider requires tool call ids that are unique within a request, but none guarantees it for
its own. So each call gets a unique id here, and its result the same one. A provider's id is kept if
possible, so that requests repeat earlier bytes; otherwise an id is derived from the call's place in
the log.

If a provider's rules require a message that does not exist, formats add a text. These texts address
the model and state only facts. They are stored nowhere; changing one changes the bytes of later
requests.
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
"""The first lines in `projections.context.prompts` that replace results, and their meaning."""

_FIELDS = {
    "anthropic_messages": ("system", "messages"),
    "openai_responses": ("instructions", "input"),
}
_FRONT = ("system", "notebook")
# Anthropic, "Extended thinking" (2025): signatures are compatible across these platforms.
_SELLERS_OF_CLAUDE = frozenset(
    {"anthropic", "amazon-bedrock", "aws", "azure", "bedrock", "google-vertex", "vertex"}
)


# The ids that a provider accepts must match the pattern in full.
# OpenAI's chat endpoint answers "string_above_max_length" beyond 40 (observed, 2024 and 2025).
OPENAI_CHAT = re.compile(r"[A-Za-z0-9_-]{1,40}")
# OpenAI, API reference "Create a model response" (2025): call_id has 1 to 64 characters.
OPENAI_RESPONSES = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Anthropic, API reference "Create a Message" (2025): ^[a-zA-Z0-9_-]+$; ours end at 64.
ANTHROPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")


def call_ids(rows: Sequence[ContextRow], rule: re.Pattern[str]) -> list[tuple[str, ...]]:
    """Return for each row its ids in the request: of its calls, or of the call that it answers.

    Raises:
        RowDamaged: A tool row has no place among the calls.
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
    """Return a system message as text for a user's turn, marked as not from the user."""
    return f"<system_note>\n{text.strip()}\n</system_note>"


def by(name: str, text: str) -> str:
    """Return a text with its author, for formats without names."""
    return f"{name}: {text}" if text else f"{name}:"


@dataclass(frozen=True, slots=True)
class Wire:
    """A view in one provider's format.

    Attributes:
        specification: The name of the format.
        messages: The messages, or the input items of OpenAI's Responses.
        system: The system part if the provider wants it separately; None if it is among
            ``messages``, or does not exist.
        added: Texts that the format added to those of the rows, for counting.
    """

    specification: str
    messages: tuple[Json, ...]
    system: str | None = None
    added: tuple[str, ...] = ()

    @property
    def body(self) -> Json:
        """The fields of the request body, under the provider's names, in a fixed order."""
        apart, listed = _FIELDS.get(self.specification, ("system", "messages"))
        front = {} if self.system is None else {apart: self.system}
        return {**front, listed: list(self.messages)}


@dataclass(frozen=True, slots=True)
class Additions:
    """The most that a format may add to the texts of the rows.

    Known before rows are chosen, so that the choice does not depend on the additions.

    Attributes:
        once: Texts that a request may contain, each at most once.
        notes: The kinds of rows whose texts are wrapped in a note.
        note: What a note adds to its text.
    """

    once: tuple[str, ...] = ()
    notes: frozenset[str] = frozenset()
    note: str = ""


class Format(Protocol):
    """Writes rows in one format for ``provider``, the provider that will be called, if known.

    Content for one provider only (thinking with its signature, encrypted reasoning) is returned
    only in the same specification, and to the same provider if both are named.
    """

    def __call__(self, rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
        """Return the rows in this format."""


def split_front(
    rows: Iterable[ContextRow],
) -> tuple[tuple[ContextRow, ...], tuple[ContextRow, ...]]:
    """Return the leading rows of the system part, and all other rows."""
    held = tuple(rows)
    end = next((i for i, row in enumerate(held) if row.kind not in _FRONT), len(held))
    return held[:end], held[end:]


def system_text(front: Sequence[ContextRow]) -> str | None:
    """Return the system part as one text, or None if it is empty."""
    texts = [text_in(row.message) for row in front]
    return "\n\n".join(text for text in texts if text.strip()) or None


def parts_of(message: Json) -> list[Json]:
    """Return the content of a chat message as parts; empty for null and for an empty text."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def text_in(message: Json) -> str:
    """Return the text of a chat message, including the text of a refusal."""
    texts = [part["text"] for part in parts_of(message) if isinstance(part.get("text"), str)]
    return "\n".join(text for text in (*texts, message.get("refusal")) if text)


def native_for(row: ContextRow, specification: str, provider: str | None) -> Json | None:
    """Return the row's content for this provider only, or None."""
    native = row.native
    if native is None or native.get("specification") != specification:
        return None
    maker = native.get("provider")
    if provider is None or maker is None or provider == maker:
        return native
    return native if {provider, maker} <= _SELLERS_OF_CLAUDE else None


def compacted_for(row: ContextRow, specification: str, provider: str | None) -> bool:
    """Whether a row holds this provider's compaction of everything before it."""
    if not row.native_tokens or row.kind != "assistant":
        return False
    blocks = (native_for(row, specification, provider) or {}).get("content", ())
    return any(block.get("type") == "compaction" for block in blocks)


def outcome(row: ContextRow) -> str:
    """Return the outcome of a tool call: a status, or missing, withdrawn, not_shown.

    A shortened row has no status, which is then derived from the first line of its text.
    """
    status = (row.native or {}).get("status")
    if isinstance(status, str):
        return status
    return OUTCOMES.get(text_in(row.message).split("\n", 1)[0], "success")


def arguments_of(text: str) -> Json | None:
    """Return arguments as an object, or None if they are not an object in strict JSON."""
    try:
        value = strict_json(text)
        return scrub(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def strict_json(text: str) -> Any:
    """Return the value of a JSON text in which all numbers are finite.

    Raises:
        ValueError: The text is not valid.
        RecursionError: It is nested too deeply.
    """
    return _STRICT.decode(text)


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not a JSON value")


def _finite(token: str) -> float:
    value = float(token)
    if abs(value) == float("inf"):
        raise ValueError(f"{token[:40]} is out of range")
    return value


# Created once, because `json.loads` would create a decoder for every call.
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
