"""Session files of GitHub Copilot's CLI: ``~/.copilot/session-state/<session>/events.jsonl``.

A line is an event, ``{"type": "user.message", "data": {...}, "id", "timestamp"}``. Messages, calls,
results, failures, compaction summaries and titles are read. A subagent's events (with a
``parentToolCallId``) are recorded in the conversation, but outside the context. Every other event
is passed over, and counted. Other fields of a message or a result are kept under
``raw["copilot_cli"]``. There is no export to this format.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, SessionFile
from agent_eventstore.transcripts.claude_code import failure_kind
from agent_eventstore.transcripts.json_fields import (
    FieldTypes,
    naming_of,
    object_in,
    text_at,
    unheld,
    whole_at,
)
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, identify, moment_of
from eventstore.events import (
    ConversationStart,
    ConversationUpdate,
    Invocation,
    LlmError,
    OtherPart,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    TokenUsage,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import dumps
from projections.providers.answer import request_of
from projections.providers.usage import agent_usage

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "copilot-cli"
ORIGINAL = "copilot_cli"
"""The key in ``raw`` of an event's fields that the log's event does not hold."""

_LOOK_AHEAD = 200
_KINDS = frozenset("session user assistant tool".split())
_CHANGING = ("session.snapshot_rewind", "session.truncation", "session.handoff")
_SAID = {"content": str, "messageId": str, "reasoningText": str, "outputTokens": int}
_ANSWERED = {**_SAID, "toolRequests": list}
_REQUESTED = frozenset("toolCallId name arguments type".split())
_RUN: FieldTypes = {"toolCallId": str, "success": bool, "result": (str, dict), "error": dict}
_FAILED = {"message": str, "statusCode": int}
_DENIED = ("denied", "rejected")


def recognises(value: Any) -> bool:
    """Whether a value is an event of such a file."""
    if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
        return False
    kind, _, name = (text_at(value, "type") or "").partition(".")
    return kind in _KINDS and name != "" and {"id", "timestamp"} <= value.keys()


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, whose events are read on demand."""
    named: tuple[str, int] | None = None
    for item in islice(Source(source.path).lines(), _LOOK_AHEAD):
        if isinstance(item, Record) and recognises(item.value):
            stated = text_at(item.value["data"], "sessionId")
            starts = item.value["type"] == "session.start" and stated
            if starts or named is None:
                named = (str(stated if starts else item.value["id"]), item.line)
            if starts:
                break
    if named is None:
        yield source.failed(1, f"none of the first {_LOOK_AHEAD} lines is an event of a session")
        return
    place, line = named
    stream = SessionFile(source, _CopilotSession)
    yield Transcript(identify(FORMAT, place), file=source.file, line=line, stream=stream)


