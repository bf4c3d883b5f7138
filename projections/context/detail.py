"""The columns that hold a message at every level of detail, made once, when it is folded.

What the product wrote for a level (document 004, ``sections``) goes before what is made here. A
row holds no level that is not shorter than the one above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eventstore.events import Sections
from eventstore.tokens import Tokenizer
from projections.compression.facts import Fact, FactKind, lasting_facts
from projections.compression.items import Item, Message
from projections.compression.shortening import Preview, shorten
from projections.context import counts
from projections.context.budget import Group
from projections.context.limits import chars_of
from projections.context.prompts import EXCLUDED_RESULT
from projections.context.rows import ContextRow, counted

__all__ = ["GroupItem", "detailed", "plain", "shortened", "without_result"]

_LETTERS: dict[FactKind, str] = {"identifier": "i", "name": "n", "phrase": "p", "term": "t"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}

_PLAIN: dict[str, Any] = dict.fromkeys(("shorter", "shorter_tokens", "facts", "names", "gist"))


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a message that is sent as it is, or not at all."""
    return counted(message) | _PLAIN


def detailed(
    message: dict[str, Any], sections: Sections | None = None, preview: Preview | None = None
) -> dict[str, Any]:
    """Return the columns of a message in OpenAI's chat format, with its lower levels of detail.

    Args:
        message: The message.
        sections: What the product wrote for each level.
        preview: Of a tool's output, what stands with its shorter form.
    """
    columns = plain(message)
    shorter = shorten(message, preview)
    if sections is not None and sections.summary is not None:
        shorter = {**message, "content": _text(sections.summary)}
    if shorter is not None:
        tokens = counted(shorter)["tokens"]
        if tokens < columns["tokens"] and chars_of(shorter) <= chars_of(message):
            columns |= {"shorter": shorter, "shorter_tokens": tokens}
    facts = lasting_facts((message,), (columns["shorter"] or message,))
    if facts:
        columns["facts"] = "\n".join(_LETTERS[fact.kind] + fact.text for fact in facts)
    if "tool_calls" in message:
        columns["names"] = " ".join(call["function"]["name"] for call in message["tool_calls"])
    if sections is not None and sections.gist is not None:
        columns["gist"] = _text(sections.gist)
    return columns


def shortened(row: ContextRow) -> ContextRow:
    """Return a row at less detail; the same one if it has no shorter form."""
    if row.shorter is None or row.shorter_tokens is None:
        return row
    return row.with_(message=row.shorter, tokens=row.shorter_tokens, native=None)


def without_result(row: ContextRow) -> ContextRow:
    """Return a row that says of a tool's result only that it is not shown; others as they are."""
    if row.kind != "tool":
        return row
    hidden = {**plain({**row.message, "content": EXCLUDED_RESULT}), "native": None}
    return row.with_(**hidden, native_tokens=0, sealed=True)


class GroupItem(Item):
    """A group as a strategy sees it; its texts are looked at when a strategy asks for them."""

    __slots__ = ("_rows",)

    def __init__(self, group: Group, tokenizer: Tokenizer, relevance: float = 0.0) -> None:
        """Take the sizes of a group, and how well it answers the intent."""
        rows = group.rows
        tokens = group.tokens
        if any(row.shorter_tokens is not None for row in rows):
            tokens = min(tokens, _shorter_tokens(rows, tokenizer) + group.lasting)
        for name, value in (
            ("_rows", rows),
            ("key", group.key),
            ("kind", rows[0].kind),
            ("tokens", group.tokens),
            ("shorter_tokens", tokens),
            ("mandatory", "" if group.yields else group.label),
            ("relevance", relevance),
        ):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Make what was not asked for yet."""
        make = _MADE.get(name)
        if make is None:
            raise AttributeError(name)
        value = make(self)
        object.__setattr__(self, name, value)
        return value


def _shorter_tokens(rows: tuple[ContextRow, ...], tokenizer: Tokenizer) -> int:
    if all(row.encoding == tokenizer.name for row in rows):
        return sum(row.tokens if row.shorter_tokens is None else row.shorter_tokens for row in rows)
    return counts.total([shortened(row) for row in rows], tokenizer)


def _messages(item: GroupItem) -> tuple[Message, ...]:
    return tuple(row.message for row in item._rows)


def _shorter(item: GroupItem) -> tuple[Message, ...] | None:
    if item.shorter_tokens == item.tokens:
        return None
    return tuple(row.shorter or row.message for row in item._rows)


def _facts(item: GroupItem) -> tuple[Fact, ...]:
    found = {
        held[1:]: Fact(held[1:], _KINDS[held[0]])
        for row in item._rows
        if row.facts
        for held in row.facts.split("\n")
    }
    return tuple(found.values())


def _gist(item: GroupItem) -> str | None:
    return "\n".join(row.gist for row in item._rows if row.gist) or None


def _label(item: GroupItem) -> str:
    first = item._rows[0]
    return f"{first.version} {first.names or first.kind}"


_MADE: dict[str, Callable[[GroupItem], Any]] = {
    "messages": _messages,
    "shorter": _shorter,
    "facts": _facts,
    "gist": _gist,
    "label": _label,
}


def _text(sections: tuple[Any, ...]) -> str:
    return "\n\n".join(
        f"# {section.key}\n{section.text}" if section.key else section.text for section in sections
    )
