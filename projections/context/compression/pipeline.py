"""`compress`: a list of messages made smaller by a strategy, without a store.

Plain messages go in; messages that fit come out, in the order of the conversation, with an account
of each. No state is kept: whoever goes on with the compressed messages, instead of compressing the
whole history at each turn, keeps the prefix the same until the trigger is passed again.
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
"""Makes a search over items, such as `MemorySearch` itself."""


class Placed(NamedTuple):
    """Messages that stand together, and the item that they are; None for the digest."""

    messages: tuple[Message, ...]
    item: Item | None


def assemble(items: Sequence[Item], reduced: Reduced, header: str = DIGEST_HEADER) -> list[Placed]:
    """Return what is left of items, oldest first.

    The facts are one system message, the digest, which stands where the oldest of them stood.

    Args:
        items: As they were reduced.
        reduced: What each has come to.
        header: What the digest begins with; the one that it was counted with.
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
        first: Place of its first message, from 1.
        count: How many messages it has.
        kind: Role of its first message, or ``summary``.
        level: At which it is sent.
        tokens_before: As it was.
        tokens_after: As it is sent; of facts, those of its line in the digest.
        why: Why it lost detail, or why it could not; empty if nothing asked for it.
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
        messages: To be sent, in OpenAI's chat format; those that are whole are the ones given.
        tokens: Of the request, tools and the start of the reply included.
        usage: The same, beside the budget.
        entries: The account: one entry a group, oldest first.
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

    System messages, the first and the latest user message are sent as they are; groups of a call
    and its results stay together.

    Args:
        messages: A history in OpenAI's chat format, oldest first.
        max_tokens: What the request may have, tools and the start of the reply included.
        strategy: Its name, or itself.
        model: Whose tokens are counted; see `projections.tokens.tokenizer_for`.
        tools: Declarations that go with the request.
        thresholds: None: whatever exceeds ``max_tokens`` is reduced until it just fits. Otherwise
            nothing happens up to the trigger, and above it the request is reduced to the target.
        search: For strategies that retrieve: over the items of these messages, or what makes one;
            None is `MemorySearch`.

    Raises:
        BudgetInfeasible: What must be sent exceeds ``max_tokens``.
        UnknownStrategy: No strategy has this name.
        EncodingNotBundled: The model's tokenizer is not carried along.
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
    # A class of searches has their methods too, so it is not told by these alone.
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
