"""Resuming a run after a restart: what to do next, derived from the log alone.

`next_node` is the rule, a pure function. A tool call without a known result is listed until a node
completes after it: whoever completes a node has dealt with the calls that it left behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from uuid import UUID

from agent_eventstore.machines.answers import KEPT
from eventstore import EventStore, RecordedEvent
from eventstore.erasure.plan import ranges
from eventstore.events import ToolCall, ToolPolicy
from eventstore.events.values import Mode
from eventstore.telemetry.log import get_logger
from projections import Views
from projections.context import CONTEXT
from projections.context.state import tool_policy
from projections.context_reading import INDEXED_FROM, keep_up
from projections.models.open_items import OpenToolCall, OpenWork
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS, NodeRow, RunArtifact, RunRow
from projections.models.tool_calls import TOOL_CALLS, ToolCallRow
from projections.payload_text import SEALS
from projections.queries import open_work, readable, unsettled_calls
from projections.reading import read_current, save_current
from projections.replica import Copy
from projections.run_mode import mode_turn_and_agent

__all__ = [
    "FoundAtOpening",
    "LeftCall",
    "ResumedRun",
    "Todo",
    "Upkeep",
    "earlier_calls",
    "left_open",
    "next_node",
    "resume",
]


R = TypeVar("R")
Todo = Literal["continue", "begin", "complete", "decide"]
"""``continue`` the active node, ``begin`` a node, ``complete`` the run, or ``decide``: no node can
begin, since one has failed or the workflow named none."""

_DONE = ("completed", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCall:
    """A tool call of a run whose result is not known.

    Attributes:
        status: ``requested`` or ``running`` while it is open; ``not_started`` or
            ``outcome_unknown`` once it is sealed.
        call: The call, whether it was started, and its idempotency key. Pass it to ``turn.tool`` to
            execute it with the same key; its result then replaces the seal.
    """

    status: str
    call: OpenToolCall

    @property
    def advice(self) -> Literal["make", "repeat", "check"]:
        """What to do with the call.

        ``make``: it never started. ``repeat``: it may have run, but is declared idempotent, so it
        may run again with the same key. ``check``: it may have run; find out before you repeat it.
        """
        if self.status in ("requested", "not_started"):
            return "make"
        return "repeat" if self.call.idempotent else "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRun(Generic[R]):
    """A run that has not ended, and what to do next.

    Attributes:
        run: The run to continue.
        row: Its directive, its configuration, and when it began.
        todo: The next action.
        node: The node to continue or begin; None with ``complete`` and ``decide``.
        nodes: All nodes, in the workflow's order.
        artifacts: The artifacts of ended steps.
        calls: The tool calls without a known result, oldest first.
    """

    run: R
    row: RunRow
    todo: Todo
    node: NodeRow | None
    nodes: tuple[NodeRow, ...]
    artifacts: tuple[RunArtifact, ...]
    calls: tuple[LeftCall, ...]


def next_node(active: str | None, nodes: Sequence[NodeRow]) -> tuple[Todo, NodeRow | None]:
    """Return the next action of a run that has not ended, and its node.

    The active node continues. Otherwise the first node begins that is pending or cancelled and
    whose dependencies are all completed or skipped. A failed node is not begun again by itself.
    """
    by_id = {node.node_id: node for node in nodes}
    if active is not None and active in by_id:
        return "continue", by_id[active]
    done = {node.node_id for node in nodes if node.status in _DONE}
    for node in nodes:
        if node.status in ("pending", "cancelled") and done.issuperset(node.depends_on or ()):
            return "begin", node
    return ("complete", None) if nodes and len(done) == len(nodes) else ("decide", None)


def resume(
    store: EventStore,
    views: Views,
    conversation_id: UUID,
    run_id: str | None,
    handle: Callable[[RunRow], R],
) -> ResumedRun[R] | None:
    """Return how to continue a run; None if it has ended, or if no run is open.

    Args:
        store: The store of the conversation.
        views: The store's views.
        conversation_id: The conversation.
        run_id: The run; by default the active one.
        handle: Returns the `Run` or `AsyncRun` for a row.

    Raises:
        ValueError: The conversation has no run of this id.
    """
    state = views.run_state(conversation_id)
    wanted = state.active_run_id if run_id is None else run_id
    row = next((each for each in state.runs if each.run_id == wanted), None)
    if row is None and run_id is not None:
        raise ValueError(f"conversation {conversation_id} has no run {run_id!r}")
    if row is None or row.status != "active":
        return None
    nodes = tuple(node for node in state.nodes if node.run_id == row.run_id)
    todo, node = next_node(row.active_node, nodes)
    calls = _unsettled(store, conversation_id, row.run_id, _settled_before(nodes))
    return ResumedRun(
        run=handle(row),
        row=row,
        todo=todo,
        node=node,
        nodes=nodes,
        artifacts=tuple(made for made in state.artifacts if made.run_id == row.run_id),
        calls=_left(store, conversation_id, calls),
    )


def _settled_before(nodes: Sequence[NodeRow]) -> int:
    """Return the version up to which completed nodes have dealt with unsettled calls."""
    last = max((node.end_version or 0 for node in nodes if node.status in _DONE), default=0)
    began = [node.start_version or 0 for node in nodes if node.status == "active"]
    return min([last, *began])


def _unsettled(
    store: EventStore, conversation_id: UUID, run_id: str, settled: int
) -> list[ToolCallRow]:
    def read(copies: Sequence[Copy]) -> list[ToolCallRow]:
        with readable(TOOL_CALLS.name):
            return unsettled_calls(*copies[0], conversation_id, run_id, settled)

    return read_current(store, (TOOL_CALLS,), conversation_id, read)


def _left(
    store: EventStore, conversation_id: UUID, calls: Sequence[ToolCallRow]
) -> tuple[LeftCall, ...]:
    """Return calls with data of their events, in one read for each run of adjacent events."""
    versions = {at for call in calls for at in (call.requested_version, call.started_version) if at}
    events = {
        event.version: event
        for first, last in ranges(sorted(versions))
        for event in store.read(conversation_id, after=first - 1, before=last + 1)
    }
    return tuple(_left_call(call, events) for call in calls)


def _left_call(row: ToolCallRow, events: Mapping[int, RecordedEvent]) -> LeftCall:
    request = events[row.requested_version or 1]  # the first event of the call creates its row
    started = events.get(row.started_version or 0)
    execution = None if started is None else started.data
    call = OpenToolCall(
        version=request.version,
        began_at=request.occurred_at,
        meta=request.meta,
        call_id=row.call_id,
        name=row.name or "",
        arguments=row.arguments,
        provider_id=row.provider_id,
        started_at=row.started_at,
        idempotency_key=row.idempotency_key,
        idempotent=isinstance(execution, ToolCall) and execution.idempotent,
    )
    return LeftCall(status=row.status or "", call=call)


EVERY = 250
"""Events between two catch-ups; folding this many takes milliseconds."""

_log = get_logger("agent_eventstore")


@dataclass(frozen=True, slots=True)
class FoundAtOpening:
    """What an opening reads of a conversation: its open work, and what its next turn needs."""

    work: OpenWork
    mode: Mode | None
    next_turn: int
    tool_policy: ToolPolicy | None
    agent_id: str | None


def left_open(store: EventStore, conversation_id: UUID) -> FoundAtOpening:
    """Return a conversation's open work and settings, and catch up the views that have them.

    This takes one pass over the events and one transaction.

    Raises:
        ConversationNotFound: No conversation has this id.
    """

    def read(copies: Sequence[Copy]) -> FoundAtOpening:
        left, runs, context = copies
        with readable(OPEN_WORK.name):
            work = open_work(*left, conversation_id)
        with readable(RUNS.name):
            mode, last_turn, agent = mode_turn_and_agent(*runs, conversation_id)
        with readable(CONTEXT.name):
            policy = tool_policy(*context, conversation_id)
        return FoundAtOpening(work, mode, last_turn + 1, policy, agent)

    return read_current(store, (OPEN_WORK, RUNS, CONTEXT), conversation_id, read)


_FOLDING = [threading.Lock()]
if hasattr(os, "register_at_fork"):  # Another thread of the parent may have held it.
    os.register_at_fork(after_in_child=lambda: _FOLDING.__setitem__(0, threading.Lock()))


class Upkeep:
    """Folds what a session writes into the views' tables, every `EVERY` events and at its end.

    So plain SQL shows a closed conversation, and the next opening finds its views current. The
    views of requests are folded at the end only, and only if the session has made requests: their
    fold counts tokens, for which other processes need no tokenizer. The search index of a long
    conversation is kept at the end of each turn, so that no request waits for it.

    Args:
        views: The store's views.
        conversation_id: The conversation.
        version: The version at which these views are known to be current.
    """

    def __init__(self, views: Views, conversation_id: UUID, version: int) -> None:
        self._views = views
        self._conversation_id = conversation_id
        self._version = version
        self.has_requests = False

    def due(self, version: int) -> bool:
        """Whether the end of a turn at this version of the conversation has anything to do."""
        return version - self._version >= EVERY or (self.has_requests and version > INDEXED_FROM)

    def has_new(self, version: int) -> bool:
        """Whether there are events since the last catch-up."""
        return version != self._version

    def after_turn(self, version: int) -> None:
        """Fold what is due, and index what the turn's requests did not have; see `run`."""
        if version - self._version >= EVERY:
            self.run(version)
        if self.has_requests:
            self._unless_busy(lambda: keep_up(self._views.store, self._conversation_id, version))

    def run(self, version: int, *, at_end: bool = False) -> None:
        """Fold, in short transactions; what cannot be folded now is left to readers and workers.

        An error is logged, never raised: the events are recorded. One session of a process folds at
        a time, so that folds do not keep others from recording; what another one leaves is listed
        in ``view_lag``.
        """
        views, self._version = self._views, version
        with_context = at_end and self.has_requests
        wanted = [each for each in views.projections if with_context or each is not CONTEXT]

        def fold() -> None:
            if save_current(views.store, wanted, self._conversation_id) and with_context:
                keep_up(views.store, self._conversation_id, version)

        self._unless_busy(fold)

    def _unless_busy(self, work: Callable[[], None]) -> None:
        folding = _FOLDING[0]
        if self._views.store.read_only or not folding.acquire(blocking=False):
            return
        try:
            work()
        except Exception as error:
            # Projections are also a product's own code, and the caller may be ending a session.
            _log.warning(
                "views not caught up", conversation_id=str(self._conversation_id), why=str(error)
            )
        finally:
            folding.release()


def earlier_calls(views: Views, conversation_id: UUID) -> list[ToolCallRow]:
    """Return a conversation's tool calls, newest first; none if, as usual, all have a result."""
    for status in ("requested", *SEALS):
        if views.tool_calls(conversation_id=conversation_id, status=status, limit=1):
            return views.tool_calls(conversation_id=conversation_id, limit=KEPT)
    return []
