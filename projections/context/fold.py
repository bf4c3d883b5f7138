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
  contain what `projections.context.failed_calls` says.
- A summary hides the rows that it covers through ``summarised_by``, so that withdrawing the summary
  shows them again (both an older summary and its sources, if one range covered both). An older
  summary is covered through its event or through its place; in the latter case, the other rows that
  it covered are shown again. Readers show the system part, the notebook, and the first and latest
  user message even if a summary covers them. See `projections.context.fold`.
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

from collections.abc import Callable, Iterable, Sequence
from functools import cache
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
from projections.context import payload_messages, prompts
from projections.context import state as memory
from projections.context.compression.facts import texts_of
from projections.context.compression.lasting import leaves_anything
from projections.context.compression.shortening import Preview
from projections.context.detail import detailed, plain
from projections.context.prompts import place_of
from projections.context.row_cache import touch
from projections.context.rows import CONTEXT_MESSAGES, Kind
from projections.engine.folding import not_yet_within
from projections.engine.folds import RowBuffer
from projections.engine.projection import Change, Patch, Put, State
from projections.engine.quoting import PLACE
from projections.providers.openai_chat import write
from projections.version_ranges import Range, before, joined, up_to, within, without

__all__ = [
    "CONTEXT",
    "TABLE",
    "ContextProjection",
    "cover",
    "hide",
    "hide_where",
    "initial",
    "keep_out",
    "new_row",
    "placed",
    "placeholder",
    "result_row",
    "reveal",
    "rows_in_memory",
]


MOST_SUMMARIES = 64


MOST_RANGES = 16


_TABLE = CONTEXT_MESSAGES.name


_Entry = dict[str, Any]


def initial() -> State:
    """Return the state's entries about summaries before the first event."""
    return {"summaries": {}, "summarised": 0, "lowest": 0, "forgotten": 0}


def cover(state: State, version: int, place: int, ranges: Sequence[Range]) -> list[Change]:
    """Cover the rows in the ranges, and summaries placed or created there, with a new summary.

    Replaces the state's entries from `initial`. The changes do not include the summary's own row.
    """
    wanted = joined(ranges)
    entries, changes = _replaced(state, wanted)
    taken, left = _divided(entries, wanted)
    covered = [
        (each["version"], -int(key))
        for key, each in entries.items()
        if within(wanted, int(key)) or within(wanted, each["version"])
    ]
    for key, outside in left.items():
        entry = entries[key]
        stands = entry["stands"] and (entry["version"], -int(key)) not in covered
        entries[key] = {**entry, "stands": stands}
        changes += _hold(entries[key], int(key), outside)
    taken.sort(key=lambda each: -sum(last - first for first, last in each["ranges"]))
    label = taken[0]["label"] if taken else version
    changes += [_labelled(each["label"], label) for each in taken[1:]]
    for first, last in without(wanted, _pairs(taken[0]["ranges"]) if taken else ()):
        for column in ("version", "summary_version"):
            changes.append(Patch(_TABLE, column, first, last, {"summarised_by": label}))
    changes += [Put(_TABLE, key, {"summarised_by": label}) for key in covered]
    entry = _entry(place, label=label, stands=True)
    entry["reaching"] = 0 < state["summarised"] <= max((last for _, last in wanted), default=0)
    changes += _hold(entry, version, wanted)
    remaining = {key: each for key, each in entries.items() if key in left}
    if entry["reaching"] and (len(wanted) > 1 or place > state["lowest"]):
        # Summaries that it covers through their event may be placed among the rows of others.
        remaining = _loosened(remaining)
    return [*changes, *_remember(state, remaining, version, entry)]


def keep_out(state: State, version: int, place: int) -> list[Change]:
    """Remember a summary that is kept out of the context and covers nothing."""
    entry = _entry(place, label=version, stands=False)
    return _remember(state, state["summaries"], version, entry)


