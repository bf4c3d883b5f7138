"""`compress`: reduces a list of messages with a strategy, without a store.

Returns the messages that fit, in the order of the conversation, with an account of each group. It
keeps no state. A caller that continues from the compressed messages, instead of compressing the
whole history at each turn, keeps the prefix unchanged until the trigger is passed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from projections.context.compression.items import Item, Level, Message, items_of
from projections.context.compression.monitor import ContextUsage, Thresholds, usage_of
from projections.context.compression.reduction import DIGEST_HEADER, Reduced, digest_text, reduce
from projections.context.compression.retrieval import with_relevance
from projections.context.compression.search import MemorySearch, Search
from projections.context.compression.strategy import Strategy, strategy_of
from projections.tokens import Tokenizer, count_messages, count_tools, tokenizer_for

__all__ = ["Compressed", "Entry", "MakeSearch", "Placed", "assemble", "compress"]

MakeSearch = Callable[[Sequence[Item]], Search]
"""Creates a search over items, for example `MemorySearch` itself."""


class Placed(NamedTuple):
    """Adjacent messages and their item; the item is None for the digest."""

    messages: tuple[Message, ...]
    item: Item | None


def assemble(items: Sequence[Item], reduced: Reduced, header: str = DIGEST_HEADER) -> list[Placed]:
    """Return the messages left of the items, oldest first.

    The facts form one system message, the digest, at the position of the oldest item at ``facts``.

    Args:
        items: The items that were reduced.
        reduced: The result of the reduction.
        header: The start of the digest, the same one that was counted.
    """
    digest = digest_text(items, reduced, header)
    placed: list[Placed] = []
    for item, level in zip(items, reduced.levels, strict=True):
        if level == "full":
            placed.append(Placed(item.messages, item))
        elif level == "shortened":
            placed.append(Placed(item.messages if item.shorter is None else item.shorter, item))
        elif level == "facts" and digest is not None:
            placed.append(Placed(({"role": "system", "content": digest},), None))
            digest = None
    return placed


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one group of messages.

    Attributes:
        first: The position of its first message, from 1.
        count: The number of its messages.
        kind: The role of its first message, or ``summary``.
        level: The level at which it is sent.
        tokens_before: Its tokens in full.
        tokens_after: Its tokens as sent; for facts, those of its line in the digest.
        why: Why it lost detail, or why it could not; empty if no reduction concerned it.
    """

    first: int
    count: int
    kind: str
    level: Level
    tokens_before: int
    tokens_after: int
    why: str


@dataclass(frozen=True, slots=True)
class Compressed:
    """Messages that fit, and how they came about.

    Attributes:
        messages: The messages to send, in OpenAI's chat format; unreduced ones are the given
            objects.
        tokens: The tokens of the request, including tools and the start of the reply.
        usage: The same, in relation to the budget.
        entries: The account, one entry per group, oldest first.
    """

    messages: tuple[Message, ...]
    tokens: int
    usage: ContextUsage
    entries: tuple[Entry, ...]


def compress(
    messages: Iterable[Message],
    *,
    max_tokens: int,
    strategy: str | Strategy = "key_messages",
    model: str = "gpt-4o",
    tools: Sequence[Mapping[str, Any]] = (),
    thresholds: Thresholds | None = None,
    search: Search | MakeSearch | None = None,
) -> Compressed:
    """Return messages that fit into a budget.

    System messages and the first and the latest user message are sent unchanged. A call and its
    results stay together.

    Args:
        messages: A history in OpenAI's chat format, oldest first.
        max_tokens: The limit of the request, including tools and the start of the reply.
        strategy: A strategy or its name.
        model: The model for which to count tokens; see `projections.tokens.tokenizer_for`.
        tools: The tool declarations of the request.
        thresholds: With None, a history over ``max_tokens`` is reduced until it just fits.
            Otherwise it is unchanged up to the trigger, and above it is reduced to the target.
        search: For strategies that retrieve: a search over the items of these messages, or a
            callable that creates one; by default `MemorySearch`.

    Raises:
        BudgetInfeasible: The mandatory messages exceed ``max_tokens``.
        UnknownStrategy: No strategy has this name.
        EncodingNotBundled: The model's encoding is not bundled.
    """
    chosen = strategy_of(strategy)
    tokenizer = tokenizer_for(model)
    items = items_of(messages, tokenizer)
    frame = count_messages((), tokenizer).tokens + count_tools(tools, tokenizer).tokens
    fixed = frame + sum(item.tokens for item in items if item.mandatory)
    before = frame + sum(item.tokens for item in items)
    limit = max_tokens
    if thresholds is not None:
        trigger = thresholds.trigger_tokens(fixed, max_tokens)
        limit = thresholds.target_tokens(fixed, max_tokens) if before > trigger else max_tokens
    reduced = _reduced(items, chosen, search, tokenizer, fixed=frame, limit=limit, before=before)
    sent = tuple(message for placed in assemble(items, reduced) for message in placed.messages)
    tokens = frame - count_messages((), tokenizer).tokens + count_messages(sent, tokenizer).tokens
    usage = usage_of(
        tokens, max_tokens, fixed=fixed, thresholds=thresholds, compressed=before > limit
    )
    return Compressed(sent, tokens, usage, _entries(items, reduced))


def _reduced(
    items: Sequence[Item],
    strategy: Strategy,
    search: Search | MakeSearch | None,
    tokenizer: Tokenizer,
    *,
    fixed: int,
    limit: int,
    before: int,
) -> Reduced:
    intent = next((item.text for item in reversed(items) if item.kind == "user"), "")
    if before > limit and getattr(strategy, "retrieves", False):
        items = with_relevance(items, _search(items, search), intent)
    reductions = strategy.reductions(items, intent) if before > limit else ()
    return reduce(items, reductions, fixed=fixed, max_tokens=limit, tokenizer=tokenizer)


def _search(items: Sequence[Item], search: Search | MakeSearch | None) -> Search:
    if search is None:
        return MemorySearch(items)
    # A search class has the methods too, so the methods do not identify an instance.
    if isinstance(search, type) or not isinstance(search, Search):
        return search(items)
    return search


def _entries(items: Sequence[Item], reduced: Reduced) -> tuple[Entry, ...]:
    account = zip(items, reduced.levels, reduced.sizes, reduced.reasons, strict=True)
    return tuple(
        Entry(
            first=item.key[0],
            count=len(item.messages),
            kind=item.kind,
            level=level,
            tokens_before=item.tokens,
            tokens_after=size,
            why=reason or (item.mandatory and f"mandatory: {item.mandatory}"),
        )
        for item, level, size, reason in account
    )
