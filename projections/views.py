"""`Views`: reading the projections, never stale.

A read of one conversation first catches that conversation up, in a short transaction that need
not wait for the disk; when nothing is new it only looks. A read across conversations first
catches up those that the feed names. On a read-only store what is missing is folded in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, select

from eventstore import EventStore
from eventstore.errors import ConversationNotFound
from eventstore.ids import to_uuid
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import get_stream
from eventstore.store import StreamId
from projections.base import Projection
from projections.context import CONTEXT, ContextView, build
from projections.context.sql_source import SqlRowSource
from projections.directory import DIRECTORY, DirectoryEntry
from projections.engine import catch_up, is_current
from projections.following import catch_up_behind, late
from projections.generations import Generation, GenerationGone, find_live, gone
from projections.loose_ends import LOOSE_ENDS
from projections.open_ends import LooseEnds
from projections.replica import in_memory
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
_LOOKS = 10
"""How many cut-overs in a row a read may meet."""


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
        install_all(store)

    def timeline(
        self, conversation_id: StreamId, *, after: int = 0, limit: int | None = None
    ) -> list[TimelineItem]:
        """Return what a UI shows of a conversation, in reading order.

        Args:
            conversation_id: The conversation.
            after: Only items that began or changed after this version; ask again with the
                highest ``end_version`` seen to get the news.
            limit: The most items to return.

        Raises:
            ConversationNotFound: There is none of this id.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> list[TimelineItem]:
            table = generation.tables["timeline_items"]
            query = select(table).where(table.c.conversation_id == stream)
            if after:
                query = query.where(table.c.end_version > after)
            query = query.order_by(table.c.version, table.c.part).limit(limit)
            return [TimelineItem.from_row(row) for row in connection.execute(query).mappings()]

        return self._read(TIMELINE, stream, read)

    def context(
        self,
        conversation_id: StreamId,
        *,
        max_tokens: int | None = None,
        max_messages: int | None = None,
        model: str = "gpt-4o",
    ) -> ContextView:
        """Return the messages[] of the next request, valid for OpenAI's chat format.

        Costs what the window costs and what is new, however long the conversation is; without a
        limit the window is the whole of it.

        Args:
            conversation_id: The conversation.
            max_tokens: Upper limit for the prompt, by the project's own count.
            max_messages: Upper limit for the number of messages.
            model: Decides how tokens are counted.

        Raises:
            ConversationNotFound: There is none of this id.
            BudgetInfeasible: What must be sent exceeds a limit.
            EncodingNotBundled: The model's tokenizer is not carried along.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> ContextView:
            source = SqlRowSource(connection, generation.tables["context_messages"], stream)
            return build(source, max_tokens=max_tokens, max_messages=max_messages, model=model)

        return self._read(CONTEXT, stream, read)

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

    def run_state(self, conversation_id: StreamId) -> RunState:
        """Return a conversation's Run-mode state: runs, nodes, artifacts, open calls, notebook.

        Raises:
            ConversationNotFound: There is none of this id.
        """
        stream = to_uuid(conversation_id)

        def read(connection: Connection, generation: Generation) -> RunState:
            def rows(name: str, *order: str) -> list[Any]:
                table = generation.tables[name]
                query = select(table).where(table.c.conversation_id == stream)
                found = connection.execute(query.order_by(*(table.c[each] for each in order)))
                return [row._mapping for row in found]

            state = rows("conversation_state")
            return RunState.from_rows(
                stream,
                state[0] if state else None,
                rows("runs", "started_version", "run_id"),
                rows("run_nodes", "run_id", "ordinal", "node_id"),
                rows("run_artifacts", "run_id", "node_id", "name"),
            )

        return self._read(RUNS, stream, read)

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

    def _read(self, projection: Projection, conversation_id: UUID | None, read: Read[T]) -> T:
        for _ in range(_LOOKS):
            with suppress(GenerationGone), gone():
                return self._read_once(projection, conversation_id, read)
            # A cut-over came between two looks. If it was to another version, ours is gone too.
            install_all(self.store)
        return self._read_once(projection, conversation_id, read)

    def _read_once(self, projection: Projection, conversation_id: UUID | None, read: Read[T]) -> T:
        if self.store.read_only:
            return self._read_replica(projection, conversation_id, read)
        if conversation_id is None:
            return self._read_across(projection, read)
        # A snapshot, since what a view reads in several queries must be of one version.
        with self.store.reading(snapshot=True) as connection:
            generation = _live(connection, projection)
            if _known(connection, generation, conversation_id):
                return read(connection, generation)
        with self.store.writing(durable=False) as connection:
            generation = _live(connection, projection)
            catch_up(connection, [generation], conversation_id)
            return read(connection, generation)

    def _read_across(self, projection: Projection, read: Read[T]) -> T:
        with self.store.reading() as connection:
            before = _live(connection, projection)
        catch_up_behind(self.store, [projection])
        with self.store.reading(snapshot=True) as connection:
            generation = _live(connection, projection)
            if generation.number != before.number:
                # The new one may lack what was appended while it was built.
                raise GenerationGone(projection.name)
            return read(connection, generation)

    def _read_replica(
        self, projection: Projection, conversation_id: UUID | None, read: Read[T]
    ) -> T:
        with self.store.reading(snapshot=True) as connection:
            live = find_live(connection, projection)
            if conversation_id is not None:
                get_stream(connection, conversation_id)
                behind = [conversation_id]
                if live is not None and is_current(connection, live, conversation_id):
                    behind = []
            else:
                behind = late(connection, live)
            if live is not None and not behind:
                return read(connection, live)
            everything = conversation_id is None
            with in_memory(connection, projection, live, behind, everything=everything) as copy:
                return read(*copy)


def _live(connection: Connection, projection: Projection) -> Generation:
    found = find_live(connection, projection)
    if found is None:
        raise GenerationGone(projection.name)
    return found


def _known(connection: Connection, generation: Generation, conversation_id: UUID) -> bool:
    """Whether the conversation is caught up; raise if there is none of this id."""
    current = is_current(connection, generation, conversation_id)
    if current is None:
        raise ConversationNotFound(conversation_id)
    return current
