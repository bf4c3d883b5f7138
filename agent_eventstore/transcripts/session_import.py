"""Session JSONL of document 001: one event per line; each session becomes a conversation.

A ``turn_start`` gives the turn and the user's message, an ``assistant`` line the model's message
with the tool calls of the ``action`` lines of its step, an ``action`` the executed tool call, an
``observation`` its result. If a ``final`` of the same step repeats the text of an assistant line,
that text is kept out of the context, so a model does not read the answer twice. Lines are grouped
by ``session_id``, so a file's sessions are held in memory until its end. If an earlier import ended
between an assistant line and an ``action`` of its step, that action gets its own message.

Lines that `export_session_jsonl` wrote have more in ``meta`` (``message``, ``version``,
``call_id``, ``data``), which restores the original conversation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, get_args

from pydantic import ValidationError

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.extras import count_of, ui_of
from agent_eventstore.transcripts.json_fields import object_in, text_at
from agent_eventstore.transcripts.openai_wire import payload_of, slim
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, TranscriptDraft, anchored, moment_of
from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ConversationStart,
    Invocation,
    Meta,
    NewEvent,
    Retraction,
    SessionEnd,
    SessionStart,
    Summary,
    SystemInstruction,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    VersionRange,
)
from eventstore.events.codec import decode, dumps
from eventstore.events.own import class_of, is_own
from eventstore.events.records import EventData, RecordedEvent
from eventstore.events.registry import REGISTRY
from eventstore.events.values import ToolStatus
from eventstore.ids import call_id
from projections.providers.answer import request_of
from projections.version_ranges import joined

__all__ = [
    "FORMAT",
    "ORIGINAL",
    "UNINTERPRETED",
    "conversation_start",
    "interpret",
    "is_system_message",
    "message_in",
    "meta_in",
    "observed",
    "original_payload",
    "place_of",
    "read",
    "recognises",
    "text_in",
    "uninterpreted",
    "with_line",
    "with_line_usage",
]


Line = Mapping[str, Any]


ORIGINAL = "session_line"


"""The key in ``raw`` under which the line is kept."""


UNINTERPRETED = "session_event"


"""The event type of a line that no payload can express."""


_EVENT_FIELDS = frozenset(Meta.model_fields) - {"turn", "step", "occurred_at"}


_FRAMES = ("session_start", "session_end", "turn_start", "turn_end")


_TOKENS = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "total": "total_tokens",
    "cached": "cached_prompt_tokens",
    "reasoning": "reasoning_tokens",
}


def about(line: Line) -> dict[str, Any]:
    """Return a line's ``meta``, or an empty one."""
    return object_in(line, "meta")


def text_in(line: Line) -> str | None:
    """Return a line's ``content`` if it is text."""
    return text_at(line, "content")


def is_system_message(line: Line) -> bool:
    """Whether a line is a system message, whatever its type."""
    return line.get("role") in ("system", "developer") and text_in(line) is not None


def place_of(line: Line) -> tuple[int | None, int | None]:
    """Return a line's turn (from 1) and step (from 0); values out of range count as unknown."""
    turn, step = (count_of(line.get("turn")), count_of(line.get("step")))
    return turn or None, step


def meta_in(line: Line, **fields: Any) -> Meta:
    """Return the metadata of a line's event."""
    turn, step = place_of(line)
    session = line.get("session_id")
    known: dict[str, Any] = {
        "turn": turn,
        "step": step,
        "session_id": None if session is None else str(session),
        "occurred_at": moment_of(line),
        **fields,
    }
    event_fields = about(line).get("event")
    if isinstance(event_fields, dict):
        extra = {key: value for key, value in event_fields.items() if key in _EVENT_FIELDS}
        try:
            return Meta(**{**known, **extra})
        except ValidationError:
            return Meta(**known)
    return Meta(**known)


def message_in(line: Line, role: str) -> dict[str, Any]:
    """Return the chat message that a line represents."""
    fields = about(line).get("message")
    if not isinstance(fields, dict):
        return {"role": role, "content": line.get("content")}
    text = text_in(line)
    if text and "content" in fields and fields["content"] is None:
        return {**fields, "content": text}
    return dict(fields)


