"""`Views`: reading the projections, never stale.

A read of one conversation first catches that conversation up, in a short transaction that need
not wait for the disk; when nothing is new it only looks. A read across conversations first
catches up those that the feed names. On a read-only store what is missing is folded in memory, and
so is the past, which is asked for by ``at``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore import EventStore
from eventstore.events.values import Mode
from eventstore.ids import to_uuid
from eventstore.sql.schema import metadata_for
from eventstore.store import StreamId
from projections import tables
from projections.base import Projection
from projections.calibration import Calibration, calibration_of
from projections.compression.strategy import Strategy, strategy_of
from projections.context import CONTEXT, ContextSettings, ContextView, Injection, build
from projections.context.kept_rows import Memory
from projections.context.requests import recorded_request
from projections.context.settings import DEFAULTS
from projections.context.sql_source import SqlRowSource
from projections.context_reading import ContextReading
from projections.directory import DIRECTORY, DirectoryEntry
from projections.generations import Generation
from projections.loose_ends import LOOSE_ENDS
from projections.open_ends import LooseEnds
from projections.reading import Reading, read_current, read_past
from projections.replica import Copy
from projections.run_mode import injections, read_run_state
from projections.runs import RUNS, RunState
from projections.setup import install_all
from projections.timeline import TIMELINE
from projections.timeline_items import TimelineItem
from projections.tool_calls import TOOL_CALLS, ToolCallRow
from projections.totals import UsageBy, UsageTotal, usage_totals
from projections.usage import USAGE

__all__ = ["ConversationEntry", "Views"]

T = TypeVar("T")
Read = Callable[[Connection, Generation], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationEntry(DirectoryEntry):
    """A conversation in the list, with what the store knows of it besides."""

    version: int
    tenant_id: str | None
    user_id: str | None


class Views:
    """The read models of a store.

    Making one gives every projection its tables, if the store can be written to. Safe to share
    between threads. Every method may raise `ProjectionFailed`, naming conversation and version.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self._memory = Memory()
        install_all(store)

    def timeline(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        limit: int | None = None,
        at: int | None = None,
    ) -> list[TimelineItem]:
        """Return what a UI shows of a conversation, in reading order.

        Args:
            conversation_id: The conversation.
            after: Only items that began or changed after this version; ask again with the
                highest ``end_version`` seen to get the news.
            limit: The most items to return.
            at: As it was at this version, by replay: costs what its events cost.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: The conversation has not come to the version ``at``.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> list[TimelineItem]:
            table = generation.tables["timeline_items"]
            query = tables.shown(table, connection.dialect.name)
            query = query.where(table.c.conversation_id == stream)
            if after:
                query = query.where(table.c.end_version > after)
            query = query.order_by(table.c.version, table.c.part).limit(limit)
            return [TimelineItem.from_row(row) for row in connection.execute(query).mappings()]

        return self._read(TIMELINE, stream, read, at)

    def context(
        self,
        conversation_id: StreamId,
        *,
        model: str = "gpt-4o",
        max_tokens: int | None = None,
        reserve_for_response: int | None = None,
        max_messages: int | None = None,
        mode: Mode | None = None,
        agent: str | None = None,
        tools: Collection[Any] = (),
        run: bool | str | None = None,
        settings: ContextSettings | None = None,
        strategy: Strategy | str | None = None,
        format: str = "openai_chat",
        provider: str | None = None,
        at: int | None = None,
    ) -> ContextView:
        """Return the messages[] of the next request, valid for its provider, within its budget.

        Costs what the window costs and what is new, however long the conversation is; without a
        limit the window is the whole of it. See ``docs/context.md`` for what is promised.

        Args:
            conversation_id: The conversation.
            model: Decides how tokens are counted.
            max_tokens: Tokens of the call, by the project's own count; by default the settings'.
            reserve_for_response: How many of them are kept free for the response.
            max_messages: Upper limit for the number of messages.
            mode: The mode that the request is made in: composes the system part for it. In ``run``
                mode the request is told of the active run: its directive and the active node's
                brief or, once it is completed, its directive and post-run protocol. Without a
                mode, the conversation's own instructions are all that is in front.
            agent: Whose persona is told, in agent and run mode.
            tools: The tool declarations that are sent along, which count too.
            run: Of which run instead: of the one of this id, or of none (False). Without a mode,
                True asks for the active one all the same.
            settings: Limits and choices; the arguments go before them.
            strategy: What loses detail first, instead of the one that the settings name.
            format: ``openai_chat``, ``openai_responses``, ``anthropic_messages`` or ``neutral``.
            provider: Who will be asked: gets back what it made for itself, such as signed thoughts.
            at: As it was at this version, by replay: costs what its events cost.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: The conversation has not come to the version ``at``; no such mode, run or
                format.
            BudgetInfeasible: What must be sent exceeds a limit.
            EncodingNotBundled: The model's tokenizer is not carried along.
            InvalidPrompt: A text of the system part cannot be read.
            UnknownStrategy: No strategy of that name is registered.
        """
        settings = settings or DEFAULTS
        if strategy is None:
            strategy = strategy_of(settings.strategy, **settings.strategy_options)
        reading = ContextReading(
            store=self.store,
            memory=self._memory,
            conversation_id=to_uuid(conversation_id),
            settings=settings,
            mode=mode,
            agent=agent,
            tools=tools,
            run=mode == "run" if run is None else run,
            at=at,
            options={
                "max_tokens": settings.budget(max_tokens, reserve_for_response),
                "max_messages": max_messages,
                "model": model,
                "format": format,
                "provider": provider,
            },
        )
        return reading.view(strategy_of(strategy))

    def context_of(
        self,
        conversation_id: StreamId,
        request_version: int,
        *,
        strategy: Strategy | None = None,
    ) -> ContextView:
        """Return the messages[] of a request that was made, byte for byte as it was sent.

        By replay of the events before it, with what the ``llm_request`` at that version records
        of how its messages were chosen: costs what these events cost.

        Args:
            conversation_id: The conversation.
            request_version: The version of an ``llm_request`` whose messages came from `context`.
            strategy: The strategy that it was made with, if none of its name is registered.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: There is no such request at this version.
            UnknownStrategy: No strategy of the recorded name is registered.
            RequestNotReproducible: What comes out is not what was sent: something was erased
                since, or the request was made by another version of this project.
        """
        stream = to_uuid(conversation_id)
        request = recorded_request(self.store, stream, request_version)

        def read(copies: Sequence[Copy]) -> ContextView:
            connection, generation = copies[0]
            told: tuple[Injection, ...] = ()
            if request.run:
                state = read_run_state(*copies[1], stream)
                told = injections(state, request.run if isinstance(request.run, str) else None)
            return build(
                SqlRowSource(
                    connection,
                    generation.tables["context_messages"],
                    stream,
                    excluded=request.options["settings"].include_collapsed_ui_events,
                ),
                injections=(*request.system, *told),
                strategy=strategy,
                **request.options,
            )

        projections = (CONTEXT, RUNS) if request.run else (CONTEXT,)
        view = self._read_all(projections, stream, read, request.at)
        return request.checked(view)

    def usage(
        self,
        *,
        by: UsageBy = "model",
        conversation_id: StreamId | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
    ) -> list[UsageTotal]:
        """Return tokens, cost, latency and errors of model calls, added up by group.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: ``by`` names no grouping.
        """
        stream = None if conversation_id is None else to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> list[UsageTotal]:
            return usage_totals(
                connection,
                generation.tables["usage_by_call"],
                by=by,
                conversation_id=stream,
                tenant_id=tenant_id,
                user_id=user_id,
            )

        return self._read(USAGE, stream, read)

    def calibration(self, model: str, *, conversation_id: StreamId | None = None) -> Calibration:
        """Return what reported usage says of the token estimates for a model.

        Raises:
            ConversationNotFound: There is none of this id.
        """
        stream = None if conversation_id is None else to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> Calibration:
            return calibration_of(connection, generation.tables["usage_by_call"], model, stream)

        return self._read(USAGE, stream, read)

    def tool_calls(
        self,
        *,
        conversation_id: StreamId | None = None,
        tool: str | None = None,
        status: str | None = None,
        call_id: str | None = None,
        limit: int = 100,
    ) -> list[ToolCallRow]:
        """Return tool calls, newest first, of one conversation or of all.

        Raises:
            ConversationNotFound: There is none of this id.
        """
        stream = None if conversation_id is None else to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> list[ToolCallRow]:
            table = generation.tables["tool_calls"]
            wanted = (
                (table.c.conversation_id, stream),
                (table.c.name, tool),
                (table.c.status, status),
                (table.c.call_id, call_id),
            )
            query = select(table).order_by(
                table.c.requested_at.desc(),
                table.c.conversation_id,
                # Never NULL, which the databases sort to different ends; one append is one moment.
                table.c.requested_version.desc(),
                table.c.call_index.desc(),
                table.c.call_id,
            )
            for column, value in wanted:
                if value is not None:
                    query = query.where(column == value)
            rows = connection.execute(query.limit(limit)).mappings()
            return [ToolCallRow.from_row(row) for row in rows]

        return self._read(TOOL_CALLS, stream, read)

    def run_state(self, conversation_id: StreamId, *, at: int | None = None) -> RunState:
        """Return a conversation's Run-mode state: runs, nodes, artifacts, open calls, notebook.

        Args:
            conversation_id: The conversation.
            at: As it was at this version, by replay: costs what its events cost.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: The conversation has not come to the version ``at``.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> RunState:
            return read_run_state(connection, generation, stream)

        return self._read(RUNS, stream, read, at)

    def state_at(self, conversation_id: StreamId, version: int) -> RunState:
        """Return what `run_state` returned when the conversation was at a version; 0 is before all.

        Raises:
            ConversationNotFound: There is none of this id.
            ValueError: The conversation has not come to this version.
        """
        return self.run_state(conversation_id, at=version)

    def loose_ends(self, conversation_id: StreamId) -> LooseEnds:
        """Return what a conversation has begun and not ended, up to its last event.

        Raises:
            ConversationNotFound: There is none of this id.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> LooseEnds:
            table = generation.tables["loose_ends"]
            query = select(table).where(table.c.conversation_id == stream)
            return LooseEnds.from_row(connection.execute(query).mappings().one())

        return self._read(LOOSE_ENDS, stream, read)

    def conversations_with_loose_ends(
        self, limit: int = 100, *, after: UUID | None = None
    ) -> list[UUID]:
        """Return the conversations in which a model call, a tool call or a turn is open.

        Args:
            limit: The most to return, in order of id.
            after: Only ids above this one: the last id of the page before.
        """

        def read(connection: Connection, generation: Generation) -> list[UUID]:
            table = generation.tables["loose_ends"]
            query = select(table.c.conversation_id).where(table.c.open_count > 0)
            if after is not None:
                query = query.where(table.c.conversation_id > after)
            query = query.order_by(table.c.conversation_id).limit(limit)
            return list(connection.execute(query).scalars())

        return self._read(LOOSE_ENDS, None, read)

    def conversations(
        self, *, tenant_id: str | None = None, user_id: str | None = None, limit: int = 100
    ) -> list[ConversationEntry]:
        """Return the conversations of a tenant or user or of all, the latest active first."""

        def read(connection: Connection, generation: Generation) -> list[ConversationEntry]:
            table = generation.tables["directory"]
            streams = metadata_for(connection.dialect.name).tables["conversations"]
            query = (
                select(table, streams.c.version, streams.c.tenant_id, streams.c.user_id)
                .join(streams, streams.c.conversation_id == table.c.conversation_id)
                .order_by(table.c.last_activity_at.desc(), table.c.conversation_id)
                .limit(limit)
            )
            for column, value in (
                (streams.c.tenant_id, tenant_id),
                (streams.c.user_id, user_id),
            ):
                if value is not None:
                    query = query.where(column == value)
            return [ConversationEntry.from_row(row) for row in connection.execute(query).mappings()]

        return self._read(DIRECTORY, None, read)

    def _read(
        self,
        projection: Projection,
        conversation_id: UUID | None,
        read: Read[T],
        at: int | None = None,
    ) -> T:
        return self._read_all((projection,), conversation_id, lambda copies: read(*copies[0]), at)

    def _read_all(
        self,
        projections: Sequence[Projection],
        conversation_id: UUID | None,
        read: Reading[T],
        at: int | None = None,
    ) -> T:
        if conversation_id is None or at is None:
            return read_current(self.store, projections, conversation_id, read)
        return read_past(self.store, projections, conversation_id, at, read)
