"""How much a group is worth keeping, by rules that a person can follow.

Points are whole hundredths, and every rule is a fixed pattern: the same group at the same age
always has the same score. If you change a rule, raise the version of the strategies that score
(`projections.context.compression.key_messages`, `projections.context.compression.retrieval`).

`fading` lowers detail by rank as `LevelOfDetail` does by age: the least valued group takes the
place of the oldest, the most valued that of the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from projections.context.compression.items import Item, Level
from projections.context.compression.level_of_detail import LevelOfDetail
from projections.context.compression.strategy import Reduction

__all__ = [
    "ROUNDS",
    "Score",
    "fading",
    "has_results",
    "is_decision",
    "is_summary",
    "last_rounds",
    "protected",
    "score_of",
]


ROUNDS = 4
"""How many of the last rounds lose detail last (document 000, 4.3)."""

_SCANNED = 2_000  # characters at each end; what is between them is not searched
_HALF_LIFE = 16  # recency is worth half this many groups back
_RECENCY, _USER, _SUMMARY, _DECISION, _ERROR = 100, 100, 100, 80, 40
_PATHS, _CODE, _NUMBERS = 50, 50, 30
_KEYWORD, _MOST_KEYWORDS = 20, 3
_TOKENS_OF_A_POINT, _LARGEST_PENALTY = 20, 150

_KEYWORDS = frozenset(
    "must should shall need needs never always require required important todo".split()
)
_KEYWORDS_CHINESE = ("必须", "需要", "应该", "不要", "不能", "务必", "重要", "待办")
_DECIDES = frozenset(
    "decided decision conclusion conclusions summary done complete completed finished fixed "
    "resolved confirmed delivered agreed".split()
)
_DECIDES_CHINESE = ("决定", "结论", "总结", "完成", "已修复", "已解决", "已确认", "交付", "产出")
_WORD = re.compile("[a-z]+")
# The lookbehind lets a long run match only from its start, which keeps the time linear.
_PATH = re.compile(
    r"(?<![\w./~@-])"
    r"(?:[~.@]{0,2}/[\w.-]+|@?[\w.-]+(?:/[\w.-]+){2,}|(?:[\w-]+/)+[\w.-]*\.\w+"
    r"|[\w-]+\.(?:py|[jt]sx?|md|json|ya?ml|toml|txt|csv|sql|rs|go|java|cpp?|h|html|css|sh)(?!\w))",
    re.ASCII,
)
_CODE_BLOCK = re.compile(r"```|~~~|^(?: {4}|\t)\S", re.MULTILINE)
_NUMBER = re.compile(r"\d")

_SAID: Mapping[Level, str] = {"shortened": "shortened", "facts": "facts only", "dropped": "dropped"}


class Score(NamedTuple):
    """Points in hundredths, and the parts that add up to them.

    >>> str(Score(150, (("recency", 100), ("paths", 50))))
    'score 1.50: recency 1.00, paths 0.50'
    """

    points: int
    parts: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        parts = ", ".join([_described(*part) for part in self.parts])
        return f"score {_decimal(self.points)}: {parts}"


def score_of(item: Item, age: int) -> Score:
    """Return how much an item is worth keeping; the newest item of a conversation has age 1."""
    recency = _RECENCY * _HALF_LIFE // (_HALF_LIFE + age - 1)
    worth = _worth(item)
    parts = (("recency", recency), *worth) if recency else worth
    return Score(sum([points for _, points in parts]), parts)


def has_results(item: Item) -> bool:
    """Whether the item contains the result of a tool."""
    for message in item.messages:  # Faster than `any`: every step checks every item.
        if message.get("role") == "tool":
            return True
    return False


def is_summary(item: Item) -> bool:
    """Whether the item replaces earlier ones."""
    return item.kind == "summary"


def is_decision(item: Item) -> bool:
    """Whether an assistant says in prose that something is decided or done."""
    for name, _ in _worth(item):  # Faster than `any`, as above.
        if name == "decision":
            return True
    return False


def last_rounds(items: Sequence[Item], rounds: int = ROUNDS) -> int:
    """Return the index at which the last rounds begin; 0 if there are fewer, the end if none.

    A round begins at a user message and ends before the next; items before the first user message
    are in no round.
    """
    if not rounds:
        return len(items)
    users = [index for index, item in enumerate(items) if item.kind == "user"]
    return users[-rounds] if rounds <= len(users) else 0


def _worth(item: Item) -> tuple[tuple[str, int], ...]:
    """Return the parts of an item's score except recency; cached, since every step needs them."""
    worth = item.worth
    if worth is None:
        worth = tuple((name, points) for name, points in _parts(item) if points)
        item.note_worth(worth)
    return worth