def reveal(state: State, new: Sequence[Range], ranges: Sequence[Range]) -> list[Change]:
    """Uncover the rows of the summaries at withdrawn versions, and forget these summaries.

    Args:
        state: The state, whose entry ``summaries`` is replaced.
        new: The part of the ranges that had not been withdrawn before.
        ranges: The withdrawn versions.
    """
    entries = state["summaries"]
    gone = {key: each for key, each in entries.items() if within(ranges, int(key))}
    left = {key: each for key, each in entries.items() if key not in gone}
    taken = sorted(each["label"] for each in left.values())
    labels = without(joined(new), [(each, each) for each in taken])
    labels += [(each["label"], each["label"]) for each in gone.values()]
    unknown = any(first <= state["forgotten"] for first, _ in new)
    loose = unknown or any(each["reaching"] for each in gone.values())
    state["summaries"] = _loosened(left) if loose else left
    shown = {"summarised_by": None}
    return [Patch(_TABLE, "summarised_by", first, last, shown) for first, last in joined(labels)]


def placed(state: State, ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Return version and place of the summaries placed in the ranges but created outside them."""
    found = ((int(key), each) for key, each in state["summaries"].items() if each["stands"])
    return [
        (version, each["version"])
        for version, each in found
        if within(ranges, each["version"]) and not within(ranges, version)
    ]


def _entry(place: int, *, label: int, stands: bool) -> _Entry:
    return {
        "version": place,
        "label": label,
        "ranges": [],
        "stands": stands,
        "reaching": False,
        "loose": False,
    }


def _replaced(state: State, wanted: Sequence[Range]) -> tuple[dict[str, _Entry], list[Change]]:
    """Release summaries that are covered through their place only; return entries and changes.

    Rows that such a summary covers outside of the wanted ranges are shown again.
    """
    entries = dict(state["summaries"])
    changes: list[Change] = []
    for key, entry in state["summaries"].items():
        own = entry["ranges"]
        if (
            entry["stands"]
            and (own is None or without(own, wanted))
            and within(wanted, entry["version"])
            and not within(wanted, int(key))
        ):
            changes.append(_labelled(entry["label"], None))
            entries[key] = {**entry, "ranges": []}
            if entry["reaching"]:
                entries = _loosened(entries)
    return entries, changes


def _divided(
    entries: dict[str, _Entry], wanted: Sequence[Range]
) -> tuple[list[_Entry], dict[str, list[Range] | None]]:
    """Return the entries whose rows are all covered, and by key the ranges that others keep."""
    taken: list[_Entry] = []
    left: dict[str, list[Range] | None] = {}
    for key, entry in entries.items():
        own = entry["ranges"]
        outside = without(own, wanted) if own else own
        if outside:
            left[key] = outside
        elif own:
            if not entry["loose"]:
                taken.append(entry)
        elif not (within(wanted, int(key)) or within(wanted, entry["version"])):
            left[key] = outside
    return taken, left


def _loosened(entries: dict[str, _Entry]) -> dict[str, _Entry]:
    """Mark all labels loose: a summary placed among the rows of others may be shown again."""
    return {key: {**each, "loose": True} for key, each in entries.items()}


def _hold(entry: _Entry, version: int, ranges: Sequence[Range] | None) -> list[Change]:
    """Set a summary's own ranges; with more than ``MOST_RANGES``, give it its own label instead."""
    if ranges is not None and len(ranges) <= MOST_RANGES:
        entry["ranges"] = [list(each) for each in ranges]
        return []
    before, entry["ranges"], entry["label"] = entry["label"], None, version
    return [] if before == version else [_labelled(before, version)]


def _remember(
    state: State, entries: dict[str, _Entry], version: int, entry: _Entry
) -> list[Change]:
    """Add an entry; forget the oldest entry if there are too many."""
    left = entries | {str(version): entry}
    state["summarised"] = state["summarised"] or version
    state["lowest"] = min(entry["version"], state["lowest"] or version)
    changes: list[Change] = []
    if len(left) > MOST_SUMMARIES:
        oldest = min(map(int, left))
        gone = left.pop(str(oldest))
        state["forgotten"] = max(oldest, state["forgotten"])
        if gone["label"] != oldest:
            changes.append(_labelled(gone["label"], oldest))
        if not gone["ranges"]:
            # Only its place was known, which may be among the rows of another summary.
            left = _loosened(left)
    state["summaries"] = left
    return changes


def _labelled(label: int, other: int | None) -> Patch:
    return Patch(_TABLE, "summarised_by", label, label, {"summarised_by": other})


def _pairs(ranges: Iterable[Sequence[int]]) -> list[Range]:
    return [(first, last) for first, last in ranges]


TABLE = CONTEXT_MESSAGES.name


_NO_NATIVE: dict[str, Any] = {"native": None}


_NO_PLACE = dict.fromkeys(column.name for column in PLACE)


def new_row(
    event: RecordedEvent,
    kind: Kind,
    content: dict[str, Any],
    *,
    version: int | None = None,
    part: int = 0,
    **values: Any,
) -> Put:
    """Return the change that adds a row; ``content`` contains the columns of its message."""
    message = content["message"]
    attributes = vars(event.meta)  # a model's own attributes take three times as long to read
    columns = {
        "role": message["role"],
        "kind": kind,
        **_NO_NATIVE,
        **content,
        **place_of(event, message),
        "sealed": False,
        "hidden": None if attributes["in_context"] else "excluded",
        "source_versions": [event.version],
        "mode": attributes["mode"],
        "run_id": attributes["run_id"],
        "turn": attributes["turn"],
        "step": attributes["step"],
        **values,
    }
    return Put(TABLE, (event.version if version is None else version, part), columns)


def result_row(call_id: str, content: dict[str, Any], sources: Sequence[int], **values: Any) -> Put:
    """Return the change that sets a result in an existing tool row, but not its visibility."""
    version, index = map(int, call_id.split("."))
    values["source_versions"] = [version, *sources]
    return Put(TABLE, (version, index + 1), {**content, **values})


@cache
def _placeholder_content(text: str) -> dict[str, Any]:
    return {**plain({"role": "tool", "content": text}), **_NO_NATIVE, **_NO_PLACE}


def placeholder(text: str) -> dict[str, Any]:
    """Return the columns of a tool message whose text is not from an event."""
    columns = _placeholder_content(text)
    return {**columns, "message": columns["message"].copy()}


def hide(version: int, reason: str | None) -> Put:
    """Return the change that hides a message, or shows it again if the reason is None.

    A summary placed at the same version is not affected.
    """
    return Put(TABLE, (version, 0), {"hidden": reason})


def hide_where(first: int, last: int, was: str | None, hidden: str | None) -> Patch:
    """Return the change of ``hidden`` in a range of rows, only of those where it equals ``was``."""
    return Patch(TABLE, "version", first, last, {"hidden": hidden}, only=("hidden", was))


_SAID = (None, "text", "error")  # part types that belong to the answer, collapsed or not


_UNCERTAIN = ("not_started", "outcome_unknown")


_MOST_EARLIER = 32  # failed calls with partial text that one retry may supersede


class ContextProjection:
    """Writes a row for each message, with its tokens; see the module for the rules.

    It also writes the conversation's mode and tool policy: see `projections.context.state`.
    """

    name = "context"
    version = 19
    tables = (CONTEXT_MESSAGES, memory.CONTEXT_ACTIVE)

    def initial(self) -> State:
        """Return the state before the first event."""
        return memory.initial() | initial() | memory.none_active()

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
        state, row_changes = memory.changed(state, event)
        return state, [*changes, *row_changes] if row_changes else changes


def _oldest(changes: list[Change], version: int) -> int:
    """Return the version of the oldest row that an event's changes may affect."""
    oldest = version
    for change in changes:
        oldest = min(oldest, change.key[0]) if isinstance(change, Put) else 1
    return oldest


def _user(state: State, event: RecordedEvent, data: UserMessage) -> list[Change]:
    content = detailed(payload_messages.user(data), data.sections)
    left = leaves_anything("\n".join(texts_of(content["message"])))
    content["lasting"] = event.version if left else None
    return [new_row(event, "user", content, ordinal=memory.number(state))]


def _assistant(state: State, event: RecordedEvent, data: AssistantMessage) -> list[Change]:
    content = {**detailed(payload_messages.assistant(data)), "native": write.of_assistant(data)}
    changes: list[Change] = [new_row(event, "assistant", content, ordinal=memory.number(state))]
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
    content = plain(payload_messages.error(data))
    given: dict[str, Any] = {}
    if (shorter := payload_messages.shorter_error(data)) is not None:
        given["shortened"] = shorter["content"]
    if data.partial_text:
        given["partial"] = len(payload_messages.scrub(data.partial_text))
    content["given"] = given or None
    changes: list[Change] = [new_row(event, "error", content, ordinal=memory.number(state))]
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
    content = placeholder(prompts.STARTED)
    return [result_row(data.call_id, content, (event.version,), sealed=True)]


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
        message = payload_messages.tool(data, name)
        text = data.content if isinstance(data.content, str) else ""
        path = data.alias
        if path is None and (data.status != "success" or not text):
            path = alias_of(data.call_id, text)  # Otherwise `levels` derives it from the message.
        content = detailed(message, data.sections, Preview(name, data.status, path))
        content["native"] = write.of_tool(data)
        content |= place_of(event, message)
    else:
        content = placeholder(prompts.EXCLUDED_RESULT)
    started = known["started"]
    change = result_row(
        data.call_id,
        content,
        (event.version,) if started is None else (started, event.version),
        sealed=uncertain or not shown,
        result_version=event.version,
        full_alias=payload_messages.scrub(data.alias) if shown else None,
    )
    return [change]


def _start(state: State, event: RecordedEvent, data: ConversationStart) -> list[Change]:
    text = "\n\n".join(filter(None, (data.base_instructions, data.user_instructions)))
    return _latest(state, event, "system", payload_messages.system(text)) if text else []


def _instruction(state: State, event: RecordedEvent, data: SystemInstruction) -> list[Change]:
    message = payload_messages.system(data.text, role=data.role, name=data.name)
    if not event.meta.in_context:
        return [new_row(event, "aside", plain(message))]
    return _latest(state, event, "system", message, continues=data.continues)


def _notebook(state: State, event: RecordedEvent, data: Notebook) -> list[Change]:
    return _latest(state, event, "notebook", payload_messages.system(prompts.notebook(data.text)))


def _latest(
    state: State,
    event: RecordedEvent,
    kind: Kind,
    message: payload_messages.Message,
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
        plain(payload_messages.system(prompts.summary(data.text))),
        version=place,
        part=-event.version,
        summary_version=event.version,
    )
    if not event.meta.in_context:
        return [*keep_out(state, event.version, place), row]
    return [*cover(state, event.version, place, ranges), row]


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
    for version, place in placed(state, ranges):
        changes.append(Put(TABLE, (place, -version), {"hidden": None}))
    changes += reveal(state, new, ranges)
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
    for version, place in placed(state, gone):
        changes.append(Put(TABLE, (place, -version), {"hidden": None}))
    changes += reveal(state, gone, gone)
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


def rows_in_memory(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """Return the rows of a whole history, folded without a database."""
    rows, state = RowBuffer(CONTEXT, fresh=True), CONTEXT.initial()
    for event in events:
        state, changes = CONTEXT.fold(state, event)
        rows.add(changes)
    return rows.complete_rows(CONTEXT_MESSAGES.name)
