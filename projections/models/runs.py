"""Run mode's state: runs, their nodes and artifacts, and the conversation's current state.

The active run is the one whose directive later requests render: the run that was last begun or
stepped through or, once none is open, the last completed run, under its post-run protocol. Nodes
that are active when their run ends get the run's status. A call is open until its first result,
even a stand-in; executing it again after a stand-in reopens it. An erased result closes the oldest
open call of the newest message. Retractions change nothing here, because they do not undo the work
of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import Any, Self
from uuid import UUID

from eventstore.events import (
    AssistantMessage,
    Notebook,
    RecordedEvent,
    RunEnd,
    RunStart,
    RunStepEnd,
    RunStepStart,
    SessionStart,
    SystemInstruction,
    ToolCall,
    ToolResult,
)
from eventstore.ids import call_id
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, PREVIEW_CHARS, Row, RowDraft
from projections.engine.projection import Change, Put, ReadTable, State
from projections.engine.quoting import PLACE, QuotedText, place_of
from projections.payload_text import SEALS

__all__ = ["RUNS", "NodeRow", "OpenCall", "RunArtifact", "RunRow", "RunState", "RunsProjection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(Row):
    """A run of a workflow; ``status`` is ``active``, ``completed``, ``failed`` or ``cancelled``."""

    run_id: str
    workflow_id: str | None = None
    status: str | None = None
    directive: str | None = None
    post_run_protocol: str | None = None
    active_node: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    started_version: int | None = None
    end_version: int | None = None
    error: str | None = None
    config: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow(Row):
    """A node of a run, in the order of ``ordinal``.

    Attributes:
        status: ``pending``, ``active``, ``completed``, ``failed``, ``skipped`` or ``cancelled``.
        visits: How often the node became active.
    """

    run_id: str
    node_id: str
    ordinal: int | None = None
    title: str | None = None
    brief: str | None = None
    context: str | None = None
    depends_on: Any = None
    status: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    start_version: int | None = None
    end_version: int | None = None
    visits: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArtifact(Row):
    """An artifact that a node produced; a newer one with the same name replaces it."""

    run_id: str
    node_id: str
    name: str
    path: str | None = None
    media_type: str | None = None
    content: Any = None
    created_at: datetime | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow(Row):
    """A conversation's state; ``last_version`` is that of the last event that changed it."""

    mode: str | None = None
    active_run_id: str | None = None
    active_node: str | None = None
    notebook: str | None = None
    notebook_version: int | None = None
    open_calls: Any = None
    system_instruction: str | None = None
    last_turn: int | None = None
    agent_id: str | None = None
    last_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call without a result; ``status`` is ``requested`` or ``running``."""

    call_id: str
    name: str | None = None
    status: str | None = None
    run_id: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(StateRow):
    """A conversation's state with its runs, nodes, artifacts and open calls, oldest first."""

    runs: tuple[RunRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    artifacts: tuple[RunArtifact, ...] = ()
    calls: tuple[OpenCall, ...] = ()

    @classmethod
    def from_rows(
        cls,
        conversation_id: UUID,
        state: Mapping[str, Any] | None,
        runs: Iterable[Mapping[str, Any]] = (),
        nodes: Iterable[Mapping[str, Any]] = (),
        artifacts: Iterable[Mapping[str, Any]] = (),
    ) -> Self:
        """Create one from the rows of the four tables; without a state row, an empty one."""
        row = StateRow.from_row({**(state or {}), "conversation_id": conversation_id})
        own = {name: getattr(row, name) for name in StateRow.__dataclass_fields__}
        return cls(
            **own,
            runs=tuple(map(RunRow.from_row, runs)),
            nodes=tuple(map(NodeRow.from_row, nodes)),
            artifacts=tuple(map(RunArtifact.from_row, artifacts)),
            calls=tuple(OpenCall(**call) for call in row.open_calls or ()),
        )

    @property
    def active_run(self) -> RunRow | None:
        """The run whose directive later requests render, or None."""
        return next((run for run in self.runs if run.run_id == self.active_run_id), None)


@dataclass(frozen=True, slots=True)
class RunsProjection:
    """Folds a conversation's events into its runs and its ``conversation_state``."""

    name: str = "runs"
    version: int = 5
    tables: Sequence[ReadTable] = (
        ReadTable("runs", ("run_id",), folding.columns_of(RunRow), lookups=(("run_id",),)),
        ReadTable("run_nodes", ("run_id", "node_id"), folding.columns_of(NodeRow)),
        ReadTable("run_artifacts", ("run_id", "node_id", "name"), folding.columns_of(RunArtifact)),
        ReadTable(
            "conversation_state",
            (),
            (*folding.columns_of(StateRow), *PLACE),
            storage=QuotedText("system_instruction"),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: no run, no call, no mode."""
        marks = {"mode": None, "switched": False, "active_run_id": None, "active_node": None}
        own = {"last_turn": None, "agent_id": None, "moved": False}
        return {**marks, **own, "runs": {}, "calls": {}, "answered": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the four tables."""
        after, changes = folding.run(_HANDLERS, state, event)
        marks = folding.mode_marks(after, event)
        after = {**after, **marks} if marks else after
        turn = event.meta.turn
        if turn is not None and turn > (state["last_turn"] or 0):
            after = {**after, "last_turn": turn}
        if event.type == SessionStart.type and event.meta.agent_id != state["agent_id"]:
            after = {**after, "agent_id": event.meta.agent_id}
        if after is state and type(event.data) not in _RENDERED:
            return state, changes
        values = {
            name: after[name]
            for name in ("mode", "active_run_id", "active_node", "last_turn", "agent_id")
            if after[name] != state[name]
        }
        if after["calls"] is not state["calls"]:
            values["open_calls"] = list(after["calls"].values())
        match event.data:
            case Notebook() as notebook:
                values |= {"notebook": notebook.text, "notebook_version": event.version}
            case SystemInstruction() as instruction:
                values["system_instruction"] = instruction.text
                values |= place_of(event, instruction.text, longer_than=PREVIEW_CHARS)
        if not values:
            return after, changes
        if not state["moved"]:
            after, values = {**after, "moved": True}, {"open_calls": []} | values
        values["last_version"] = event.version
        return after, [*changes, Put("conversation_state", (), values)]


_NO_NODES: dict[str, Any] = {"visits": {}, "active": {}}


def _run_start(draft: RowDraft, start: RunStart) -> None:
    event = draft.event
    values: dict[str, Any] = {
        "workflow_id": start.workflow_id,
        "status": "active",
        "directive": start.directive,
        "post_run_protocol": start.post_run_protocol,
        "active_node": None,
        "started_at": event.occurred_at,
        "ended_at": None,
        "started_version": event.version,
        "end_version": None,
        "error": None,
        "config": start.config,
    }
    draft.put("runs", (start.run_id,), values)
    for ordinal, node in enumerate(start.nodes):
        values = {
            "ordinal": ordinal,
            "title": node.title,
            "brief": node.brief,
            "depends_on": list(node.depends_on),
            "status": "pending",
            "visits": 0,
        }
        draft.put("run_nodes", (start.run_id, node.node_id), values)
    visits = {node.node_id: 0 for node in start.nodes}
    _activate(draft, start.run_id, {"visits": visits, "active": {}})


def _run_end(draft: RowDraft, end: RunEnd) -> None:
    event = draft.event
    closing = {"status": end.status, "ended_at": event.occurred_at, "end_version": event.version}
    values = closing | {"active_node": None, "error": end.error}
    if end.post_run_protocol is not None:
        values["post_run_protocol"] = end.post_run_protocol
    draft.put("runs", (end.run_id,), values)
    for node_id in (draft.drop("runs", end.run_id) or _NO_NODES)["active"]:
        draft.put("run_nodes", (end.run_id, node_id), closing)
    if draft.state["active_run_id"] in (end.run_id, None):
        last = end.run_id if end.status == "completed" else None
        run_id = next(reversed(draft.state["runs"]), last)
        draft.set(active_run_id=run_id, active_node=_active_node(draft, run_id))


def _step_start(draft: RowDraft, start: RunStepStart) -> None:
    event, run_id = draft.event, start.run_id
    nodes = draft.drop("runs", run_id) or _NO_NODES
    known = nodes["visits"].get(start.node_id)
    visits = (known or 0) + 1
    values: dict[str, Any] = {
        "status": "active",
        "started_at": event.occurred_at,
        "ended_at": None,
        "start_version": event.version,
        "end_version": None,
        "visits": visits,
        "error": None,
    }
    if known is None:
        values["ordinal"] = len(nodes["visits"])
    shown = {"brief": start.brief, "context": start.context}
    values |= {name: text for name, text in shown.items() if text is not None}
    draft.put("run_nodes", (run_id, start.node_id), values)
    # Active nodes are ordered by when they began.
    active = {**_without(nodes["active"], start.node_id), start.node_id: True}
    draft.put("runs", (run_id,), {"status": "active", "active_node": start.node_id})
    visited = {**nodes["visits"], start.node_id: visits}
    _activate(draft, run_id, {"visits": visited, "active": active})


def _step_end(draft: RowDraft, end: RunStepEnd) -> None:
    event, run_id = draft.event, end.run_id
    closing = {"status": end.status, "ended_at": event.occurred_at, "end_version": event.version}
    draft.put("run_nodes", (run_id, end.node_id), closing | {"error": end.error})
    for artifact in end.artifacts:
        values = {
            "path": artifact.path,
            "media_type": artifact.media_type,
            "content": artifact.content,
            "created_at": event.occurred_at,
            "version": event.version,
        }
        draft.put("run_artifacts", (run_id, end.node_id, artifact.name), values)
    nodes = draft.get("runs", run_id)
    if nodes is None or end.node_id not in nodes["visits"]:
        return
    draft.keep("runs", run_id, {**nodes, "active": _without(nodes["active"], end.node_id)})
    draft.put("runs", (run_id,), {"active_node": _active_node(draft, run_id)})
    if draft.state["active_run_id"] == run_id:
        draft.set(active_node=_active_node(draft, run_id))


def _activate(draft: RowDraft, run_id: str, nodes: dict[str, Any]) -> None:
    draft.drop("runs", run_id)
    draft.keep("runs", run_id, nodes)
    draft.set(active_run_id=run_id, active_node=_active_node(draft, run_id))


def _active_node(draft: RowDraft, run_id: str | None) -> str | None:
    """Return the node that an open run began last and has not ended, or None."""
    nodes = draft.get("runs", run_id) or _NO_NODES
    return next(reversed(nodes["active"]), None)


def _without(active: dict[str, bool], node_id: str) -> dict[str, bool]:
    left = active.copy()
    left.pop(node_id, None)
    return left


def _requests(draft: RowDraft, message: AssistantMessage) -> None:
    for index, request in enumerate(message.tool_calls):
        own_id = call_id(draft.event.version, index)
        if draft.get("calls", own_id) is None and draft.get("answered", own_id) is None:
            _open_call(draft, own_id, request.name, "requested", None)


def _execution(draft: RowDraft, call: ToolCall) -> None:
    if draft.get("answered", call.call_id) in (None, *SEALS):
        _open_call(draft, call.call_id, call.name, "running", call.idempotency_key)


def _open_call(
    draft: RowDraft, own_id: str, name: str, status: str, idempotency_key: str | None
) -> None:
    call = {
        "call_id": own_id,
        "name": name,
        "status": status,
        "run_id": draft.event.meta.run_id,
        "idempotency_key": idempotency_key,
    }
    draft.keep("calls", own_id, call)


def _result(draft: RowDraft, result: ToolResult) -> None:
    draft.drop("calls", result.call_id)
    if draft.get("answered", result.call_id) in (None, *SEALS):
        draft.keep("answered", result.call_id, result.status, CLOSED_LIMIT)


def _erased(draft: RowDraft, _: None) -> None:
    if draft.event.type != "tool_result":
        return
    own_id = folding.call_of_erased_result(draft.state["calls"])
    if own_id is not None:
        _result(draft, ToolResult(call_id=own_id, status="outcome_unknown"))


_HANDLERS: dict[type, folding.Handler] = {
    RunStart: _run_start,
    RunEnd: _run_end,
    RunStepStart: _step_start,
    RunStepEnd: _step_end,
    AssistantMessage: _requests,
    ToolCall: _execution,
    ToolResult: _result,
    NoneType: _erased,
}

_RENDERED = frozenset({Notebook, SystemInstruction})
RUNS = RunsProjection()
