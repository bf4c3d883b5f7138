"""What every format of the messages[] view shares: its answer, and how it looks at rows.

A format is a pure function of the chosen rows, in order: leading system part, then messages, each
assistant row with calls followed at once by one tool row for each call. The same rows give the
same bytes: key order is fixed, and nothing here reads a clock or makes a random id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from projections.context.content import scrub
from projections.context.rows import ContextRow
from projections.context.wire import words

__all__ = [
    "Additions",
    "Format",
    "Json",
    "Wire",
    "arguments_of",
    "native_for",
    "outcome",
    "parts_of",
    "split_front",
    "system_text",
    "text_in",
]

Json = dict[str, Any]

_FIELDS = {
    "anthropic_messages": ("system", "messages"),
    "openai_responses": ("instructions", "input"),
}
_FRONT = ("system", "notebook")
# Anthropic, "Extended thinking" (2025): signatures are compatible across these platforms.
_SELLERS_OF_CLAUDE = frozenset(
    {"anthropic", "amazon-bedrock", "aws", "azure", "bedrock", "google-vertex", "vertex"}
)


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


def outcome(row: ContextRow) -> str:
    """Return what became of a tool call: a status, or missing, withdrawn, not_shown.

    A shortened row has lost its status, and is told by the words that stand for it.
    """
    status = (row.native or {}).get("status")
    if isinstance(status, str):
        return status
    return words.OUTCOMES.get(text_in(row.message).split("\n", 1)[0], "success")


def arguments_of(text: str) -> Json | None:
    """Return arguments as the object that they are, or None if they are none in strict JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return scrub(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is no value of JSON")


def _finite(token: str) -> float:
    value = float(token)
    if abs(value) == float("inf"):
        raise ValueError(f"{token[:40]} is out of range")
    return value
