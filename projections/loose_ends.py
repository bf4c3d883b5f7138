"""What a conversation has begun and not ended: the loose ends that a crash would leave behind.

One row a conversation, so that recovery costs what is open and not what was said. Where facts
contradict each other:

- A model call is open from its request or first chunk to its message or error of the same id; a
  request that repeats the id of an open or failed call begins it anew, and one that comes after the
  answer opens nothing. A message or an error without an id ends no call.
- A tool call is open from its assistant message, or from its execution if nobody asked for it, to
  its first result. ``not_started`` and ``outcome_unknown`` are results; executing the call again
  after one of them opens it again.
- Retracting an assistant message or a model call's first event withdraws what it left open.
  Retracting anything else closes nothing.
- There is one open turn and one open session: a start takes the place of an older one, an end that
  names another turn or session ends nothing.
- Of erased events only the type is known: starts and ends of turns and sessions still count, an
  answer ends the model call begun last, a result the tool call that has been open longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from eventstore.events import (
    RecordedEvent,
    RunEnd,
    RunStepEnd,
    RunStepStart,
    SessionEnd,
    SessionStart,
    TurnEnd,
    TurnStart,
)
from projections import folding, loose_ends_calls
from projections.base import Change, Column, Put, ReadTable, State
from projections.folding import CLOSED_LIMIT, Draft
from projections.loose_ends_calls import begun, belongs, end_model_call

__all__ = ["LOOSE_ENDS", "LooseEndsProjection"]

_TABLE = "loose_ends"


@dataclass(frozen=True, slots=True)
class LooseEndsProjection:
    """Folds a conversation's events into its row of ``loose_ends``."""

    name: str = "loose_ends"
    version: int = 2
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            (),
            (
                Column("model_calls", "json"),
                Column("tool_calls", "json"),
                Column("turn", "json"),
                Column("session", "json"),
                Column("run_step", "json"),
                Column("open_count", "integer"),
                Column("last_version", "integer"),
                Column("last_event_at", "timestamp"),
            ),
            lookups=(("open_count",),),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: nothing is open."""
        marks = {"turn": None, "session": None, "run_step": None, "row": False}
        return {**marks, "models": {}, "ended": {}, "calls": {}, "answered": {}}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and what it changes in the row."""
        after, _ = folding.run(_HANDLERS, state, event)
        step, turn = event.meta.step, after["turn"]
        if (
            step is not None
            and turn is not None
            and step >= turn["steps"]
            and belongs(turn, event, "turn")
        ):
            after = {**after, "turn": {**turn, "steps": step + 1}}
        values: dict[str, Any] = {
            "last_version": event.version,
            "last_event_at": event.occurred_at,
        }
        if not state["row"]:
            after = {**after, "row": True}
            values |= {"model_calls": [], "tool_calls": [], "open_count": 0}
        if after is not state:
            values |= _changed(state, after)
        return after, (Put(_TABLE, (), values),)


def _changed(state: State, after: State) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("turn", "session", "run_step"):
        if after[name] is not state[name]:
            values[name] = after[name]
    models, calls = after["models"], after["calls"]
    if models is not state["models"]:
        values["model_calls"] = list(models.values())
    if calls is not state["calls"]:
        values["tool_calls"] = list(calls.values())
    if values:
        values["open_count"] = len(models) + len(calls) + (after["turn"] is not None)
    return values


def _turn_start(draft: Draft, _: TurnStart | None) -> None:
    turn = begun(draft, turn=draft.event.meta.turn, steps=0, tokens=None)
    draft.set(turn=turn)
    session = draft.state["session"]
    if session is not None:
        draft.set(session={**session, "turns": session["turns"] + 1})


def _turn_end(draft: Draft, _: TurnEnd | None) -> None:
    if belongs(draft.state["turn"], draft.event, "turn"):
        draft.set(turn=None)


def _session_start(draft: Draft, _: SessionStart | None) -> None:
    session_id = draft.event.meta.session_id
    draft.set(session=begun(draft, session_id=session_id, turns=0, tokens=None))


def _session_end(draft: Draft, _: SessionEnd | None) -> None:
    if belongs(draft.state["session"], draft.event, "session_id"):
        draft.set(session=None)


def _step_start(draft: Draft, start: RunStepStart) -> None:
    draft.set(run_step=begun(draft, run_id=start.run_id, node_id=start.node_id))


def _step_end(draft: Draft, end: RunStepEnd | RunEnd) -> None:
    step = draft.state["run_step"]
    node = end.node_id if isinstance(end, RunStepEnd) else None
    if step is not None and step["run_id"] == end.run_id and node in (None, step["node_id"]):
        draft.set(run_step=None)


def _erased(draft: Draft, _: None) -> None:
    match draft.event.type:
        case "turn_start":
            _turn_start(draft, None)
        case "turn_end":
            _turn_end(draft, None)
        case "session_start":
            _session_start(draft, None)
        case "session_end":
            _session_end(draft, None)
        case "run_step_end" | "run_end" if draft.state["run_step"] is not None:
            draft.set(run_step=None)
        case "assistant_message" | "llm_error":
            end_model_call(draft, next(reversed(draft.state["models"]), None), "ok", None)
        case "tool_result" if own_id := next(iter(draft.state["calls"]), None):
            draft.drop("calls", own_id)
            draft.keep("answered", own_id, "success", CLOSED_LIMIT)


_HANDLERS: dict[type, folding.Handler] = loose_ends_calls.HANDLERS | {
    TurnStart: _turn_start,
    TurnEnd: _turn_end,
    SessionStart: _session_start,
    SessionEnd: _session_end,
    RunStepStart: _step_start,
    RunStepEnd: _step_end,
    RunEnd: _step_end,
    NoneType: _erased,
}

LOOSE_ENDS = LooseEndsProjection()