def with_line(data: Any, line: Line | None) -> Any:
    """Return the payload with its line kept in ``raw``."""
    raw = data.raw if isinstance(data.raw, dict) else {}
    return data.model_copy(
        update={"raw": {**raw, ORIGINAL: None if line is None else slim(line, data)}}
    )


def original_payload(data: Any) -> tuple[bool, dict[str, Any] | None]:
    """Return whether a payload comes from session JSONL, and its line if it has one."""
    raw = getattr(data, "raw", None)
    if isinstance(raw, dict) and ORIGINAL in raw:
        return True, raw[ORIGINAL]
    return False, None


def uninterpreted(line: Line) -> UnknownEvent:
    """Return the event of a line that no payload can express."""
    return UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: dict(line)})


def conversation_start(line: Line) -> ConversationStart:
    """Return the start of the conversation whose first line this is."""
    start_fields = about(line).get("conversation")
    start = ConversationStart()
    if isinstance(start_fields, dict):
        try:
            start = ConversationStart.model_validate(start_fields)
        except ValidationError:
            start = ConversationStart(raw={"conversation": start_fields})
    return with_line(start, None)  # type: ignore[no-any-return]


def interpret(line: Line) -> EventData:
    """Return the payload of a line that frames the conversation, or of an event by its own type."""
    kind, meta = line.get("type"), about(line)
    try:
        if kind in _FRAMES:
            return with_line(_frame(line, meta), line)  # type: ignore[no-any-return]
        known = class_of(kind) if isinstance(kind, str) else None
        if isinstance(kind, str) and (known or is_own(kind)) and isinstance(meta.get("data"), dict):
            version = meta.get("schema_version", known.schema_version if known else 1)
            data = decode(kind, version, dumps(meta["data"]))
            if is_own(kind):
                return data
            if not isinstance(data, UnknownEvent):
                return with_line(data, line) if hasattr(data, "raw") else data
    except (ValueError, TypeError):
        pass
    return uninterpreted(line)


def with_line_usage(
    line: Line, data: AssistantMessage, *, final: bool, counted: bool
) -> AssistantMessage:
    """Return an assistant message with what its line says about the model call."""
    meta = about(line)
    model = meta.get("model")
    return data.model_copy(
        update={
            "final": final,
            "usage": _usage(meta) if counted else None,
            "invocation": Invocation(model=model) if isinstance(model, str) else None,
            "finish_reason": text_at(meta, "finish_reason"),
            "duration_ms": count_of(meta.get("durationMs")),
        }
    )


def observed(line: Line, data: ToolResult) -> ToolResult:
    """Return a tool result with what its line says about the execution."""
    meta = about(line)
    status = next((s for s in get_args(ToolStatus) if s == meta.get("status")), "success")
    return data.model_copy(
        update={
            "status": status,
            "error": text_at(meta, "error"),
            "duration_ms": count_of(meta.get("durationMs")),
        }
    )


def _frame(line: Line, meta: dict[str, Any]) -> Any:
    if line["type"] == "session_start":
        config = meta.get("config")
        others = {k: v for k, v in meta.items() if k not in ("mode", "conversation", "event")}
        return SessionStart(
            mode=meta.get("mode", "interactive"),
            config=config if isinstance(config, dict) else others,
        )
    if line["type"] == "session_end":
        return SessionEnd(reason=text_at(meta, "reason"), tokens=_usage(meta))
    if line["type"] == "turn_start":
        text = text_in(line)
        return TurnStart(
            input=text_at(meta, "input") if text is None else text, tokens=_usage(meta)
        )
    return TurnEnd(
        status=meta.get("status"),  # type: ignore[arg-type]
        reason=meta.get("reason"),
        error=text_at(meta, "errorMessage"),
        step_count=count_of(meta.get("stepCount")),
        duration_ms=count_of(meta.get("durationMs")),
        tokens=_usage(meta),
    )


def _usage(meta: Line) -> TokenUsage | None:
    """Return a line's tokens: counted by the writer unless the line says ``reported``."""
    tokens = meta.get("tokens")
    if not isinstance(tokens, dict):
        return None
    counts = {name: count_of(tokens.get(key)) for key, name in _TOKENS.items()}
    known: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    return TokenUsage(**known, reported=tokens.get("reported") is True) if known else None


