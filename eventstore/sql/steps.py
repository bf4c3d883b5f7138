"""Steps of streams from known heads, with each event chained to the one before it.

All events are written as steps. The holder of a stream's lock knows its head; a store also
remembers the heads that it saw last, and the database then confirms or rejects them: a stream that
has moved in the meantime is left unchanged. `Backend.advance` writes all streams of a call with a
few statements, however many events they get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import UUID

from eventstore.events.records import RecordedEvent
from eventstore.security.hash_chain import chain_step, microseconds_of
from eventstore.security.sealing import SealingKey
from eventstore.sql.append_requests import Anchor, Append, Appended, Prepared

__all__ = ["AppendStep", "Heads", "StreamHead"]

_MOST_HEADS = 8192


@dataclass(slots=True)
class StreamHead:
    """A stream's head, from its row in `conversations`."""

    version: int
    chain: bytes
    epoch: int
    tenant_id: str | None
    user_id: str | None
    stream: str
    """The conversation's id as text, which both databases accept."""
    key: SealingKey | None = None
    """The key that its events are sealed with, if known."""
    line: object = field(default_factory=object)
    """The same object for all heads that a store has appended one after another."""


class AppendStep:
    """One stream's advance from a head, by one append or several."""

    __slots__ = (
        "chains",
        "conversation_id",
        "events",
        "head",
        "known",
        "microseconds",
        "now",
        "positions",
    )

    def __init__(self, conversation_id: UUID, known: StreamHead, now: datetime) -> None:
        self.conversation_id = conversation_id
        self.known = self.head = known
        self.now, self.microseconds = now, microseconds_of(now)
        self.events: list[Prepared] = []
        self.chains: list[bytes] = []
        self.positions: Sequence[int] | None = None
        """The events' positions once they are written; None if the stream has moved."""

    def add(self, request: Append) -> slice:
        """Chain an append's events to the head, and return their slice of the step's events."""
        head, chains, microseconds = self.head, self.chains, self.microseconds
        version, chain = head.version, head.chain
        for event in request.events:
            version += 1
            data = event.data
            chain = chain_step(
                chain,
                version,
                event.id_bytes,
                data.type,
                data.schema_version,
                microseconds,
                event.meta_text,
                event.digest,
            )
            chains.append(chain)
        self.head = StreamHead(
            version,
            chain,
            head.epoch,
            head.tenant_id,
            head.user_id,
            head.stream,
            head.key,
            head.line,
        )
        start = len(self.events)
        self.events.extend(request.events)
        return slice(start, len(self.events))

    def appended(self, places: slice) -> Appended:
        """Return the result of the append with this slice, once it is written."""
        recorded = partial(self._recorded, places)
        version = self.known.version + places.stop
        anchor = Anchor(version, self.chains[places.stop - 1], self.known.line)
        size = 0
        for event in self.events[places]:
            size += len(event.text) if event.blob is None else event.blob.size_bytes
        return Appended(self.conversation_id, version, recorded, anchor, size)

    def _recorded(self, places: slice) -> tuple[RecordedEvent, ...]:
        assert self.positions is not None  # noqa: S101 - it is written
        return tuple(
            RecordedEvent(
                self.conversation_id,
                version,
                event.event_id,
                position,
                event.data.type,
                event.data.schema_version,
                self.now,
                event.data,
                event.meta,
                event.digest,
                chain,
            )
            for version, (event, position, chain) in enumerate(
                zip(self.events[places], self.positions[places], self.chains[places], strict=True),
                start=self.known.version + places.start + 1,
            )
        )


class Heads(dict[int, StreamHead]):
    """The heads that a store saw last, by the integer of the stream's UUID; they may be outdated.

    Holds up to 8,192; then it starts over.
    """

    def reach(self, step: AppendStep) -> None:
        """Remember the head that a step has reached."""
        if len(self) >= _MOST_HEADS:
            self.clear()
        self[step.conversation_id.int] = step.head
