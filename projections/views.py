"""`Views`: reading the projections, never stale.

A read of one conversation first catches that conversation up, in a short transaction that need
not wait for the disk; when nothing is new it only looks. A read across conversations first
catches up those that the feed names. On a read-only store what is missing is folded in memory, and
so is the past, which is asked for by ``at``.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar, Unpack

from eventstore.events import ToolPolicy
from eventstore.ids import StreamId
from eventstore.options import require_known
from eventstore.owners import Owned
from projections import queries
from projections.across import ViewsAcross
from projections.context import CONTEXT, ContextView
from projections.context.compression.strategy import Strategy, strategy_of
from projections.context.formats.neutral import with_facts
from projections.context.options import Asked, AskedContext
from projections.context.settings import settings_of
from projections.context.state import tool_policy
from projections.context.window import budget_of
from projections.context_reading import ContextReading, sent
from projections.finding import SearchHit
from projections.follow import Follower, Waits, followed
from projections.listing import ConversationEntry, ConversationPage
from projections.models.branches import BranchPoint, points_of
from projections.models.open_items import OpenWork
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS, RunState
from projections.models.tasks import TASKS, TaskRow
from projections.models.timeline import TIMELINE
from projections.models.timeline_changes import TimelineUpdate
from projections.models.timeline_items import TimelineItem
from projections.pulse import pulse_of
from projections.run_mode import read_run_state

__all__ = ["ConversationEntry", "ConversationPage", "SearchHit", "Views"]

T = TypeVar("T")


class Views(ViewsAcross):
    """The read models of a store.

    Making one gives every projection its tables, if the store can be written to. Safe to share
    between threads. Every method may raise `ProjectionFailed`, naming conversation and version,
    `RowDamaged` where a table was altered, `StoreUnavailable` or `StatementRefused`.

    Args:
        store: The store.
        projections: With the product's own, if it has any.
        memory_bytes: About how much is kept of what `context` has read last, so that a request
            reads only what is new; 2 KB a message, and nothing with 0; by default what the store
            says. Of one conversation half of it at most. What is not kept is read again: no answer
            depends on it.

    Raises:
        ValueError: ``memory_bytes`` is negative.
    """

    def timeline(
        self,
        conversation_id: StreamId,
        *,
        after: int = 0,
        limit: int | None = None,
        at: int | None = None,
        **owner: Unpack[Owned],
    ) -> list[TimelineItem]:
        """Return what a UI shows of a conversation, in reading order.

        What a session has left open whose process has ended is ``interrupted``, before anybody
        opens the conversation again; whether it has ended, its lease tells (`EventStore.writer`).

        Only the active branch: `branches` tells where there are alternatives.

        Args:
            conversation_id: The conversation.
            after: Only items that began or changed after this version; ask again with the
                highest ``end_version`` seen to get the news. What has left the active branch
                since is told, too: it is ``inactive``.
            limit: The most items to return.
            at: As it was at this version, by replay: costs what its events cost.
            owner: Whose it must be (``tenant_id``, ``user_id``), here as in all that is read.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            OwnerMismatch: It belongs to another tenant or user.
            ValueError: The conversation has not come to the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(
            queries.timeline, conversation_id=stream, after=after, limit=limit, now=at is None
        )
        return self._read(TIMELINE, stream, read, at)

    def branches(
        self, conversation_id: StreamId, *, at: int | None = None, **owner: Unpack[Owned]
    ) -> list[BranchPoint]:
        """Return where a conversation's active branch has alternatives, in reading order.

        There are some after `Conversation.edit`, `regenerate` and `rewind`. What a screen shows as
        "2/3" stands at the items of the active alternative's turn.

        Args:
            conversation_id: The conversation.
            at: As it was at this version, by replay: costs what its events cost.
            owner: Whose it must be (``tenant_id``, ``user_id``).

        Raises:
            ConversationNotFound: There is none of this id or key.
            OwnerMismatch: It belongs to another tenant or user.
            ValueError: The conversation has not come to the version ``at``.
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
        """Yield what changes in a conversation's timeline, as it is committed by any process.

        First what has changed since ``after``, then each change as it comes: items that are added,
        text that is appended to one, new values, items that are withdrawn. Whoever applies the
        updates in order to what `timeline` returned at ``after`` has what it returns now. Nothing
        is written, however many follow. Where the writer's process ends, what it was doing is told
        as ``interrupted``, about a second later and with the version told last, since no event says
        so. Ends when the iterator is closed, or after ``timeout_s``.

        Args:
            conversation_id: The conversation.
            after: The version up to which all is known: of the last update that was seen, by
                whichever process; 0 for nothing.
            heartbeat_s: Yield an update without changes after so many seconds without any.
            timeout_s: End after so many seconds without news; None waits for ever.
            owner: Whose it must be (``tenant_id``, ``user_id``), as in `timeline`.

        Raises:
            ConversationNotFound: No conversation has this id.
            ValueError: The conversation has not come to the version ``after``.
        """
        follower = Follower(self.store, self.store.stream(conversation_id, **owner), after)
        waits = Waits(heartbeat_s, timeout_s)
        return followed(follower, follower.news(), pulse_of(self.store.engine), waits)

    def context(self, conversation_id: StreamId, **options: Unpack[AskedContext]) -> ContextView:
        """Return the messages[] of the next request, valid for its provider, within its budget.

        Costs what the window costs and what is new, however long the conversation is; without a
        limit the window is the whole of it. See ``docs/context.md`` for what is promised.

        Args:
            conversation_id: The conversation.
            options: See `ContextOptions`; besides, ``tool_policy``, ``at`` and the owner.

        Raises:
            ConversationNotFound: There is none of this id or key.
            TypeError: There is no such option.
            ValueError: The conversation has not come to the version ``at``; no such mode, run or
                format.
            BudgetInfeasible: What must be sent exceeds a limit.
            EncodingNotBundled: The model's tokenizer is not carried along.
            InvalidPrompt: A text of the system part cannot be read.
            UnknownStrategy: No strategy of that name is registered.
        """
        require_known(options, AskedContext)
        given: dict[str, Any] = {**options}
        owner = {name: given.pop(name) for name in Owned.__annotations__ if name in given}
        asked = Asked(**given)
        settings = settings_of(asked.settings)
        budget = budget_of(settings, asked)
        if asked.strategy is None:
            chosen = strategy_of(settings.strategy, **settings.strategy_options)
        else:
            chosen = strategy_of(asked.strategy)
        reading = ContextReading(
            store=self.store,
            memory=self._memory,
            conversation_id=self.store.stream(conversation_id, **owner),
            settings=settings,
            mode=asked.mode,
            agent=asked.agent,
            tools=asked.tools,
            policy=asked.tool_policy,
            run=asked.run,
            at=asked.at,
            options={
                "max_tokens": budget.tokens,
                "max_messages": asked.max_messages,
                "model": asked.model,
                "format": asked.format,
                "provider": asked.provider,
                "paths": asked.paths is not False,
            },
        )
        return budget.told(reading.view(chosen))

    def neutral(
        self, conversation_id: StreamId, **options: Unpack[AskedContext]
    ) -> tuple[dict[str, Any], ...]:
        """Return the messages of `context` in no provider's format, with what their events say.

        Besides what the format ``neutral`` has, each has ``timestamp`` (ISO 8601), ``metadata``
        (what the product keeps with the event), ``invocation`` and ``contents`` (of an answer, who
        was asked and its pieces of text), and ``execute_error`` (of tool results, why all failed).

        Args:
            conversation_id: The conversation.
            options: As of `context`, but for the format.

        Raises:
            ConversationNotFound: There is none of this id or key.
            BudgetInfeasible: What must be sent exceeds a limit.
        """
        given: dict[str, Any] = {**options, "format": "neutral"}
        owner = {name: given[name] for name in Owned.__annotations__ if name in given}
        stream = self.store.stream(conversation_id, **owner)
        return with_facts(self.store, stream, self.context(conversation_id, **given).messages)

    def tool_policy(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> ToolPolicy | None:
        """Return which tools a conversation may use, as its start says; None if it does not.

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream = self.store.stream(conversation_id, **owner)
        return self._read(CONTEXT, stream, partial(tool_policy, conversation_id=stream))

    def context_of(
        self,
        conversation_id: StreamId,
        request_version: int,
        *,
        strategy: Strategy | None = None,
        **owner: Unpack[Owned],
    ) -> ContextView:
        """Return the messages[] of a request that was made, byte for byte as it was sent.

        By replay of the events before it, with what the ``llm_request`` at that version records
        of how its messages were chosen: costs what these events cost.

        Args:
            conversation_id: The conversation.
            request_version: The version of an ``llm_request`` whose messages came from `context`.
            strategy: The strategy that it was made with, if none of its name is registered.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: There is no such request at this version.
            UnknownStrategy: No strategy of the recorded name is registered.
            RequestNotReproducible: What comes out is not what was sent: something was erased
                since, or the request was made by another version of this project.
        """
        stream = self.store.stream(conversation_id, **owner)
        return sent(self.store, stream, request_version, strategy)

    def run_state(
        self, conversation_id: StreamId, *, at: int | None = None, **owner: Unpack[Owned]
    ) -> RunState:
        """Return a conversation's Run-mode state: runs, nodes, artifacts, open calls, notebook.

        Args:
            conversation_id: The conversation.
            at: As it was at this version, by replay: costs what its events cost.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The conversation has not come to the version ``at``.
        """
        stream = self.store.stream(conversation_id, **owner)
        return self._read(RUNS, stream, partial(read_run_state, conversation_id=stream), at)

    def state_at(self, conversation_id: StreamId, version: int, **owner: Unpack[Owned]) -> RunState:
        """Return what `run_state` returned when the conversation was at a version; 0 is before all.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The conversation has not come to this version.
        """
        return self.run_state(conversation_id, at=version, **owner)

    def open_work(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> OpenWork:
        """Return what a conversation has begun and not ended, up to its last event.

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream = self.store.stream(conversation_id, **owner)
        return self._read(OPEN_WORK, stream, partial(queries.open_work, conversation_id=stream))

    def tasks(
        self,
        conversation_id: StreamId,
        *,
        task_id: str | None = None,
        open_only: bool = False,
        **owner: Unpack[Owned],
    ) -> list[TaskRow]:
        """Return the tasks of the queue that a conversation holds, in the order of their coming.

        Args:
            conversation_id: The root of a `Scheduler`.
            task_id: Only this one.
            open_only: Only those that have not ended.
            owner: Whose it must be (``tenant_id``, ``user_id``).

        Raises:
            ConversationNotFound: No conversation has this id or key.
        """
        stream = self.store.stream(conversation_id, **owner)
        read = partial(queries.tasks, conversation_id=stream, task_id=task_id, open_only=open_only)
        return self._read(TASKS, stream, read)
