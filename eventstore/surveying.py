"""What an erasure of some versions has to take along, looked for before anything is locked.

Every text of the conversation is read and compared, which on SQLite would keep all that write
waiting for as long as the texts are. So it is done in a transaction that reads; the one that erases
only looks whether the conversation is as it was then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.events import Erasure
from eventstore.events.records import RecordedEvent
from eventstore.quoting import copies_of, quotations_of
from eventstore.sql.read import read_page
from eventstore.sql.schema import metadata_for

__all__ = ["Outdated", "Survey", "survey"]


class Outdated(Exception):
    """A conversation has gained events, or was erased, since it was surveyed: look again."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be erased of a conversation, as it was at a version.

    Attributes:
        version: Of the conversation.
        erasures: How often it had been erased.
        chosen: The versions asked for that have a payload, in order.
        copies: Those that go along, each with what it is.
        quoting: Those that hold the same words, and stay.
    """

    version: int
    erasures: int
    chosen: tuple[int, ...]
    copies: Mapping[int, str] = field(default_factory=dict)
    quoting: Mapping[int, str] = field(default_factory=dict)


def survey(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    *,
    erasures: int,
    derived: bool,
) -> Survey:
    """Look through a conversation for what holds the words of these versions; None for all.

    Reads alone, in the caller's transaction.

    Args:
        connection: In a transaction.
        conversation_id: The conversation; of one that does not exist nothing is found.
        versions: Those that were asked for.
        erasures: How often the conversation was erased, counted before in this transaction.
        derived: Whether what copies them goes along.

    Raises:
        KeyUnavailable: The conversation is sealed, and its key is not at hand.
    """
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    # Before what is read: what comes in between is then seen at the end.
    version = connection.execute(
        select(streams.c.version).where(streams.c.conversation_id == conversation_id)
    ).scalar()
    present = _chosen(connection, conversation_id, versions)
    if versions is None:
        return Survey(version or 0, erasures, present)
    copies, quoting = _quoting(connection, conversation_id, present, derived)
    return Survey(version or 0, erasures, present, copies, quoting)


def _chosen(
    connection: Connection, conversation_id: UUID, versions: Collection[int] | None
) -> tuple[int, ...]:
    """Return the versions that have a payload and are to lose it, in order."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = (
        select(events.c.version)
        .where(
            events.c.conversation_id == conversation_id,
            events.c.data.is_not(None),
            events.c.type != Erasure.type,
        )
        .order_by(events.c.version)
    )
    present = connection.execute(query).scalars()
    return tuple(version for version in present if versions is None or version in versions)


def _quoting(
    connection: Connection, conversation_id: UUID, asked: Collection[int], derived: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Return what goes along with these versions, and what then holds their words still."""
    events: list[RecordedEvent] = []
    while page := read_page(connection, conversation_id, after=events[-1].version if events else 0):
        events += page
    copies = copies_of(events, asked)
    quotations = quotations_of(events, {*asked, *copies} if derived else asked)
    if not derived:
        return {}, quotations | copies
    requests = {version: what for version, what in quotations.items() if what == "request"}
    left = {version: what for version, what in quotations.items() if version not in requests}
    return copies | requests, left
