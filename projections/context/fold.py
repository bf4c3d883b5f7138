"""The projection ``context``: the events of a conversation become the rows of its messages[] view.

Every prefix of a log gives rows that make a valid request: an assistant message brings a
placeholder for each of its tool calls at once, and what is learnt later replaces it. Where facts
contradict each other:

- The first ``success`` or ``failed``, ``denied`` or ``skipped`` result of a call stays; it
  replaces ``not_started`` and ``outcome_unknown``, which replace nothing but placeholders.
- A result whose call is unknown has no row. A streamed call without an end has none either, until
  recovery records how it ended.
- A failed model call is hidden once its retry has answered or failed, unless it had streamed text
  that the model should go on from; and always once the very same call has answered.
- A summary hides what it covers through ``summarised_by``, so that withdrawing the summary shows
  it again (both an older summary and its sources, where one range covered both). An older summary
  is covered with its event or with its place; in the latter case, what else it stood for shows
  again. System part, notebook, first and latest user message outlive a summary; readers see to it.
- A retraction is final: retracting a retraction changes nothing. Retracting only a tool's result
  leaves the call with a placeholder, and the call may be answered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from eventstore.blobs import alias_of
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Erasure,
    LlmError,
    LlmRequest,
    Notebook,
    RecordedEvent,
    Retraction,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolResult,
    UserMessage,
)
from projections.base import Change, Patch, Put, State
from projections.context import content, prompts
from projections.context import state as memory
from projections.context.detail import detailed, plain
from projections.context.memo import touch
from projections.context.quoted import place_of
from projections.context.rows import CONTEXT_MESSAGES, Kind
from projections.context.wire import native

__all__ = ["CONTEXT", "ContextProjection"]

_TABLE = CONTEXT_MESSAGES.name
_NUMBERED = ("user", "assistant", "error")
_UNCERTAIN = ("not_started", "outcome_unknown")
_Folded = tuple[State, list[Change]]


class ContextProjection:
    """One row a message of the messages[] view, with its tokens; see the module for the rules."""

    name = "context"
    version = 3
    tables = (CONTEXT_MESSAGES,)

    def initial(self) -> State:
        """Return the state before the first event."""
        return memory.initial()

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and the rows that it adds, completes or hides."""
        folded = _FOLDS.get(type(event.data))
        if folded is None:
            # What was erased is no longer what was folded.
            return _touched(state, event.version, 1) if event.type == Erasure.type else state, []
        state, changes = folded(state, event, event.data)
        state = _numbered(state, changes)
        for change in changes:
            if "message" in change.values:
                change.values.update(place_of(event, change.values["message"]))
        oldest = min((_oldest(change) for change in changes), default=event.version)
        return _touched(state, event.version, oldest), changes


def _numbered(state: State, changes: list[Change]) -> State:
    """Give a new message its number."""
    for change in changes:
        if isinstance(change, Put) and change.values.get("kind") in _NUMBERED:
            state = {**state, "messages": state["messages"] + 1}
            change.values["ordinal"] = state["messages"]
    return state


def _oldest(change: Change) -> int:
    """Return the place of the oldest row that a change reaches."""
    return int(change.key[0]) if isinstance(change, Put) else 1


def _touched(state: State, version: int, oldest: int) -> State:
    if oldest >= version:
        return state
    return {**state, "touched": touch(state["touched"], version, oldest)}


def _user(state: State, event: RecordedEvent, data: UserMessage) -> _Folded:
    return state, [_row(event, "user", detailed(content.user(data), data.sections))]


def _assistant(state: State, event: RecordedEvent, data: AssistantMessage) -> _Folded:
    held = detailed(content.assistant(data))
    kept = native.columns(native.of_assistant(data))
    changes: list[Change] = [_row(event, "assistant", held, **kept)]
    changes += [
        _row(event, "tool", _placeholder(prompts.NO_RESULT), part=index + 1, sealed=True)
        for index in range(len(data.tool_calls))
    ]
    state = memory.open_calls(state, event.version, len(data.tool_calls))
    call = data.llm_call_id
    if call is None:
        return state, changes
    failed, retries = dict(state["failed"]), dict(state["retries"])
    own, repeated = failed.pop(call, None), retries.pop(call, None)
    if own:
        changes.append(_hide(own["version"], "superseded"))
    if repeated and not repeated["partial"]:
        changes.append(_hide(repeated["version"], "superseded"))
    return {**state, "failed": failed, "retries": retries, "answered": call}, changes


