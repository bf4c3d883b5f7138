"""The short way to append: from the heads that a store remembers, many streams at once.

What the database would be asked first is taken from memory: an append that would go on from the
remembered head is written at once, and the database refuses it if the stream has moved. Everything
else comes back undone: unknown streams, conflicts, fenced writers, retries, large payloads. Those
go the plain way (`eventstore.sql.append`), which finds out what is the matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from eventstore.sql.advance import Head, Step, advance
from eventstore.sql.dialect import AnyConnection, cursor, dialect_of
from eventstore.sql.requests import ANY, Anchor, Append, Appended

__all__ = ["Group", "Heads", "remember"]

Heads = dict[int, Head]
"""Heads as a store saw them last, by the number that a stream's UUID is; guesses, all of them."""

_MOST_HEADS = 8192


class Group:
    """Appends, chained to remembered heads where that is possible.

    Appends to one stream keep their order: once one of them has to go the plain way, those after
    it do as well.
    """

    def __init__(self, requests: Sequence[Append], heads: Heads, now: datetime) -> None:
        self._heads = heads
        self._steps: dict[int, Step] = {}
        self._places: list[tuple[Step, slice] | None] = []
        plain: set[int] = set()
        for request in requests:
            stream = request.conversation_id.int
            step = self._steps.get(stream)
            if step is None and (known := heads.get(stream)) is not None:
                step = Step(request.conversation_id, known, now)
            if step is None or stream in plain or not _may_follow(request, step.head):
                plain.add(stream)
                self._places.append(None)
                continue
            self._steps[stream] = step
            self._places.append((step, step.add(request)))

    def __bool__(self) -> bool:
        """Whether any append can go the short way."""
        return bool(self._steps)

    def write(self, connection: AnyConnection, *, wait: bool = True) -> list[Appended | None]:
        """Write what can be written, and return None in the place of all else.

        On PostgreSQL it is one statement, so that it needs no transaction around it. An event id
        that is already in its stream shows as the driver's integrity error. Of several streams
        those that somebody has locked are left out; a single one is waited for, if ``wait``.
        """
        steps = list(self._steps.values())
        advance(cursor(connection), dialect_of(connection), steps, wait=wait)
        for stream, step in self._steps.items():
            if step.positions is None:
                self._heads.pop(stream, None)
            else:
                remember(self._heads, step)
        return [
            None if place is None or place[0].positions is None else place[0].appended(place[1])
            for place in self._places
        ]


def remember(heads: Heads, step: Step) -> None:
    """Keep the head that a step has reached."""
    if len(heads) >= _MOST_HEADS:
        heads.clear()
    heads[step.conversation_id.int] = step.head


def _may_follow(request: Append, head: Head) -> bool:
    return (
        (request.expected is ANY or request.expected == head.version)
        and (request.writer_epoch is None or request.writer_epoch == head.epoch)
        and (request.tenant_id is None or request.tenant_id == head.tenant_id)
        and (request.user_id is None or request.user_id == head.user_id)
        and not request.has_blobs
        and request.key is head.key
        and (request.anchor is None or _descends(head, request.anchor))
    )


def _descends(head: Head, anchor: Anchor) -> bool:
    # The database compares the head's chain, which covers all that came before it.
    return anchor.line is head.line or anchor.chain == head.chain
