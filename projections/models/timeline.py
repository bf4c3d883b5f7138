"""The timeline: the items that a user interface shows for a conversation, in reading order.

An answer is one item, from its first streamed piece to the message or error that ends it. So is a
tool call with its execution and result, and everything else with a start and an end. The first real
result of a call stays, and replaces a stand-in; executing the call again removes the stand-in.
Pieces that arrive after the end of their answer are ignored. An erased event leaves an item without
content; an erased result gives the oldest open call of the newest message the status
``outcome_unknown``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ConversationEnd,
    ConversationFork,
    ConversationStart,
    ConversationUpdate,
    Erasure,
    ModeSwitch,
    Notebook,
    RecordedEvent,
    Retraction,
    RunEnd,
    RunStart,
    RunStepEnd,
    RunStepStart,
    SessionEnd,
    SessionStart,
    Summary,
    SystemInstruction,
    TaskEnd,
    TaskEnqueue,
    TaskStart,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.own import is_own
from projections import payload_text, version_ranges
from projections.engine import folding
from projections.engine.folding import CLOSED_LIMIT, RowDraft
from projections.engine.projection import Change, Column, Patch, ReadTable, State
from projections.engine.quoting import PLACE
from projections.models import branches, timeline_items
from projections.models.branches import BRANCHES
from projections.models.timeline_items import (
    OUTCOME,
    TABLE,
    QuotedTexts,
    TimelineItem,
    change,
    close_erased_call,
    close_span,
    open_span,
    point,
    shown_as,
)

__all__ = ["TIMELINE", "TimelineItem", "TimelineProjection"]

_SILENT_WHEN_ERASED = frozenset({"assistant_chunk", "llm_request", "mode_state"})


@dataclass(frozen=True, slots=True)
class TimelineProjection:
    """Folds a conversation's events into ``timeline_items``."""

    name: str = "timeline"
    version: int = 11
    tables: Sequence[ReadTable] = (
        ReadTable(
            TABLE,
            ("version", "part"),
            (*folding.columns_of(TimelineItem), *PLACE, Column("result_version", "integer")),
            # The first is for reading later changes, the others for retractions.
            indexes=(("end_version",), ("message_version",), ("result_version",)),
            storage=QuotedTexts(),
        ),
        BRANCHES,
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: nothing open, nothing ended."""
        memories: State = {"llm": {}, "ended": {}, "calls": {}, "answered": {}, "spans": {}}
        return {**memories, "withdrawn": [], "fork": None}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the table."""
        if event.data is not None and is_own(event.type):
            # By type alone: a fold's result must not depend on which types are registered.
            return folding.run({type(event.data): _own}, state, event)
        return folding.run(_HANDLERS, state, event)


def _user(draft: RowDraft, message: UserMessage) -> None:
    text = payload_text.text_of(message.parts) or payload_text.sections_text(message.sections)
    values: dict[str, Any] = {"text": text, "name": message.name, **shown_as(message.ui)}
    point(draft, "user", role="user", **values)
    branches.begin(draft)  # turns of imported transcripts have no start event


def _assistant(draft: RowDraft, message: AssistantMessage) -> None:
    timeline_items.HANDLERS[AssistantMessage](draft, message)
    fork = draft.state["fork"]
    if fork is not None and fork["kind"] == "answer":
        branches.begin(draft)  # nor do regenerated answers in transcripts


def _conversation_start(draft: RowDraft, start: ConversationStart) -> None:
    point(draft, "conversation", title=start.title, text=start.base_instructions, collapsed=True)


def _conversation_fork(draft: RowDraft, fork: ConversationFork) -> None:
    # The parent's sessions belong to another conversation.
    for kind, own_id in [key.split(":", 1) for key in draft.state["spans"]]:
        if kind == "session":
            close_span(draft, kind, own_id, "complete")
    point(draft, "conversation", title=fork.title, collapsed=True)


def _conversation_update(draft: RowDraft, update: ConversationUpdate) -> None:
    if update.title is None and update.archived is None:
        return  # Metadata is shown in lists only.
    status = {None: None, True: "archived", False: "unarchived"}[update.archived]
    point(draft, "conversation", title=update.title, text=status, collapsed=True)


def _conversation_end(draft: RowDraft, end: ConversationEnd) -> None:
    point(draft, "conversation", title=end.reason, text=end.message)


def _session_start(draft: RowDraft, start: SessionStart) -> None:
    open_span(draft, "session", draft.event.meta.session_id, title=start.mode, collapsed=True)


def _session_end(draft: RowDraft, end: SessionEnd) -> None:
    session_id = draft.event.meta.session_id
    close_span(
        draft, "session", session_id, "complete", end.duration_ms, text=end.reason, collapsed=True
    )


def _turn_start(draft: RowDraft, start: TurnStart) -> None:
    open_span(draft, "turn", draft.event.meta.turn, collapsed=True)
    branches.begin(draft)


def _turn_end(draft: RowDraft, end: TurnEnd) -> None:
    values: dict[str, Any] = {"title": end.reason, "text": end.error, "collapsed": True}
    close_span(draft, "turn", draft.event.meta.turn, end.status, end.duration_ms, **values)


def _run_start(draft: RowDraft, start: RunStart) -> None:
    values = {"title": start.workflow_id, "text": start.directive, "run_id": start.run_id}
    open_span(draft, "run", start.run_id, **values)


def _run_end(draft: RowDraft, end: RunEnd) -> None:
    close_span(draft, "run", end.run_id, end.status, text=end.error, run_id=end.run_id)


def _step_start(draft: RowDraft, start: RunStepStart) -> None:
    shown = {"title": start.node_id, "text": start.brief, "run_id": start.run_id}
    open_span(draft, "step", f"{start.run_id}:{start.node_id}", **shown)


def _step_end(draft: RowDraft, end: RunStepEnd) -> None:
    values: dict[str, Any] = {"title": end.node_id, "text": end.error, "run_id": end.run_id}
    close_span(draft, "step", f"{end.run_id}:{end.node_id}", end.status, **values)


def _task_enqueue(draft: RowDraft, task: TaskEnqueue) -> None:
    values = {"title": task.task_id, "text": payload_text.text_of(task.items), "status": "pending"}
    open_span(draft, "task", task.task_id, **values, collapsed=True)


def _task_start(draft: RowDraft, task: TaskStart) -> None:
    span = draft.get("spans", f"task:{task.task_id}")
    if span is None:
        open_span(draft, "task", task.task_id, title=task.task_id, collapsed=True)
        return
    draft.keep("spans", f"task:{task.task_id}", {**span, "started": draft.now})
    change(draft, span["at"], {"status": "running", "started_at": draft.event.occurred_at})


def _task_end(draft: RowDraft, end: TaskEnd) -> None:
    close_span(draft, "task", end.task_id, end.status, title=end.task_id, collapsed=True)


def _mode(draft: RowDraft, switch: ModeSwitch) -> None:
    point(draft, "mode", title=switch.mode, text=switch.reason, mode=switch.mode)


def _summary(draft: RowDraft, summary: Summary) -> None:
    values: dict[str, Any] = {"title": summary.strategy, "text": summary.text, "collapsed": True}
    values |= shown_as(summary.ui)
    point(draft, "summary", role="system", llm_call_id=summary.llm_call_id, **values)


def _system(draft: RowDraft, instruction: SystemInstruction) -> None:
    values: dict[str, Any] = {"name": instruction.name, "text": instruction.text, "collapsed": True}
    point(draft, "system", role=instruction.role, **values | shown_as(instruction.ui))


def _notebook(draft: RowDraft, notebook: Notebook) -> None:
    point(draft, "note", title=notebook.name, text=notebook.text, collapsed=True)


def _erasure(draft: RowDraft, erasure: Erasure) -> None:
    point(draft, "erasure", title=f"{erasure.event_count} events erased", text=erasure.reason)


def _erased(draft: RowDraft, _: None) -> None:
    if draft.event.type == "tool_result":
        close_erased_call(draft)
    if draft.event.type not in _SILENT_WHEN_ERASED:
        point(draft, "erased", title=draft.event.type, actor=None, extra=None, collapsed=True)


def _unknown(draft: RowDraft, event: UnknownEvent) -> None:
    point(draft, "unknown", title=event.type, text=event.reason, collapsed=True)


def _own(draft: RowDraft, _: Any) -> None:
    point(draft, "own", title=draft.event.type, collapsed=True)


def _retraction(draft: RowDraft, retraction: Retraction) -> None:
    changed = {"end_version": draft.event.version, "result_version": None}
    ranges, _ = folding.not_yet_within(
        version_ranges.retracted(retraction, draft.event), draft.state["withdrawn"]
    )
    values = {"status": "withdrawn", **changed}
    folding.withdraw(draft, retraction, TABLE, "message_version", values)
    for first, last in ranges:  # of the results, only those whose calls stay
        unanswered = {"status": "pending", **dict.fromkeys(OUTCOME), **changed}
        draft.changes.append(Patch(TABLE, "result_version", first, last, unanswered))
    for first, last in version_ranges.retracted(retraction, draft.event):
        _forget(draft, first, last)
        if retraction.replaced_by:  # shown once, where they are recorded again
            replaced = {"inactive": True, "end_version": draft.event.version}
            draft.changes.append(Patch(TABLE, "message_version", first, last, replaced))
    point(draft, "retraction", text=retraction.reason, collapsed=True)


def _switch(draft: RowDraft, switched: BranchSwitch) -> None:
    folding.switch(draft, switched, TABLE, "message_version", end_version=draft.event.version)
    branches.change(draft, switched)
    point(draft, "branch", title=switched.reason, collapsed=True)


def _forget(draft: RowDraft, first: int, last: int) -> None:
    """Prevent later events from bringing a withdrawn item back."""
    for own_id, call in draft.state["calls"].items():
        if first <= call["message"] <= last:
            draft.drop("calls", own_id)
            draft.keep("answered", own_id, {"at": call["at"]}, CLOSED_LIMIT)
        elif first <= call.get("result", 0) <= last:
            draft.keep("calls", own_id, {**call, "sealed": False})
    for own_id, call in draft.state["answered"].items():
        if first <= call.get("result", 0) <= last:
            draft.drop("answered", own_id)
            if not first <= call["message"] <= last:
                draft.keep("calls", own_id, call)
            else:
                draft.keep("answered", own_id, {"at": call["at"]}, CLOSED_LIMIT)
    for own_id, span in draft.state["spans"].items():
        if first <= span["at"][0] <= last:
            draft.drop("spans", own_id)
    for own_id, call in draft.state["llm"].items():
        at = {slot: place for slot, place in call["at"].items() if not first <= place[0] <= last}
        if len(at) < len(call["at"]):
            draft.keep("llm", own_id, {**call, "at": at})


_HANDLERS: dict[type, folding.Handler] = timeline_items.HANDLERS | {
    UserMessage: _user,
    AssistantMessage: _assistant,
    ConversationStart: _conversation_start,
    ConversationFork: _conversation_fork,
    ConversationUpdate: _conversation_update,
    ConversationEnd: _conversation_end,
    SessionStart: _session_start,
    SessionEnd: _session_end,
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    RunStart: _run_start,
    RunEnd: _run_end,
    RunStepStart: _step_start,
    RunStepEnd: _step_end,
    TaskEnqueue: _task_enqueue,
    TaskStart: _task_start,
    TaskEnd: _task_end,
    ModeSwitch: _mode,
    Summary: _summary,
    SystemInstruction: _system,
    Notebook: _notebook,
    Erasure: _erasure,
    Retraction: _retraction,
    BranchSwitch: _switch,
    UnknownEvent: _unknown,
    NoneType: _erased,
}

TIMELINE = TimelineProjection()