FORMAT = "session-jsonl"


_TYPES = frozenset(
    "session_start session_end turn_start turn_end assistant action observation final".split()
)


_ENDS_STEP = frozenset({"assistant", "turn_start", "turn_end", "session_start", "session_end"})


def recognises(value: Any) -> bool:
    """Whether a value is a line of such a file."""
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _TYPES and "session_id" in value


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's sessions in order of their first lines, after reports of broken lines."""
    sessions: dict[str | None, list[Record]] = {}
    current: str | None = None
    for item in source.lines():
        if isinstance(item, ImportFailed):
            yield item
        elif not isinstance(item.value, dict) or not isinstance(item.value.get("type"), str):
            yield source.failed(item.line, "a line must be an object with a type")
        else:
            stated = item.value.get("session_id")
            current = current if stated is None else str(stated)
            sessions.setdefault(current, []).append(item)
    for stated_id, records in sessions.items():
        begin = partial(_ImportedSession, source, stated_id, records)
        transcript = begin({}).transcript()
        yield replace(transcript, grown=partial(_grown, begin, transcript.events))


def _grown(
    begin: Callable[[Mapping[int, int]], _ImportedSession],
    events: tuple[NewEvent, ...],
    stored: Sequence[RecordedEvent],
) -> tuple[NewEvent, ...]:
    """Return the events, in which stored messages have only the actions that they had then."""
    cuts = _executed([event.data for event in stored])
    whole = _executed([event.data for event in events[: len(stored)]])
    return events if cuts == whole else begin(cuts).transcript().events


def _executed(events: Iterable[EventData | None]) -> dict[int, int]:
    """Return how many actions each message has, by version."""
    return {
        version: sum(
            isinstance(call.raw, dict) and ORIGINAL in call.raw for call in data.tool_calls
        )
        for version, data in enumerate(events, start=1)
        if isinstance(data, AssistantMessage)
    }


