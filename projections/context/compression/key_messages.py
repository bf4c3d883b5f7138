"""The first strategy of document 000: key messages by rules and scores, without a model.

The document's selection and its fallbacks are one list here, ordered by how little an agent loses:

1. Talk that no rule keeps (intermediate prose, errors) is reduced to its facts, lowest score first:
   it can be said again, and nothing refers to it. The last answer of a round is not among it: it is
   shortened, to its conclusion if it is long.
2. Tool results are shortened to a preview, lowest score first, so old and large ones come first.
   They precede user text: a tool result can be read again, but a user's words cannot.
3. Long texts of assistants are shortened, oldest first.
4. Tool groups are reduced to their facts, the least worth per token first: those before the last
   four rounds, then those of the last rounds except the current one.
5. Facts of long lists of lines (logs, code), except the first ones, are removed; long texts of
   users are shortened, oldest first.
6. Whole rounds before the last four are reduced to their facts, the least worth per token first: in
   each round the answers, then at once their question, so that no question stays without the
   conclusion of its answer. Then these conclusions are removed from the digest, and summaries are
   reduced. The document drops all of these at once; reducing them one by one keeps as many as fit.
7. The facts of these groups are removed from the digest: terms, phrases, names, then identifiers,
   each lowest score first.
8. The last four rounds are reduced to their facts: tool groups, then oldest round first, and in
   each round the user message last, so that no answer outlives its question; then these facts are
   removed. In the end only mandatory messages are left.

So every user message stays while the output of a tool can still shrink; calls of the current round
stay so that the model does not repeat them. On real agent transcripts
cut to half, keeping the facts leaves twice as many calls possible as dropping groups at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from projections.context.compression.facts import FactKind, may_be_json, texts_of
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

__all__ = ["KeyMessages", "RankedItems"]

_FACTS: tuple[FactKind, ...] = ("conclusion", "term", "phrase", "name", "identifier", "rule")
_OF_LINES = 4  # facts
_TOOLS, _DECISIONS, _USERS, _SUMMARIES, _TALK = "tool group", "decision", "user", "summary", "talk"


@dataclass(frozen=True, slots=True)
class KeyMessages:
    """Keep key messages: by rules, then by scores, in whole groups.

    Attributes:
        recent: The number of newest groups that are kept by rule.
    """

    recent: int = 8

    name: ClassVar[str] = "key_messages"
    version: ClassVar[int] = 6

    def __post_init__(self) -> None:
        """Check that the number is whole and not negative."""
        require_counts(recent=self.recent)

    def reductions(self, items: Sequence[Item], intent: str) -> Iterable[Reduction]:
        """Return the reductions in the order above; ``intent`` is not used."""
        return RankedItems(items, self.recent).reductions()


class RankedItems:
    """The items that may lose detail, each with its score and the rule that keeps it.

    Args:
        items: All items, oldest first.
        recent: See `KeyMessages`.
        relevant: Items before the last rounds that lose detail just before these.
    """

    def __init__(self, items: Sequence[Item], recent: int, relevant: Sequence[int] = ()) -> None:
        self._items = items
        late = {index for index in relevant if not items[index].mandatory}
        self._late = [index for index in reversed(relevant) if index in late]
        self._open = [
            index for index, item in enumerate(items) if not item.mandatory and index not in late
        ]
        self._recent = len(items) - recent
        # Of a history of a few rounds, all but the last one may be less relevant than others.
        self._last = last_rounds(items) or (last_rounds(items, 1) if relevant else 0)
        self._reasons: dict[int, str] = {}
        self._rounds = _rounds_of(items)
        self._answers = {
            max(n for n in each if items[n].kind == "assistant")
            for each in self._rounds
            if any(items[n].kind == "assistant" for n in each)
        }
        self._rule = {index: _rule(items[index]) for index in self._open}
        self._scores: dict[int, Score] = {
            index: score_of(items[index], len(items) - index)
            for index in (*self._open, *self._late)
        }

    def _why(self, index: int) -> str:
        """Return the score of an item in words, formatted once for each item."""
        reason = self._reasons.get(index)
        if reason is None:
            reason = self._reasons[index] = str(self._scores[index])
        return reason

    def reductions(self) -> Iterator[Reduction]:
        """Yield the reductions in the order of this module's list."""
        talk, tools = self._of(_TALK), self._of(_TOOLS)
        between = [index for index in talk if index not in self._answers]
        yield from self._leave(
            self._lowest(i for i in between if i < self._recent), "not a key message"
        )
        yield from self._shorten(self._lowest(self._answers & {*talk}), "answer shortened")
        yield from self._shorten(self._lowest(tools), "tool result as a preview")
        long = [*between, *self._of(_DECISIONS), *self._of(_SUMMARIES)]
        yield from self._shorten(sorted(long), "long text shortened")
        yield from self._leave(
            self._lightest(i for i in tools if i < self._last), "tool group before the last rounds"
        )
        yield from self._leave(
            self._lightest(i for i in tools if self._last <= i < self._rounds[-1][0]),
            "tool group of the last rounds",
        )
        yield from self._forget_lines(tools)
        yield from self._shorten(self._of(_USERS), "long user text shortened")
        for each in self._rounds_by_worth():
            yield from self._leave(each, "round before the last ones")
        before = self._lowest(i for i in self._open if i < self._last)
        yield from self._forget_kind("conclusion", before)
        summaries = (i for i in before if self._rule[i] == _SUMMARIES)
        yield from self._leave(summaries, "summary before the last rounds")
        yield from self._forget(before)
        yield from self._leave(self._late, "answers the latest user message")
        yield from self._forget(self._late)
        newest = (i for i in tools if i >= self._last)
        yield from self._leave((*newest, *self._by_round()), "oldest of the last rounds")
        yield from self._forget(self._lowest(i for i in self._open if i >= self._last))

    def _rounds_by_worth(self) -> list[list[int]]:
        """Return the rounds before the last ones, least worth per token first.

        Of each round, the answers that may lose detail, then its question; no summaries.
        """
        rounds = []
        for each in self._rounds:
            open_ = [n for n in each if n in self._rule and self._rule[n] != _SUMMARIES]
            if open_ and each[-1] < self._last:
                rounds.append(sorted(open_, key=lambda n: (self._rule[n] == _USERS, n)))
        return sorted(rounds, key=self._worth)

    def _lightest(self, indexes: Iterable[int]) -> list[int]:
        return sorted(indexes, key=lambda index: self._worth((index,)))

    def _worth(self, indexes: Sequence[int]) -> tuple[int, int]:
        """Return what items are worth per token; a penalty for size is no loss twice."""
        points = sum(max(self._scores[index].points, 1) for index in indexes)
        tokens = sum(self._items[index].shorter_tokens for index in indexes)
        return points * 1_000 // max(tokens, 1), indexes[0]

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
        for kind in _FACTS:
            yield from self._forget_kind(kind, indexes)
        for index in indexes:
            yield Reduction(index, "dropped", why=f"dropped, {self._why(index)}")

    def _forget_kind(self, kind: FactKind, indexes: Iterable[int]) -> Iterator[Reduction]:
        for index in indexes:
            for number, fact in enumerate(self._items[index].facts):
                if fact.kind == kind:
                    why = f"dropped, {self._why(index)}"
                    yield Reduction(index, "facts", fact=number, why=why)

    def _forget_lines(self, indexes: Iterable[int]) -> Iterator[Reduction]:
        """Remove the facts of long lists of lines, such as logs and code, except the first ones.

        Each of their lines has some, which are worth less than what users say.
        """
        for index in indexes:
            item = self._items[index]
            if len(item.facts) > _OF_LINES and not _holds_json(item):
                for number in range(len(item.facts) - 1, _OF_LINES - 1, -1):
                    why = f"one of many in lines, {self._why(index)}"
                    yield Reduction(index, "facts", fact=number, why=why)

    def _shorten(self, indexes: Iterable[int], why: str) -> Iterator[Reduction]:
        for index in indexes:
            if self._items[index].has_shorter:
                yield Reduction(index, "shortened", why=f"{why}, {self._why(index)}")


def _holds_json(item: Item) -> bool:
    texts = (
        text
        for message in item.messages
        if message.get("role") == "tool"
        for text in texts_of(message)
    )
    return any(map(may_be_json, texts))


def _rounds_of(items: Sequence[Item]) -> list[list[int]]:
    """Return the indexes of each round: a user message and everything before the next one."""
    rounds: list[list[int]] = []
    for index, item in enumerate(items):
        if item.kind == "user" or not rounds:
            rounds.append([])
        rounds[-1].append(index)
    return rounds


def _rule(item: Item) -> str:
    if item.kind == "user":
        return _USERS
    if is_summary(item):
        return _SUMMARIES
    if has_results(item):
        return _TOOLS
    return _DECISIONS if is_decision(item) else _TALK
