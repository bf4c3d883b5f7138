"""Views of many conversations at once: lists, sums, searches, and the rows of any table.

Each first catches up the conversations that are behind, or those of the owner that is asked for
where there are many.
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
from eventstore.options import require_store
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
    """The views that are not of one conversation; `Views` has those too."""

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
        """Return views that share what they remember with all that were made so of this store."""
        views = cls(store)
        views._memory = shared_memory(store.engine, store.memory_bytes)
        return views

    def for_owner(self, *, tenant_id: str | None = None, user_id: str | None = None) -> Self:
        """Return the views of one owner's conversations; see `EventStore.for_owner`.

        Raises:
            OwnerMismatch: The store is bound to another owner already.
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
        """Return tokens, cost, latency and errors of model calls, added up by group.

        Args:
            by: What makes a group.
            conversation_id: Only this conversation's calls.
            tenant_id: Only this tenant's.
            user_id: Only this user's.
            since: Only calls that began at this moment or later; one with a time zone.
            until: Only calls that began before this moment; one with a time zone.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: ``by`` names no grouping, or a moment has no time zone.
        """
        for moment in (since, until):
            if moment is not None and moment.utcoffset() is None:
                raise ValueError(f"{moment!r} has no time zone: say datetime(..., tzinfo=UTC)")
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
        """Return what reported usage says of the token estimates for a model.

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream, whose = self._stream(conversation_id, **owner), self.store.whose(**owner)

        def read(connection: Connection, generation: Generation) -> Calibration:
            table = generation.tables["usage_by_call"]
            limit_to = partial(whose.limit_by_id, dialect=connection.dialect.name)
            return calibration_of(connection, table, model, stream, limit_to)

        return self._read(USAGE, stream, read)

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
            ValueError: There is no such status.
            ConversationNotFound: No conversation has this id or key.
        """
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
        return self._read(TOOL_CALLS, stream, read)

    def conversations_with_open_work(
        self, limit: int = 100, *, after: UUID | None = None, **owner: Unpack[Owned]
    ) -> list[UUID]:
        """Return the conversations in which a model call, a tool call or a turn is open.

        Args:
            limit: The most to return, in order of id.
            after: Only ids above this one: the last id of the page before.
        """
        whose = self.store.whose(**owner)
        read = partial(queries.conversations_with_open_work, after=after, limit=limit, whose=whose)
        return self._read(OPEN_WORK, None, read)

    def conversations(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        status: ConversationStatus | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> ConversationPage:
        """Return a page of the conversations of a tenant, of a user or of all, newest first.

        Newest is what was active last. A conversation that becomes active between two pages stands
        at the top from then on, and is not told again on a later page.

        Args:
            tenant_id: Only this tenant's.
            user_id: Only this user's.
            status: Only those that are ``open``, ``archived``, ``destroyed`` or ``erased``; without
                it all but the erased ones, which nothing else lists.
            after: The ``cursor`` of the page before; None begins with the newest.
            limit: The most conversations to return.

        Raises:
            InvalidCursor: ``after`` is not the cursor of a page.
            ValueError: There is no such status.
        """
        whose = self.store.whose(tenant_id, user_id)
        size = queries.at_most(limit)
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
        """Return the messages of all conversations in which words stand, the best first.

        All words must stand in a message; those in "quotes" must follow each other; ``be*`` is the
        beginning of a word. Case and accents do not count. Texts of users and models and titles
        are searched, in any language; what was withdrawn or erased is not found.

        Args:
            text: What to look for; of a long text the first 1,000 characters count. Without any
                word in it nothing is found.
            tenant_id: Only in this tenant's conversations.
            user_id: Only in this user's.
            limit: The most messages to return; of words that very many messages have, the newest
                2,000 are ranked.
        """
        whose = self.store.whose(tenant_id, user_id)
        terms = terms_of(text)
        if not terms or not queries.at_most(limit):
            return []

        def answer(copies: Sequence[Copy]) -> tuple[list[FoundPlace], Mapping[UUID, str | None]]:
            with readable(SEARCH.name):
                places = places_of(*copies[0], terms, whose, limit)
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
        """Return the rows of a projection's table, of one conversation or of all, in order of key.

        For a product's own projections, which have no method here, and no need of SQL.

        Args:
            table: The stable name of a table that one of the projections declares.
            conversation_id: The conversation.
            limit: The most rows to return.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            UnknownProjection: No projection declares such a table.
        """
        projection = self.projections.owner_of(table)
        stream, whose = self._stream(conversation_id, **owner), self.store.whose(**owner)
        read = partial(queries.rows, table=table, conversation_id=stream, limit=limit, whose=whose)
        return self._read(projection, stream, read)

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