class _ImportedSession:
    """The lines of one session while they become events."""

    def __init__(
        self,
        source: Source,
        session_id: str | None,
        records: list[Record],
        cuts: Mapping[int, int],
    ) -> None:
        self._cuts = cuts
        self._lines: list[dict[str, Any]] = [record.value for record in records]
        self._draft = TranscriptDraft(
            anchored(FORMAT, session_id, records), source.file, records[0].line
        )
        self._requested: dict[int, tuple[str, ToolCallRequest]] = {}
        self._call_ids: dict[str, str] = {}
        self._versions: dict[int, int] = {}
        self._given_versions: list[int] = []  # the versions that lines have given, in order
        self._step_ended_by: dict[str, Any] | None = None

    def transcript(self) -> Transcript:
        first = self._lines[0]
        session_id = meta_in(first).session_id
        meta = meta_in({"ts": first.get("ts"), "session_id": session_id})
        self._draft.start(conversation_start(first), meta)
        for index, line in enumerate(self._lines):
            match line["type"]:
                case "turn_start":
                    self._turn_start(line)
                case "assistant" | "final":
                    self._assistant(index, line)
                case "action":
                    self._action(index, line)
                case "observation":
                    self._observation(line)
                case "user_message":
                    self._add(self._payload(message_in(line, "user"), line), line)
                case "system_instruction":
                    self._system(line)
                case "imported_message" if isinstance(about(line).get("message"), dict):
                    self._add(self._payload(about(line)["message"], line), line)
                case kind if kind not in REGISTRY and is_system_message(line):
                    self._system(line)
                case "summary" if "data" not in about(line) and text_in(line):
                    self._system(line)
                case _:
                    self._add(self._with_versions(interpret(line), line), line)
            if line["type"] in _ENDS_STEP:
                self._step_ended_by = line
        found = self._draft.finish()
        return replace(found, events=tuple(map(self._with_later, found.events)))

    def _add(self, data: Any, line: Mapping[str, Any], **fields: Any) -> None:
        version = about(line).get("version")
        ours = isinstance(version, int)
        if isinstance(version, int):
            if version not in self._versions:
                insort(self._given_versions, version)
            self._versions[version] = self._draft.next_version
        meta = meta_in(line, **fields)
        if hasattr(data, "ui") and (ui := ui_of(about(line).get("ui"))) is not None:
            data = data.model_copy(update={"ui": ui})
        self._draft.add(data, meta, as_recorded=ours)

    def _payload(self, message: dict[str, Any], line: Mapping[str, Any] | None) -> Any:
        """Return the payload of a message that is on ``line``, or on no line of its own."""
        data: Any = payload_of(message, self._draft.next_version, self._draft.calls)
        if isinstance(data, UnknownEvent):
            return UnknownEvent(data.type, 1, {**data.raw, ORIGINAL: line})
        return with_line(data, line)

    def _system(self, line: dict[str, Any]) -> None:
        """Add an instruction, a former instruction, or a summary."""
        role = "developer" if line.get("role") == "developer" else "system"
        data = self._payload(message_in(line, role), line)
        if isinstance(data, SystemInstruction) and about(line).get("continues") is True:
            data = data.model_copy(update={"continues": True})
        self._add(data, line)

    def _turn_start(self, line: dict[str, Any]) -> None:
        self._add(interpret(line), line)
        if line.get("content") is not None or "message" in about(line):
            self._add(self._payload(message_in(line, "user"), None), line)

    def _assistant(self, index: int, line: dict[str, Any]) -> None:
        final = line["type"] == "final"
        version = self._draft.next_version
        data = self._payload(message_in(line, "assistant"), line)
        if not isinstance(data, AssistantMessage):
            self._add(uninterpreted(line), line)
            return
        data = with_line_usage(line, data, final=final, counted=not (final and self._repeats(line)))
        actions = {} if final else self._actions_after(index)
        cut = self._cuts.get(version, len(actions))
        requests = data.tool_calls or tuple(map(_request, islice(actions.values(), cut)))
        requests = self._claim(version, requests, actions, cut)
        version_of_line = about(line).get("version")
        for place in range(len(requests)):
            self._call_ids[f"{version_of_line}.{place}"] = call_id(version, place)
        hidden = {} if final or not self._is_repeated(index) else {"in_context": False}
        self._add(data.model_copy(update={"tool_calls": requests}), line, **hidden)

    def _claim(
        self,
        version: int,
        requests: tuple[ToolCallRequest, ...],
        actions: Mapping[int, Mapping[str, Any]],
        most: int = 1,
    ) -> tuple[ToolCallRequest, ...]:
        """Match actions with the requests that they execute, and store their lines there."""
        claimed = list(requests)
        free = {str(place): place for place in range(len(requests))}
        named: dict[str, deque[str]] = {}
        for key, request in zip(free, requests, strict=True):
            named.setdefault(request.name, deque()).append(key)
        done = 0
        for index, action in actions.items():
            if done == most:
                break
            _, dot, last = str(about(action).get("call_id")).rpartition(".")
            place = free.pop(last, None) if dot else None
            waiting = named.get(_tool_of(action), deque())
            while place is None and waiting:
                place = free.pop(waiting.popleft(), None)
            if place is None:
                continue
            done += 1
            claimed[place] = claimed[place].model_copy(update={"raw": {ORIGINAL: dict(action)}})
            self._requested[index] = (call_id(version, place), claimed[place])
        return tuple(claimed)

    def _action(self, index: int, line: dict[str, Any]) -> None:
        own_id = self._call_ids.get(str(about(line).get("call_id")))
        if index not in self._requested and own_id is not None:
            self._requested[index] = (own_id, _request(line))
        elif index not in self._requested:
            version = self._draft.next_version
            requests = self._claim(version, (_request(line),), {index: line})
            message = AssistantMessage(tool_calls=requests, raw={ORIGINAL: None})
            self._draft.add(message, meta_in(line))
        own_id, request = self._requested[index]
        call = ToolCall(
            call_id=own_id,
            name=request.name,
            arguments=request.arguments,
            provider_id=request.provider_id,
        )
        self._add(call, line)

    def _observation(self, line: dict[str, Any]) -> None:
        meta = about(line)
        own_id = self._call_ids.get(str(meta.get("call_id")))
        message = message_in(line, "tool")
        if "message" not in meta:
            fields = {"name": meta.get("tool"), "tool_call_id": meta.get("tool_call_id")}
            message |= {key: value for key, value in fields.items() if isinstance(value, str)}
        data = self._payload(message, line)
        if not isinstance(data, ToolResult):
            self._add(uninterpreted(line), line)
            return
        if own_id is not None:
            self._draft.calls.settle(own_id)
            data = data.model_copy(update={"call_id": own_id})
        if "message" not in meta:
            # The line is the original; the message was only built to interpret it.
            data = data.model_copy(update={"raw": {ORIGINAL: data.raw[ORIGINAL]}})
        self._add(observed(line, data), line)

    def _actions_after(self, index: int) -> dict[int, dict[str, Any]]:
        place = place_of(self._lines[index])
        found: dict[int, dict[str, Any]] = {}
        for later in range(index + 1, len(self._lines)):
            line = self._lines[later]
            if line["type"] in _ENDS_STEP:
                break
            if line["type"] == "action" and place_of(line) == place:
                found[later] = line
        return found

    def _is_repeated(self, index: int) -> bool:
        """Whether a final line of the same step repeats this line."""
        place = place_of(self._lines[index])
        for later in range(index + 1, len(self._lines)):
            line = self._lines[later]
            if line["type"] in _ENDS_STEP:
                return False
            if line["type"] == "final" and place_of(line) == place and place[1] is not None:
                text = text_in(line) or ""
                return text != "" and text in (text_in(self._lines[index]) or "")
        return False

    def _repeats(self, line: Mapping[str, Any]) -> bool:
        """Whether an assistant line of the same step has already given this line's tokens."""
        ended_by = self._step_ended_by
        return (
            ended_by is not None
            and ended_by["type"] == "assistant"
            and place_of(ended_by) == place_of(line)
        )

    def _with_versions(self, data: Any, line: Mapping[str, Any]) -> Any:
        """Return a payload that refers to versions, with the versions that the events have now."""
        match data:
            case Summary():
                return data.model_copy(update={"versions": self._now(data.versions)})
            case Retraction():
                versions = self._now(data.versions)
                if not versions:
                    return uninterpreted(line)
                return data.model_copy(update={"versions": versions})
            case BranchSwitch():
                before = bisect_right(self._given_versions, data.after)
                after = self._versions[self._given_versions[before - 1]] if before else 0
                ranges = {
                    "withdrawn": self._now(data.withdrawn),
                    "restored": self._now(data.restored),
                }
                places = {
                    "after": after,
                    "left": self._versions.get(data.left or 0),
                    "taken": self._versions.get(data.taken or 0),
                }
                if not any(ranges.values()):
                    return uninterpreted(line)
                return data.model_copy(update={**ranges, **places})
        return data

    def _now(self, versions: Iterable[VersionRange]) -> tuple[VersionRange, ...]:
        """Return the versions that these events have now, as far as they have been read."""
        new: list[tuple[int, int]] = []
        for item in versions:
            low, high = (
                bisect_left(self._given_versions, item.first),
                bisect_right(self._given_versions, item.last),
            )
            if low < high:
                ends = (
                    self._versions[self._given_versions[low]],
                    self._versions[self._given_versions[high - 1]],
                )
                new.append((min(ends), max(ends)))
        return VersionRange.of(joined(new))

    def _with_later(self, event: NewEvent) -> NewEvent:
        """Return an event whose versions of later events are those that they have now."""
        if not isinstance(event.data, Retraction) or not event.data.replaced_by:
            return event
        by = self._now(event.data.replaced_by)
        return replace(event, data=event.data.model_copy(update={"replaced_by": by}))


def _tool_of(line: Mapping[str, Any]) -> str:
    tool = about(line).get("tool")
    return tool if isinstance(tool, str) else ""


def _request(line: Mapping[str, Any]) -> ToolCallRequest:
    meta = about(line)
    given = meta.get("input", "")
    provider_id = meta.get("tool_call_id")
    return request_of(
        _tool_of(line),
        given if isinstance(given, str) else dumps(given),
        provider_id if isinstance(provider_id, str) else None,
    )
