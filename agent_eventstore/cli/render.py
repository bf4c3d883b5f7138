"""The tables of the command line, which show the library's results to people.

A list of events has one line for each event (`brief`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from rich.table import Table
from rich.text import Text

from agent_eventstore.cli.console import (
    ROLES,
    call,
    cell,
    cost,
    count,
    duration,
    fixed,
    flexible,
    grid,
    moment,
    number,
    place,
    plural,
    status_cell,
    wrapped,
)
from agent_eventstore.cli.harmless import one_line, shown
from eventstore import Problem
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationEnd,
    ConversationFork,
    ConversationStart,
    Erasure,
    LlmError,
    LlmRequest,
    ModeState,
    ModeSwitch,
    Notebook,
    RecordedEvent,
    RetainedUsage,
    Retraction,
    RunEnd,
    RunStart,
    RunStepEnd,
    RunStepStart,
    SessionStart,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolResult,
    TurnEnd,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import encode
from eventstore.events.own import is_own
from eventstore.events.records import EventData
from projections import ConversationEntry
from projections.models.timeline_items import TimelineItem
from projections.models.tool_calls import ToolCallRow
from projections.models.totals import UsageTotal
from projections.payload_text import result_text, sections_text, text_of
from projections.upkeep import Difference, ProjectionStatus

__all__ = [
    "brief",
    "conversations_table",
    "differences_table",
    "estimates_table",
    "events_table",
    "problems_table",
    "status_table",
    "timeline_table",
    "tools_table",
    "usage_table",
]

_ID_CELLS = 36
_KINDS = ROLES | {"error": "red", "erased": "dim", "tool": "yellow"}


def brief(event: RecordedEvent) -> str:
    """Return a short text for an event; it may have line breaks and be long."""
    return (
        "(erased)" if event.data is None else _message_text(event.data) or _start_text(event.data)
    )


def _message_text(data: EventData) -> str:
    """Return the text of an event of people, models or tools; empty for any other event."""
    match data:
        case UserMessage():
            return text_of(data.parts) or sections_text(data.sections)
        case AssistantMessage():
            calls = (
                call(each.name, each.arguments or each.arguments_text) for each in data.tool_calls
            )
            return " ".join(filter(None, (text_of(data.parts), *(f"→ {each}" for each in calls))))
        case AssistantChunk():
            pieces = (each.arguments for each in data.tool_calls)
            return f"#{data.index} " + "".join((data.reasoning, data.text, data.refusal, *pieces))
        case ToolCall():
            return f"{data.call_id} {call(data.name, data.arguments)}"
        case ToolResult():
            return f"{data.call_id} {data.status}: {data.error or result_text(data) or ''}"
        case LlmError():
            return f"{data.kind}: {data.message}"
        case Summary() | SystemInstruction() | Notebook():
            return data.text
    return ""


def _start_text(data: EventData) -> str:
    """Return a short text for any other event; as JSON if its type has no own form."""
    match data:
        case LlmRequest():
            counted = "" if data.counted_tokens is None else plural(data.counted_tokens, "token")
            again = f"attempt {data.attempt}" if data.attempt > 1 else None
            return ", ".join(filter(None, (data.invocation.model, counted, again)))
        case ConversationStart():
            opener = data.parent_conversation_id and f"from {data.parent_conversation_id}"
            values = (data.title, data.mode, opener, data.base_instructions)
            return " · ".join(filter(None, values))
        case ConversationFork():
            parent = f"from {data.parent_conversation_id} after {data.parent_version}"
            return " · ".join(filter(None, (data.title, parent)))
        case ConversationEnd():
            return " · ".join(filter(None, (data.reason, data.message)))
        case SessionStart(mode=mode, config=kept) | ModeState(mode=mode, state=kept):
            return f"{mode} {json.dumps(kept, ensure_ascii=False)}"
        case TurnEnd():
            steps = "" if data.step_count is None else plural(data.step_count, "step")
            return ", ".join(filter(None, (data.status, data.reason, steps, data.error)))
        case ModeSwitch():
            return " → ".join(filter(None, (data.previous, data.mode)))
        case Retraction():
            ranges = (f"{each.first}-{each.last}" for each in data.versions)
            return f"versions {', '.join(ranges)}: {data.reason or 'no reason given'}"
        case RunStart():
            return f"{data.workflow_id}: {data.directive}"
        case RunEnd():
            return data.status
        case RunStepStart() | RunStepEnd():
            return " · ".join(filter(None, (data.node_id, getattr(data, "status", None))))
        case Erasure():
            return f"{plural(data.event_count, 'event')} erased: {data.reason}"
        case RetainedUsage():
            return f"usage of {plural(len(data.calls), 'model call')} kept"
        case UnknownEvent() if data.reason or not is_own(data.type):
            return f"not readable: {data.reason or 'unknown type or version'}"
    plain = encode(data)
    return "" if plain == "{}" else plain


def conversations_table(entries: Sequence[ConversationEntry]) -> Table:
    """Return the directory; each id is shown in full below the title, so that it can be copied."""
    columns = [flexible("conversation"), fixed("mode"), number("events"), fixed("last activity")]
    columns[0].min_width = _ID_CELLS
    owned = any(entry.user_id for entry in entries)
    if owned:
        columns.insert(1, fixed("user", 12))
    table = grid(*columns)
    for entry in entries:
        title = cell(one_line(entry.title or "(untitled)"), "bold")
        names = [title, cell(entry.conversation_id, "dim")]
        if entry.key is not None:
            names.append(cell(one_line(entry.key), "dim"))
        row = [
            Text("\n").join(names),
            cell(entry.mode),
            cell(count(entry.version)),
            cell(moment(entry.last_activity_at), "dim"),
        ]
        if owned:
            row.insert(1, cell(entry.user_id))
        table.add_row(*row)
    return table


def events_table(events: Iterable[RecordedEvent]) -> Table:
    """Return a table of events, one line each if the width suffices."""
    table = grid(number("#"), fixed("time (UTC)"), fixed("turn"), fixed("type"), flexible("what"))
    for event in events:
        table.add_row(
            cell(event.version),
            cell(f"{event.occurred_at:%H:%M:%S}", "dim"),
            cell(place(event.meta.turn, event.meta.step), "dim"),
            cell(event.type),
            cell(one_line(brief(event)), "dim" if event.erased else ""),
        )
    return table


def timeline_table(items: Sequence[TimelineItem], *, full: bool = False) -> Table:
    """Return a table of timeline items; texts are shortened unless ``full``."""
    table = grid(
        number("#"),
        fixed("turn"),
        fixed("kind"),
        flexible("what", fold=full),
        fixed("status"),
        number("took"),
    )
    for item in items:
        table.add_row(
            cell(item.version),
            cell(place(item.turn, item.step), "dim"),
            cell(item.kind, _KINDS.get(item.kind or "", "dim")),
            Text("\n").join(_item_lines(item, full)),
            status_cell(item.status),
            cell(duration(item.duration_ms), "dim"),
        )
    return table


def _item_lines(item: TimelineItem, full: bool) -> list[Text]:
    text = shown(item.text or "") if full else one_line(item.preview or "")
    if item.kind == "tool":
        called = call(item.name, item.arguments)
        lines = [cell(called if full else one_line(called), "bold")]
        return [*lines, cell(text, "dim")] if text else lines
    title = item.title or item.name
    line = ": ".join(filter(None, (title and one_line(title), text)))
    return [cell(line, "dim" if item.collapsed else "")]


def usage_table(totals: Sequence[UsageTotal], by: str) -> Table:
    """Return a table of usage by group; ``~`` marks estimates of tokens that were not reported.

    Days, turns and steps are in order; conversations are shown by the start of their id.
    """
    columns = (number("calls"), number("errors"), number("prompt"), number("cached"))
    more = (number("completion"), number("cost"), number("latency"))
    table = grid(wrapped(by), *columns, *more)
    for name, total in _by_name(totals, by):
        table.add_row(
            cell(name),
            cell(count(total.calls)),
            cell(count(total.errors), "red" if total.errors else "dim"),
            cell(_tokens(total.prompt_tokens, total.estimated_prompt_tokens)),
            cell(count(total.cached_prompt_tokens), "dim"),
            cell(_tokens(total.completion_tokens, total.estimated_completion_tokens)),
            cell(cost(total.cost_usd)),
            cell(duration(total.latency_ms_avg), "dim"),
        )
    return table


def estimates_table(totals: Sequence[UsageTotal], by: str) -> Table | None:
    """Compare estimated with reported prompt tokens of calls that have both; None without any."""
    if not any(total.compared_calls for total in totals):
        return None
    columns = (number("calls"), number("estimated"), number("reported"), number("error"))
    table = grid(wrapped(by), *columns)
    for name, total in _by_name(totals, by):
        if total.estimate_error_percent is not None:
            table.add_row(
                cell(name),
                cell(count(total.compared_calls)),
                cell(count(total.compared_estimated_tokens)),
                cell(count(total.compared_prompt_tokens)),
                cell(f"{total.estimate_error_percent:+.1f}%"),
            )
    return table


def _by_name(totals: Sequence[UsageTotal], by: str) -> list[tuple[str, UsageTotal]]:
    ids = _short_ids({found for total in totals if (found := _conversation(total.key))})
    named = [(_usage_key(total.key, by, ids), total) for total in totals]
    if by in ("day", "turn", "step"):
        named.sort(key=lambda pair: [part.zfill(9) for part in pair[0].split(".")])
    return named


def _conversation(key: str | None) -> UUID | None:
    """Return the conversation id that a usage key begins with, or None."""
    try:
        return UUID((key or "").partition("/")[0])
    except ValueError:
        return None


def _usage_key(key: str | None, by: str, ids: Mapping[UUID, str]) -> str:
    conversation_id = _conversation(key)
    if key is None or conversation_id is None or by == "session":
        return key or "(unknown)"
    _, _, rest = key.partition("/")
    if not rest:
        return ids[conversation_id]
    where = rest.replace("None", "-").replace("/", ".")
    return where if len(ids) == 1 else f"{ids[conversation_id]} {where}"


def _tokens(reported: int | None, estimated: int | None) -> str:
    if reported is None and estimated:
        return f"~{estimated:,}"
    return count(reported)


def tools_table(calls: Sequence[ToolCallRow], *, one_conversation: bool) -> Table:
    """Return a table of tool calls; for several conversations, with the start of their ids."""
    columns = [number("call"), flexible("tool and arguments"), fixed("status"), number("took")]
    columns += [flexible("result")]
    ids = _short_ids({each.conversation_id for each in calls})
    if not one_conversation:
        columns.insert(0, fixed("conversation"))
    table = grid(*columns)
    for each in calls:
        arguments = each.arguments if each.arguments is not None else each.arguments_text
        row = [
            cell(each.call_id),
            cell(one_line(call(each.name, arguments))),
            status_cell(each.status),
            cell(duration(each.duration_ms), "dim"),
            cell(one_line(each.error or each.result_text or ""), "dim"),
        ]
        if not one_conversation:
            row.insert(0, cell(ids[each.conversation_id], "dim"))
        table.add_row(*row)
    return table


def _short_ids(ids: set[UUID]) -> Mapping[UUID, str]:
    """Return the shortest starts of ids, cut at a hyphen, that are all different."""
    for length in (8, 13, 18, 23):
        short = {each: str(each)[:length] for each in ids}
        if len(set(short.values())) == len(ids):
            return short
    return {each: str(each) for each in ids}


def problems_table(problems: Sequence[Problem]) -> Table:
    """Return a table of a verification's problems."""
    table = grid(
        fixed("conversation"), number("version"), fixed("problem"), flexible("detail", fold=True)
    )
    table.columns[0].min_width = _ID_CELLS
    for problem in problems:
        row = (problem.conversation_id, problem.version)
        table.add_row(*map(cell, row), cell(problem.kind, "red"), cell(problem.detail))
    return table


