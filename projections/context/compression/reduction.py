"""Carry out reductions until a request fits: the only place that enforces a budget.

The tokens of a digest line are the sum of the tokens of its words: a text can be split before a
space or after a line end without changing its tokens. So nothing is tokenized twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from projections.context.compression.items import LEVELS, Item, Level
from projections.context.compression.lasting import replaced_in, superseded
from projections.context.compression.strategy import Reduction
from projections.errors import BudgetInfeasible
from projections.tokens import Tokenizer, tokenizer_for

__all__ = ["DIGEST_HEADER", "Reduced", "digest_line", "digest_text", "header_tokens", "reduce"]

DIGEST_HEADER = "CONVERSATION_DIGEST\nWhat earlier messages named:"
"""How the digest begins, the message with the facts."""

_RANK = {level: rank for rank, level in enumerate(LEVELS)}
_MESSAGE = 5  # tokens of a system message without content, and of the line end after the header
_LINE_END = 1


@dataclass(frozen=True, slots=True)
class Reduced:
    """The result for every item, in the order of the items.

    Attributes:
        levels: The level; ``facts`` only if the item still has a line in the digest.
        facts: The facts in the item's line of the digest; empty at other levels.
        reasons: Why the item lost detail; empty if it did not.
        sizes: Tokens of the item at its level; for facts, those of its line.
        tokens: Tokens of the whole request, with the fixed part; an upper bound with a digest.
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
    required: Collection[int] = (),
    least: int = 0,
    most: Sequence[int] = (),
    known: Collection[str] = (),
    sections: Mapping[str, int] | None = None,
    refill: bool = False,
) -> Reduced:
    """Carry out reductions in order, and stop as soon as the request fits.

    Sections over their limits come first: each is reduced by its own reductions until it fits. If
    the last reduction takes the request below ``least``, the newest items get their detail back.
    With ``refill``, items then get their detail back as far as it fits: users' messages first, then
    the conclusions of their answers, and those first that lost it last.

    Args:
        items: The items, oldest first.
        reductions: The reductions of a strategy.
        fixed: Tokens of everything that is sent in addition to the items.
        max_tokens: Upper limit for all tokens.
        tokenizer: Counts the digest.
        header: How the digest begins.
        strict: Whether to raise an error if the request does not fit in the end.
        required: Indexes of items that are reduced to their shorter form, and no further.
        least: Tokens that the request should have at least, if there are enough items.
        most: Upper limits for all tokens while items get their detail back, tried in turn.
        known: Facts that the rest of the request contains, so that the digest omits them.
        sections: Upper limits for the tokens of sections, including ``digest``; see `section_of`.
        refill: Whether to use the room that the last reductions have freed beyond need. A larger
            ``max_tokens`` may then keep less of an item.

    Raises:
        BudgetInfeasible: The request does not fit after all reductions; the error names the items
            that are left and their sizes.
        ValueError: A reduction has an invalid index or level.
    """
    state = _State(items, fixed, tokenizer, header, required, known)
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
        # The last reduction was too much, and without it the first ceiling holds: leave it out.
        state = _State(items, fixed, tokenizer, header, required, known)
        for reduction in (*first, *done[:-1]):
            state.carry_out(reduction)
    if "digest" in limits:
        state.shorten_digest(listed, limits["digest"])
    if strict and state.tokens > max_tokens:
        raise BudgetInfeasible(max_tokens, state.sizes(fixed))
    newest = range(len(items) - 1, -1, -1)
    for ceiling in most:
        state.give_back(newest, least, ceiling, limits)
    if refill:
        last = dict.fromkeys(each.item for each in reversed(done))
        users = [index for index in last if items[index].kind == "user"]
        state.give_back(users, max_tokens, max_tokens, limits)
        state.answer(max_tokens, limits)
        others = [index for index in last if items[index].kind != "user"]
        state.give_back(others, max_tokens, max_tokens, limits)
    return state.result()


def _within(
    limits: Mapping[str, int],
    items: Sequence[Item],
    state: _State,
    reductions: Iterable[Reduction],
) -> Iterator[Reduction]:
    """Bring each section within its limit by its own reductions, and yield those carried out."""
    for name, most in limits.items():
        if name == "digest" or state.tokens_in(name) <= most:
            continue
        for reduction in reductions:
            # `carry_out` rejects an invalid index when its turn comes.
            if 0 <= reduction.item < len(items) and items[reduction.item].section == name:
                reduced = reduction._replace(why=f"over section_budgets.{name}: {reduction.why}")
                state.carry_out(reduced)
                yield reduced
                if state.tokens_in(name) <= most:
                    break


