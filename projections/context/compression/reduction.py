"""Carries out reductions until a request fits: the only place that enforces a budget.

The tokens of a digest line are the sum of those of its words: cutting a text before a space or
after a line end does not change its tokens, so nothing is tokenized twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from projections.context.compression.items import LEVELS, Item, Level
from projections.context.compression.strategy import Reduction
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer, tokenizer_for

__all__ = ["DIGEST_HEADER", "Reduced", "digest_line", "digest_text", "header_tokens", "reduce"]

DIGEST_HEADER = "CONVERSATION_DIGEST\nWhat earlier messages named:"
"""The first lines of the message that holds the facts."""

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_MESSAGE = 5  # tokens of a system message without its content, and the line end of its header
_LINE_END = 1


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result of a reduction.

    Attributes:
        levels: The level of each item; ``facts`` only if its line of the digest is not empty.
        facts: For each item at ``facts``, the facts in its line.
        reasons: For each item, why it lost detail; empty if it did not.
        sizes: The tokens of each item as it is now; for facts, those of its line.
        tokens: The total including the fixed part; an upper bound if there is a digest.
    """

    levels: tuple[Level, ...]
    facts: tuple[tuple[str, ...], ...]
    reasons: tuple[str, ...]
    sizes: tuple[int, ...]
    tokens: int


def reduce(
    items: Sequence[Item],
    reductions: Iterable[Reduction],
    *,
    fixed: int,
    max_tokens: int,
    tokenizer: Tokenizer,
    header: str = DIGEST_HEADER,
    strict: bool = True,
    kept: Collection[int] = (),
    least: int = 0,
    most: Sequence[int] = (),
    known: Collection[str] = (),
    sections: Mapping[str, int] | None = None,
) -> Reduced:
    """Carry out reductions in order until the request fits.

    Reductions for sections over their limits come first, each section until it fits. If the last
    reduction frees far more than needed, the newest items get their detail back.

    Args:
        items: Oldest first.
        reductions: A strategy's reductions.
        fixed: The tokens of everything sent in addition to the items.
        max_tokens: The limit for all tokens.
        tokenizer: Counts the digest.
        header: The start of the digest.
        strict: Whether to raise if the request does not fit in the end.
        kept: Indexes of items that may be shortened, but not reduced further.
        least: The tokens that the request should reach if there are items for it.
        most: Limits for all tokens when items get their detail back, tried in turn.
        known: Facts elsewhere in the request, which the digest need not repeat.
        sections: Limits for the tokens of sections, including ``digest``; see `section_of`.

    Raises:
        BudgetInfeasible: The request does not fit after all reductions; the error has the remaining
            items and their sizes.
        ValueError: A reduction has an invalid item or level.
    """
    state = _State(items, fixed, tokenizer, header, kept, known)
    limits = dict(sections or {})
    listed = [*reductions] if limits else reductions
    first = [*_within(limits, items, state, listed)] if limits else []
    done: list[Reduction] = []
    before = 0
    for reduction in listed:
        if state.tokens <= max_tokens:
            break
        before = state.tokens
        state.carry_out(reduction)
        done.append(reduction)
    if state.tokens < least and before <= max(most[:1], default=0):
        # The last reduction was too much, and undoing it exceeds the limit only slightly.
        state = _State(items, fixed, tokenizer, header, kept, known)
        for reduction in (*first, *done[:-1]):
            state.carry_out(reduction)
    if "digest" in limits:
        state.shorten_digest(listed, limits["digest"])
    if strict and state.tokens > max_tokens:
        raise BudgetInfeasible(max_tokens, state.sizes(fixed))
    for ceiling in most:
        state.raise_newest(least, ceiling, limits)
    return state.result()


