"""The list of conversations, by pages: what a sidebar shows, newest first.

A page is read from an index in the order in which it is shown, from the place at which the page
before it ended, so that it costs what it shows, however many conversations there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args, overload
from uuid import UUID

from sqlalchemy import Connection, Select, Table, func, literal, select, tuple_, union_all

from eventstore.errors import InvalidCursor
from eventstore.owners import Owner
from eventstore.sql.schema import metadata_for
from eventstore.sql.types import Id, Timestamp
from projections.engine.generations import Generation
from projections.engine.owned import TENANT, USER
from projections.models.directory import ConversationStatus, DirectoryEntry

__all__ = ["ConversationEntry", "ConversationPage", "Place", "page_of"]

_STATUSES: tuple[ConversationStatus, ...] = get_args(ConversationStatus)
_SHOWN = tuple(status for status in _STATUSES if status != "erased")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry(DirectoryEntry):
    """A conversation in the list, with what the store knows of it besides.

    Attributes:
        version: Of its last event, whatever that is.
        tenant_id: Its tenant.
        user_id: Its user.
        key: The product's own name for it.
    """

    version: int
    tenant_id: str | None
    user_id: str | None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationPage(Sequence[ConversationEntry]):
    """A page of the list; pass ``cursor`` as ``after`` for the next one, which may be empty.

    ``cursor`` is None when this page is the last.
    """

    entries: tuple[ConversationEntry, ...]
    cursor: str | None

    @overload
    def __getitem__(self, place: int) -> ConversationEntry: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ConversationEntry, ...]: ...
    def __getitem__(self, place: int | slice) -> ConversationEntry | tuple[ConversationEntry, ...]:
        """Return one entry, or several, by their place."""
        return self.entries[place]

    def __len__(self) -> int:
        """Return how many conversations the page holds."""
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends: after the conversation of this activity and id."""

    last_activity_at: datetime
    conversation_id: UUID

    @classmethod
    def of(cls, cursor: str | None) -> Place | None:
        """Return the place that a page's cursor names.

        Raises:
            InvalidCursor: It is not the cursor of a page.
        """
        if cursor is None:
            return None
        moment, _, own_id = cursor.partition("/") if isinstance(cursor, str) else ("", "", "")
        try:
            place = cls(datetime.fromisoformat(moment).astimezone(UTC), UUID(own_id))
        except (ValueError, OverflowError) as error:
            advice = "pass the cursor of a page that views.conversations returned, or None"
            raise InvalidCursor(cursor, advice) from error
        return place

    @property
    def cursor(self) -> str:
        """The place as text."""
        return f"{self.last_activity_at.astimezone(UTC).isoformat()}/{self.conversation_id}"


def page_of(
    connection: Connection,
    generation: Generation,
    *,
    whose: Owner,
    status: ConversationStatus | None,
    place: Place | None,
    limit: int,
) -> ConversationPage:
    """Return a page of the list, in the caller's transaction.

    Raises:
        ValueError: There is no such status.
    """
    if status is not None and status not in _STATUSES:
        raise ValueError(f"no conversation is {status!r}: choose from {', '.join(_STATUSES)}")
    directory = generation.tables["directory"]
    streams = metadata_for(connection.dialect.name).tables["conversations"]
    # Each status is in order in the index; of each no more is read than the page can hold.
    listed = union_all(
        *(
            select(_listed(directory, whose, each, place).limit(limit + 1).subquery())
            for each in (_SHOWN if status is None else (status,))
        )
    ).subquery()
    query = (
        select(directory, streams.c.version, streams.c.tenant_id, streams.c.user_id, streams.c.key)
        .select_from(listed)
        .join(directory, directory.c.conversation_id == listed.c.conversation_id)
        .join(streams, streams.c.conversation_id == listed.c.conversation_id)
        .order_by(listed.c.last_activity_at.desc(), listed.c.conversation_id.desc())
        .limit(limit + 1)
    )
    found = [ConversationEntry.from_row(row) for row in connection.execute(query).mappings()]
    entries = tuple(found[:limit])
    return ConversationPage(entries, _cursor_of(entries[-1]) if len(found) > limit > 0 else None)


def _listed(
    directory: Table, whose: Owner, status: ConversationStatus, place: Place | None
) -> Select[Any]:
    shown = directory.c.last_activity_at, directory.c.conversation_id
    query = select(*shown).where(directory.c.status == status)
    if whose.user_id is not None:
        query = query.where(USER == whose.user_id)
        if whose.tenant_id is not None:
            # Not by its index: a tenant has many users, and a user few tenants.
            query = query.where(func.coalesce(TENANT, "") == whose.tenant_id, TENANT.is_not(None))
    elif whose.tenant_id is not None:
        query = query.where(TENANT == whose.tenant_id)
    if whose.exact and whose.tenant_id is None:
        query = query.where(TENANT.is_(None))
    if place is not None:
        after = (literal(place.last_activity_at, Timestamp), literal(place.conversation_id, Id))
        query = query.where(tuple_(*shown) < tuple_(*after))
    return query.order_by(*(column.desc() for column in shown))


def _cursor_of(entry: ConversationEntry) -> str | None:
    if entry.last_activity_at is None:
        return None
    return Place(entry.last_activity_at, entry.conversation_id).cursor