def status_table(statuses: Sequence[ProjectionStatus]) -> Table:
    """Return a table of the state of each projection."""
    columns = (number("version"), number("generation"), number("behind"))
    table = grid(fixed("projection"), *columns, wrapped("lag"), wrapped("rebuild"))
    for each in statuses:
        live = "-" if each.live_version is None else str(each.live_version)
        version = live if each.live_version == each.version else f"{live}, code {each.version}"
        building = (
            "" if each.building is None else f"generation {each.building}: {each.built or 0} done"
        )
        behind = f"{count(each.behind)} of {count(each.conversations)}"
        lag = f"{plural(each.lag.events, 'event')}, {duration(1000 * each.lag.seconds)}"
        table.add_row(
            cell(each.name),
            cell(version),
            cell("-" if each.generation is None else each.generation),
            cell(behind, "yellow" if each.behind else "green"),
            cell(lag if each.lag.events else "-", "yellow" if each.lag.events else "green"),
            cell(building, "cyan"),
        )
    return table


def differences_table(differences: Sequence[Difference]) -> Table:
    """Return a table of differing rows, one line for each column."""
    values = (flexible("live", fold=True), flexible("rebuilt", fold=True))
    table = grid(fixed("table"), flexible("row", fold=True), fixed("column"), *values)
    for each in differences:
        key = " ".join(f"{name}={value}" for name, value in each.key.items())
        table.add_row(
            cell(each.table),
            cell(f"{each.conversation_id} {key}".rstrip()),
            cell(each.column or each.kind),
            cell(_value(each.live), "red"),
            cell(_value(each.rebuilt), "green"),
        )
    return table


def _value(value: Any) -> str:
    plain = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return "-" if value is None else one_line(plain)
