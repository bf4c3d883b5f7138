"""RECALLED: earlier messages that answer the latest user message, verbatim, in one block.

The block precedes the latest user message and is the same for all requests of a turn, so that their
prefix stays the same. The messages before it are planned in steps as without a block, within the
rest of the room. The block contains what full-text search over the whole conversation finds for the
latest user message, best first, each hit with the group before and the group after it, except
groups that the first request of the turn contains in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from projections.context import detail
from projections.context.compression.facts import calls_of, texts_of
from projections.context.output_paths import without_path
from projections.context.plans import Group, Plan
from projections.context.prompts import RECALLED
from projections.context.recall import Recall
from projections.context.rows import ContextRow
from projections.tokens import Tokenizer

__all__ = ["RecalledBlock", "block_of", "reserve"]

_SHARE = 60  # percent of the room
_LEAST = 96  # tokens of the smallest useful block
_FOUND = 256
_AT_A_TIME = 32
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


def block_of(
    recall: Recall,
    latest: Group,
    plan: Plan,
    room: int,
    tokenizer: Tokenizer,
    *,
    paths: bool,
) -> RecalledBlock | None:
    """Return the block, or None if no hit fits.

    Args:
        recall: The search.
        latest: The latest user message.
        plan: The plan of the first request of the turn.
        room: Upper limit for the block's tokens.
        tokenizer: Counts tokens.
        paths: Whether to show the paths of whole outputs.
    """
    there = {each.group.key for each in plan.groups if each.level == "full"} | {latest.key}
    chosen = _chosen(recall, latest, there, room)
    while chosen:
        groups = sorted(chosen, key=lambda group: group.key)
        group = recall.grouped((_row(groups, tokenizer, paths=paths),))
        if group.tokens <= room:
            return RecalledBlock(group, tuple(groups), latest.key)
        chosen.pop()
    return None


def _chosen(recall: Recall, latest: Group, there: set[tuple[int, int]], room: int) -> list[Group]:
    """Return the groups that fit, best first."""
    scores = recall.scores(latest.rows, latest.key, _FOUND)
    ranked = [key for key in scores if key < latest.key]
    chosen: list[Group] = []
    left = room
    for start in range(0, len(ranked), _AT_A_TIME):
        if left < _LEAST // 2:
            break
        hits = ranked[start : start + _AT_A_TIME]
        for group in recall.around(hits):
            size = group.tokens - sum(group.native) + _BEHIND * len(group.rows)
            if group.key in there or group.key > latest.key or size > left:
                continue
            there.add(group.key)
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
