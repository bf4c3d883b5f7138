"""The paged list of conversations that a sidebar shows, newest first.

A page is read from an index in display order, starting where the previous page ended. Its cost
depends on the page's size, and not on the number of conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, get_args, overload
from uuid import UUID

from sqlalchemy import (
    Connection,
    CursorResult,
    Integer,
    Select,
    Table,
    bindparam,
    func,
    select,
    tuple_,
    union_all,
)

from eventstore.database import Id, IndexedText, SafeText, Timestamp, metadata_for
from eventstore.errors import InvalidCursor
from eventstore.owners import Owner
from projections.engine.generations import Generation
from projections.engine.tables import TENANT, USER
from projections.models.directory import ConversationStatus, DirectoryEntry

__all__ = ["ConversationEntry", "ConversationPage", "Place", "page_of"]

_STATUSES: tuple[ConversationStatus, ...] = get_args(ConversationStatus)
_SHOWN = tuple(status for status in _STATUSES if status != "erased")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry(DirectoryEntry):
    """A conversation in the list: its directory entry and the store's data about it.

    Attributes:
        version: The version of its last event of any kind.
        tenant_id: Its tenant.
        user_id: Its user.
        key: The product's own name for it.
    """

    version: int
    tenant_id: str | None
    user_id: str | None
    key: str | None = None


_FIELDS = frozenset(field.name for field in fields(ConversationEntry))


@dataclass(frozen=True, slots=True)
class ConversationPage(Sequence[ConversationEntry]):
    """A page of the list; pass ``cursor`` as ``after`` to get the next page, which may be empty.

    ``cursor`` is None on the last page.
    """

    entries: tuple[ConversationEntry, ...]
    cursor: str | None

    @overload
    def __getitem__(self, place: int) -> ConversationEntry: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ConversationEntry, ...]: ...
    def __getitem__(self, place: int | slice) -> ConversationEntry | tuple[ConversationEntry, ...]:
        """Return the entry at an index, or the entries of a slice."""
        return self.entries[place]

    def __len__(self) -> int:
        """Return the number of conversations on the page."""
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends: after the conversation with this last activity and id."""

    last_activity_at: datetime
    conversation_id: UUID

    @classmethod
    def of(cls, cursor: str | None) -> Place | None:
        """Return the place that a page's cursor names.

        Raises:
            InvalidCursor: The text is not a page's cursor.
        """
        if cursor is None:
            return None
        moment, _, own_id = cursor.partition("/") if isinstance(cursor, str) else ("", "", "")
        try:
            active = datetime.fromisoformat(moment)
            if active.tzinfo is None:
                raise ValueError("the time has no zone")
            place = cls(active.astimezone(UTC), UUID(own_id))
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
    owned_by: Owner,
    status: ConversationStatus | None,
    thread: str | None,
    place: Place | None,
    limit: int,
) -> ConversationPage:
    """Return a page of the list, in the caller's transaction.

    Raises:
        ValueError: The status is unknown.
    """
    if status is not None and status not in _STATUSES:
        raise ValueError(f"unknown status {status!r}: choose from {', '.join(_STATUSES)}")
    query = _query(
        generation.tables["directory"],
        connection.dialect.name,
        _SHOWN if status is None else (status,),
        _Narrowed(
            tenant=owned_by.tenant_id is not None,
            no_tenant=owned_by.exact and owned_by.tenant_id is None,
            user=owned_by.user_id is not None,
            thread=thread is not None,
            place=place is not None,
        ),
    )
    given: dict[str, Any] = {"page_size": limit + 1}
    if owned_by.tenant_id is not None:
        given["of_tenant"] = owned_by.tenant_id
    if owned_by.user_id is not None:
        given["of_user"] = owned_by.user_id
    if thread is not None:
        given["of_thread"] = thread
    if place is not None:
        given |= {"after_moment": place.last_activity_at, "after_id": place.conversation_id}
    found = _entries(connection.execute(query, given))
    entries = tuple(found[:limit])
    return ConversationPage(entries, _cursor_of(entries[-1]) if len(found) > limit > 0 else None)


class _Narrowed(NamedTuple):
    """The filters of a list; their values are bound as parameters."""

    tenant: bool
    no_tenant: bool
    user: bool
    thread: bool
    place: bool


@lru_cache(maxsize=128)
def _query(
    directory: Table,
    dialect: str,
    statuses: tuple[ConversationStatus, ...],
    narrowed: _Narrowed,
) -> Select[Any]:
    """Return the query of a page, cached: building it takes as long as running it."""
    streams = metadata_for(dialect).tables["conversations"]
    size = bindparam("page_size", type_=Integer)
    # The index is ordered within each status; at most one page is read per status.
    listed = union_all(
        *(select(_listed(directory, narrowed, each).limit(size).subquery()) for each in statuses)
    ).subquery()
    return (
        select(directory, streams.c.version, streams.c.tenant_id, streams.c.user_id, streams.c.key)
        .select_from(listed)
        .join(directory, directory.c.conversation_id == listed.c.conversation_id)
        .join(streams, streams.c.conversation_id == listed.c.conversation_id)
        .order_by(listed.c.last_activity_at.desc(), listed.c.conversation_id.desc())
        .limit(size)
    )


def _entries(result: CursorResult[Any]) -> list[ConversationEntry]:
    # Look names up once, not per row: making the rows takes most of a page's time.
    places = [(place, name) for place, name in enumerate(result.keys()) if name in _FIELDS]
    return [ConversationEntry(**{name: row[place] for place, name in places}) for row in result]


def _listed(directory: Table, narrowed: _Narrowed, status: ConversationStatus) -> Select[Any]:
    shown = directory.c.last_activity_at, directory.c.conversation_id
    query = select(*shown).where(directory.c.status == status)
    tenant = bindparam("of_tenant", type_=SafeText)
    if narrowed.user:
        query = query.where(bindparam("of_user", type_=SafeText) == USER)
        if narrowed.tenant:
            # Avoid the tenant's index: a tenant has many users, a user has few tenants.
            query = query.where(func.coalesce(TENANT, "") == tenant, TENANT.is_not(None))
    elif narrowed.tenant:
        query = query.where(tenant == TENANT)
    if narrowed.no_tenant:
        query = query.where(TENANT.is_(None))
    if narrowed.thread:
        query = query.where(directory.c.thread_slug == bindparam("of_thread", type_=IndexedText))
    if narrowed.place:
        after = bindparam("after_moment", type_=Timestamp), bindparam("after_id", type_=Id)
        query = query.where(tuple_(*shown) < tuple_(*after))
    return query.order_by(*(column.desc() for column in shown))


def _cursor_of(entry: ConversationEntry) -> str | None:
    if entry.last_activity_at is None:
        return None
    return Place(entry.last_activity_at, entry.conversation_id).cursor
