"""Putting reduced items together again: what is sent, in the order of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from projections.compression.items import Item, Message
from projections.compression.reduction import DIGEST_HEADER, Reduced, digest_text

__all__ = ["Placed", "assemble"]


class Placed(NamedTuple):
    """Messages that stand together, and the item that they are; None for the digest."""

    messages: tuple[Message, ...]
    item: Item | None


def assemble(items: Sequence[Item], reduced: Reduced, header: str = DIGEST_HEADER) -> list[Placed]:
    """Return what is left of items, oldest first.

    The gists are one system message, the digest, which stands where the oldest of them stood.

    Args:
        items: As they were reduced.
        reduced: What each has come to.
        header: What the digest begins with; the one that it was counted with.
    """
    digest = digest_text(items, reduced, header)
    placed: list[Placed] = []
    for item, level in zip(items, reduced.levels, strict=True):
        if level == "live":
            placed.append(Placed(item.messages, item))
        elif level == "summary":
            placed.append(Placed(item.messages if item.shorter is None else item.shorter, item))
        elif level == "gist" and digest is not None:
            placed.append(Placed(({"role": "system", "content": digest},), None))
            digest = None
    return placed
