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
from eventstore.events import ToolPolicy
from eventstore.events.values import Mode
from eventstore.sql.dialect import AnyConnection
from projections.base import Projection
from projections.compression.strategy import Strategy
from projections.compression.vector_search import without_embedding
from projections.context import CONTEXT, ContextSettings, ContextView, Injection, build, compose
from projections.context.active import CONTEXT_ACTIVE, Active, AskedMode, read_active
from projections.context.declared import permitted
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
        policy: Which tools the request may declare, besides what the conversation says.
        mode: The mode that the system part is composed for; ``active`` for the conversation's.
        run: Of which run the request is told; True for the active one, None as the mode asks for.
        at: The version to go back to; None for the present.
        options: What else goes to `build`: model, limits, tools, format, provider.
    """

    store: EventStore
    memory: Memory
    conversation_id: UUID
    settings: ContextSettings
    mode: AskedMode
    agent: str | None
    tools: Collection[Any]
    policy: ToolPolicy | None
    run: bool | str | None
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
        with_runs = self.mode == "run" if self.run is None else bool(self.run)
        view = self._read(strategy, with_runs=with_runs) or self._read(strategy, with_runs=True)
        assert view is not None  # noqa: S101 - with what is told of runs, nothing is lacking
        return view

    def _read(self, strategy: Strategy, *, with_runs: bool) -> ContextView | None:
        """Read the view; None if the conversation's own mode asks for runs, and they are not read.

        They are a projection of their own, which most requests need not catch up.
        """
        if self.at is None and not with_runs and not retrieves(strategy):
            return read_on_driver(
                self.store,
                CONTEXT,
                self.conversation_id,
                partial(self._plain, strategy),
                last=self.memory.head(self.conversation_id),
            )
        projections: tuple[Projection, ...] = (CONTEXT, RUNS) if with_runs else (CONTEXT,)

        def attempt(patient: bool) -> ContextView | None:
            def read(copies: Sequence[Copy]) -> ContextView | None:
                return self._searchable(copies, strategy, patient)

            if self.at is None:
                return read_current(self.store, projections, self.conversation_id, read)
            return read_past(self.store, projections, self.conversation_id, self.at, read)

        # The past is folded in memory, and searched there.
        if self.at is not None:
            return attempt(True)
        return searched(self.store, self.conversation_id, strategy, attempt)

    def _plain(
        self,
        strategy: Strategy,
        connection: AnyConnection,
        generation: Generation,
        head: Head | None,
    ) -> ContextView | None:
        asked = self._asked(connection, generation, runs=None)
        if asked is None:
            return None
        rows = SqlRowSource(
            connection,
            generation.tables["context_messages"],
            self.conversation_id,
            excluded=self._excluded,
        )
        return self._build(connection, generation, rows, strategy, asked, head)

    def _searchable(
        self, copies: Sequence[Copy], strategy: Strategy, patient: bool
    ) -> ContextView | None:
        connection, generation = copies[0]
        asked = self._asked(connection, generation, runs=copies[1] if len(copies) > 1 else None)
        if asked is None:
            return None
        rows = SearchableRows(
            connection,
            generation,
            self.conversation_id,
            patient=patient,
            excluded=self._excluded,
        )
        view = self._build(connection, generation, rows, strategy, asked)
        return replace(view, policy={**view.policy, "run": asked.run}) if asked.run else view

    def _asked(
        self, connection: AnyConnection, generation: Generation, *, runs: Copy | None
    ) -> _Asked | None:
        """Return what is asked for, of a conversation as it stands; None if ``runs`` is lacking."""
        active = read_active(
            connection, generation.tables[CONTEXT_ACTIVE.name], self.conversation_id
        )
        mode = active.mode if self.mode == "active" else self.mode
        run = mode == "run" if self.run is None else self.run
        if not run or mode not in ("run", None):
            return _Asked(mode, active)
        return runs and _Asked(mode, active, run, self._told_of_run(runs, run))

    def _told_of_run(self, copy: Copy, run: bool | str) -> tuple[Injection, ...]:
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
        asked: _Asked,
        head: Head | None = None,
    ) -> ContextView:
        memo = recent = None
        # What is folded in memory is gone afterwards; and few read what was kept out.
        kept = not (self.store.read_only or generation.in_memory)
        if self.at is None and kept and not self._excluded:
            recent, memo = self.memory.of(rows, connection, generation, self.conversation_id, head)
        policy = (asked.active.tool_policy or ToolPolicy()).merge(self.policy)
        tools = permitted(self.tools, policy)
        composed = compose(
            asked.mode,
            texts=self.settings.prompts,
            agent=self.agent,
            tools=tools,
            policy=policy,
            runs=asked.told,
        )
        view = build(
            recent or rows,
            injections=composed,
            tools=tools,
            settings=self.settings,
            strategy=strategy,
            memo=memo,
            **self.options,
        )
        if recent is not None:
            recent.keep()
        return view


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request is composed for, now that it is known how the conversation stands."""

    mode: Mode | None
    active: Active
    run: bool | str = False
    told: tuple[Injection, ...] = ()


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
