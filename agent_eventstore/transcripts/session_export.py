"""A conversation as the session JSONL of document 001, one dictionary per line.

Imported lines are restored unchanged. Lines are created for other events. Frames that were not
recorded (a session, a turn around each user message) are added, and anything that document 001 has
no field for goes to ``meta``: ``message`` (the chat message, unless role and content are enough),
``version`` and ``call_id`` (the event's and the tool call's place), ``event`` (further metadata),
``data`` (the payload of an event type that 001 does not have). Requests, stream chunks, receipts of
erasure and erased events have no lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from agent_eventstore.transcripts.extras import NAMES, facts_of, moment
from agent_eventstore.transcripts.openai_parts import known, text_of
from agent_eventstore.transcripts.openai_wire import message_of, restored
from agent_eventstore.transcripts.session_import import original_payload
from agent_eventstore.transcripts.transcript import canonical
from eventstore import EventStore, RecordedEvent
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    ConversationStart,
    Erasure,
    LlmRequest,
    Meta,
    RetainedUsage,
    SessionEnd,
    SessionStart,
    SystemInstruction,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    Ui,
    UserMessage,
)
from eventstore.events.codec import dumps, encode
from eventstore.events.records import EventData
from eventstore.ids import call_id

__all__ = [
    "ExportTally",
    "action",
    "content_and_message",
    "execution",
    "export_session_jsonl",
    "further",
    "model_call",
    "plain",
    "session_end",
    "tokens",
    "turn_end",
    "turn_start",
    "ui",
]


_TOLD_ELSEWHERE = {"turn", "step", "occurred_at"}


class ExportTally:
    """Steps and tokens of a turn whose end was not recorded."""

    def __init__(self) -> None:
        self._steps = 0
        self._tokens: dict[str, int] = {}

    def add(self, usage: TokenUsage | None) -> None:
        """Count a step."""
        self._steps += 1
        if usage is not None:
            self._add("prompt", usage.prompt_tokens)
            self._add("completion", usage.completion_tokens)

    def turn_end(self) -> dict[str, Any]:
        """Return the ``meta`` of the turn's end."""
        total = {"total": sum(self._tokens.values())}
        return known(
            {
                "status": "ok",
                "stepCount": self._steps,
                "tokens": {**self._tokens, **total} if self._tokens else None,
            }
        )

    def _add(self, kind: str, count: int) -> None:
        self._tokens[kind] = self._tokens.get(kind, 0) + count


def plain(data: EventData) -> Any:
    """Return a payload as a JSON value."""
    return json.loads(encode(data))


def further(meta: Meta, session_id: str) -> dict[str, Any]:
    """Return the event metadata that has no field of its own in a line."""
    fields = meta.model_dump(mode="json", exclude_defaults=True, exclude=_TOLD_ELSEWHERE)
    if fields.get("session_id") == session_id:
        del fields["session_id"]
    return fields


def ui(data: EventData) -> dict[str, Any]:
    """Return how a message is shown, with document 000's names; empty if it does not say."""
    ui_fields = getattr(data, "ui", None)
    if not isinstance(ui_fields, Ui):
        return {}
    return known({key: getattr(ui_fields, n) for n, key in NAMES.items()})