def _within(
    limits: Mapping[str, int],
    items: Sequence[Item],
    state: _State,
    reductions: Iterable[Reduction],
) -> Iterator[Reduction]:
    """Bring each section within its limit by its own reductions, and yield these."""
    for name, most in limits.items():
        if name == "digest" or state.held(name) <= most:
            continue
        for reduction in reductions:
            # An invalid index is rejected when its reduction is carried out.
            if 0 <= reduction.item < len(items) and items[reduction.item].section == name:
                told = reduction._replace(why=f"over section_budgets.{name}: {reduction.why}")
                state.carry_out(told)
                yield told
                if state.held(name) <= most:
                    break


def digest_text(items: Sequence[Item], reduced: Reduced, header: str = DIGEST_HEADER) -> str | None:
    """Return the text of the digest, one line per item; None if there is none."""
    lines = [
        digest_line(item, facts)
        for item, level, facts in zip(items, reduced.levels, reduced.facts, strict=True)
        if level == "facts"
    ]
    return "\n".join((header, *lines)) if lines else None


def digest_line(item: Item, facts: Iterable[str]) -> str:
    """Return one item's line of the digest."""
    said = " ".join(facts) if item.told is None else item.told
    return f"{item.label}: {said}"


def header_tokens(header: str, tokenizer: Tokenizer) -> int:
    """Return the tokens of the digest's message without its lines."""
    return _MESSAGE + _count(header, tokenizer.name)


