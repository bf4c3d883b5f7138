"""How `Views.context` reads: which projections, which rows, what is remembered between requests.

The request itself is put together by `projections.context`, which knows nothing of stores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from eventstore import EventStore
from eventstore.errors import EmbeddingFailed
from eventstore.events.values import Mode
from eventstore.sql.dialect import AnyConnection
from projections.base import Projection
from projections.compression.strategy import Strategy
from projections.compression.vector_search import without_embedding
from projections.context import CONTEXT, ContextSettings, ContextView, Injection, build, compose
from projections.context.kept_rows import Memory
from projections.context.recall import retrieves
from projections.context.requests import recorded_request
from projections.context.search import SearchableRows
from projections.context.sql_source import SqlRowSource
from projections.generations import Generation
from projections.heads import Head
from projections.reading import read_current, read_on_driver, read_past
from projections.replica import Copy
from projections.run_mode import injections, read_run_state
from projections.runs import RUNS
from projections.searching import searched

__all__ = ["ContextReading", "sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """One messages[] view to be read; see `Views.context` for what may be asked.

    Attributes:
        memory: What this process remembers of the conversations that it reads.
        mode: The mode that the system part is composed for.
        run: Of which run the request is told; True for the active one.
        at: The version to go back to; None for the present.
        options: What else goes to `build`: model, limits, tools, format, provider.
    """

    store: EventStore
    memory: Memory
    conversation_id: UUID
    settings: ContextSettings
    mode: Mode | None
    agent: str | None
    tools: Collection[Any]
    run: bool | str
    at: int | None
    options: Mapping[str, Any]

    def view(self, strategy: Strategy) -> ContextView:
        """Read the view; a strategy whose embedding fails goes on without it, and says so."""
        try:
            return self._answer(strategy)
        except EmbeddingFailed as error:
            lesser = without_embedding(strategy)
            if lesser is strategy:
                raise
            return replace(self._answer(lesser), notes=(f"searched by words alone: {error}",))

    def _answer(self, strategy: Strategy) -> ContextView:
        if self.at is None and not self._in_run and not retrieves(strategy):
            return read_on_driver(
                self.store,
                CONTEXT,
                self.conversation_id,
                partial(self._plain, strategy),
                last=self.memory.head(self.conversation_id),
            )
        # The past is folded in memory, and searched there.
        if self.at is not None:
            return self._attempt(strategy, patient=True)
        return searched(
            self.store,
            self.conversation_id,
            strategy,
            lambda patient: self._attempt(strategy, patient=patient),
        )

    @property
    def _in_run(self) -> bool:
        return bool(self.run) and self.mode in ("run", None)

    def _attempt(self, strategy: Strategy, *, patient: bool) -> ContextView:
        projections: tuple[Projection, ...] = (CONTEXT, RUNS) if self._in_run else (CONTEXT,)

        def read(copies: Sequence[Copy]) -> ContextView:
            return self._searchable(copies, strategy, patient)

        if self.at is None:
            return read_current(self.store, projections, self.conversation_id, read)
        return read_past(self.store, projections, self.conversation_id, self.at, read)

    def _plain(
        self,
        strategy: Strategy,
        connection: AnyConnection,
        generation: Generation,
        head: Head | None,
    ) -> ContextView:
        rows = SqlRowSource(
            connection,
            generation.tables["context_messages"],
            self.conversation_id,
            excluded=self._excluded,
        )
        return self._build(connection, generation, rows, strategy, head=head)

    def _searchable(self, copies: Sequence[Copy], strategy: Strategy, patient: bool) -> ContextView:
        connection, generation = copies[0]
        rows = SearchableRows(
            connection,
            generation,
            self.conversation_id,
            patient=patient,
            excluded=self._excluded,
        )
        if not self._in_run:
            return self._build(connection, generation, rows, strategy)
        view = self._build(connection, generation, rows, strategy, self._told_of_run(copies[1]))
        return replace(view, policy={**view.policy, "run": self.run})

    def _told_of_run(self, copy: Copy) -> tuple[Injection, ...]:
        state = read_run_state(*copy, self.conversation_id)
        if not isinstance(self.run, str):
            return injections(state, None)
        if all(each.run_id != self.run for each in state.runs):
            raise ValueError(f"conversation {self.conversation_id} has no run {self.run!r}")
        return injections(state, self.run)

    @property
    def _excluded(self) -> bool:
        return self.settings.include_collapsed_ui_events

    def _build(
        self,
        connection: AnyConnection,
        generation: Generation,
        rows: SqlRowSource,
        strategy: Strategy,
        told: tuple[Injection, ...] = (),
        head: Head | None = None,
    ) -> ContextView:
        memo = recent = None
        # What is folded in memory is gone afterwards; and few read what was kept out.
        if self.at is None and not self.store.read_only and not self._excluded:
            recent, memo = self.memory.of(rows, connection, generation, self.conversation_id, head)
        composed = compose(
            self.mode,
            texts=self.settings.prompts,
            agent=self.agent,
            tools=self.tools,
            runs=told,
        )
        view = build(
            recent or rows,
            injections=composed,
            tools=self.tools,
            settings=self.settings,
            strategy=strategy,
            memo=memo,
            **self.options,
        )
        if recent is not None:
            recent.keep()
        return view


def sent(
    store: EventStore, conversation_id: UUID, request_version: int, strategy: Strategy | None
) -> ContextView:
    """Return the messages[] of a request that was made; see `Views.context_of`."""
    request = recorded_request(store, conversation_id, request_version)

    def read(copies: Sequence[Copy]) -> ContextView:
        connection, generation = copies[0]
        told: tuple[Injection, ...] = ()
        if request.run:
            state = read_run_state(*copies[1], conversation_id)
            told = injections(state, request.run if isinstance(request.run, str) else None)
        return build(
            SqlRowSource(
                connection,
                generation.tables["context_messages"],
                conversation_id,
                excluded=request.options["settings"].include_collapsed_ui_events,
            ),
            injections=(*request.system, *told),
            strategy=strategy,
            **request.options,
        )

    projections: tuple[Projection, ...] = (CONTEXT, RUNS) if request.run else (CONTEXT,)
    return request.checked(read_past(store, projections, conversation_id, request.at, read))