def digest_text(items: Sequence[Item], reduced: Reduced, header: str = DIGEST_HEADER) -> str | None:
    """Return the text of the digest, with a line for each item at ``facts``; None without any."""
    lines = [
        digest_line(item, facts)
        for item, level, facts in zip(items, reduced.levels, reduced.facts, strict=True)
        if level == "facts"
    ]
    return "\n".join((header, *lines)) if lines else None


def digest_line(item: Item, facts: Iterable[str]) -> str:
    """Return the line of an item in the digest."""
    content = " ".join(facts) if item.digest_text is None else item.digest_text
    return f"{item.label}: {content}"


def header_tokens(header: str, tokenizer: Tokenizer) -> int:
    """Return the tokens of the digest message without its lines."""
    return _MESSAGE + _count(header, tokenizer.name)


class _State:
    """The current level of each item, and the tokens of a request at these levels."""

    def __init__(
        self,
        items: Sequence[Item],
        fixed: int,
        tokenizer: Tokenizer,
        header: str,
        required: Collection[int],
        known: Collection[str],
    ) -> None:
        self.tokens = fixed + sum(item.tokens for item in items)
        self._items = items
        self._required = required
        self._encoding = tokenizer.name
        self._header = header_tokens(header, tokenizer)
        self._level: list[Level] = ["full"] * len(items)
        self._size = [item.tokens for item in items]
        self._reason = [""] * len(items)
        self._facts: list[dict[int, int]] = [{} for _ in items]
        self._lines = 0
        self._superseded = _superseded(items)
        self._owners = _owners(items, known)
        self._mandatory_text = "\n".join(item.text for item in items if item.mandatory)

    def carry_out(self, reduction: Reduction) -> None:
        index = reduction.item
        if not 0 <= index < len(self._items) or reduction.to not in _RANK:
            raise ValueError(f"the strategy returned {reduction} for {len(self._items)} items")
        level = self._level[index]
        if self._items[index].mandatory:
            return  # Mandatory items are sent in full, whatever a strategy returns.
        if index in self._required and reduction.to != "full":
            if reduction.fact is not None or not self._items[index].has_shorter:
                return
            reduction = reduction._replace(to="shortened")
        if reduction.fact is not None:
            if level == "facts":
                self._forget(index, reduction.fact, reduction.why)
        elif _RANK[reduction.to] > _RANK[level]:
            self._lower(index, reduction.to, reduction.why)
        self._lower_superseded(index)

    def _lower_superseded(self, index: int) -> None:
        """Keep no more of messages that a message takes back than of that message itself."""
        level = self._level[index]
        if level not in ("facts", "dropped"):
            return
        for older in self._superseded.get(index, ()):
            if _RANK[level] > _RANK[self._level[older]] and not self._items[older].mandatory:
                self._lower(older, level, f"taken back by version {self._items[index].key[0]}")

    def tokens_in(self, section: str) -> int:
        """Return the tokens of a section."""
        if section == "digest":
            lines = sum(s for s, n in zip(self._size, self._level, strict=True) if n == "facts")
            return lines + (self._header if self._lines else 0)
        sizes = zip(self._items, self._size, self._level, strict=True)
        return sum(size for item, size, n in sizes if n != "facts" and item.section == section)

    def shorten_digest(self, reductions: Iterable[Reduction], most: int) -> None:
        """Remove facts from the digest, in the order of the reductions, until it fits a limit."""
        tokens = self.tokens_in("digest")
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

    def give_back(
        self, indexes: Iterable[int], least: int, most: int, sections: Mapping[str, int]
    ) -> None:
        """Give items their detail back, in an order, until the request has ``least`` tokens."""
        for index in indexes:
            item = self._items[index]
            if self.tokens < least and not item.mandatory and item.tokens:
                if self._is_superseded(index):
                    continue
                left = self._left(index, sections)
                if item.tokens <= left:
                    self._raise(index, "full", item.tokens, most)
                if item.has_shorter and item.shorter_tokens <= left:
                    self._raise(index, "shortened", item.shorter_tokens, most)

    def answer(self, most: int, sections: Mapping[str, int]) -> None:
        """Give the answers of users' messages that are sent their shorter form back, newest first.

        If there is no room for that, they get their conclusions back, as lines of the digest. A
        question without the conclusion of its answer looks open.
        """
        last: int | None = None
        for index in range(len(self._items) - 1, -1, -1):
            item = self._items[index]
            if item.kind == "user":
                if last is not None and self._level[index] in ("full", "shortened"):
                    found = self._items[last]
                    if found.has_shorter and found.shorter_tokens <= self._left(last, sections):
                        self._raise(last, "shortened", found.shorter_tokens, most)
                    if self._level[last] == "dropped":
                        self._conclude(last, most)
                last = None
            elif last is None and item.kind == "assistant":
                last = index

    def _conclude(self, index: int, most: int) -> None:
        """Send the conclusion of a message that was dropped, if there is room for it."""
        before, item = self._reason[index], self._items[index]
        self._lower(index, "facts", before)
        for number in [*self._facts[index]]:
            if item.facts[number].kind != "conclusion":
                self._forget(index, number, before)
        if self.tokens > most:
            self._lower(index, "dropped", before)

    def _is_superseded(self, index: int) -> bool:
        """Whether a message that takes this one back is not sent."""
        return any(
            index in older and self._level[newer] in ("facts", "dropped")
            for newer, older in self._superseded.items()
        )

    def _left(self, index: int, sections: Mapping[str, int]) -> float:
        """Return the tokens that an item may take within the limit of its section."""
        name = self._items[index].section if sections else ""
        if name not in sections:
            return inf
        own = 0 if self._level[index] == "facts" else self._size[index]
        return sections[name] - self.tokens_in(name) + own

    def _raise(self, index: int, level: Level, size: int, most: int) -> None:
        now = self._level[index]
        if _RANK[level] < _RANK[now] and self.tokens - self._size[index] + size <= most:
            if now == "facts":
                self._leave_digest(index)
            self._level[index] = level
            self._reason[index] = "" if level == "full" else "shortened: no room for all of it"
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
        if item.digest_text is not None:
            words = [*item.digest_text.split("\n")]
            size = sum(self._count(" " + word) + _LINE_END for word in words)
        else:
            facts = self._items[index].facts
            own = [
                n for n in self._owners.get(index, ()) if facts[n].text not in self._mandatory_text
            ]
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
        """Return the tokens of the items that are left, and of the fixed part, by name."""
        named = {
            f"{item.mandatory or item.kind} (version {item.key[0]})": size
            for item, size in zip(self._items, self._size, strict=True)
            if size
        }
        return {**named, "fixed part": fixed}

    def result(self) -> Reduced:
        tokens_in = tuple(
            tuple([item.facts[number].text for number in sorted(facts)]) if facts else ()
            for item, facts in zip(self._items, self._facts, strict=True)
        )
        return Reduced(
            tuple(self._level), tokens_in, tuple(self._reason), tuple(self._size), self.tokens
        )


