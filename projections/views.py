"""`Views`: read the projections, never stale.

A read of one conversation first catches that conversation up, in a short transaction that need not
wait for the disk; if there is nothing new, it only checks. A read across conversations first
catches up those that the feed names. On a read-only store, missing events are folded in memory. So
is the past, which callers request with ``at``.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar, Unpack

from eventstore.events import ToolPolicy
from eventstore.ids import StreamId
from eventstore.options import require_known, require_text
from eventstore.owners import Owned
from projections import queries
from projections.across import ViewsAcross
from projections.context import CONTEXT, ContextView
from projections.context.compression.strategy import Strategy
from projections.context.formats.neutral import with_facts
from projections.context.options import Asked, AskedContext
from projections.context.settings import settings_of, strategy_for
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

    def context(self, conversation_id: StreamId, **options: Unpack[AskedContext]) -> ContextView:
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
        require_known(options, AskedContext)
        given: dict[str, Any] = {**options}
        owner = {name: given.pop(name) for name in Owned.__annotations__ if name in given}
        asked = Asked(**given)
        settings = settings_of(asked.settings)
        budget = budget_of(settings, asked)
        chosen = strategy_for(asked.strategy, settings)
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
        return self._read(CONTEXT, stream, partial(tool_policy, conversation_id=stream))

    def context_of(
        self,
        conversation_id: StreamId,
        request_version: int,
        *,
        strategy: Strategy | None = None,
        **owner: Unpack[Owned],
    ) -> ContextView:
        """Return the messages[] of an earlier request, byte for byte as it was sent.

        Replays the events before the request with the choices that the ``llm_request`` at that
        version records; the cost grows with the number of these events.

        Args:
            conversation_id: The conversation.
            request_version: The version of an ``llm_request`` whose messages came from `context`.
            strategy: The strategy that the request used, if its name is not registered.

        Raises:
            ConversationNotFound: No conversation has this id or key.
            ValueError: The event at this version is not such a request.
            UnknownStrategy: No strategy with the recorded name is registered.
            RequestNotReproducible: The replay differs from what was sent: something was erased
                since, or another version of this package made the request.
        """
        stream = self.store.stream(conversation_id, **owner)
        return sent(self.store, stream, request_version, strategy)

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
        return self._read(RUNS, stream, partial(read_run_state, conversation_id=stream), at)

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
        return self._read(OPEN_WORK, stream, partial(queries.open_work, conversation_id=stream))

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
        return self._read(TASKS, stream, read)
