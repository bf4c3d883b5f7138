"""The projection ``context``: turns a conversation's events into the rows of its messages[] view.

The rows of every prefix of a log make a valid request: an assistant message adds a placeholder for
each of its tool calls at once, and later events replace the placeholder. Contradictory events are
resolved as follows:

- The first ``success``, ``failed``, ``denied`` or ``skipped`` result of a call is final; it
  replaces ``not_started`` and ``outcome_unknown``, which replace only placeholders. Of a
  long-running call, each such result replaces the one before.
- A result whose call is unknown has no row. A streamed call without an end has no row either, until
  recovery records how it ended.
- A failed model call is hidden once its retry has failed, unless it had streamed text from which
  the model should continue. Once its retry, or the call itself, has been answered, it is hidden in
  any case, together with the failures that it had itself retried. Of failures that stay, requests
  contain what `projections.context.failures` says.
- A summary hides the rows that it covers through ``summarised_by``, so that withdrawing the summary
  shows them again (both an older summary and its sources, if one range covered both). An older
  summary is covered through its event or through its place; in the latter case, the other rows that
  it covered are shown again. Readers show the system part, the notebook, and the first and latest
  user message even if a summary covers them. See `projections.context.covering`.
- A system instruction that was kept out of the context is not an instruction, but a message at its
  place: it replaces no instruction, and only a request that includes excluded rows contains it.
- Rows on an inactive branch are hidden as ``inactive``, and shown again when the branch becomes
  active again; so are the branch's system part and notebook. A summary made on the branch stays
  hidden, and the rows that it covered are shown. A call's result stays with the call, whichever
  branch it was recorded on.
- A retraction is final: retracting a retraction changes nothing. Retracting only a tool's result
  leaves the call with a placeholder, and the call may be answered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eventstore.blobs import alias_of
from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
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
from projections.context import content, covering, prompts
from projections.context import state as memory
from projections.context.compression.facts import texts_of
from projections.context.compression.lasting import leaves_anything
from projections.context.compression.shortening import Preview
from projections.context.detail import detailed, plain
from projections.context.formats import chat
from projections.context.plan_cache import touch
from projections.context.prompts import place_of
from projections.context.row_changes import (
    TABLE,
    hide,
    hide_where,
    new_row,
    placeholder,
    result_row,
)
from projections.context.rows import CONTEXT_MESSAGES, Kind
from projections.engine.folding import before, not_yet_within, up_to, within
from projections.engine.projection import Change, Patch, Put, State

__all__ = ["CONTEXT", "ContextProjection"]

_SAID = (None, "text", "error")  # part types that belong to the answer, collapsed or not
_UNCERTAIN = ("not_started", "outcome_unknown")
_MOST_EARLIER = 32  # failed calls with partial text that one retry may supersede


class ContextProjection:
    """Writes a row for each message, with its tokens; see the module for the rules.

    It also writes the conversation's mode and tool policy: see `projections.context.state`.
    """

    name = "context"
    version = 18
    tables = (CONTEXT_MESSAGES, memory.CONTEXT_ACTIVE)

    def initial(self) -> State:
        """Return the state before the first event."""
        return memory.initial() | covering.initial() | memory.none_active()

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and the changes of rows that the event makes."""
        folded = _FOLDS.get(type(event.data))
        changes: list[Change] = []
        if folded is not None:
            state = state.copy()
            changes = folded(state, event, event.data)
            oldest = _oldest(changes, event.version)
        else:
            # An erasure may have changed the content of any row.
            oldest = 1 if event.type == Erasure.type else event.version
        if oldest < event.version:
            state = {**state, "touched": touch(state["touched"], event.version, oldest)}
        state, told = memory.changed(state, event)
        return state, [*changes, *told] if told else changes


def _oldest(changes: list[Change], version: int) -> int:
    """Return the version of the oldest row that an event's changes may affect."""
    oldest = version
    for change in changes:
        oldest = min(oldest, change.key[0]) if isinstance(change, Put) else 1
    return oldest


def _user(state: State, event: RecordedEvent, data: UserMessage) -> list[Change]:
    held = detailed(content.user(data), data.sections)
    left = leaves_anything("\n".join(texts_of(held["message"])))
    held["lasting"] = event.version if left else None
    return [new_row(event, "user", held, ordinal=memory.number(state))]


