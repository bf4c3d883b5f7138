"""A row's lower levels of detail, and its tokens for a model.

Rows store the token count of one encoding. Counts of other encodings are stored in the table
``token_counts``: one query returns the counts of many rows, and missing ones are counted once (see
`projections.tokens.counts`).

The fold writes only the columns of a message; lower levels are computed when a request needs them,
see `projections.context.levels`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any

from eventstore.events import Sections
from eventstore.events.content import to_plain_text
from projections.context.compression.facts import Fact
from projections.context.compression.items import Item, Message, text_of
from projections.context.compression.shortening import Preview
from projections.context.counting import ENCODING
from projections.context.levels import Lower, lower
from projections.context.payload_messages import screen_of
from projections.context.plans import Group
from projections.context.prompts import EXCLUDED_RESULT
from projections.context.rows import ContextRow, counted
from projections.tokens import Count, Tokenizer, count_message, counts, tokenizer_for
from projections.tokens.text import WINDOW

__all__ = [
    "GroupItem",
    "added",
    "ahead",
    "composed",
    "detailed",
    "digest",
    "item_of",
    "made_row",
    "of",
    "plain",
    "shortened",
    "total",
    "without_result",
]

_estimate = attrgetter("tokens", "tokens_margin")
_BEFORE_A_NUMBER = re.compile(r"\n(?=[0-9])")
_TOKENIZER = tokenizer_for(ENCODING)

_PLAIN: dict[str, Any] = dict.fromkeys(("given", "result"))


def of(rows: Sequence[ContextRow], tokenizer: Tokenizer) -> list[Count]:
    """Return the tokens of each row's message within a request, in the order of the rows."""
    others = [row.message for row in rows if row.encoding != tokenizer.name]
    counted = iter(counts.count_all(others, tokenizer))
    return [
        tokenizer.widen(row.count) if row.encoding == tokenizer.name else next(counted)
        for row in rows
    ]


def added(rows: Sequence[ContextRow], tokenizer: Tokenizer, start: Count) -> Count:
    """Return the sum of ``start`` and the tokens of the rows' messages."""
    name = tokenizer.name if tokenizer.exact else None
    others, exact, counted = [], 0, True
    for row in rows:
        if row.encoding != name:
            counted = False
            others.append(row)
        elif row.tokens_exact:
            exact += row.tokens
        else:
            others.append(row)
    known = start + Count(exact)
    if not (counted and others):
        return sum(of(others, tokenizer), known)
    return known.plus(map(_estimate, others))


def total(rows: Sequence[ContextRow], tokenizer: Tokenizer) -> int:
    """Return the sum of the tokens of the rows' messages."""
    tokens = 0
    for row in rows:
        if row.encoding != tokenizer.name:
            return sum(count.tokens for count in of(rows, tokenizer))
        tokens += row.tokens
    return tokens


def composed(text: str, tokenizer: Tokenizer) -> Count:
    """Return the tokens of a system message composed for requests; cached, not stored.

    The same text is sent in many requests: the system part, the messages recalled in a turn.
    """
    return tokenizer.widen(_composed(text, tokenizer.plain))


@lru_cache(maxsize=512)
def _composed(text: str, tokenizer: Tokenizer) -> Count:
    return counts.count({"role": "system", "content": text}, tokenizer)


def made_row(
    text: str, count: Count, tokenizer: Tokenizer, place: tuple[int, int], versions: Iterable[int]
) -> ContextRow:
    """Return the row of a system message that a request composes from events, at a place."""
    version, part = place
    return ContextRow(
        version=version,
        part=part,
        role="system",
        kind="summary",
        source_versions=sorted(set(versions)),
        **counted({"role": "system", "content": text}, count, tokenizer.name),
    )


def digest(text: str, tokenizer: Tokenizer) -> Count:
    """Return the tokens of a digest, a system message that shares most lines with earlier digests.

    Each line is tokenized once: no token spans a line end that a digit follows.
    """
    return tokenizer.widen(_digest(text, tokenizer.plain))


@lru_cache(maxsize=512)
def _digest(text: str, tokenizer: Tokenizer) -> Count:
    lines = _BEFORE_A_NUMBER.split(text)
    ends = [_line(f"{line}\n", tokenizer) for line in lines[:-1]]
    total = sum((*ends, _line(lines[-1], tokenizer)), Count(0))
    # The tokenizer cuts long texts at other places too, and counts halves of characters together.
    if not total.exact or max(map(len, lines)) >= WINDOW:
        return _composed(text, tokenizer)
    return count_message({"role": "system", "content": ""}, tokenizer) + total


@lru_cache(maxsize=1 << 12)
def _line(line: str, tokenizer: Tokenizer) -> Count:
    return tokenizer.count(line)


