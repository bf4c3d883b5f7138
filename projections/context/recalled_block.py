"""RECALLED: earlier messages that answer the latest user message, verbatim, in one block.

The block precedes the latest user message and is the same for all requests of a turn, so that their
prefix stays the same. The messages before it are planned in steps as without a block, within the
rest of the room. The block contains what full-text search over the whole conversation finds for the
latest user message, best first, each hit with the group before and the group after it, except
groups that the first request of the turn contains in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eventstore.database import END
from projections.context import detail
from projections.context.compression.facts import calls_of, facts_of_text, texts_of
from projections.context.compression.items import text_of
from projections.context.compression.lasting import may_take_back, takes_back
from projections.context.output_paths import without_path
from projections.context.plans import Group, Plan
from projections.context.prompts import RECALLED
from projections.context.recall import Recall
from projections.context.rows import ContextRow, Key
from projections.tokens import Tokenizer

__all__ = ["RecalledBlock", "block_of", "is_talk", "lacks_best", "missing", "reserve", "tools_room"]

_SHARE = 60  # percent of the room
_LEAST_TALK = 40  # groups
_RARE = 2.0  # points of BM25: about one word that a tenth of the groups have
_ALIKE, _MOST_ALIKE = 0.9, 8
_GOOD = 8.0  # points of BM25: two or three rare words
_LONGEST_QUESTION = 2_000  # characters
_LEAST = 96  # tokens of the smallest useful block
_FOUND = 256
_FOUND_AMONG_TOOLS = 64
_AT_A_TIME = 16
_LEAST_HIT = 48  # tokens that a hit takes with its neighbours, most often more
_SHORT = 16  # tokens of a message that may be repeated, such as a thank-you
_BEHIND = 8  # tokens before the text of a message, such as its version


@dataclass(frozen=True, slots=True)
class RecalledBlock:
    """The messages recalled for the latest user message.

    Attributes:
        group: The block as one message, with the source versions of everything in it.
        recalled: The groups in the block, oldest first.
        before: The key of the latest user message.
    """

    group: Group
    recalled: tuple[Group, ...]
    before: tuple[int, int]


def reserve(limit: int, fixed: int, most: int | None = None) -> int:
    """Return the tokens to reserve for the block, or 0 if it would be too small.

    Args:
        limit: Upper limit for the request's tokens.
        fixed: Tokens of what every request of the conversation contains.
        most: The budget of the section ``recalled``; None for no limit.
    """
    tokens = (limit - fixed) * _SHARE // 100
    tokens = tokens if most is None else min(tokens, most)
    return tokens if tokens >= _LEAST else 0


def is_talk(plan: Plan) -> bool:
    """Whether a history has 40 groups or more, and less than a tenth of its tokens are of tools."""
    groups = [each.group.whole or each.group for each in plan.groups]
    tools = sum(group.tokens for group in groups if group.section == "tools")
    return len(groups) >= _LEAST_TALK and tools * 10 < sum(group.tokens for group in groups)


def tools_room(
    limit: int, fixed: int, free: int, most: int | None = None, *, lacking: bool = False
) -> int:
    """Return the tokens of a block where tools are used: of what is free, or 0 if that is little.

    Args:
        limit: Upper limit for the request's tokens.
        fixed: Tokens of what every request of the conversation contains.
        free: Tokens that the first request of the turn leaves free.
        most: The budget of the section ``recalled``; None for no limit.
        lacking: Whether the request lacks the best match of a long history.
    """
    tokens = min((limit - fixed) // 10, free // 2)
    if lacking:
        tokens = min((limit - fixed) * _SHARE // 100, free * 3 // 4)
    tokens = tokens if most is None else min(tokens, most)
    return tokens if tokens >= _LEAST else 0


def missing(latest: ContextRow, rows: Sequence[ContextRow]) -> list[str]:
    """Return the identifiers in a message that stand nowhere else in a request; often none.

    Args:
        latest: The message.
        rows: All rows of the request.
    """
    facts = facts_of_text("\n".join(texts_of(latest.message))[:_LONGEST_QUESTION])
    named = dict.fromkeys(fact.text for fact in facts if fact.kind == "identifier")
    for row in rows if named else ():
        if row.key != latest.key:
            text = text_of((row.message,))
            named = {name: None for name in named if name not in text}
    return [*named]


def lacks_best(recall: Recall, latest: Group, plan: Plan) -> bool:
    """Whether a request lacks the best match of a long history for the latest user message.

    Args:
        recall: The search.
        latest: The latest user message.
        plan: The plan of the request.
    """
    if plan.all_read:
        return False
    there = {each.group.key for each in plan.groups if each.level == "full"}
    scores = recall.scores(latest.rows, _before(latest), _FOUND)
    best = next(iter(scores), None)
    return best is not None and best not in there and scores[best] >= _GOOD


def block_of(
    recall: Recall,
    latest: Group,
    plan: Plan,
    room: int,
    tokenizer: Tokenizer,
    *,
    paths: bool,
    intent: str | None = None,
) -> RecalledBlock | None:
    """Return the block, or None if no hit fits.

    Args:
        recall: The search.
        latest: The latest user message.
        plan: The plan of the first request of the turn.
        room: Upper limit for the block's tokens.
        tokenizer: Counts tokens.
        paths: Whether to show the paths of whole outputs.
        intent: What to search for instead of the text of the latest user message; hits then bring
            no neighbours.
    """
    whole = [each.group for each in plan.groups if each.level == "full"]
    there = {group.key for group in whole} | {latest.key}
    most = min(max(room // _LEAST_HIT, 1), _FOUND if is_talk(plan) else _FOUND_AMONG_TOOLS)
    chosen = _chosen(recall, latest, there, _Contents(whole), room, most, intent)
    users = (each.group.rows[0] for each in plan.groups if each.group.kind == "user")
    corrections = [row for row in users if row.key not in there and may_take_back(_text_of(row))]
    while chosen:
        groups = sorted(_corrected(recall, chosen, corrections), key=lambda group: group.key)
        group = recall.grouped((_row(groups, tokenizer, paths=paths),))
        if group.tokens <= room:
            return RecalledBlock(group, tuple(groups), latest.key)
        chosen.pop()
    return None


def _before(latest: Group) -> Key:
    """Return where the search ends: the index need not have the latest message itself."""
    return latest.key[0] - 1, END


class _Contents:
    """The texts of groups; only those of groups with the same number of tokens are compared."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._by_tokens: dict[int, list[Group]] = {}
        for group in groups:
            self.add(group)

    def add(self, group: Group) -> None:
        self._by_tokens.setdefault(group.tokens, []).append(group)

    def __contains__(self, group: Group) -> bool:
        alike = self._by_tokens.get(group.tokens, ())
        return bool(alike) and _content(group) in map(_content, alike)


