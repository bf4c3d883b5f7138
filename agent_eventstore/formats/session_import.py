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
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats import session_import_lines as lines
from agent_eventstore.formats.extras import ui_of
from agent_eventstore.formats.openai_wire import payload_of, request_of
from agent_eventstore.formats.session_import_lines import ORIGINAL, about
from agent_eventstore.formats.source import Record, Source
from agent_eventstore.formats.transcript import Draft, Transcript, anchored
from eventstore.events import (
    AssistantMessage,
    NewEvent,
    Retraction,
    Summary,
    SystemInstruction,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    UnknownEvent,
    VersionRange,
)
from eventstore.events.codec import dumps
from eventstore.events.records import EventData, RecordedEvent
from eventstore.events.registry import REGISTRY
from eventstore.ids import call_id
from projections.engine.folding import joined

__all__ = ["FORMAT", "read", "recognises"]

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
        begin = partial(_Session, source, stated_id, records)
        transcript = begin({}).transcript()
        yield replace(transcript, grown=partial(_grown, begin, transcript.events))


def _grown(
    begin: Callable[[Mapping[int, int]], _Session],
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


class _Session:
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
        self._draft = Draft(anchored(FORMAT, session_id, records), source.file, records[0].line)
        self._requested: dict[int, tuple[str, ToolCallRequest]] = {}
        self._call_ids: dict[str, str] = {}
        self._versions: dict[int, int] = {}
        self._told: list[int] = []  # the versions that lines have given, in order
        self._step_ended_by: dict[str, Any] | None = None

    def transcript(self) -> Transcript:
        first = self._lines[0]
        session_id = lines.meta_in(first).session_id
        meta = lines.meta_in({"ts": first.get("ts"), "session_id": session_id})
        self._draft.start(lines.conversation_start(first), meta)
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
                    self._add(self._payload(lines.message_in(line, "user"), line), line)
                case "system_instruction":
                    self._system(line)
                case "imported_message" if isinstance(about(line).get("message"), dict):
                    self._add(self._payload(about(line)["message"], line), line)
                case kind if kind not in REGISTRY and lines.is_system_message(line):
                    self._system(line)
                case "summary" if "data" not in about(line) and lines.text_in(line):
                    self._system(line)
                case _:
                    self._add(self._with_versions(lines.interpret(line), line), line)
            if line["type"] in _ENDS_STEP:
                self._step_ended_by = line
        return self._draft.finish()

    def _add(self, data: Any, line: Mapping[str, Any], **fields: Any) -> None:
        told = about(line).get("version")
        ours = isinstance(told, int)
        if isinstance(told, int):
            if told not in self._versions:
                insort(self._told, told)
            self._versions[told] = self._draft.next_version
        meta = lines.meta_in(line, **fields)
        if hasattr(data, "ui") and (ui := ui_of(about(line).get("ui"))) is not None:
            data = data.model_copy(update={"ui": ui})
        self._draft.add(data, meta, as_told=ours)

    def _payload(self, message: dict[str, Any], line: Mapping[str, Any] | None) -> Any:
        """Return the payload of a message that is on ``line``, or on no line of its own."""
        data: Any = payload_of(message, self._draft.next_version, self._draft.calls)
        if isinstance(data, UnknownEvent):
            return UnknownEvent(data.type, 1, {**data.raw, ORIGINAL: line})
        return lines.with_line(data, line)

    def _system(self, line: dict[str, Any]) -> None:
        """Add an instruction, a former instruction, or a summary."""
        role = "developer" if line.get("role") == "developer" else "system"
        data = self._payload(lines.message_in(line, role), line)
        if isinstance(data, SystemInstruction) and about(line).get("continues") is True:
            data = data.model_copy(update={"continues": True})
        self._add(data, line)

    def _turn_start(self, line: dict[str, Any]) -> None:
        self._add(lines.interpret(line), line)
        if line.get("content") is not None or "message" in about(line):
            self._add(self._payload(lines.message_in(line, "user"), None), line)

    def _assistant(self, index: int, line: dict[str, Any]) -> None:
        final = line["type"] == "final"
        version = self._draft.next_version
        data = self._payload(lines.message_in(line, "assistant"), line)
        if not isinstance(data, AssistantMessage):
            self._add(lines.uninterpreted(line), line)
            return
        data = lines.said(line, data, final=final, counted=not (final and self._repeats(line)))
        actions = {} if final else self._actions_after(index)
        cut = self._cuts.get(version, len(actions))
        requests = data.tool_calls or tuple(map(_request, islice(actions.values(), cut)))
        requests = self._claim(version, requests, actions, cut)
        told = about(line).get("version")
        for place in range(len(requests)):
            self._call_ids[f"{told}.{place}"] = call_id(version, place)
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
            self._draft.add(message, lines.meta_in(line))
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
        message = lines.message_in(line, "tool")
        if "message" not in meta:
            told = {"name": meta.get("tool"), "tool_call_id": meta.get("tool_call_id")}
            message |= {key: value for key, value in told.items() if isinstance(value, str)}
        data = self._payload(message, line)
        if not isinstance(data, ToolResult):
            self._add(lines.uninterpreted(line), line)
            return
        if own_id is not None:
            self._draft.calls.settle(own_id)
            data = data.model_copy(update={"call_id": own_id})
        if "message" not in meta:
            # The line is the original; the message was only built to interpret it.
            data = data.model_copy(update={"raw": {ORIGINAL: data.raw[ORIGINAL]}})
        self._add(lines.observed(line, data), line)

    def _actions_after(self, index: int) -> dict[int, dict[str, Any]]:
        place = lines.place_of(self._lines[index])
        found: dict[int, dict[str, Any]] = {}
        for later in range(index + 1, len(self._lines)):
            line = self._lines[later]
            if line["type"] in _ENDS_STEP:
                break
            if line["type"] == "action" and lines.place_of(line) == place:
                found[later] = line
        return found

    def _is_repeated(self, index: int) -> bool:
        """Whether a final line of the same step repeats this line."""
        place = lines.place_of(self._lines[index])
        for later in range(index + 1, len(self._lines)):
            line = self._lines[later]
            if line["type"] in _ENDS_STEP:
                return False
            if line["type"] == "final" and lines.place_of(line) == place and place[1] is not None:
                text = lines.text_in(line) or ""
                return text != "" and text in (lines.text_in(self._lines[index]) or "")
        return False

    def _repeats(self, line: Mapping[str, Any]) -> bool:
        """Whether an assistant line of the same step has already given this line's tokens."""
        told = self._step_ended_by
        return (
            told is not None
            and told["type"] == "assistant"
            and lines.place_of(told) == lines.place_of(line)
        )

    def _with_versions(self, data: Any, line: Mapping[str, Any]) -> Any:
        """Return a payload that refers to versions, with the versions that the events have now."""
        if not isinstance(data, Retraction | Summary):
            return data
        new: list[tuple[int, int]] = []
        for item in data.versions:
            low, high = bisect_left(self._told, item.first), bisect_right(self._told, item.last)
            if low < high:
                ends = self._versions[self._told[low]], self._versions[self._told[high - 1]]
                new.append((min(ends), max(ends)))
        if isinstance(data, Retraction) and not new:
            return lines.uninterpreted(line)
        return data.model_copy(update={"versions": VersionRange.of(joined(new))})


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