def content_and_message(
    message: dict[str, Any], fields: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return a line's text, and ``message`` for its ``meta`` unless text and ``fields`` are enough.

    In ``message`` a text content is null, because the line holds it.
    """
    content = message.get("content")
    text = content if isinstance(content, str) else text_of(content)
    if canonical({**fields, "content": text}) == canonical(message):
        return text, {}
    if isinstance(content, str) and content:
        message = {**message, "content": None}
    return text, {"message": message}


def tokens(usage: TokenUsage | None) -> dict[str, Any] | None:
    """Return the token counts of a line."""
    if usage is None:
        return None
    total = usage.total_tokens
    if total is None:
        total = usage.prompt_tokens + usage.completion_tokens
    counts = {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "total": total,
        "cached": usage.cached_prompt_tokens,
        "reasoning": usage.reasoning_tokens,
        "reported": usage.reported or None,
    }
    return known(counts)


def turn_start(data: TurnStart) -> dict[str, Any]:
    """Return the ``meta`` of a turn's start."""
    return known({"input": data.input, "tokens": tokens(data.tokens)})


def turn_end(data: TurnEnd) -> dict[str, Any]:
    """Return the ``meta`` of a turn's end."""
    return known(
        {
            "status": data.status,
            "reason": data.reason,
            "stepCount": data.step_count,
            "durationMs": data.duration_ms,
            "errorMessage": data.error,
            "tokens": tokens(data.tokens),
        }
    )


def session_end(data: SessionEnd) -> dict[str, Any]:
    """Return the ``meta`` of a session's end."""
    fields = {"reason": data.reason, "turnCount": data.turn_count, "durationMs": data.duration_ms}
    return known({**fields, "tokens": tokens(data.tokens)})


def model_call(data: AssistantMessage) -> dict[str, Any]:
    """Return what an assistant line says about the model call."""
    model = None if data.invocation is None else data.invocation.model
    return known(
        {
            "tokens": tokens(data.usage),
            "model": model,
            "finish_reason": data.finish_reason,
            "durationMs": data.duration_ms,
        }
    )


def action(own_id: str, request: ToolCallRequest | None, call: ToolCall | None) -> dict[str, Any]:
    """Return the ``meta`` of an action: from the model's request if known, else from the call."""
    requested = request or call
    if requested is None:
        return {"call_id": own_id}
    given = request.arguments_text if request is not None else dumps(requested.arguments or {})
    return known(
        {
            "tool": requested.name,
            "input": given,
            "tool_call_id": requested.provider_id,
            "call_id": own_id,
        }
    )


def execution(data: ToolResult) -> dict[str, Any]:
    """Return what an observation says about the execution."""
    return known(
        {
            "tool": data.name,
            "tool_call_id": data.provider_id,
            "call_id": data.call_id,
            "status": data.status,
            "error": data.error,
            "durationMs": data.duration_ms,
        }
    )


Line = dict[str, Any]


def export_session_jsonl(store: EventStore, conversation_id: UUID) -> Iterator[Line]:
    """Iterate over a conversation's lines, in order of version.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    store.get(conversation_id)
    return _SessionExport(conversation_id).lines(facts_of(store, conversation_id))


class _SessionExport:
    """The state of an export: what the lines so far leave open."""

    def __init__(self, conversation_id: UUID) -> None:
        self._session_id = str(conversation_id)
        self._start: RecordedEvent | None = None
        self._turn_start: tuple[RecordedEvent, TurnStart] | None = None
        self._own_session = False
        self._own_turn = False
        self._in_turn = False
        self._turn: int | None = None
        self._tally = ExportTally()
        self._requests: dict[str, ToolCallRequest] = {}
        self._acted: set[str] = set()

    def lines(self, facts: Iterator[tuple[RecordedEvent, EventData]]) -> Iterator[Line]:
        last: RecordedEvent | None = None
        for event, data in facts:
            if last is None:
                self._session_id = event.meta.session_id or self._session_id
            last = event
            self._note(event, data)
            imported, line = original_payload(data)
            if imported:
                yield from self._pending()
                if line is not None:
                    yield restored(line, data)
            else:
                yield from self._made(event, data)
        yield from self._pending()
        if last is not None:
            yield from self._close_turn(last)
            if self._own_session:
                yield self._line(last, "session_end", frame=True)

    def _note(self, event: RecordedEvent, data: EventData) -> None:
        if isinstance(data, AssistantMessage):
            self._tally.add(data.usage)
            for index, request in enumerate(data.tool_calls):
                self._requests[call_id(event.version, index)] = request
        elif isinstance(data, TurnStart | TurnEnd):
            self._in_turn = isinstance(data, TurnStart)

    def _made(self, event: RecordedEvent, data: EventData) -> Iterator[Line]:
        match data:
            case ConversationStart():
                self._start = event
                return
            case SessionStart():
                start, self._start = self._start, None
                yield from self._pending()
                yield self._session_start(event, data, start)
                return
            case LlmRequest() | AssistantChunk() | Erasure() | RetainedUsage():
                return
            case UserMessage():
                yield from self._user(event, data)
                return
        yield from self._pending()
        match data:
            case TurnStart():
                yield from self._close_turn(event)
                self._turn_start = event, data
            case AssistantMessage():
                yield self._assistant(event, data)
            case ToolCall():
                self._acted.add(data.call_id)
                yield self._action(event, data.call_id, data)
            case ToolResult():
                if data.call_id in self._requests and data.call_id not in self._acted:
                    yield self._action(event, data.call_id, None)
                self._requests.pop(data.call_id, None)
                self._acted.discard(data.call_id)
                yield self._observation(event, data)
            case TurnEnd():
                yield self._line(event, "turn_end", meta=turn_end(data))
            case SessionEnd():
                yield self._line(event, "session_end", meta=session_end(data))
            case _:
                yield self._other(event, data)

    def _pending(self) -> Iterator[Line]:
        """Yield the lines of events that were held back to be joined with the next one."""
        if self._start is not None:
            start, self._start = self._start, None
            self._own_session = True
            yield self._session_start(start, None, start)
        if self._turn_start is not None:
            event, data = self._turn_start
            self._turn_start = None
            yield self._line(event, "turn_start", meta=turn_start(data))

    def _session_start(
        self, event: RecordedEvent, data: SessionStart | None, start: RecordedEvent | None
    ) -> Line:
        meta: dict[str, Any] = {"mode": "interactive" if data is None else data.mode}
        if data is not None and data.config:
            meta["config"] = data.config
        if start is not None and start.data is not None:
            meta["conversation"] = plain(start.data)
        return self._line(event, "session_start", meta=meta, frame=data is None)

    def _user(self, event: RecordedEvent, data: UserMessage) -> Iterator[Line]:
        started, self._turn_start = self._turn_start, None
        yield from self._pending()
        kind, meta = "turn_start", dict[str, Any]()
        if started is not None:
            meta = turn_start(started[1])
        elif self._in_turn and not self._own_turn:
            kind = "user_message"
        else:
            yield from self._close_turn(event)
            self._own_turn, self._tally = True, ExportTally()
            self._turn = event.meta.turn
        yield self._message_line(event, data, kind, "user", meta)

    def _assistant(self, event: RecordedEvent, data: AssistantMessage) -> Line:
        kind = "assistant" if data.tool_calls else "final"
        return self._message_line(event, data, kind, "assistant", model_call(data))

    def _message_line(
        self, event: RecordedEvent, data: EventData, kind: str, role: str, meta: dict[str, Any]
    ) -> Line:
        message = message_of(data, event.version) or {}
        content, fields = content_and_message(message, {"role": role})
        fields["ui"] = ui(data) or None
        return self._line(event, kind, role, content, {**meta, **fields})

    def _action(self, event: RecordedEvent, own_id: str, call: ToolCall | None) -> Line:
        request = self._requests.get(own_id)
        imported, line = original_payload(request)
        if imported and line is not None:
            return dict(line)
        meta = action(own_id, request, call)
        return self._line(event, "action", meta=meta, frame=call is None)

    def _observation(self, event: RecordedEvent, data: ToolResult) -> Line:
        message = message_of(data, event.version) or {}
        fields = {"role": "tool", "tool_call_id": data.provider_id, "name": data.name}
        content, line_fields = content_and_message(message, known(fields))
        meta = {**execution(data), **line_fields, "ui": ui(data) or None}
        return self._line(event, "observation", None, content, meta)

    def _other(self, event: RecordedEvent, data: EventData) -> Line:
        if isinstance(data, SystemInstruction):
            meta: dict[str, Any] = {"continues": True} if data.continues else {}
            return self._message_line(event, data, data.type, data.role, meta)
        message = message_of(data, event.version)
        if message is not None and not hasattr(data, "versions"):
            return self._line(event, data.type, meta={"message": message})
        text = getattr(data, "text", None) or getattr(data, "message", None)
        meta = {"schema_version": data.schema_version, "data": plain(data)}
        return self._line(event, data.type, None, text, meta)

    def _close_turn(self, event: RecordedEvent) -> Iterator[Line]:
        if self._own_turn:
            self._own_turn = False
            end = self._line(event, "turn_end", meta=self._tally.turn_end(), frame=True)
            yield {**end, "turn": self._turn} if self._turn else end

    def _line(
        self,
        event: RecordedEvent,
        kind: str,
        role: str | None = None,
        content: str | None = None,
        meta: dict[str, Any] | None = None,
        *,
        frame: bool = False,
    ) -> Line:
        """Return a line; a frame is a line without an event of its own."""
        others = {} if frame else further(event.meta, self._session_id)
        line_meta = {
            **(meta or {}),
            "version": None if frame else event.version,
            "event": others or None,
        }
        in_turn = kind not in ("session_start", "session_end")
        return known(
            {
                "ts": moment(event.occurred_at),
                "session_id": self._session_id,
                "turn": event.meta.turn if in_turn else None,
                "step": event.meta.step if in_turn and kind != "turn_end" else None,
                "type": kind,
                "role": role,
                "content": content,
                "meta": known(line_meta) or None,
            }
        )
