"""Views across conversations: lists, totals, searches, and the rows of any table.

Each view first catches up the conversations that are behind. If there are many, it catches up only
those of the owner in question.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.ids import StreamId
from eventstore.options import at_most, require_store, require_text
from eventstore.owners import ANYBODY, Owned, Owner
from projections import queries
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.context.row_cache import Memory, shared_memory
from projections.engine.generations import Generation
from projections.engine.projection import Projection
from projections.engine.setup import install_all
from projections.finding import FoundPlace, SearchHit, hits_of, places_of, titles_of
from projections.listing import ConversationPage, Place, page_of
from projections.models.directory import DIRECTORY, ConversationStatus
from projections.models.message_search import SEARCH
from projections.models.open_work import OPEN_WORK
from projections.models.tool_calls import TOOL_CALLS, ToolCallRow
from projections.models.totals import UsageBy, UsageTotal, usage_totals
from projections.models.usage import USAGE
from projections.models.words import terms_of
from projections.queries import readable
from projections.reading import read_current
from projections.replica import Copy, read_past
from projections.tokens.calibration import Calibration, calibration_of

__all__ = ["ViewsAcross"]

T = TypeVar("T")


class ViewsAcross:
    """The views across conversations; `Views` inherits them."""

    def __init__(
        self,
        store: EventStore,
        projections: ProjectionSet = PROJECTIONS,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        """See `Views`."""
        require_store(store, EventStore)
        self.store = store
        self.projections = projections
        self._memory = Memory(store.memory_bytes if memory_bytes is None else memory_bytes)
        install_all(store, projections)

    @classmethod
    def _of_conversations(cls, store: EventStore) -> Self:
        """Return views that share their memory with all others made this way for the store."""
        views = cls(store)
        views._memory = shared_memory(store.engine, store.memory_bytes)
        return views

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return the views of one owner's conversations; see `EventStore.for_owner`.

        Raises:
            OwnerMismatch: The store is already bound to another owner.
        """
        bound = copy.copy(self)
        bound.store = self.store.for_owner(tenant_id=tenant_id, user_id=user_id)
        return bound

    def usage(
        self,
        *,
        by: UsageBy = "model",
        conversation_id: StreamId | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[UsageTotal]:
        """Return tokens, cost, latency and errors of model calls, totalled by group.

        Args:
            by: What to group by.
            conversation_id: Only this conversation's calls.
            tenant_id: Only this tenant's calls.
            user_id: Only this user's calls.
            since: Only calls that began at or after this time, which must have a time zone.
            until: Only calls that began before this time, which must have a time zone.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: ``by`` is not a grouping, or a time has no time zone.
        """
        for moment in (since, until):
            if moment is not None and moment.utcoffset() is None:
                raise ValueError(f"{moment!r} has no time zone: pass datetime(..., tzinfo=UTC)")
        whose = self.store.whose(tenant_id, user_id)
        stream = self._stream(conversation_id, tenant_id=tenant_id, user_id=user_id)

        def read(connection: Connection, generation: Generation) -> list[UsageTotal]:
            return usage_totals(
                connection,
                generation.tables["usage_by_call"],
                by=by,
                conversation_id=stream,
                whose=whose,
                since=since,
                until=until,
            )

        return self._read(USAGE, stream, read, whose=whose)

    def calibration(
        self, model: str, *, conversation_id: StreamId | None = None, **owner: Unpack[Owned]
    ) -> Calibration:
        """Return how the token estimates for a model compare with the reported usage.

        Raises:
            TypeError: ``model`` is not text.
            ConversationNotFound: No conversation has this id or key.
        """
        require_text(model=model)
        stream, whose = self._stream(conversation_id, **owner), self.store.whose(**owner)

        def read(connection: Connection, generation: Generation) -> Calibration:
            table = generation.tables["usage_by_call"]
            limit_to = partial(whose.limit_by_id, dialect=connection.dialect.name)
            return calibration_of(connection, table, model, stream, limit_to)

        return self._read(USAGE, stream, read, whose=whose)

    def tool_calls(
        self,
        *,
        conversation_id: StreamId | None = None,
        tool: str | None = None,
        status: str | None = None,
        call_id: str | None = None,
        alias: str | None = None,
        limit: int = 100,
        **owner: Unpack[Owned],
    ) -> list[ToolCallRow]:
        """Return tool calls, newest first, of one conversation or of all.

        Raises:
            TypeError: A filter is not text.
            ValueError: The status is unknown.
            ConversationNotFound: No conversation has this id or key.
        """
        require_text(tool=tool, call_id=call_id, alias=alias)
        stream, whose = self._stream(conversation_id, **owner), self.store.whose(**owner)
        read = partial(
            queries.tool_calls,
            conversation_id=stream,
            tool=tool,
            status=status,
            call_id=call_id,
            alias=alias,
            limit=limit,
            whose=whose,
        )
        return self._read(TOOL_CALLS, stream, read, whose=whose)

    def conversations_with_open_work(
        self, limit: int = 100, *, after: UUID | None = None, **owner: Unpack[Owned]
    ) -> list[UUID]:
        """Return the conversations in which a model call, a tool call or a turn is open.

        Args:
            limit: Maximum number to return, in order of id.
            after: Only ids above this one; pass the last id of the previous page.
        """
        whose = self.store.whose(**owner)
        read = partial(queries.conversations_with_open_work, after=after, limit=limit, whose=whose)
        return self._read(OPEN_WORK, None, read, whose=whose)

    def conversations(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        status: ConversationStatus | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> ConversationPage:
        """Return a page of the conversations of a tenant, a user or everyone, newest first.

        The newest is the one that was active last. A conversation that becomes active between two
        pages moves to the top, and does not appear again on a later page.

        Args:
            tenant_id: Only this tenant's conversations.
            user_id: Only this user's conversations.
            status: Only conversations that are ``open``, ``archived``, ``destroyed`` or ``erased``.
                By default all except erased ones, which nothing else lists.
            after: The ``cursor`` of the previous page; None starts with the newest.
            limit: Maximum number of conversations to return.

        Raises:
            InvalidCursor: ``after`` is not a page's cursor.
            ValueError: The status is unknown.
        """
        whose = self.store.whose(tenant_id, user_id)
        size = at_most(limit, needed=True)
        read = partial(page_of, whose=whose, status=status, place=Place.of(after), limit=size)
        return self._read(DIRECTORY, None, read, whose=whose)

    def search(
        self,
        text: str,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        limit: int = 20,
    ) -> list[SearchHit]:
        """Search all conversations and return the messages that contain the words, best first.

        A message must contain all words. Words in "quotes" must follow each other, and ``be*``
        matches the beginning of a word. Case and accents are ignored. The search covers titles and
        the texts of users and models, in any language, without withdrawn or erased messages.

        Args:
            text: The text to search for; only its first 1,000 characters are used. A text without
                words matches nothing.
            tenant_id: Only this tenant's conversations.
            user_id: Only this user's conversations.
            limit: Maximum number of messages to return. If more than 2,000 match, only the newest
                of them are ranked and returned; on SQLite, those that were indexed last.

        Raises:
            TypeError: ``text`` is not text.
        """
        require_text(text=text)
        whose, size = self.store.whose(tenant_id, user_id), at_most(limit, needed=True)
        terms = terms_of(text)
        if not terms or not size:
            return []

        def answer(copies: Sequence[Copy]) -> tuple[list[FoundPlace], Mapping[UUID, str | None]]:
            with readable(SEARCH.name):
                places = places_of(*copies[0], terms, whose, size)
                return places, titles_of(*copies[1], (each.conversation_id for each in places))

        asked = (SEARCH, DIRECTORY)
        places, titles = read_current(self.store, asked, None, answer, whose=whose)
        return hits_of(self.store, places, titles, terms)

    def rows(
        self,
        table: str,
        *,
        conversation_id: StreamId | None = None,
        limit: int | None = None,
        **owner: Unpack[Owned],
    ) -> list[dict[str, Any]]:
        """Return a projection table's rows, of one conversation or of all, ordered by key.

        Meant for a product's own projections, which have no method here; saves writing SQL.

        Args:
            table: The stable name of a table that one of the projections declares.
            conversation_id: The conversation.
            limit: Maximum number of rows to return.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            UnknownProjection: No projection declares this table.
        """
        projection = self.projections.owner_of(table)
        stream, whose = self._stream(conversation_id, **owner), self.store.whose(**owner)
        read = partial(queries.rows, table=table, conversation_id=stream, limit=limit, whose=whose)
        return self._read(projection, stream, read, whose=whose)

    def _stream(self, conversation_id: StreamId | None, **owner: Unpack[Owned]) -> UUID | None:
        return None if conversation_id is None else self.store.stream(conversation_id, **owner)

    def _read(
        self,
        projection: Projection,
        conversation_id: UUID | None,
        read: Callable[[Connection, Generation], T],
        at: int | None = None,
        whose: Owner = ANYBODY,
    ) -> T:
        def answer(copies: Sequence[Copy]) -> T:
            with readable(projection.name):
                return read(*copies[0])

        if conversation_id is None or at is None:
            return read_current(self.store, (projection,), conversation_id, answer, whose=whose)
        return read_past(self.store, (projection,), conversation_id, at, answer)