def _request(state: State, event: RecordedEvent, data: LlmRequest) -> _Folded:
    failure = state["failed"].get(data.retry_of)
    if failure is None:
        return state, []
    rest = {call: entry for call, entry in state["failed"].items() if call != data.retry_of}
    return memory.remember({**state, "failed": rest}, "retries", data.llm_call_id, failure), []


def _error(state: State, event: RecordedEvent, data: LlmError) -> _Folded:
    call = data.llm_call_id
    late = call is not None and call == state["answered"]
    row = _row(event, "error", plain(content.error(data)))
    if late:
        return state, [row, _hide(event.version, "superseded")]
    if call is None:
        return state, [row]
    changes: list[Change] = [row]
    retries = dict(state["retries"])
    before = (retries.pop(call, None), state["failed"].get(call))
    changes += [
        _hide(failure["version"], "superseded")
        for failure in before
        if failure and not failure["partial"]
    ]
    entry = {"version": event.version, "partial": bool(data.partial_text)}
    return memory.remember({**state, "retries": retries}, "failed", call, entry), changes


def _call(state: State, event: RecordedEvent, data: ToolCall) -> _Folded:
    known = state["calls"].get(data.call_id)
    if known is None or known["settled"]:
        return state, []
    if known["started"] is not None and known["result"] is None:
        return state, []
    # After a stand-in, such as ``not_started``, the call is executed after all: it counts no more.
    state = memory.update_call(state, data.call_id, started=event.version, result=None)
    values = _placeholder(prompts.STARTED)
    return state, [_result_row(data.call_id, (event.version,), sealed=True, **values)]


def _result(state: State, event: RecordedEvent, data: ToolResult) -> _Folded:
    known = state["calls"].get(data.call_id)
    uncertain = data.status in _UNCERTAIN
    if known is None or known["settled"] or (uncertain and known["result"] is not None):
        return state, []
    shown = event.meta.in_context
    values = _placeholder(prompts.EXCLUDED_RESULT)
    if shown:
        values = detailed(
            content.tool(data), data.sections, alias_of(data.call_id)
        ) | native.columns(native.of_tool(data))
    change = _result_row(
        data.call_id,
        (known["started"], event.version),
        sealed=uncertain or not shown,
        result_version=event.version,
        full_alias=content.scrub(data.alias) if shown else None,
        **values,
    )
    settled = {"result": event.version, "settled": not uncertain}
    return memory.update_call(state, data.call_id, **settled), [change]


def _start(state: State, event: RecordedEvent, data: ConversationStart) -> _Folded:
    text = "\n\n".join(filter(None, (data.base_instructions, data.user_instructions)))
    return _latest(state, event, "system", content.system(text)) if text else (state, [])


def _instruction(state: State, event: RecordedEvent, data: SystemInstruction) -> _Folded:
    return _latest(
        state, event, "system", content.system(data.text, role=data.role, name=data.name)
    )


def _notebook(state: State, event: RecordedEvent, data: Notebook) -> _Folded:
    return _latest(state, event, "notebook", content.system(prompts.notebook(data.text)))


def _latest(state: State, event: RecordedEvent, kind: Kind, message: content.Message) -> _Folded:
    changes: list[Change] = [_row(event, kind, plain(message))]
    if not event.meta.in_context:
        return state, changes
    changes += [_hide(version, "superseded") for version in state[kind][-1:]]
    return memory.push(state, kind, event.version), changes


