"""Reading the messages[] view: in one snapshot, from cached rows, with search if a strategy asks.

This module decides which projections and rows `Views.context` reads, and what is remembered between
requests. `projections.context`, which knows nothing of stores, builds the request itself.

A read must not write, and an embedding may take seconds. A read that searches is therefore tried
first. If it finds the index behind, it gives up; the index is caught up in short transactions with
the embedding between them, and the read is repeated. Events appended in the meantime, and databases
that are busy or read-only, are searched without the index, with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.database import AnyConnection
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import DatabaseBusy
from eventstore.events import ToolPolicy
from eventstore.events.values import Mode
from projections.context import (
    CONTEXT,
    ContextSettings,
    ContextView,
    Injection,
    build,
    compose,
    search_index,
    search_tables,
)
from projections.context.compression.search import Embedding, embedded, without_embedding
from projections.context.compression.strategy import Strategy
from projections.context.groups import groups_of
from projections.context.levels import prepare_new
from projections.context.prompts import permitted
from projections.context.recall import adds_block, embedding_of, retrieves
from projections.context.recall_search import (
    DriverRows,
    SearchableRows,
    SearchBehind,
    lacking,
    store_vectors,
)
from projections.context.row_cache import MOST_IN_MEMORY, RowMemory
from projections.context.search_tables import fingerprint, item_to_search
from projections.context.sent_requests import recorded_request
from projections.context.settings import strategy_for
from projections.context.source import SqlRowSource
from projections.context.state import CONTEXT_ACTIVE, Active, RequestMode, read_active
from projections.context.view import next_needed
from projections.engine.catch_up import PATIENCE_MS, Begin, CatchUp, in_pieces
from projections.engine.generations import Generation, find_live, gone
from projections.engine.heads import FoldHead
from projections.engine.projection import Projection
from projections.engine.setup import install_all
from projections.errors import EmbeddingFailed, GenerationGone
from projections.models.runs import RUNS
from projections.reading import read_current, read_on_driver
from projections.replica import Copy, read_past
from projections.run_mode import injections, read_run_state

__all__ = [
    "CHANGEABLE",
    "INDEXED_FROM",
    "ContextReading",
    "bring_up",
    "keep_up",
    "long_conversations",
    "sent",
]

INDEXED_FROM = MOST_IN_MEMORY * 3 // 4
"""The events above which an index is kept for a conversation; the first request to need it comes
later, and does not wait."""

CHANGEABLE = frozenset({"format", "max_messages", "max_tokens", "model", "strategy"})
"""The choices of a recorded request that `Views.context_of` can replace."""


_EMBEDDED = 64  # texts at a time


def bring_up(store: EventStore, conversation_id: UUID, embedding: Embedding | None = None) -> None:
    """Index the messages that the conversation's index lacks, and embed the texts without a vector.

    Uses its own transactions, none of which is open while texts are embedded. If interrupted, the
    next call resumes where this one stopped.
    """
    install_all(store, (CONTEXT,))
    with store.reading() as connection:
        made = search_tables.are_there(connection)
        generation = find_live(connection, CONTEXT)
    if not made:
        search_tables.create(store, patience_ms=PATIENCE_MS)
    if generation is None:
        return
    writing = partial(store.writing, durable=False, patience_ms=PATIENCE_MS)
    with suppress(GenerationGone), gone():
        in_pieces([CatchUp([generation], conversation_id)], Begin(store.reading, writing))
    with store.reading() as connection:
        # A cut-over may have happened since.
        generation = find_live(connection, CONTEXT)
    if generation is None:
        return
    index = search_index.IndexCatchUp(generation, conversation_id)
    with suppress(GenerationGone), gone():
        while not index.done:
            with store.reading(snapshot=True) as connection:
                index.look(connection)
            if not index.done:
                with writing() as connection:
                    index.save(connection)
    if index.done and embedding is not None:
        _embed(store, generation, conversation_id, embedding)


def keep_up(store: EventStore, conversation_id: UUID, version: int) -> None:
    """Index what a conversation has gained, if an index will serve it, and searches make one.

    The first search of a long conversation makes its index, or a worker does. One that becomes long
    is indexed ahead, once any conversation of the store has an index.

    Args:
        store: The store.
        conversation_id: The conversation.
        version: Its version.
    """
    if version <= INDEXED_FROM:
        return
    with store.reading() as connection:
        exists = search_tables.are_there(connection) and (
            version <= 2 * MOST_IN_MEMORY or search_index.is_indexed(connection, conversation_id)
        )
    if exists:
        bring_up(store, conversation_id)


def long_conversations(store: EventStore, conversations: Sequence[UUID]) -> list[UUID]:
    """Return the conversations that an index serves, or will soon; shorter ones need none."""
    with store.reading() as connection:
        generation = find_live(connection, CONTEXT)
        if generation is None:
            return []
        return [
            each
            for each in conversations
            if (search_index.folded_to(connection, generation, each) or 0) > INDEXED_FROM
        ]


def _embed(
    store: EventStore, generation: Generation, conversation_id: UUID, embedding: Embedding
) -> None:
    while True:
        with store.reading(snapshot=True) as connection:
            erasures = erasure_count(connection, [conversation_id])
            texts = _lacking_texts(connection, generation, conversation_id, embedding.name)
        if not texts:
            return
        vectors = embedded(list(texts.values()), embedding.embed)
        with store.writing(durable=False, patience_ms=PATIENCE_MS) as connection:
            erasure_lock(connection, conversation_id)
            # Texts erased since the read must leave nothing behind.
            if erasure_count(connection, [conversation_id]) != erasures:
                return
            found = dict(zip(texts, vectors, strict=True))
            store_vectors(connection, conversation_id, embedding.name, found)


def _lacking_texts(
    connection: Connection, generation: Generation, conversation_id: UUID, name: str
) -> dict[bytes, str]:
    """Return one page of the texts that have no vector, by fingerprint."""
    places = lacking(connection, conversation_id, name, _EMBEDDED)
    table = generation.tables["context_messages"]
    source = SqlRowSource(connection, table, conversation_id)
    rows = source.rows_at(sorted({version for version, _ in places}))
    found: dict[bytes, str] = {}
    for group in groups_of(rows):
        item = item_to_search(group)
        # A group that has changed since it was indexed is embedded when it is indexed again.
        if places.get(item.key) == (mark := fingerprint(conversation_id, item.text)):
            found[mark] = item.text
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """One read of the messages[] view; see `Views.context` for the options.

    Attributes:
        memory: The rows that this process remembers of the conversations that it reads.
        mode: The mode that the system part is composed for; ``active`` for the conversation's.
        policy: Which tools the request may declare, in addition to the conversation's policy.
        run: The run that the request describes; True for the active one, None to follow the mode.
        at: The version to go back to; None for the present.
        options: Other arguments of `build`: model, limits, format, provider, paths.
    """

    store: EventStore
    memory: RowMemory
    conversation_id: UUID
    settings: ContextSettings
    mode: RequestMode
    agent: str | None
    tools: Collection[Any]
    policy: ToolPolicy | None
    run: bool | str | None
    at: int | None
    options: Mapping[str, Any]

    def view(self, strategy: Strategy) -> ContextView:
        """Read the view; if a strategy's embedding fails, search without it and add a note."""
        try:
            return self._answer(strategy)
        except EmbeddingFailed as error:
            lesser = without_embedding(strategy)
            if lesser is strategy:
                raise
            message = f"searched by words alone: {error}"
            return replace(self._answer(lesser), notes=(message,))

    def _answer(self, strategy: Strategy) -> ContextView:
        with_runs = self.mode == "run" if self.run is None else bool(self.run)
        view = self._read(strategy, with_runs=with_runs) or self._read(strategy, with_runs=True)
        assert view is not None  # noqa: S101 - with the runs read, nothing is missing
        return view

    def _read(self, strategy: Strategy, *, with_runs: bool) -> ContextView | None:
        """Read the view; None if the conversation's mode requires runs and they were not read.

        Runs are a separate projection, which most requests need not catch up.
        """
        plain = adds_block(strategy) or not retrieves(strategy)
        if self.at is None and not with_runs and plain:
            with suppress(SearchBehind):
                return self._read_directly(strategy)
            # The first request of a turn searches, and its message is not indexed yet.
            self._index(strategy)
            if embedding_of(strategy) is None:
                with suppress(SearchBehind):
                    return self._read_directly(strategy)
            return self._read_copies(strategy, with_runs=with_runs, patient=True)
        # The past is folded in memory, and searched there.
        if self.at is not None or self.store.read_only:
            return self._read_copies(strategy, with_runs=with_runs, patient=True)
        with suppress(SearchBehind):
            return self._read_copies(strategy, with_runs=with_runs, patient=False)
        self._index(strategy)
        return self._read_copies(strategy, with_runs=with_runs, patient=True)

    def _index(self, strategy: Strategy) -> None:
        if not self.store.read_only:
            with suppress(DatabaseBusy):
                bring_up(self.store, self.conversation_id, embedding_of(strategy))

    def _read_directly(self, strategy: Strategy) -> ContextView | None:
        return read_on_driver(
            self.store,
            CONTEXT,
            self.conversation_id,
            partial(self._plain, strategy),
            last=self.memory.head(self.conversation_id),
        )

    def _read_copies(
        self, strategy: Strategy, *, with_runs: bool, patient: bool
    ) -> ContextView | None:
        projections: tuple[Projection, ...] = (CONTEXT, RUNS) if with_runs else (CONTEXT,)

        def read(copies: Sequence[Copy]) -> ContextView | None:
            return self._searchable(copies, strategy, patient)

        if self.at is None:
            return read_current(self.store, projections, self.conversation_id, read)
        return read_past(self.store, projections, self.conversation_id, self.at, read)

    def _plain(
        self,
        strategy: Strategy,
        connection: AnyConnection,
        generation: Generation,
        head: FoldHead | None,
    ) -> ContextView | None:
        request = self._request(connection, generation, runs=None, head=head)
        if request is None:
            return None
        rows = DriverRows(
            connection,
            generation,
            self.conversation_id,
            excluded=self._excluded,
            head=head,
        )
        return self._build(connection, generation, rows, strategy, request, head)

    def _searchable(
        self, copies: Sequence[Copy], strategy: Strategy, patient: bool
    ) -> ContextView | None:
        connection, generation = copies[0]
        request = self._request(connection, generation, runs=copies[1] if len(copies) > 1 else None)
        if request is None:
            return None
        rows = SearchableRows(
            connection,
            generation,
            self.conversation_id,
            patient=patient,
            excluded=self._excluded,
        )
        view = self._build(connection, generation, rows, strategy, request)
        return replace(view, policy={**view.policy, "run": request.run}) if request.run else view

    def _request(
        self,
        connection: AnyConnection,
        generation: Generation,
        *,
        runs: Copy | None,
        head: FoldHead | None = None,
    ) -> _Request | None:
        """Return what to compose the request for, or None if it needs ``runs`` and has none."""
        active = self.memory.active(self.conversation_id, head) or read_active(
            connection, generation.tables[CONTEXT_ACTIVE.name], self.conversation_id
        )
        mode = active.mode if self.mode == "active" else self.mode
        run = mode == "run" if self.run is None else self.run
        if not run:
            return _Request(mode, active)
        if runs is None:
            return None
        injected = self._run_injections(runs, run)  # Refuses an unknown run, whatever the mode.
        return (
            _Request(mode, active, run, injected)
            if mode in ("run", None)
            else _Request(mode, active)
        )

    def _run_injections(self, copy: Copy, run: bool | str) -> tuple[Injection, ...]:
        state = read_run_state(*copy, self.conversation_id)
        if not isinstance(run, str):
            return injections(state, None)
        if all(each.run_id != run for each in state.runs):
            raise ValueError(f"conversation {self.conversation_id} has no run {run!r}")
        return injections(state, run)

    @property
    def _excluded(self) -> bool:
        return self.settings.include_collapsed_ui_events

    def _build(
        self,
        connection: AnyConnection,
        generation: Generation,
        rows: SqlRowSource,
        strategy: Strategy,
        request: _Request,
        head: FoldHead | None = None,
    ) -> ContextView:
        memo = recent = None
        # Rows folded in memory are gone afterwards, and few requests read excluded rows.
        may_cache = not (self.store.read_only or generation.in_memory)
        if self.at is None and may_cache and not self._excluded:
            known = (self.conversation_id, head, request.active)
            recent, memo = self.memory.of(rows, connection, generation, *known)
        policy = (request.active.tool_policy or ToolPolicy()).merge(self.policy)
        tools = permitted(self.tools, policy)
        composed = compose(
            request.mode,
            texts=self.settings.prompts,
            agent=self.agent,
            tools=tools,
            policy=policy,
            runs=request.injections,
        )
        try:
            view = build(
                recent or rows,
                injections=composed,
                tools=tools,
                settings=self.settings,
                strategy=strategy,
                memo=memo,
                **self.options,
            )
        except SearchBehind:
            if recent is not None:
                recent.keep()  # The read is repeated at once.
            raise
        if recent is not None:
            recent.keep()
            prepare_new(next_needed(view))
        return view


