"""`Views`: read the projections, never stale.

A read of one conversation first catches that conversation up, in a short transaction that need not
wait for the disk; if there is nothing new, it only checks. A read across conversations first
catches up those that the feed names. On a read-only store, missing events are folded in memory. So
is the past, which callers request with ``at``. A store with a standby lets it answer what screens
and reports show.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID
from weakref import WeakSet

from sqlalchemy import Connection, Engine

from eventstore import EventStore
from eventstore.arguments import at_most, require_known, require_store, require_text
from eventstore.errors import OwnerMismatch
from eventstore.events import ToolPolicy
from eventstore.ids import StreamId
from eventstore.owners import ANY_OWNER, Owned, Owner
from projections import queries
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.context import CONTEXT, ContextView
from projections.context.compression.strategy import Strategy
from projections.context.row_cache import RowMemory, shared_memory
from projections.context.settings import (
    ContextRequest,
    ContextRequestOptions,
    budget_of,
    settings_of,
    strategy_for,
)
from projections.context.state import tool_policy
from projections.context_reading import CHANGEABLE, ContextReading, sent
from projections.engine.generations import Generation
from projections.engine.projection import Projection
from projections.engine.setup import install_all
from projections.follow import Follower, Waits, followed
from projections.listing import ConversationEntry, ConversationPage, Place, page_of
from projections.models.branches import BranchPoint, points_of
from projections.models.directory import DIRECTORY, ConversationStatus
from projections.models.open_items import OpenWork
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS, RunState
from projections.models.tasks import TASKS, TaskRow
from projections.models.timeline import TIMELINE
from projections.models.timeline_changes import TimelineUpdate
from projections.models.timeline_items import TimelineItem
from projections.models.tool_calls import TOOL_CALLS, ToolCallRow
from projections.models.totals import UsageBy, UsageTotal, usage_totals
from projections.models.usage import USAGE, UsageRow
from projections.providers.neutral import with_facts
from projections.pulse import pulse_of
from projections.queries import readable
from projections.reading import read_current, read_shown
from projections.replica import Copy, read_past
from projections.run_mode import read_run_state
from projections.search.finding import FoundPlace, SearchHit, hits_of, places_of, titles_of
from projections.search.message_search import SEARCH
from projections.search.words import terms_of
from projections.tokens.calibration import Calibration, calibration_of

__all__ = [
    "ConversationEntry",
    "ConversationPage",
    "SearchHit",
    "Views",
]


T = TypeVar("T")

_INSTALLED: WeakSet[Engine] = WeakSet()
"""The engines on which conversations' views were created or found."""