def _assistant(state: State, event: RecordedEvent, data: AssistantMessage) -> list[Change]:
    held = {**detailed(content.assistant(data)), "native": chat.of_assistant(data)}
    changes: list[Change] = [new_row(event, "assistant", held, ordinal=memory.number(state))]
    if _only_shown(data):
        changes.append(hide(event.version, "excluded"))
    changes += [
        new_row(event, "tool", placeholder(prompts.NO_RESULT), part=index + 1, sealed=True)
        for index in range(len(data.tool_calls))
    ]
    memory.open_calls(state, event.version, data.tool_calls)
    call = data.llm_call_id
    if call is not None:
        state["answered"] = call
        repeated = (memory.forget(state, "failed", call), memory.forget(state, "retries", call))
        changes += [
            hide(version, "superseded")
            for failure in repeated
            if failure
            for version in (*failure["earlier"], failure["version"])
        ]
    return changes


def _only_shown(data: AssistantMessage) -> bool:
    """Whether a message is only a collapsed event of the user interface, without tool calls."""
    ui = data.ui
    folded = ui is not None and ui.collapsed is True and ui.part_type not in _SAID
    return folded and not data.tool_calls


def _request(state: State, event: RecordedEvent, data: LlmRequest) -> list[Change]:
    failure = memory.forget(state, "failed", data.retry_of)
    if failure is not None:
        memory.remember(state, "retries", data.llm_call_id, failure)
    return []


def _error(state: State, event: RecordedEvent, data: LlmError) -> list[Change]:
    call = data.llm_call_id
    late = call is not None and call == state["answered"]
    held = plain(content.error(data))
    given: dict[str, Any] = {}
    if (shorter := content.shorter_error(data)) is not None:
        given["shortened"] = shorter["content"]
    if data.partial_text:
        given["partial"] = len(content.scrub(data.partial_text))
    held["given"] = given or None
    changes: list[Change] = [new_row(event, "error", held, ordinal=memory.number(state))]
    if late:
        changes.append(hide(event.version, "superseded"))
    elif call is not None:
        before = (memory.forget(state, "retries", call), state["failed"].get(call))
        earlier: list[int] = []
        for failure in filter(None, before):
            earlier += failure["earlier"]
            if failure["partial"]:
                earlier.append(failure["version"])
            else:
                changes.append(hide(failure["version"], "superseded"))
        entry = {
            "version": event.version,
            "partial": bool(data.partial_text),
            "earlier": earlier[-_MOST_EARLIER:],
        }
        memory.remember(state, "failed", call, entry)
    return changes


def _call(state: State, event: RecordedEvent, data: ToolCall) -> list[Change]:
    known = state["calls"].get(data.call_id)
    if known is None or known["settled"]:
        return []
    if known["started"] is not None and known["result"] is None:
        return []
    # The call runs after all: a result ``not_started`` or ``outcome_unknown`` no longer counts.
    memory.update_call(state, data.call_id, started=event.version, result=None)
    held = placeholder(prompts.STARTED)
    return [result_row(data.call_id, held, (event.version,), sealed=True)]


def _result(state: State, event: RecordedEvent, data: ToolResult) -> list[Change]:
    known = state["calls"].get(data.call_id)
    uncertain = data.status in _UNCERTAIN
    if known is None or known["settled"] or (uncertain and known["result"] is not None):
        return []
    settled = not uncertain and "long" not in known
    memory.update_call(state, data.call_id, result=event.version, settled=settled)
    shown = event.meta.in_context
    if shown:
        name = data.name or known["name"]
        message = content.tool(data, name)
        text = data.content if isinstance(data.content, str) else ""
        path = data.alias
        if path is None and (data.status != "success" or not text):
            path = alias_of(data.call_id, text)  # Otherwise `levels` derives it from the message.
        held = detailed(message, data.sections, Preview(name, data.status, path))
        held["native"] = chat.of_tool(data)
        held |= place_of(event, message)
    else:
        held = placeholder(prompts.EXCLUDED_RESULT)
    started = known["started"]
    change = result_row(
        data.call_id,
        held,
        (event.version,) if started is None else (started, event.version),
        sealed=uncertain or not shown,
        result_version=event.version,
        full_alias=content.scrub(data.alias) if shown else None,
    )
    return [change]


def _start(state: State, event: RecordedEvent, data: ConversationStart) -> list[Change]:
    text = "\n\n".join(filter(None, (data.base_instructions, data.user_instructions)))
    return _latest(state, event, "system", content.system(text)) if text else []