@dataclass(frozen=True, slots=True)
class _Request:
    """What a request is composed for, resolved from the conversation's current state."""

    mode: Mode | None
    active: Active
    run: bool | str = False
    injections: tuple[Injection, ...] = ()


def sent(
    store: EventStore,
    conversation_id: UUID,
    request_version: int,
    strategy: Strategy | None,
    changes: Mapping[str, Any] | None = None,
) -> ContextView:
    """Return the messages[] of an earlier request; see `Views.context_of`."""
    request = recorded_request(store, conversation_id, request_version)
    options = {**request.options, **(changes or {})}
    chosen = strategy_for(options.pop("strategy", strategy), options["settings"])

    def read(copies: Sequence[Copy]) -> ContextView:
        connection, generation = copies[0]
        injected: tuple[Injection, ...] = ()
        if request.run:
            state = read_run_state(*copies[1], conversation_id)
            injected = injections(state, request.run if isinstance(request.run, str) else None)
        return build(
            SqlRowSource(
                connection,
                generation.tables["context_messages"],
                conversation_id,
                excluded=request.options["settings"].include_collapsed_ui_events,
            ),
            injections=(*request.system, *injected),
            strategy=chosen,
            **options,
        )

    projections: tuple[Projection, ...] = (CONTEXT, RUNS) if request.run else (CONTEXT,)
    view = read_past(store, projections, conversation_id, request.at, read)
    return request.checked(view) if changes is None else view