class _CopilotSession:
    """The lines of one session while they become events."""

    def __init__(self, source: Source, log: AgentSessionLog, left_out: LeftOut) -> None:
        self.log = log
        self._source, self._left_out = source, left_out
        self._model: str | None = None

    def line(self, record: Record) -> ImportFailed | None:
        """Process a line; return why it cannot be used, or None."""
        line = record.value
        kind = text_at(line, "type")
        if not isinstance(line, dict) or kind is None or not isinstance(line.get("data"), dict):
            return self._source.failed(record.line, "a line must be an event with a type and data")
        data, meta = line["data"], {"occurred_at": moment_of(line)}
        if self.log.last == 0:
            about = data if kind == "session.start" else {}
            self.log.add(ConversationStart(raw={ORIGINAL: about} if about else None), **meta)
        self._model = text_at(data, "newModel") or text_at(data, "selectedModel") or self._model
        self._event(kind, data, meta, line)
        return None

    def _event(
        self, kind: str, data: dict[str, Any], meta: dict[str, Any], line: dict[str, Any]
    ) -> None:
        aside = text_at(data, "parentToolCallId")
        if aside:
            meta = {**meta, "agent_id": aside[:200], "in_context": False}
        text = text_at(data, "content") or ""
        match kind:
            case "session.start":
                self.log.close()
            case "user.message":
                user = UserMessage(parts=(TextPart(text=text),), raw=_rest(data, _SAID))
                add = self.log.add if aside else self.log.prompt
                add(user, **meta)
            case "system.message":
                marks = {"in_context": False} if self.log.has_prompt(0) else {}
                self.log.add(SystemInstruction(text=text), **{**meta, **marks})
            case "assistant.message":
                self._answered(data, text, meta)
                if self.log.open is not None:
                    name = text_at(data, "messageId") or text_at(line, "id")
                    self.log.open.identity = (FORMAT, name, meta["occurred_at"]) if name else None
            case "assistant.usage" if self.log.open is not None:
                self.log.open.usage = agent_usage(data)
            case "tool.execution_complete":
                self.log.result(_result(data), **meta)
            case "session.error":
                status, message_text = whole_at(data, "statusCode"), text_at(data, "message") or ""
                error = LlmError(
                    kind=failure_kind(status, message_text),
                    message=message_text,
                    status_code=status,
                )
                raw = _rest(data, _FAILED)
                self.log.add(error.model_copy(update={"raw": raw}), **meta)
            case "session.compaction_complete" if text_at(data, "summaryContent"):
                self.log.summary(data["summaryContent"], FORMAT, **meta)
            case "session.title_changed" if text_at(data, "title"):
                self.log.add(ConversationUpdate(title=data["title"][:500]), **meta)
            case _:
                self._left_out.note(kind, known=kind not in _CHANGING)

    def _answered(self, data: dict[str, Any], text: str, meta: dict[str, Any]) -> None:
        self.log.close()
        key = text_at(data, "messageId") or f"copilot-{self.log.last}"
        answer = self.log.answer(key[:200], **meta)
        if thought := text_at(data, "reasoningText"):
            answer.parts.append(ReasoningPart(text=thought))
        if text:
            answer.parts.append(TextPart(text=text))
        requests = data.get("toolRequests")
        for call in requests if isinstance(requests, list) else ():
            if (named := naming_of(call, "name", "toolCallId")) is None:
                answer.parts.append(OtherPart(raw=call))
                continue
            given = call.get("arguments")
            arguments_text = (
                given if isinstance(given, str) else dumps({} if given is None else given)
            )
            answer.calls.append(request_of(named[0], arguments_text, named[1]))
        if (output_tokens := whole_at(data, "outputTokens")) is not None:
            answer.usage = TokenUsage(completion_tokens=output_tokens)
        answer.raw = _rest(data, _ANSWERED, toolRequests=_beside(requests))
        answer.invocation = Invocation(model=text_at(data, "model") or self._model)


def _result(data: dict[str, Any]) -> ToolResult:
    value, error = data.get("result"), object_in(data, "error")
    beside = (_rest(object_in(data, "result"), {"content": str}) or {}).get(ORIGINAL, {})
    of_error = (_rest(error, {"message": str}) or {}).get(ORIGINAL)
    denied = text_at(error, "code") in _DENIED
    failed = data.get("success") is False
    return ToolResult(
        call_id="",
        status="denied" if failed and denied else "failed" if failed else "success",
        content=value if isinstance(value, str) else text_at(value, "content"),
        error=text_at(error, "message"),
        provider_id=text_at(data, "toolCallId"),
        raw=_rest(data, _RUN, error=of_error, **beside),
    )


def _beside(requests: Any) -> list[dict[str, Any]] | None:
    """Return for each request the fields that its call does not hold, or None if none has any."""
    found = [
        {key: value for key, value in each.items() if key not in _REQUESTED}
        for each in (requests if isinstance(requests, list) else ())
        if isinstance(each, dict)
    ]
    return found if any(found) else None


def _rest(data: dict[str, Any], known_fields: FieldTypes, **more: Any) -> dict[str, Any] | None:
    """Return the ``raw`` with the fields whose values an event does not hold, and with more."""
    rest = unheld(data, known_fields) | {
        key: value for key, value in more.items() if value is not None
    }
    return {ORIGINAL: rest} if rest else None
