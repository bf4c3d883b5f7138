"""A session as the lines of document 001, made from its events alone.

The same events give the same lines, while the session runs and afterwards, so the file of a killed
process is completed from the log. Tokens of inputs are counted here; those of model calls are the
log's, or estimates if the provider reports none.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent_eventstore.agents.react import parse_reply
from agent_eventstore.transcripts.extras import moment
from agent_eventstore.transcripts.openai_parts import known
from eventstore import EventStore, RecordedEvent
from eventstore.events import (
    AssistantMessage,
    JsonObject,
    LlmError,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.ids import StreamId, call_id
from projections.payload_text import result_text, spoken
from projections.tokens.text import estimated_tokens

__all__ = ["HistoryLines", "session_before"]


class HistoryLines:
    """Makes the lines of one session, event by event.

    Args:
        store: Holds outputs that are too large for an event.
        session_id: The session; events of other sessions make no lines.
    """

    def __init__(self, store: EventStore, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self._tokenizer: str | None = None
        self._inputs: dict[str, tuple[str, str]] = {}
        self._acted: set[str] = set()
        self._turn_start: RecordedEvent | None = None  # until its message is read

    def of(self, event: RecordedEvent) -> Iterator[JsonObject]:
        """Iterate over the lines of an event."""
        if event.meta.session_id != self._session_id:
            return
        match event.data:
            case SessionStart() as start:
                yield self._line(event, "session_start", meta=self._session_meta(start))
            case TurnStart(input=None):
                self._turn_start = event
            case TurnStart(input=str() as text):
                yield self._turn_started(event, text)
            case UserMessage() as message if self._turn_start is not None:
                first, self._turn_start = self._turn_start, None
                yield self._turn_started(first, spoken(message.parts))
            case AssistantMessage() as answer:
                yield from self._answer(event, answer)
            case LlmError() as error:
                error_meta = {"error": error.message, "tokens": _tokens(error.usage)}
                yield self._line(event, "assistant", content=error.partial_text, meta=error_meta)
            case ToolCall() as call:
                yield self._action(event, call.call_id, call.name, dumps(call.arguments or {}))
            case ToolResult() as result:
                yield from self._observation(event, result)
            case TurnEnd() as end:
                yield self._line(event, "turn_end", meta=_turn_end(end))
            case SessionEnd() as end:
                yield self._line(event, "session_end", meta={"tokens": _tokens(end.tokens)})

    def _turn_started(self, event: RecordedEvent, text: str) -> JsonObject:
        tokens = {"prompt": estimated_tokens([text], self._tokenizer)}
        return self._line(event, "turn_start", content=text, meta={"tokens": tokens})

    def _session_meta(self, start: SessionStart) -> JsonObject:
        config = dict(start.config)
        named = {name: config.pop(name, None) for name in ("model", "tokenizer")}
        self._tokenizer = named["tokenizer"] or named["model"]
        return {"mode": start.mode, **named, "config": config or None}

    def _answer(self, event: RecordedEvent, answer: AssistantMessage) -> Iterator[JsonObject]:
        text = spoken(answer.parts, joint="")
        widget = (answer.ui.widget if answer.ui else None) or {}
        reply = parse_reply(text) if widget.get("protocol") == "react" else None
        for index, call in enumerate(answer.tool_calls):
            action = reply.of(reply.action) if reply else None
            tool_input = call.arguments_text if action is None else action
            self._inputs[call_id(event.version, index)] = (call.name, tool_input)
        final = None if answer.tool_calls else text if reply is None else reply.of(reply.final)
        tokens = _tokens(answer.usage)
        if final is None or (reply is not None and reply.thought is not None):
            yield self._line(event, "assistant", content=text, meta={"tokens": tokens})
        if final is not None:
            counts = {key: tokens[key] for key in ("completion", "estimated") if key in tokens}
            yield self._line(event, "final", content=final, meta={"tokens": counts})

    def _action(
        self, event: RecordedEvent, own_id: str, name: str, arguments_text: str
    ) -> JsonObject:
        self._acted.add(own_id)
        tool, tool_input = self._inputs.get(own_id, (name, arguments_text))
        return self._line(event, "action", meta={"tool": tool, "input": tool_input})

    def _observation(self, event: RecordedEvent, result: ToolResult) -> Iterator[JsonObject]:
        if result.call_id not in self._acted:
            yield self._action(event, result.call_id, result.name or "", "")
        self._acted.discard(result.call_id)
        tool, _ = self._inputs.pop(result.call_id, (result.name, ""))
        text = result_text(result) or ""
        if result.blob is not None and not event.erased:
            whole = self._store.blob(event.conversation_id, result.blob.digest)
            text = whole.decode("utf-8", "surrogatepass")
        status = None if result.status == "success" else result.status
        yield self._line(event, "observation", content=text, meta={"tool": tool, "status": status})

    def _line(
        self,
        event: RecordedEvent,
        kind: str,
        *,
        content: str | None = None,
        meta: JsonObject | None = None,
    ) -> JsonObject:
        framing = kind in ("session_start", "session_end")
        stepping = not framing and kind not in ("turn_start", "turn_end")
        known_meta = known({key: value for key, value in (meta or {}).items() if value != {}})
        return known(
            {
                "ts": moment(event.occurred_at),
                "session_id": self._session_id,
                "turn": None if framing else event.meta.turn,
                "step": event.meta.step if stepping else None,
                "type": kind,
                "content": content,
                "meta": known_meta or None,
            }
        )


def _tokens(usage: TokenUsage | None) -> JsonObject:
    if usage is None:
        return {}
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    total = usage.total_tokens
    return known(
        {
            "prompt": prompt,
            "completion": completion,
            "total": prompt + completion if total is None else total,
            "estimated": None if usage.reported else True,
        }
    )


def _turn_end(end: TurnEnd) -> JsonObject:
    return {
        "status": end.status,
        "stepCount": end.step_count,
        "durationMs": end.duration_ms,
        "errorMessage": end.error,
        "tokens": _tokens(end.tokens),
    }


def session_before(
    store: EventStore, conversation_id: StreamId, version: int
) -> list[RecordedEvent]:
    """Return the events of the last session that began before a version, in order.

    Reads backward from the end, to that session's start.
    """
    found: list[RecordedEvent] = []
    for event in store.read(conversation_id, before=version, backward=True):
        found.append(event)
        if event.type == SessionStart.type:
            session = event.meta.session_id
            return [each for each in reversed(found) if each.meta.session_id == session]
    return []