def _instruction(state: State, event: RecordedEvent, data: SystemInstruction) -> list[Change]:
    message = content.system(data.text, role=data.role, name=data.name)
    if not event.meta.in_context:
        return [new_row(event, "aside", plain(message))]
    return _latest(state, event, "system", message, continues=data.continues)


def _notebook(state: State, event: RecordedEvent, data: Notebook) -> list[Change]:
    return _latest(state, event, "notebook", content.system(prompts.notebook(data.text)))


def _latest(
    state: State,
    event: RecordedEvent,
    kind: Kind,
    message: content.Message,
    *,
    continues: bool = False,
) -> list[Change]:
    changes: list[Change] = [new_row(event, kind, plain(message))]
    if event.meta.in_context:
        replaced = memory.push(state, kind, event.version, continues=continues)
        changes += [hide(version, "superseded") for version in replaced]
    return changes


def _summary(state: State, event: RecordedEvent, data: Summary) -> list[Change]:
    ranges = up_to(data.versions, event.version)
    place = min((first for first, _ in ranges), default=event.version)
    row = new_row(
        event,
        "summary",
        plain(content.system(prompts.summary(data.text))),
        version=place,
        part=-event.version,
        summary_version=event.version,
    )
    if not event.meta.in_context:
        return [*covering.keep_out(state, event.version, place), row]
    return [*covering.cover(state, event.version, place, ranges), row]


def _retraction(state: State, event: RecordedEvent, data: Retraction) -> list[Change]:
    withdrawn = {"hidden": "withdrawn"}
    unanswered = {
        **placeholder(prompts.WITHDRAWN_RESULT),
        "sealed": True,
        "result_version": None,
        "full_alias": None,
    }
    ranges = up_to(data.versions, event.version)
    changes: list[Change] = []
    # Skip versions that were withdrawn before, so that thousands of full retractions are cheap.
    new, state["withdrawn"] = not_yet_within(ranges, state["withdrawn"])
    for first, last in new:
        changes += [
            Patch(TABLE, "version", first, last, withdrawn),
            Patch(TABLE, "summary_version", first, last, withdrawn),
            Patch(TABLE, "result_version", first, last, unanswered),
        ]
    # A summary's place is the start of its range, which may be withdrawn without the summary.
    for version, place in covering.placed(state, ranges):
        changes.append(Put(TABLE, (place, -version), {"hidden": None}))
    changes += covering.reveal(state, new, ranges)
    memory.withdraw_results(state, ranges)
    for name in ("system", "notebook"):
        before = state[name]
        memory.withdraw_texts(state, name, ranges)
        if before[-1:] != state[name][-1:]:
            changes += [hide(version, None) for texts in state[name][-1:] for version in texts]
    return changes


def _switch(state: State, event: RecordedEvent, data: BranchSwitch) -> list[Change]:
    gone = before(data.withdrawn, event)
    back = before(data.restored, event)
    changes: list[Change] = []
    for first, last in gone:
        changes.append(Patch(TABLE, "summary_version", first, last, {"hidden": "withdrawn"}))
        changes.append(hide_where(first, last, None, "inactive"))
    for version, place in covering.placed(state, gone):
        changes.append(Put(TABLE, (place, -version), {"hidden": None}))
    changes += covering.reveal(state, gone, gone)
    changes += [hide_where(first, last, "inactive", None) for first, last in back]
    for name in ("system", "notebook"):
        was, after = memory.switch_texts(state, name, gone, back)
        if was != after:
            away = [version for version in was if not within(gone, version)]
            changes += [hide(version, "superseded") for version in away if version not in after]
            changes += [hide(version, None) for version in after]
    return changes


# Each function gets a copy of the state, and replaces entries in it.
_FOLDS: dict[type[Any], Callable[[State, RecordedEvent, Any], list[Change]]] = {
    AssistantMessage: _assistant,
    ConversationStart: _start,
    LlmError: _error,
    LlmRequest: _request,
    Notebook: _notebook,
    BranchSwitch: _switch,
    Retraction: _retraction,
    Summary: _summary,
    SystemInstruction: _instruction,
    ToolCall: _call,
    ToolResult: _result,
    UserMessage: _user,
}

CONTEXT = ContextProjection()
"""The projection; it has no configuration."""
