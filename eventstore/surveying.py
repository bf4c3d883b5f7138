"""Surveys a conversation before an erasure: what goes, what goes with it, what still quotes it.

Every text of the conversation is read and compared. On SQLite that would block all writers, so it
happens in a read transaction; the erasing transaction only checks that the conversation has not
changed since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore.bill import bills, readable
from eventstore.errors import EventDamaged, EventStoreError, KeyUnavailable
from eventstore.events import BilledCall, Erasure, KeptUsage
from eventstore.events.records import RecordedEvent
from eventstore.quoting import copies_of, quotations_of
from eventstore.sql.lineage import fork_point
from eventstore.sql.schema import metadata_for

__all__ = ["Outdated", "Survey", "survey", "survey_fork"]


class Outdated(Exception):
    """The conversation has gained events or was erased since the survey: survey it again."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What to erase of a conversation, as of a version.

    Attributes:
        version: The conversation's version.
        erasures: Its `eventstore.erasure.erasure_count`.
        chosen: The requested versions that have a payload, in order.
        copies: The versions erased with them, each with its kind.
        quoting: The versions that hold the same text and stay, each with its kind.
        bill: The model calls that lose text and whose usage is kept.
    """

    version: int
    erasures: int
    chosen: tuple[int, ...]
    copies: Mapping[int, str] = field(default_factory=dict)
    quoting: Mapping[int, str] = field(default_factory=dict)
    bill: tuple[BilledCall, ...] = ()


def survey(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    *,
    erasures: int,
    derived: bool,
    keep_usage: bool,
) -> Survey:
    """Search a conversation for events that hold the text of these versions.

    Only reads, in the caller's transaction.

    Args:
        connection: In a transaction.
        conversation_id: The conversation; if it does not exist, nothing is found.
        versions: The versions to erase; None for all.
        erasures: The conversation's `erasure_count`, read earlier in this transaction.
        derived: Whether to erase copies as well.
        keep_usage: Whether to keep the usage of model calls.

    Raises:
        KeyUnavailable: The conversation is sealed, and its key is not available at the moment.
        EventDamaged: One of ``versions`` cannot be read, so that its copies cannot be found.
    """
    # Read the version first, so that events appended in between are noticed later.
    version = _version_of(connection, conversation_id)
    stays = (Erasure.type, KeptUsage.type) if keep_usage else (Erasure.type,)
    present = _chosen(connection, conversation_id, versions, stays)
    copies: dict[int, str] = {}
    quoting: dict[int, str] = {}
    if versions is not None:
        copies, quoting = _quoting(connection, conversation_id, version, present, derived)
    if copies and (parent := fork_point(connection, conversation_id)) is not None:
        # Shared events belong to the parent; a fork cannot erase them.
        theirs = {each: what for each, what in copies.items() if each <= parent.version}
        copies = {each: what for each, what in copies.items() if each not in theirs}
        quoting = quoting | theirs
    going = {*present, *copies} if keep_usage else set()
    bill = bills(readable(connection, conversation_id), going) if going else ()
    return Survey(version, erasures, present, copies, quoting, bill)


def survey_fork(
    connection: Connection,
    fork: UUID,
    shared: Collection[int],
    *,
    erasures: int,
    derived: bool,
    keep_usage: bool,
) -> Survey:
    """Search a fork's own events for copies of these versions, which it shares: they are chosen.

    The arguments and errors are those of `survey`.
    """
    newest = _version_of(connection, fork)
    point = fork_point(connection, fork)
    least = point.version if point else 0
    copies, quoting = _quoting(connection, fork, newest, shared, derived)
    own = {version for version in copies if version > least}
    stays = (Erasure.type, KeptUsage.type) if keep_usage else (Erasure.type,)
    chosen = _chosen(connection, fork, own, stays) if own else ()
    quoting = {version: what for version, what in quoting.items() if version > least}
    bill = bills(readable(connection, fork), {*chosen}) if chosen and keep_usage else ()
    return Survey(newest, erasures, chosen, quoting=quoting, bill=bill)


def _version_of(connection: Connection, conversation_id: UUID) -> int:
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    found = connection.execute(
        select(streams.c.version).where(streams.c.conversation_id == conversation_id)
    )
    return found.scalar() or 0


def _chosen(
    connection: Connection,
    conversation_id: UUID,
    versions: Collection[int] | None,
    stays: Collection[str],
) -> tuple[int, ...]:
    """Return the versions with a payload that will be erased, in order."""
    events = metadata_for(connection.dialect.name).tables["events"]
    query = (
        select(events.c.version)
        .where(
            events.c.conversation_id == conversation_id,
            events.c.data.is_not(None),
            events.c.type.not_in(stays),
        )
        .order_by(events.c.version)
    )
    present = connection.execute(query).scalars()
    return tuple(version for version in present if versions is None or version in versions)


@dataclass(frozen=True, slots=True)
class _Readable:
    """The events of a conversation that can be read; each iteration reads them again."""

    connection: Connection
    conversation_id: UUID
    newest: int
    unread: dict[int, EventStoreError | None] = field(default_factory=dict)
    """The versions up to ``newest`` that the last iteration could not read, and why."""

    def __iter__(self) -> Iterator[RecordedEvent]:
        self.unread.clear()
        last = 0
        errors: dict[int, EventStoreError] = {}
        for event in readable(self.connection, self.conversation_id, errors):
            self.unread.update((each, errors.get(each)) for each in range(last + 1, event.version))
            last = event.version
            yield event
        self.unread.update((each, errors.get(each)) for each in range(last + 1, self.newest + 1))


def _quoting(
    connection: Connection,
    conversation_id: UUID,
    newest: int,
    asked: Collection[int],
    derived: bool,
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the versions to erase with these, and those that will or may still hold their text.

    Raises:
        EventDamaged: One of ``asked`` cannot be read, so that its copies cannot be found.
    """
    if not asked:
        return {}, {}
    events = _Readable(connection, conversation_id, newest)
    copies = copies_of(events, asked)
    for version, error in events.unread.items():
        # What is sealed with a lost key has no readable copies: they were sealed with it too.
        if version in asked and not isinstance(error, KeyUnavailable):
            raise EventDamaged(conversation_id, version)
    quotations = quotations_of(events, {*asked, *copies} if derived else asked)
    quotations |= dict.fromkeys((each for each in events.unread if each not in asked), "unreadable")
    if not derived:
        return {}, quotations | copies
    requests = {version: what for version, what in quotations.items() if what == "request"}
    left = {version: what for version, what in quotations.items() if version not in requests}
    return copies | requests, left