def _superseded(items: Sequence[Item]) -> dict[int, list[int]]:
    """Return for each user message the indexes of the older ones that it takes back."""
    users = [index for index, item in enumerate(items) if item.kind == "user"]
    found: dict[int, list[int]] = {}
    for older, newer in superseded([(items[n].key[0], items[n].text) for n in users]).items():
        found.setdefault(users[newer], []).append(users[older])
    return found


def _owners(items: Sequence[Item], known: Collection[str]) -> dict[int, tuple[int, ...]]:
    """Return for each item the indexes of its facts that appear in no later item.

    A repeated fact is kept where it appears last. Facts in ``known`` are always sent, and so is the
    text of mandatory items.
    """
    later = set(known)
    owned: dict[int, tuple[int, ...]] = {}
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item.kind == "user":
            later.update(replaced_in(item.text))
        if item.mandatory:
            continue
        if facts := item.facts:
            own = [n for n, (text, _) in enumerate(facts) if text not in later]
            later.update([facts[n].text for n in own])
            owned[index] = tuple(own)
    return owned


# Not for speed: a plan must tokenize each text only once (promise 7 of docs/context.md).
@lru_cache(maxsize=1 << 16)
def _count(text: str, encoding: str) -> int:
    return tokenizer_for(encoding).count(text).tokens