def _parts(item: Item) -> Iterator[tuple[str, int]]:
    text, results = item.text, has_results(item)
    if len(text) > 2 * _SCANNED:
        text = f"{text[:_SCANNED]}\n{text[-_SCANNED:]}"
    yield "user", _USER * (item.kind == "user")
    yield "summary", _SUMMARY * is_summary(item)
    yield "error", _ERROR * (item.kind == "error")
    decisive = item.kind == "assistant" and not results
    yield from (part for part in _phrases_of(text) if decisive or part[0] != "decision")
    if results:
        yield "size", -min(item.tokens // _TOKENS_OF_A_POINT, _LARGEST_PENALTY)


@lru_cache(maxsize=1 << 13)  # Requests score the same texts again and again.
def _phrases_of(text: str) -> tuple[tuple[str, int], ...]:
    path = ("/" in text or "." in text) and _PATH.search(text) is not None
    parts = (
        ("decision", _DECISION * _decides(text)),
        ("keywords", _KEYWORD * min(_keywords(text), _MOST_KEYWORDS)),
        ("paths", _PATHS * path),
        ("code", _CODE * (_CODE_BLOCK.search(text) is not None)),
        ("numbers", _NUMBERS * (_NUMBER.search(text) is not None)),
    )
    return tuple((name, points) for name, points in parts if points)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _keywords(text: str) -> int:
    chinese = 0 if text.isascii() else sum(word in text for word in _KEYWORDS_CHINESE)
    return len(_words(text) & _KEYWORDS) + chinese


def _decides(text: str) -> bool:
    if not text.isascii() and any(word in text for word in _DECIDES_CHINESE):
        return True
    return not _DECIDES.isdisjoint(_words(text))


@lru_cache(maxsize=2048)
def _described(name: str, points: int) -> str:
    return f"{name} {_decimal(points)}"


@lru_cache(maxsize=512)
def _decimal(points: int) -> str:
    sign = "-" if points < 0 else ""
    whole, hundredths = divmod(abs(points), 100)
    return f"{sign}{whole}.{hundredths:02}"


def protected(items: Sequence[Item], most: int) -> int:
    """Return the index of the first recent item: the last rounds, but at most ``most`` items.

    A single round of an agent can be the whole history; without ``most`` all of it would be recent.
    """
    return max(last_rounds(items), len(items) - most)


def fading(
    items: Sequence[Item], order: Sequence[int], reasons: Mapping[int, str], recent: int
) -> list[Reduction]:
    """Return reductions for items in an order, then for the items from ``recent`` on.

    Args:
        items: The items, oldest first.
        order: Indexes of the items before ``recent``, the least valued first.
        reasons: For each of these, the reason for its place in the order.
        recent: Index from which items lose detail by age, after all others.
    """
    history = [index for index in order if not items[index].mandatory]
    newest = [index for index in range(recent, len(items)) if not items[index].mandatory]
    return [*_faded(items, history, reasons), *_faded(items, newest, {})]


def _faded(
    items: Sequence[Item], order: Sequence[int], reasons: Mapping[int, str]
) -> Iterator[Reduction]:
    for reduction in LevelOfDetail().reductions([items[index] for index in order], ""):
        index = order[reduction.item]
        phrase = _SAID["dropped"] if reduction.fact is not None else _SAID[reduction.to]
        why = reasons.get(index, f"recent, {len(items) - index} from the end")
        yield Reduction(index, reduction.to, fact=reduction.fact, why=f"{phrase}, {why}")
