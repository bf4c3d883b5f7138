"""The groups of a conversation, each at four levels of detail, from which a strategy selects.

An item is a group of messages that stay together: an assistant message with the results of its
calls, or any other single message. It can be sent ``full`` (unchanged), ``shortened`` (the same
messages with shorter contents), as its ``facts`` (one line of a digest), or not at all
(``dropped``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from projections.context.compression.facts import Fact, calls_of, texts_of
from projections.context.compression.lasting import facts_to_keep
from projections.context.compression.shortening import shorten
from projections.tokens import Tokenizer, count_message

__all__ = ["LEVELS", "SUMMARIES", "Item", "Level", "Message", "items_of", "section_of", "text_of"]

Message = Mapping[str, Any]
Level = Literal["full", "shortened", "facts", "dropped"]
SUMMARIES = ("CONVERSATION_SUMMARY", "CONVERSATION_DIGEST", "SUMMARY")
"""How a system message begins that replaces earlier messages."""

_SECTIONS = {"user": "user", "summary": "summaries"}
LEVELS: tuple[Level, ...] = ("full", "shortened", "facts", "dropped")


@dataclass(frozen=True, slots=True)
class Item:
    """One group of messages. Every sequence of items is ordered oldest first.

    Attributes:
        key: Its position in the conversation, ascending: version and part of its first message.
        kind: ``user``, ``assistant``, ``error``, ``summary``, or another kind.
        messages: The unchanged messages, in OpenAI's chat format.
        tokens: Tokens of ``messages``.
        shorter: The same messages in less detail; None if there is no shorter form.
        shorter_tokens: Tokens of ``shorter``; always ``tokens`` if there is no shorter form.
        facts: The facts for its line in the digest, in the order of the messages.
        told: The text of that line instead of facts, if the product supplied one.
        label: The beginning of that line.
        mandatory: Why it must be sent in full, for errors and the ledger; otherwise empty.
        relevance: How well it answers the intent, from 0.0; set for strategies that retrieve.
        worth: The parts of its score except recency, once computed; see `scoring`.
    """

    key: tuple[int, int]
    kind: str
    messages: tuple[Message, ...]
    tokens: int
    shorter: tuple[Message, ...] | None = None
    shorter_tokens: int = 0
    facts: tuple[Fact, ...] = ()
    digest_text: str | None = None
    label: str = ""
    mandatory: str = ""
    relevance: float = 0.0
    worth: tuple[tuple[str, int], ...] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Without a shorter form, it takes all of its tokens at the level ``shortened`` too."""
        if self.shorter is None:
            object.__setattr__(self, "shorter_tokens", self.tokens)
        elif not self.shorter_tokens:
            raise ValueError("an item with a shorter form needs its shorter_tokens")

    def note_worth(self, worth: tuple[tuple[str, int], ...]) -> None:
        """Cache the parts of its score except recency; comparisons ignore them."""
        object.__setattr__(self, "worth", worth)

    @property
    def has_shorter(self) -> bool:
        """Whether there is a shorter form; does not create it."""
        return self.shorter_tokens < self.tokens

    @property
    def section(self) -> str:
        """The section that it belongs to, unless it is a line of the digest."""
        return section_of(self.kind, len(self.messages))

    @property
    def text(self) -> str:
        """The text of the unchanged messages, for scoring."""
        return text_of(self.messages)


def text_of(messages: Iterable[Message]) -> str:
    """Return the text of messages: contents, and names and arguments of tool calls."""
    return "\n".join(_texts(messages))


def section_of(kind: str, messages: int) -> str:
    """Return the section of a group, given its kind and its number of messages."""
    if kind in _SECTIONS:
        return _SECTIONS[kind]
    return "tools" if messages > 1 else "assistant"


def items_of(messages: Iterable[Message], tokenizer: Tokenizer) -> list[Item]:
    """Return the items of plain messages, for use without a store.

    The key of an item is the position of its first message, from 1. The first and the latest user
    message are mandatory, and so are system messages, except summaries.
    """
    groups = list(_groups(list(messages)))
    users = [place for place, group in groups if group[0].get("role") == "user"]
    duties = dict.fromkeys(users[-1:], "latest user message")
    duties |= dict.fromkeys(users[:1], "first user message")
    return [
        _item(place, group, tokenizer, duties.get(place, _duty(group))) for place, group in groups
    ]


def _groups(messages: list[Message]) -> Iterator[tuple[int, list[Message]]]:
    place = 0
    while place < len(messages):
        end = place + 1
        if messages[place].get("role") == "assistant":
            while end < len(messages) and messages[end].get("role") == "tool":
                end += 1
        yield place + 1, messages[place:end]
        place = end


def _duty(group: Sequence[Message]) -> str:
    return "system part" if _kind(group) in ("system", "developer") else ""


def _kind(group: Sequence[Message]) -> str:
    role = str(group[0].get("role"))
    text = "".join(texts_of(group[0])) if role == "system" else ""
    return "summary" if text.startswith(SUMMARIES) else role


def _item(place: int, group: Sequence[Message], tokenizer: Tokenizer, mandatory: str) -> Item:
    tokens = sum(count_message(message, tokenizer).tokens for message in group)
    short = [shorten(message) or message for message in group]
    short_tokens = sum(count_message(message, tokenizer).tokens for message in short)
    return Item(
        key=(place, 0),
        kind=_kind(group),
        messages=tuple(group),
        tokens=tokens,
        shorter=tuple(short) if short_tokens < tokens else None,
        shorter_tokens=min(short_tokens, tokens),
        facts=facts_to_keep(group, short),
        label=" ".join((str(place), *_names(group))),
        mandatory=mandatory,
    )


def _names(group: Sequence[Message]) -> list[str]:
    return [name for name, _ in calls_of(group[0])] or [str(group[0].get("role"))]


def _texts(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        yield from texts_of(message)
        yield from (f"{name} {arguments}" for name, arguments in calls_of(message))