def ahead(rows: Iterable[ContextRow], tokenizer: Tokenizer, page: int) -> Iterator[ContextRow]:
    """Yield the rows, and look up the stored counts of each page of them in one query.

    Counts nothing: a row whose count is never needed is never tokenized.
    """
    source = iter(rows)
    while some := list(islice(source, page)):
        sent = [row.table or row for row in some]
        counts.recall([row.message for row in sent if row.encoding != tokenizer.name], tokenizer)
        yield from some


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a message without lower levels of detail."""
    return {"message": message, **_PLAIN}


def detailed(
    message: dict[str, Any], sections: Sections | None = None, preview: Preview | None = None
) -> dict[str, Any]:
    """Return the columns of a message that a request may need at a lower level of detail.

    Args:
        message: The message.
        sections: The product's own texts for each level.
        preview: For a tool's output, the tool, status and path that its shorter form shows.
    """
    given = {}
    if sections is not None and sections.summary is not None:
        given["shortened"] = to_plain_text(sections.summary)
    elif (screen := screen_of(sections)) and isinstance(message["content"], str):
        given["shortened"] = message["content"].removesuffix(screen)
    if sections is not None and sections.gist is not None:
        given["facts"] = to_plain_text(sections.gist)
    result = None
    if preview is not None:
        result = {"tool": preview.tool, "status": preview.status, "path": preview.path}
    return {"message": message, "given": given or None, "result": result}


def shortened(row: ContextRow) -> ContextRow:
    """Return the row at the level ``shortened``; the same row if it has no shorter form.

    The returned row has no shorter form: it is already shortened.
    """
    if row.short is None:
        row.note("short", _shortened(row, lower(row)))
    short: ContextRow = row.short
    return short


def _shortened(row: ContextRow, shorter: Lower) -> ContextRow:
    if shorter.shortened is None:
        return row
    short = row.with_(message=shorter.shortened, tokens=shorter.tokens, native=None)
    short.note("noted", Lower(facts=shorter.facts))
    return short


def without_result(row: ContextRow) -> ContextRow:
    """Return a tool row that only says that its result is not shown; other rows unchanged."""
    if row.kind != "tool":
        return row
    message = {**row.message, "content": EXCLUDED_RESULT}
    measured = plain(message) | counted(message, counts.count(message, _TOKENIZER), ENCODING)
    return row.with_(**measured, native=None, native_tokens=0, sealed=True)


class GroupItem(Item):
    """A group as strategies see it; its texts are built when a strategy first reads them."""

    __slots__ = ("_rows", "_text")

    def __init__(self, group: Group, tokenizer: Tokenizer, relevance: float = 0.0) -> None:
        """Create the item of a group; ``relevance`` says how well it answers the intent."""
        rows = group.rows
        tokens = group.tokens
        lowers = [lower(row) for row in rows]
        for found in lowers:
            if found.shortened is not None:
                pairs = zip(group.native, lowers, strict=False)
                lasting = sum(native for native, each in pairs if each.shortened is None)
                tokens = min(tokens, _shorter_tokens(rows, lowers, tokenizer) + lasting)
                break
        for name, value in (
            ("_rows", rows),
            ("key", group.key),
            ("kind", rows[0].kind),
            ("tokens", group.tokens),
            ("shorter_tokens", tokens),
            ("mandatory", "" if group.yields else group.label),
            ("relevance", relevance),
            ("worth", None),
        ):
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """The text of all messages in full, built once."""
        text: str = self._text
        return text

    def __getattr__(self, name: str) -> Any:
        """Build an attribute when it is first read."""
        make = _MADE.get(name)
        if make is None:
            raise AttributeError(name)
        value = make(self)
        object.__setattr__(self, name, value)
        return value


def item_of(group: Group, tokenizer: Tokenizer, relevance: float = 0.0) -> Item:
    """Return the item of a group; cached in the group, which belongs to one tokenizer."""
    if relevance:
        return GroupItem(group, tokenizer, relevance)
    if group.item is None:
        group.note("item", GroupItem(group, tokenizer))
    assert group.item is not None  # noqa: S101 - noted
    return group.item


def _shorter_tokens(
    rows: Sequence[ContextRow], lowers: Sequence[Lower], tokenizer: Tokenizer
) -> int:
    if all(row.encoding == tokenizer.name for row in rows):
        pairs = zip(rows, lowers, strict=True)
        return sum(row.tokens if each.tokens is None else each.tokens for row, each in pairs)
    return total([shortened(row) for row in rows], tokenizer)


def _messages(item: GroupItem) -> tuple[Message, ...]:
    return tuple(row.message for row in item._rows)


def _text(item: GroupItem) -> str:
    return text_of(item.messages)


def _shorter(item: GroupItem) -> tuple[Message, ...] | None:
    if item.shorter_tokens == item.tokens:
        return None
    return tuple(lower(row).shortened or row.message for row in item._rows)


def _facts(item: GroupItem) -> tuple[Fact, ...]:
    found = {fact.text: fact for row in item._rows for fact in lower(row).facts}
    return tuple(found.values())


def _digest_text(item: GroupItem) -> str | None:
    given = (row.given.get("facts") for row in item._rows if row.given)
    return "\n".join(filter(None, given)) or None


def _label(item: GroupItem) -> str:
    first = item._rows[0]
    names = [call["function"]["name"] for call in first.message.get("tool_calls", ())]
    return f"{first.version} {' '.join(names) or first.kind}"


_MADE: dict[str, Callable[[GroupItem], Any]] = {
    "messages": _messages,
    "_text": _text,
    "shorter": _shorter,
    "facts": _facts,
    "digest_text": _digest_text,
    "label": _label,
}
