"""Resuming a run after a restart: what to do next, told by the log alone.

`next_node` is the rule, pure. A call that was left without a known result is named until a node is
completed after it: whoever completes a node has dealt with what it left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from uuid import UUID

from agent_eventstore.machines.answers import KEPT
from eventstore import EventStore, RecordedEvent
from eventstore.errors import EventStoreError
from eventstore.events import ToolCall, ToolPolicy
from eventstore.events.values import Mode
from eventstore.log import get_logger
from projections import Views
from projections.context import CONTEXT
from projections.context.state import tool_policy
from projections.engine.folding import SEALS
from projections.models.open_items import OpenToolCall, OpenWork
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS, NodeRow, RunArtifact, RunRow
from projections.models.tool_calls import ToolCallRow
from projections.queries import open_work, readable
from projections.reading import read_current
from projections.replica import Copy
from projections.run_mode import mode_and_turn

__all__ = [
    "LeftCall",
    "ResumedRun",
    "Todo",
    "Upkeep",
    "earlier_calls",
    "left_open",
    "next_node",
    "resume",
    "standing",
]


R = TypeVar("R")
Todo = Literal["continue", "begin", "complete", "decide"]
"""``continue`` the active node, ``begin`` a node, ``complete`` the run, or ``decide``: there is no
node that could begin, since one has failed, or the workflow named none."""

_UNSETTLED = ("requested", "running", "not_started", "outcome_unknown")
_DONE = ("completed", "skipped")
_MOST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCall:
    """A tool call of a run whose result is not known.

    Attributes:
        status: ``requested`` or ``running`` while it is open; once it is sealed ``not_started`` or
            ``outcome_unknown``.
        call: What was asked for, whether it was started, and under which idempotency key. Handed to
            ``turn.tool`` it is executed under the same key, and its result replaces the seal.
    """

    status: str
    call: OpenToolCall

    @property
    def advice(self) -> Literal["make", "repeat", "check"]:
        """What may be done with it.

        ``make``: it never started. ``repeat``: it may have run, and was declared idempotent, so it
        may run again under the same key. ``check``: it may have run; find out before repeating it.
        """
        if self.status in ("requested", "not_started"):
            return "make"
        return "repeat" if self.call.idempotent else "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedRun(Generic[R]):
    """A run that has not ended, and what is to be done next.

    Attributes:
        run: The run to go on with.
        row: Its directive, its configuration, and when it began.
        todo: What is next.
        node: The node that is to be continued or begun; None with ``complete`` and ``decide``.
        nodes: All nodes, in the workflow's order.
        artifacts: What ended steps have produced.
        calls: The calls without a known result, oldest first.
    """

    run: R
    row: RunRow
    todo: Todo
    node: NodeRow | None
    nodes: tuple[NodeRow, ...]
    artifacts: tuple[RunArtifact, ...]
    calls: tuple[LeftCall, ...]


def next_node(active: str | None, nodes: Sequence[NodeRow]) -> tuple[Todo, NodeRow | None]:
    """Return what is next in a run that has not ended, and which node it concerns.

    The active node goes on. Otherwise the first node begins that is pending, or was cancelled,
    and whose dependencies are all completed or skipped. A failed one is not begun again unasked.
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
    """Return how to go on with a run; None if it has ended, or if none is open.

    Args:
        store: Where the conversation is.
        views: The store's views.
        conversation_id: The conversation.
        run_id: Which run; by default the active one.
        handle: Makes what the run is gone on with.

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
    return ResumedRun(
        run=handle(row),
        row=row,
        todo=todo,
        node=node,
        nodes=nodes,
        artifacts=tuple(made for made in state.artifacts if made.run_id == row.run_id),
        calls=tuple(
            _left(store, call)
            for call in _unsettled(views, conversation_id, row.run_id, _settled_before(nodes))
        ),
    )


def _settled_before(nodes: Sequence[NodeRow]) -> int:
    """Return the version up to which completed nodes have dealt with what was left behind."""
    last = max((node.end_version or 0 for node in nodes if node.status in _DONE), default=0)
    began = [node.start_version or 0 for node in nodes if node.status == "active"]
    return min([last, *began])


def _unsettled(views: Views, conversation_id: UUID, run_id: str, settled: int) -> list[ToolCallRow]:
    found = [
        call
        for status in _UNSETTLED
        for call in views.tool_calls(conversation_id=conversation_id, status=status, limit=_MOST)
        if call.run_id == run_id and not call.withdrawn and (call.requested_version or 0) > settled
    ]
    return sorted(found, key=lambda call: (call.requested_version or 0, call.call_index or 0))


def _left(store: EventStore, row: ToolCallRow) -> LeftCall:
    # A row is made by the first event that tells of the call, so this one is there.
    asked = _event(store, row.conversation_id, row.requested_version or 1)
    started = row.started_version
    execution = None if started is None else _event(store, row.conversation_id, started).data
    call = OpenToolCall(
        version=asked.version,
        began_at=asked.occurred_at,
        meta=asked.meta,
        call_id=row.call_id,
        name=row.name or "",
        arguments=row.arguments,
        provider_id=row.provider_id,
        started_at=row.started_at,
        idempotency_key=row.idempotency_key,
        idempotent=isinstance(execution, ToolCall) and execution.idempotent,
    )
    return LeftCall(status=row.status or "", call=call)


def _event(store: EventStore, conversation_id: UUID, version: int) -> RecordedEvent:
    return next(store.read(conversation_id, after=version - 1, limit=1))


EVERY = 250
"""Events; folding so many takes milliseconds."""

_log = get_logger("agent_eventstore")


def left_open(store: EventStore, conversation_id: UUID) -> OpenWork:
    """Return what a conversation has open, and catch up all that opening reads.

    In one pass over the events and one transaction.

    Raises:
        ConversationNotFound: No conversation has this id.
    """

    def read(copies: Sequence[Copy]) -> OpenWork:
        with readable(OPEN_WORK.name):
            return open_work(*copies[0], conversation_id)

    return read_current(store, (OPEN_WORK, RUNS, CONTEXT), conversation_id, read)


def standing(
    store: EventStore, conversation_id: UUID
) -> tuple[Mode | None, int, ToolPolicy | None]:
    """Return a conversation's mode, the number of its next turn, and which tools it may use.

    Raises:
        ConversationNotFound: No conversation has this id.
    """

    def read(copies: Sequence[Copy]) -> tuple[Mode | None, int, ToolPolicy | None]:
        runs, context = copies
        with readable(RUNS.name):
            mode, last_turn = mode_and_turn(*runs, conversation_id)
        with readable(CONTEXT.name):
            policy = tool_policy(*context, conversation_id)
        return mode, last_turn + 1, policy

    return read_current(store, (RUNS, CONTEXT), conversation_id, read)


class Upkeep:
    """Has the views that opening reads caught up, once enough events have come.

    Args:
        views: The store's views.
        conversation_id: The conversation.
        version: The version at which they are known to be current.
    """

    def __init__(self, views: Views, conversation_id: UUID, version: int) -> None:
        self._views = views
        self._conversation_id = conversation_id
        self._version = version

    def due(self, version: int) -> bool:
        """Whether it is time, now that the conversation is at this version."""
        return version - self._version >= EVERY

    def run(self, version: int) -> None:
        """Catch up, in one transaction; what fails here is logged, and done by who opens next."""
        store, self._version = self._views.store, version
        try:
            read_current(store, (OPEN_WORK, RUNS), self._conversation_id, lambda _: None)
        except EventStoreError as error:
            _log.warning(
                "views not caught up", conversation_id=str(self._conversation_id), why=error
            )


def earlier_calls(views: Views, conversation_id: UUID) -> list[ToolCallRow]:
    """Return a conversation's calls, newest first; none if all have a result, as nearly always."""
    for status in ("requested", *SEALS):
        if views.tool_calls(conversation_id=conversation_id, status=status, limit=1):
            return views.tool_calls(conversation_id=conversation_id, limit=KEPT)
    return []
