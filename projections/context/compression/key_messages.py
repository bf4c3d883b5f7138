"""The first strategy of document 000: key messages by rules and scores, without a model.

The document's selection and its fallbacks are one list here, ordered by how little an agent loses:

1. Talk that no rule keeps (intermediate prose, errors) is reduced to its facts, lowest score first:
   it can be said again, and nothing refers to it.
2. Tool results are shortened to a preview, lowest score first, so old and large ones come first.
   They precede user text: a tool result can be read again, but a user's words cannot.
3. Long texts of assistants, then of users, are shortened, oldest first.
4. Whole groups before the last four rounds are reduced to their facts: talk, tool groups,
   decisions, user messages, then summaries, each lowest score first. The document drops all of
   these at once; reducing them one by one keeps as many as fit.
5. The facts of these groups are removed from the digest: terms, phrases, names, then identifiers,
   each lowest score first.
6. The last four rounds are reduced to their facts, oldest round first, and in each round the user
   message last, so that no answer outlives its question; then these facts are removed. In the end
   only mandatory messages are left.

Until step 4, rules keep user messages, decisions and completions, complete tool groups, summaries
and the newest groups. On real agent transcripts cut to half, keeping the facts leaves twice as many
calls possible as dropping groups at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from projections.context.compression.facts import FactKind
from projections.context.compression.items import Item
from projections.context.compression.scoring import (
    Score,
    has_results,
    is_decision,
    is_summary,
    last_rounds,
    score_of,
)
from projections.context.compression.strategy import Reduction, require_counts

__all__ = ["KeyMessages"]

_FACTS: tuple[FactKind, ...] = ("term", "phrase", "name", "identifier")
_TOOLS, _DECISIONS, _USERS, _SUMMARIES, _TALK = "tool group", "decision", "user", "summary", "talk"


@dataclass(frozen=True, slots=True)
class KeyMessages:
    """Keep key messages: by rules, then by scores, in whole groups.

    Attributes:
        recent: The number of newest groups that are kept by rule.
        rounds: The number of last rounds that lose detail last; 0 for none.
    """

    recent: int = 8
    rounds: int = 4

    name: ClassVar[str] = "key_messages"
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Check that both numbers are whole and not negative."""
        require_counts(rounds=self.rounds, recent=self.recent)

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions in the order above; ``intent`` is not used."""
        return _Ranked(items, self.recent, self.rounds).reductions()


class _Ranked:
    """The items that may lose detail, each with its score and the rule that keeps it."""

    def __init__(self, items: Sequence[Item], recent: int, rounds: int) -> None:
        self._items = items
        self._open = [index for index, item in enumerate(items) if not item.mandatory]
        self._recent = len(items) - recent
        self._last = last_rounds(items, rounds)
        self._told: dict[int, str] = {}
        self._rule = {index: _rule(items[index]) for index in self._open}
        self._scores: dict[int, Score] = {
            index: score_of(items[index], len(items) - index) for index in self._open
        }

    def _why(self, index: int) -> str:
        """Return the score of an item in words, formatted once for each item."""
        told = self._told.get(index)
        if told is None:
            told = self._told[index] = str(self._scores[index])
        return told

    def reductions(self) -> Iterator[Reduction]:
        talk = self._of(_TALK)
        yield from self._leave(
            self._lowest(i for i in talk if i < self._recent), "not a key message"
        )
        yield from self._shorten(self._lowest(self._of(_TOOLS)), "tool result as a preview")
        long = [*talk, *self._of(_DECISIONS), *self._of(_SUMMARIES)]
        yield from self._shorten(sorted(long), "long text shortened")
        yield from self._shorten(self._of(_USERS), "long user text shortened")
        for rule in (_TALK, _TOOLS, _DECISIONS, _USERS, _SUMMARIES):
            before = self._lowest(i for i in self._of(rule) if i < self._last)
            yield from self._leave(before, f"{rule} before the last rounds")
        yield from self._forget(self._lowest(i for i in self._open if i < self._last))
        yield from self._leave(self._by_round(), "oldest of the last rounds")
        yield from self._forget(self._lowest(i for i in self._open if i >= self._last))

    def _of(self, rule: str) -> list[int]:
        return [index for index in self._open if self._rule[index] == rule]

    def _lowest(self, indexes: Iterable[int]) -> list[int]:
        return sorted(indexes, key=lambda index: (self._scores[index].points, index))

    def _by_round(self) -> Iterator[int]:
        user: list[int] = []
        for index in range(self._last, len(self._items)):
            if self._items[index].kind == "user":
                yield from user
                user = []
            if index in self._rule:
                if self._rule[index] == _USERS:
                    user = [index]
                else:
                    yield index
        yield from user

    def _leave(self, indexes: Iterable[int], why: str) -> Iterator[Reduction]:
        for index in indexes:
            yield Reduction(index, "facts", why=f"{why}, {self._why(index)}")

    def _forget(self, indexes: Sequence[int]) -> Iterator[Reduction]:
        whys = {index: f"dropped, {self._why(index)}" for index in indexes}
        for kind in _FACTS:
            for index in indexes:
                for number, fact in enumerate(self._items[index].facts):
                    if fact.kind == kind:
                        yield Reduction(index, "facts", fact=number, why=whys[index])
        for index in indexes:
            yield Reduction(index, "dropped", why=whys[index])

    def _shorten(self, indexes: Iterable[int], why: str) -> Iterator[Reduction]:
        for index in indexes:
            if self._items[index].has_shorter:
                yield Reduction(index, "shortened", why=f"{why}, {self._why(index)}")


def _rule(item: Item) -> str:
    if item.kind == "user":
        return _USERS
    if is_summary(item):
        return _SUMMARIES
    if has_results(item):
        return _TOOLS
    return _DECISIONS if is_decision(item) else _TALK