def _summary(state: State, event: RecordedEvent, data: Summary) -> _Folded:
    ranges = memory.known(data.versions, event.version)
    place = min((first for first, _ in ranges), default=event.version)
    row = _row(
        event,
        "summary",
        plain(content.system(prompts.summary(data.text))),
        version=place,
        part=-event.version,
        summary_version=event.version,
    )
    if not event.meta.in_context:
        return state, [row]
    changes: list[Change] = []
    for older, _ in memory.summaries(state, placed_in=ranges):
        changes += _patches(("summarised_by",), older, older, {"summarised_by": None})
    for first, last in ranges:
        covered = {"summarised_by": event.version}
        changes += _patches(("version", "summary_version"), first, last, covered)
    state = memory.forget_summaries(state, ranges, with_places=True)
    state = memory.remember(state, "summaries", str(event.version), {"version": place})
    return state, [*changes, row]


def _retraction(state: State, event: RecordedEvent, data: Retraction) -> _Folded:
    withdrawn = {"hidden": "withdrawn"}
    unanswered = {
        **_placeholder(prompts.WITHDRAWN_RESULT),
        "sealed": True,
        "result_version": None,
        "full_alias": None,
    }
    ranges = memory.known(data.versions, event.version)
    changes: list[Change] = []
    for first, last in ranges:
        changes += _patches(("version", "summary_version"), first, last, withdrawn)
        changes += _patches(("summarised_by",), first, last, {"summarised_by": None})
        changes += _patches(("result_version",), first, last, unanswered)
    # A summary stands at a place that it covers, which may be withdrawn without the summary.
    for version, place in memory.summaries(state, placed_in=ranges):
        changes.append(Put(_TABLE, (place, -version), {"hidden": None}))
    state = memory.withdraw_results(memory.forget_summaries(state, ranges), ranges)
    for name in ("system", "notebook"):
        before = state[name]
        state = memory.withdraw_texts(state, name, ranges)
        if before[-1:] != state[name][-1:]:
            changes += [_hide(version, None) for version in state[name][-1:]]
    return state, changes


def _row(
    event: RecordedEvent,
    kind: Kind,
    held: dict[str, Any],
    *,
    version: int | None = None,
    part: int = 0,
    **values: Any,
) -> Put:
    """Return a new row; ``held`` is its message, counted."""
    meta = event.meta
    columns = {
        "role": held["message"]["role"],
        "kind": kind,
        **native.columns(None),
        **held,
        "sealed": False,
        "hidden": None if meta.in_context else "excluded",
        "source_versions": [event.version],
        "mode": meta.mode,
        "run_id": meta.run_id,
        "turn": meta.turn,
        "step": meta.step,
    }
    place = event.version if version is None else version
    return Put(_TABLE, (place, part), {**columns, **values})


def _result_row(call_id: str, sources: Sequence[int | None], **values: Any) -> Put:
    """Return the change of a tool row that exists; its visibility stays as it is."""
    version, _, index = call_id.partition(".")
    versions = [int(version), *(source for source in sources if source is not None)]
    return Put(_TABLE, (int(version), int(index) + 1), {**values, "source_versions": versions})


@cache
def _counted_placeholder(text: str) -> tuple[tuple[str, Any], ...]:
    return tuple(plain({"role": "tool", "content": text}).items())


def _placeholder(text: str) -> dict[str, Any]:
    values = dict(_counted_placeholder(text))
    return {**values, "message": dict(values["message"]), **native.columns(None)}


def _hide(version: int, reason: str | None) -> Put:
    """Return the change of a message that exists; a summary at the same version keeps its own."""
    return Put(_TABLE, (version, 0), {"hidden": reason})


def _patches(columns: Sequence[str], first: int, last: int, values: dict[str, Any]) -> list[Change]:
    return [Patch(_TABLE, column, first, last, values) for column in columns]


_FOLDS: dict[type[Any], Callable[[State, RecordedEvent, Any], _Folded]] = {
    AssistantMessage: _assistant,
    ConversationStart: _start,
    LlmError: _error,
    LlmRequest: _request,
    Notebook: _notebook,
    Retraction: _retraction,
    Summary: _summary,
    SystemInstruction: _instruction,
    ToolCall: _call,
    ToolResult: _result,
    UserMessage: _user,
}

CONTEXT = ContextProjection()
"""The projection; it has no configuration."""