class _State:
    """The current levels, and the tokens of the request with these levels."""

    def __init__(
        self,
        items: Sequence[Item],
        fixed: int,
        tokenizer: Tokenizer,
        header: str,
        kept: Collection[int],
        known: Collection[str],
    ) -> None:
        self.tokens = fixed + sum(item.tokens for item in items)
        self._items = items
        self._kept = kept
        self._encoding = tokenizer.name
        self._header = header_tokens(header, tokenizer)
        self._level: list[Level] = ["full"] * len(items)
        self._size = [item.tokens for item in items]
        self._reason = [""] * len(items)
        self._facts: list[dict[int, int]] = [{} for _ in items]
        self._lines = 0
        self._owners = _owners(items, known)
        self._said = "\n".join(item.text for item in items if item.mandatory)

    def carry_out(self, reduction: Reduction) -> None:
        index = reduction.item
        if not 0 <= index < len(self._items) or reduction.to not in _RANK:
            raise ValueError(f"a strategy gave {reduction} for {len(self._items)} items")
        level = self._level[index]
        if self._items[index].mandatory:
            return  # Mandatory items are sent, whatever the strategy says.
        if index in self._kept and reduction.to != "full":
            if reduction.fact is not None or not self._items[index].has_shorter:
                return
            reduction = reduction._replace(to="shortened")
        if reduction.fact is not None:
            if level == "facts":
                self._forget(index, reduction.fact, reduction.why)
        elif _RANK[reduction.to] > _RANK[level]:
            self._lower(index, reduction.to, reduction.why)

    def held(self, section: str) -> int:
        """Return the tokens of a section."""
        if section == "digest":
            lines = sum(s for s, n in zip(self._size, self._level, strict=True) if n == "facts")
            return lines + (self._header if self._lines else 0)
        sizes = zip(self._items, self._size, self._level, strict=True)
        return sum(size for item, size, n in sizes if n != "facts" and item.section == section)

    def shorten_digest(self, reductions: Iterable[Reduction], most: int) -> None:
        """Drop facts from the digest, in the order of the reductions, until it is in its limit."""
        tokens = self.held("digest")
        for reduction in reductions:
            if tokens <= most:
                return
            at = reduction.item
            if self._level[at] == "facts" and (
                reduction.fact is not None or reduction.to == "dropped"
            ):
                before = self.tokens
                self.carry_out(
                    reduction._replace(why=f"over section_budgets.digest: {reduction.why}")
                )
                tokens -= before - self.tokens

    def raise_newest(self, least: int, most: int, sections: Mapping[str, int]) -> None:
        """Restore the detail of items, newest first, until there are enough tokens."""
        for index in range(len(self._items) - 1, -1, -1):
            item = self._items[index]
            if self.tokens < least and not item.mandatory and item.tokens:
                left = self._left(index, sections)
                if item.tokens <= left:
                    self._raise(index, "full", item.tokens, most)
                if item.has_shorter and item.shorter_tokens <= left:
                    self._raise(index, "shortened", item.shorter_tokens, most)

    def _left(self, index: int, sections: Mapping[str, int]) -> float:
        """Return the tokens that the item's section leaves for it."""
        name = self._items[index].section if sections else ""
        if name not in sections:
            return inf
        own = 0 if self._level[index] == "facts" else self._size[index]
        return sections[name] - self.held(name) + own

    def _raise(self, index: int, level: Level, size: int, most: int) -> None:
        now = self._level[index]
        if _RANK[level] < _RANK[now] and self.tokens - self._size[index] + size <= most:
            if now == "facts":
                self._leave_digest(index)
            self._level[index] = level
            self._reason[index] = "" if level == "full" else "shortened: whole there is no room"
            self._resize(index, size)

    def _lower(self, index: int, level: Level, why: str) -> None:
        item = self._items[index]
        if self._level[index] == "facts":
            self._leave_digest(index)
        self._level[index], self._reason[index] = level, why
        size = 0
        if level == "shortened":
            size = item.shorter_tokens if item.has_shorter else item.tokens
        elif level == "facts":
            size = self._enter_digest(index)
        self._resize(index, size)

    def _enter_digest(self, index: int) -> int:
        item = self._items[index]
        if item.told is not None:
            words = [*item.told.split("\n")]
            size = sum(self._count(" " + word) + _LINE_END for word in words)
        else:
            facts = self._items[index].facts
            own = [n for n in self._owners.get(index, ()) if facts[n].text not in self._said]
            self._facts[index] = {n: self._count(" " + item.facts[n].text) for n in own}
            if not own:
                self._level[index] = "dropped"
                return 0
            size = sum(self._facts[index].values())
        if not self._lines:
            self.tokens += self._header
        self._lines += 1
        return size + self._count(item.label + ":") + _LINE_END

    def _leave_digest(self, index: int) -> None:
        self._lines -= 1
        if not self._lines:
            self.tokens -= self._header
        self._facts[index] = {}

    def _forget(self, index: int, fact: int, why: str) -> None:
        size = self._facts[index].pop(fact, None)
        if size is None:
            return
        self._reason[index] = why
        self._resize(index, self._size[index] - size)
        if not self._facts[index]:
            self._lower(index, "dropped", why)

    def _resize(self, index: int, size: int) -> None:
        self.tokens += size - self._size[index]
        self._size[index] = size

    def _count(self, text: str) -> int:
        return _count(text, self._encoding)

    def sizes(self, fixed: int) -> dict[str, int]:
        """Return the tokens of the items that could not be left out."""
        named = {
            f"{item.mandatory or item.kind} (version {item.key[0]})": size
            for item, size in zip(self._items, self._size, strict=True)
            if size
        }
        return {**named, "fixed part": fixed}

    def result(self) -> Reduced:
        held = tuple(
            tuple([item.facts[number].text for number in sorted(facts)]) if facts else ()
            for item, facts in zip(self._items, self._facts, strict=True)
        )
        return Reduced(
            tuple(self._level), held, tuple(self._reason), tuple(self._size), self.tokens
        )


def _owners(items: Sequence[Item], known: Collection[str]) -> dict[int, tuple[int, ...]]:
    """Return for each item the indexes of the facts that no later item holds.

    A fact repeated later is kept there. Known facts, and those in a mandatory message, are always
    in the request.
    """
    later = set(known)
    owned: dict[int, tuple[int, ...]] = {}
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item.mandatory:
            continue
        if facts := item.facts:
            own = [n for n, (text, _) in enumerate(facts) if text not in later]
            later.update([facts[n].text for n in own])
            owned[index] = tuple(own)
    return owned


# Not for speed: a request's planning tokenizes each text once (promise 7 of docs/context.md).
@lru_cache(maxsize=1 << 16)
def _count(text: str, encoding: str) -> int:
    return tokenizer_for(encoding).count(text).tokens