class Views:
    """The read models of a store.

    Creating an instance creates the tables of every projection, if the store is writable. Safe to
    share between threads. Every method may raise `ProjectionFailed`, which names conversation and
    version; `RowDamaged` if a table was altered; `StoreUnavailable` or `StatementRefused`.

    Args:
        store: The store.
        projections: The projections, including the product's own, if any.
        memory_bytes: Approximate size of the cache of rows that `context` has read most recently,
            so that a request reads only new rows: about 2 KB per message, at most half of the size
            for one conversation. 0 keeps nothing; the default is the store's setting. Rows that are
            not cached are read again: no answer depends on the cache.

    Raises:
        ValueError: ``memory_bytes`` is negative.
    """

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
        self._memory = RowMemory(store.memory_bytes if memory_bytes is None else memory_bytes)
        install_all(store, projections)

    @classmethod
    def _of_conversations(cls, store: EventStore) -> Self:
        """Return views that share their memory with all others made this way for the store.

        The tables are looked for once in a process: a read that misses one later creates it.
        """
        if store.engine not in _INSTALLED:
            views = cls(store)
            _INSTALLED.add(store.engine)
        else:
            views = cls.__new__(cls)
            views.store, views.projections = store, PROJECTIONS
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
        owned_by = self.store.resolve_owner(tenant_id, user_id)
        stream = self._stream(conversation_id, tenant_id=tenant_id, user_id=user_id)

        def read(connection: Connection, generation: Generation) -> list[UsageTotal]:
            return usage_totals(
                connection,
                generation.tables["usage_by_call"],
                by=by,
                conversation_id=stream,
                owned_by=owned_by,
                since=since,
                until=until,
            )

        return self._read(USAGE, stream, read, owned_by=owned_by)

    def model_calls(
        self,
        *,
        conversation_id: StreamId | None = None,
        before: int | None = None,
        model: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        **owner: Unpack[Owned],
    ) -> list[UsageRow]:
        """Return model calls with their tokens, cost and outcome, newest first.

        Args:
            conversation_id: Only this conversation's calls; those that a fork inherits belong to
                its parent.
            before: Only calls whose first event, the ``llm_request``, has a version below this one.
            model: Only calls of this model.
            status: ``started``, ``ok`` or the kind of an error.
            since: Only calls that began at or after this time, which must have a time zone.
            limit: Maximum number of calls to return.
            owner: The required owner (``tenant_id``, ``user_id``).

        Raises:
            TypeError: A filter is not text.
            ValueError: The time has no time zone.
            ConversationNotFound: No conversation has this id or key.
        """
        require_text(model=model, status=status)
        if since is not None and since.utcoffset() is None:
            raise ValueError(f"{since!r} has no time zone: pass datetime(..., tzinfo=UTC)")
        stream, owned_by = self._stream(conversation_id, **owner), self.store.resolve_owner(**owner)
        read = partial(
            queries.model_calls,
            conversation_id=stream,
            before=before,
            model=model,
            status=status,
            since=since,
            limit=limit,
            owned_by=owned_by,
        )
        return self._read(USAGE, stream, read, owned_by=owned_by)

    def calibration(
        self, model: str, *, conversation_id: StreamId | None = None, **owner: Unpack[Owned]
    ) -> Calibration:
        """Return how the token estimates for a model compare with the reported usage.

        Raises:
            TypeError: ``model`` is not text.
            ConversationNotFound: No conversation has this id or key.
        """
        require_text(model=model)
        stream, owned_by = self._stream(conversation_id, **owner), self.store.resolve_owner(**owner)

        def read(connection: Connection, generation: Generation) -> Calibration:
            table = generation.tables["usage_by_call"]
            limit_to = partial(owned_by.limit_by_id, dialect=connection.dialect.name)
            return calibration_of(connection, table, model, stream, limit_to)

        return self._read(USAGE, stream, read, owned_by=owned_by)

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
        stream, owned_by = self._stream(conversation_id, **owner), self.store.resolve_owner(**owner)
        read = partial(
            queries.tool_calls,
            conversation_id=stream,
            tool=tool,
            status=status,
            call_id=call_id,
            alias=alias,
            limit=limit,
            owned_by=owned_by,
        )
        return self._read(TOOL_CALLS, stream, read, owned_by=owned_by)

    def conversations_with_open_work(
        self, limit: int = 100, *, after: UUID | None = None, **owner: Unpack[Owned]
    ) -> list[UUID]:
        """Return the conversations in which a model call, a tool call or a turn is open.

        Args:
            limit: Maximum number to return, in order of id.
            after: Only ids above this one; pass the last id of the previous page.
        """
        owned_by = self.store.resolve_owner(**owner)
        read = partial(
            queries.conversations_with_open_work, after=after, limit=limit, owned_by=owned_by
        )
        return self._read(OPEN_WORK, None, read, owned_by=owned_by, decides=True)

    def conversations(
        self,
        *,
        tenant_id: str | None = None,
        user_id: str | None = None,
        status: ConversationStatus | None = None,
        thread: str | None = None,
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
            thread: Only sessions of this thread, and their forks; see `ChatSession`.
            after: The ``cursor`` of the previous page; None starts with the newest.
            limit: Maximum number of conversations to return.

        Raises:
            InvalidCursor: ``after`` is not a page's cursor.
            TypeError: ``thread`` is not text.
            ValueError: The status is unknown.
        """
        owned_by = self.store.resolve_owner(tenant_id, user_id)
        size = at_most(limit, needed=True)
        require_text(thread=thread)
        read = partial(
            page_of,
            owned_by=owned_by,
            status=status,
            thread=thread,
            place=Place.of(after),
            limit=size,
        )
        return self._read(DIRECTORY, None, read, owned_by=owned_by)

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
        owned_by, size = self.store.resolve_owner(tenant_id, user_id), at_most(limit, needed=True)
        terms = terms_of(text)
        if not terms or not size:
            return []

        def answer(copies: Sequence[Copy]) -> tuple[list[FoundPlace], Mapping[UUID, str | None]]:
            with readable(SEARCH.name):
                places = places_of(*copies[0], terms, owned_by, size)
                return places, titles_of(*copies[1], (each.conversation_id for each in places))

        projections = (SEARCH, DIRECTORY)
        places, titles = read_shown(self.store, projections, None, answer, owned_by=owned_by)
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
        stream, owned_by = self._stream(conversation_id, **owner), self.store.resolve_owner(**owner)
        read = partial(
            queries.rows, table=table, conversation_id=stream, limit=limit, owned_by=owned_by
        )
        return self._read(projection, stream, read, owned_by=owned_by)

    def read_batches(
        self, table: str, use: Callable[[Iterator[list[dict[str, Any]]]], T], *, size: int = 1_000
    ) -> T:
        """Pass all rows of a projection table to a function, in batches of one snapshot.

        For copies of whole tables: it never holds more than one batch. The transaction lasts as
        long as ``use`` does. If a rebuild replaces the table meanwhile, ``use`` is called again.

        Args:
            table: The stable name of a table that one of the projections declares.
            use: Gets the batches, in any order; what it returns is returned.
            size: Rows in a batch.

        Raises:
            OwnerMismatch: The store is bound to one owner.
            UnknownProjection: No projection declares this table.
        """
        if self.store.owner.asks:
            raise OwnerMismatch(None, "read_batches concerns all owners: use a store without one")
        projection = self.projections.owner_of(table)
        return self._read(
            projection,
            None,
            lambda connection, generation: use(
                queries.row_batches(connection, generation, table=table, size=size)
            ),
        )

    def _stream(self, conversation_id: StreamId | None, **owner: Unpack[Owned]) -> UUID | None:
        return None if conversation_id is None else self.store.stream(conversation_id, **owner)

    def _read(
        self,
        projection: Projection,
        conversation_id: UUID | None,
        read: Callable[[Connection, Generation], T],
        at: int | None = None,
        owned_by: Owner = ANY_OWNER,
        *,
        decides: bool = False,
    ) -> T:
        """Read; ``decides`` says that a writer acts on the answer, which the primary then gives."""

        def answer(copies: Sequence[Copy]) -> T:
            with readable(projection.name):
                return read(*copies[0])

        if conversation_id is None or at is None:
            look = read_current if decides else read_shown
            return look(self.store, (projection,), conversation_id, answer, owned_by=owned_by)
        return read_past(self.store, (projection,), conversation_id, at, answer)

    def timeline(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        limit: int | None = None,
        at: int | None = None,
        **owner: Unpack[Owned],
    ) -> list[TimelineItem]:
        """Return the items that a UI shows for a conversation, in reading order.

        If the process of a session has ended, the items that it left open are ``interrupted`` even
        before the conversation is opened again. The session's lease says whether the process has
        ended (`EventStore.writer`).

        Only items of the active branch are returned; `branches` lists the alternatives.

        Args:
            conversation_id: The conversation.
            after: Only items that began or changed after this version; to get later changes, pass
                the highest ``end_version`` seen. Items that have left the active branch since then
                are returned too, as ``inactive``.
            limit: Maximum number of items: those that changed first, so that ``after`` continues
                with the rest. Only if a single event changed more items are all of these returned.
            at: Return the timeline as of this version, by replay; the cost grows with its events.
            owner: The required owner (``tenant_id``, ``user_id``), here as in all reads.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: The conversation belongs to another tenant or user.
            ValueError: The conversation has not reached the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(
            queries.timeline, conversation_id=stream, after=after, limit=limit, now=at is None
        )
        return self._read(TIMELINE, stream, read, at)

    def timeline_page(
        self,
        conversation_id: StreamId,
        *,
        before: int | tuple[int, int] | None = None,
        limit: int = 100,
        kinds: Collection[str] = (),
        at: int | None = None,
        **owner: Unpack[Owned],
    ) -> list[TimelineItem]:
        """Return the last items of the active branch, in reading order: a page from the end.

        The cost depends on the size of the page, and not on the length of the conversation.

        Args:
            conversation_id: The conversation.
            before: Only items before this one, as ``(version, part)``: the first one of the page
                that follows. A version alone leaves out all items that its event began, such as
                the parallel calls of an answer. None for the end.
            limit: Maximum number of items.
            kinds: Only items of these kinds; see `TimelineItem`. All by default.
            at: Return the page as of this version, by replay; the cost grows with its events.
            owner: The required owner (``tenant_id``, ``user_id``).

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The conversation has not reached the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(
            queries.timeline_page,
            conversation_id=stream,
            before=before,
            limit=limit,
            kinds=kinds,
            now=at is None,
        )
        return self._read(TIMELINE, stream, read, at)

    def branches(
        self, conversation_id: StreamId, *, at: int | None = None, **owner: Unpack[Owned]
    ) -> list[BranchPoint]:
        """Return where a conversation's active branch has alternatives, in reading order.

        `Conversation.edit`, `regenerate` and `rewind` create alternatives. A screen shows a "2/3"
        next to the items of the active alternative's turn.

        Args:
            conversation_id: The conversation.
            at: Return the branches as of this version, by replay; the cost grows with its events.
            owner: The required owner (``tenant_id``, ``user_id``).

        Raises:
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: The conversation belongs to another tenant or user.
            ValueError: The conversation has not reached the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(queries.branch_rows, conversation_id=stream)
        return points_of(self._read(TIMELINE, stream, read, at))

    def follow(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        heartbeat_s: float | None = None,
        timeout_s: float | None = None,
        **owner: Unpack[Owned],
    ) -> Generator[TimelineUpdate, None, None]:
        """Yield changes to a conversation's timeline as any process commits them.

        First come the changes since ``after``, then each change as it happens: items added, text
        appended to an item, new values, items withdrawn. Apply the updates, in order, to the
        timeline as of ``after`` to get the current timeline. Following writes nothing, however many
        followers there are. When the writer's process ends, its running items become
        ``interrupted`` about a second later. That update repeats the last version, because no
        event records the end. Ends when the iterator is closed, or after ``timeout_s``.

        Args:
            conversation_id: The conversation.
            after: The version that the caller already has: that of the last update seen, in any
                process; 0 to start from nothing.
            heartbeat_s: Yield an update without changes after this many seconds without an update.
            timeout_s: End after this many seconds without a change; None waits forever.
            owner: The required owner (``tenant_id``, ``user_id``), as in `timeline`.

        Raises:
            ConversationNotFound: No conversation has this id, or it was purged while followed.
            ValueError: The conversation has not reached the version ``after``, or ``heartbeat_s``
                is not above 0.
        """
        follower = Follower(self.store, self.store.stream(conversation_id, **owner), after)
        waits = Waits(heartbeat_s, timeout_s)
        return followed(follower, follower.news(), pulse_of(self.store.engine), waits)

    def context(
        self, conversation_id: StreamId, **options: Unpack[ContextRequestOptions]
    ) -> ContextView:
        """Return the messages[] of the next request, valid for its provider and within its budget.

        The cost depends on the window and on the new events, not on the conversation's length;
        without a limit the window is the whole conversation. See ``docs/context.md`` for the
        guarantees.

        Args:
            conversation_id: The conversation.
            options: See `ContextOptions`; also ``tool_policy``, ``at`` and the owner.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            TypeError: An option is unknown, or has the wrong type.
            ValueError: The conversation has not reached the version ``at`` or has no such run, the
                format is unknown, or the mode is not a name of one.
            BudgetInfeasible: The mandatory messages exceed a limit.
            EncodingNotBundled: The model's tokenizer is not bundled.
            InvalidPrompt: A text of the system part cannot be used.
            UnknownStrategy: No strategy with this name is registered.
        """
        require_known(options, ContextRequestOptions)
        given: dict[str, Any] = {**options}
        owner = {name: given.pop(name) for name in Owned.__annotations__ if name in given}
        request = ContextRequest(**given)
        settings = settings_of(request.settings)
        budget = budget_of(settings, request)
        chosen = strategy_for(request.strategy, settings)
        reading = ContextReading(
            store=self.store,
            memory=self._memory,
            conversation_id=self.store.stream(conversation_id, **owner),
            settings=settings,
            mode=request.mode,
            agent=request.agent,
            tools=request.tools,
            policy=request.tool_policy,
            run=request.run,
            at=request.at,
            options={
                "max_tokens": budget.tokens,
                "max_messages": request.max_messages,
                "model": request.model,
                "format": request.format,
                "provider": request.provider,
                "paths": request.paths is not False,
            },
        )
        return budget.annotated(reading.view(chosen))

    def neutral(
        self, conversation_id: StreamId, **options: Unpack[ContextRequestOptions]
    ) -> tuple[dict[str, Any], ...]:
        """Return the messages of `context` in a vendor-neutral format, with facts of their events.

        In addition to the fields of the format ``neutral``, a message has ``timestamp`` (ISO 8601)
        and ``metadata`` (the product's data on the event). Answers have ``invocation`` (the model
        that was called), ``contents`` (the pieces of text) and ``usage``, and each of their calls
        ``parse_error`` and ``parse_warning``. Tool results have ``execute_error`` (why all of them
        failed), and each of them ``elapsed_ms``.

        Args:
            conversation_id: The conversation.
            options: The options of `context`, except the format.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            BudgetInfeasible: The mandatory messages exceed a limit.
        """
        given: dict[str, Any] = {**options, "format": "neutral"}
        owner = {name: given[name] for name in Owned.__annotations__ if name in given}
        stream = self.store.stream(conversation_id, **owner)
        return with_facts(self.store, stream, self.context(conversation_id, **given).messages)

    def tool_policy(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> ToolPolicy | None:
        """Return the tool policy that a conversation was started with, or None.

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream = self.store.stream(conversation_id, **owner)
        return self._read(
            CONTEXT, stream, partial(tool_policy, conversation_id=stream), decides=True
        )

    def context_of(
        self,
        conversation_id: StreamId,
        request_version: int,
        *,
        strategy: Strategy | None = None,
        changes: Mapping[str, Any] | None = None,
        **owner: Unpack[Owned],
    ) -> ContextView:
        """Return the messages[] of an earlier request, byte for byte as it was sent.

        Replays the events before the request with the choices that the ``llm_request`` at that
        version records; the cost grows with the number of these events.

        Args:
            conversation_id: The conversation.
            request_version: The version of an ``llm_request`` whose messages came from `context`.
            strategy: The strategy that the request used, if its name is not registered.
            changes: Other choices for the same moment, to see what would have been sent: any of
                ``max_tokens``, ``max_messages``, ``model`` and ``format``; and ``strategy``, which
                then may be any strategy. The result is compared with nothing.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The event at this version is not such a request.
            UnknownStrategy: No strategy with the recorded name is registered.
            RequestNotReproducible: The replay differs from what was sent: something was erased
                since, or another version of this package made the request.
        """
        stream = self.store.stream(conversation_id, **owner)
        if changes is not None and (unknown := sorted(set(changes) - CHANGEABLE)):
            names = ", ".join(sorted(CHANGEABLE))
            raise ValueError(f"cannot change {unknown[0]!r} of a request: choose from {names}")
        return sent(self.store, stream, request_version, strategy, changes)

    def why(
        self,
        conversation_id: StreamId,
        request_version: int,
        version: int,
        *,
        strategy: Strategy | None = None,
        **owner: Unpack[Owned],
    ) -> str:
        """Return in one line whether and in which form an event was in a request, and why not.

        Args:
            conversation_id: The conversation.
            request_version: The version of the ``llm_request``; see `context_of`.
            version: The version of the event.
            strategy: The strategy that the request used, if its name is not registered.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The event at ``request_version`` is not such a request.
            UnknownStrategy: No strategy with the recorded name is registered.
            RequestNotReproducible: The replay differs from what was sent.
        """
        view = self.context_of(conversation_id, request_version, strategy=strategy, **owner)
        return view.why(version)

    def run_state(
        self, conversation_id: StreamId, *, at: int | None = None, **owner: Unpack[Owned]
    ) -> RunState:
        """Return a conversation's Run-mode state: runs, nodes, artifacts, open calls, notebook.

        Args:
            conversation_id: The conversation.
            at: Return the state as of this version, by replay; the cost grows with its events.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The conversation has not reached the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(read_run_state, conversation_id=stream)
        return self._read(RUNS, stream, read, at, decides=True)

    def state_at(self, conversation_id: StreamId, version: int, **owner: Unpack[Owned]) -> RunState:
        """Return `run_state` as of a version; 0 is the state before the first event.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The conversation has not reached this version.
        """
        return self.run_state(conversation_id, at=version, **owner)

    def open_work(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> OpenWork:
        """Return a conversation's open work as of its last event.

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(queries.open_work, conversation_id=stream)
        return self._read(OPEN_WORK, stream, read, decides=True)

    def tasks(
        self,
        conversation_id: StreamId,
        *,
        task_id: str | None = None,
        open_only: bool = False,
        **owner: Unpack[Owned],
    ) -> list[TaskRow]:
        """Return the tasks in a conversation's queue, in the order in which they were enqueued.

        Args:
            conversation_id: The root of a `Scheduler`.
            task_id: Only this task.
            open_only: Only tasks that have not ended.
            owner: The required owner (``tenant_id``, ``user_id``).

        Raises:
            TypeError: ``task_id`` is not text.
            ConversationNotFound: No conversation has this id or key.
        """
        require_text(task_id=task_id)
        stream = self.store.stream(conversation_id, **owner)
        read = partial(queries.tasks, conversation_id=stream, task_id=task_id, open_only=open_only)
        return self._read(TASKS, stream, read, decides=True)