def _content(group: Group) -> str:
    return text_of(row.message for row in group.rows)


def _text_of(row: ContextRow) -> str:
    return "\n".join(texts_of(row.message))


def _corrected(
    recall: Recall,
    groups: Sequence[Group],
    corrections: Sequence[ContextRow],
) -> list[Group]:
    """Return the groups, and the messages that correct any of them."""
    keys = {group.key for group in groups}
    added: dict[tuple[int, int], Group] = {}
    for row in corrections:
        if row.key in keys or row.key in added:
            continue
        newer = (row.version, _text_of(row))
        if any(
            takes_back(newer, (each.version, _text_of(each)))
            for group in groups
            for each in group.rows
            if each.version < row.version and each.kind != "tool"
        ):
            added[row.key] = recall.grouped((row,))
    return [*groups, *added.values()]


def _chosen(
    recall: Recall,
    latest: Group,
    there: set[tuple[int, int]],
    contents: _Contents,
    room: int,
    most: int,
    intent: str | None,
) -> list[Group]:
    """Return the groups that fit of the ``most`` best, without those that are already there."""
    if intent is None:
        scores = recall.scores(latest.rows, _before(latest), _FOUND)
    else:
        scores = recall.scores_of(intent, _before(latest), _FOUND)
    ranked = [*scores]
    if not ranked or (recall.by_words and scores[ranked[0]] < _RARE):
        return []  # Every history has the common words.
    alike = sum(scores[key] >= scores[ranked[0]] * _ALIKE for key in ranked)
    if alike > max(_MOST_ALIKE, len(ranked) // 4):
        return []  # Nothing stands out.
    chosen: list[Group] = []
    left = room
    for start in range(0, min(len(ranked), most), _AT_A_TIME):
        if left < _LEAST // 2:
            break
        hits = ranked[start : start + _AT_A_TIME]
        for group in recall.around(hits):
            if intent is not None and group.key not in scores:
                continue
            size = group.tokens - sum(group.native) + _BEHIND * len(group.rows)
            if group.key in there or group.key > latest.key or size > left:
                continue
            there.add(group.key)
            if group in contents and (group.key in scores or group.tokens > _SHORT):
                continue
            contents.add(group)
            chosen.append(group)
            left -= size
    return chosen


def _row(groups: Sequence[Group], tokenizer: Tokenizer, *, paths: bool) -> ContextRow:
    rows = [row for group in groups for row in group.rows]
    if not paths:
        rows = [without_path(row, tokenizer) for row in rows]
    text = "\n".join((RECALLED, *(line for row in rows for line in _lines(row))))
    count = detail.composed(text, tokenizer)
    versions = (version for group in groups for version in group.source_versions)
    return detail.made_row(text, count, tokenizer, groups[0].key, versions)


def _lines(row: ContextRow) -> Iterator[str]:
    place = f"{row.version}.{row.part - 1}" if row.kind == "tool" else f"{row.version}"
    if text := "\n".join(texts_of(row.message)):
        yield f"[{place} {row.kind}] {text}"
    for name, arguments in calls_of(row.message):
        yield f"[{place} call] {name} {arguments}"
