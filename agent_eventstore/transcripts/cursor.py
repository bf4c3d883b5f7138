"""Sessions of Cursor's agent: ``agent-transcripts/<session>/<session>.jsonl``, and printed streams.

The editor's file has a line for each message, ``{"role", "message": {"content": [blocks]}}``; most
have no results of tools, and no ids of calls. ``cursor-agent -p --output-format stream-json``
prints typed lines with a ``session_id``, of which ``tool_call`` lines hold calls and their results;
a text that is repeated at the end of its pieces is read once. Every other line is passed over, and
counted. There is no export to this format.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, OpenAnswer, SessionFile
from agent_eventstore.transcripts.claude_code import block_of, failure_kind
from agent_eventstore.transcripts.json_fields import as_text, object_in, text_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, identify, moment_of
from eventstore.events import (
    ConversationStart,
    Invocation,
    LlmError,
    OtherPart,
    ReasoningPart,
    TextPart,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import dumps
from projections.providers.answer import request_of
from projections.providers.usage import agent_usage

__all__ = ["FORMAT", "read", "recognises"]

FORMAT = "cursor"

_LOOK_AHEAD = 50
_BEGINS = frozenset({"apiKeySource", "cwd", "model", "permissionMode"})
_ASKED = re.compile(
    r"\s*(?:<timestamp>[^<]*</timestamp>\s*)?<user_query>\n?(.*?)\n?</user_query>\s*", re.DOTALL
)
_PASSED_OVER = frozenset({"result", "system", "turn_ended"})
_ENDS = ("success", "error", "rejected")


def recognises(value: Any) -> bool:
    """Whether a value is a line of such a file."""
    if not isinstance(value, dict):
        return False
    message, kind = value.get("message"), value.get("type")
    if text_at(value, "session_id") is None:
        is_message = value.get("role") in ("user", "assistant") and "content" not in value
        return is_message and isinstance(message, dict) and isinstance(message.get("content"), list)
    if kind in ("user", "assistant"):
        return (
            "uuid" not in value and isinstance(message, dict) and {"role", "content"} == {*message}
        )
    if kind == "tool_call":
        return text_at(value, "call_id") is not None
    # Claude Code's begins in the same way, and says more.
    is_init = kind == "system" and value.get("subtype") == "init" and value.keys() >= _BEGINS
    return is_init and value.keys().isdisjoint(("tools", "uuid"))


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, whose lines are read on demand."""
    for item in islice(Source(source.path).lines(), _LOOK_AHEAD):
        if isinstance(item, Record) and recognises(item.value):
            stated = text_at(item.value, "session_id") or _session_of(source.path)
            origin = identify(FORMAT, stated or _digest(source))
            stream = SessionFile(source, _CursorSession)
            yield Transcript(origin, file=source.file, line=item.line, stream=stream)
            return
    yield source.failed(1, f"none of the first {_LOOK_AHEAD} lines is a message of a session")


def _session_of(path: Path) -> str | None:
    """Return the session that a file is named by, if any."""
    if path.absolute().parent.name in (path.stem, "agent-transcripts"):
        return path.stem
    try:
        return str(UUID(path.stem))
    except ValueError:
        return None


def _digest(source: Source) -> str:
    """Return what identifies a session without a name: all of its file."""
    with source.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _CursorSession:
    """The lines of one session while they become events."""

    def __init__(self, source: Source, log: AgentSessionLog, left_out: LeftOut) -> None:
        self.log = log
        self._source, self._left_out = source, left_out
        self._model: str | None = None
        self._step = 0
        self._step_ended = False
        self._pieces = ""
        self._unnamed = deque[str]()

    def line(self, record: Record) -> ImportFailed | None:
        """Process a line; return why it cannot be used, or None."""
        line = record.value
        if not isinstance(line, dict):
            return self._source.failed(record.line, "a line must be an object")
        kind = text_at(line, "type") or text_at(line, "role") or "a line without a type"
        meta = {
            "occurred_at": moment_of(line) or moment_of({"timestamp": line.get("timestamp_ms")})
        }
        if self.log.last == 0:
            self.log.add(ConversationStart(), **meta)
        content = object_in(line, "message").get("content")
        blocks = content if isinstance(content, list) else [content] if content else []
        match kind:
            case "user" if blocks:
                self._user_message(blocks, meta)
            case "assistant" if blocks:
                if "session_id" not in line:  # each line is a step
                    self._step_ended = True
                # A piece of an answer has a time and does not name its call yet.
                is_piece = "timestamp_ms" in line and "model_call_id" not in line
                self._answer_line(blocks, meta, is_piece=is_piece)
            case "thinking" if text := text_at(line, "text"):
                self._thought(text, meta)
            case "tool_call" if isinstance(line.get("tool_call"), dict):
                self._called(line, line["tool_call"], meta)
            case "result" if line.get("is_error") is True:
                text = text_at(line, "result") or ""
                self.log.add(LlmError(kind=failure_kind(None, text), message=text), **meta)
            case _:
                self._model = text_at(line, "model") or self._model
                if kind == "result" and self.log.open is not None:
                    self.log.open.usage = agent_usage(object_in(line, "usage"))
                self._left_out.note(kind, known=kind in _PASSED_OVER)
        return None

    def _answer(self, meta: dict[str, Any]) -> OpenAnswer:
        """Return the answer that a line belongs to; after results, a new one."""
        if self._step_ended or self.log.open is None:
            self.log.close()
            self._step, self._step_ended, self._pieces = self._step + 1, False, ""
        answer = self.log.answer(f"cursor-{self._step}", **meta)
        answer.invocation = Invocation(model=self._model) if self._model else None
        return answer

    def _user_message(self, blocks: list[Any], meta: dict[str, Any]) -> None:
        parts: list[TextPart | OtherPart] = []
        for block in blocks:
            if block_of(block) == "tool_result":
                self._result(block, meta)
            elif (text := _text_of(block)) is not None:
                wrapped = _ASKED.fullmatch(text)
                parts.append(TextPart(text=text if wrapped is None else wrapped[1]))
            else:
                parts.append(OtherPart(raw=block))
        if parts:
            self.log.prompt(UserMessage(parts=tuple(parts)), **meta)

    def _answer_line(self, blocks: list[Any], meta: dict[str, Any], *, is_piece: bool) -> None:
        own = [each for each in blocks if block_of(each) != "tool_result"]
        answer = self._answer(meta) if own else None
        for block in blocks:
            kind, text = block_of(block), _text_of(block)
            if answer is None or kind == "tool_result":
                self._result(block, meta)
            elif text is not None:
                if is_piece or text != self._pieces:
                    _append(answer, text)
                    self._pieces += text
            elif kind == "tool_use" and (name := text_at(block, "name")):
                own_id = text_at(block, "id")
                if own_id is None:
                    own_id = f"cursor-{self._step}-{len(answer.calls)}"
                    self._unnamed.append(own_id)
                given = dumps(block.get("input") or {})
                answer.calls.append(request_of(name, given, own_id))
            else:
                answer.parts.append(OtherPart(raw=block))

    def _thought(self, text: str, meta: dict[str, Any]) -> None:
        answer = self._answer(meta)
        before = answer.parts[-1] if answer.parts else None
        if isinstance(before, ReasoningPart):
            answer.parts.pop()
            text = before.text + text
        answer.parts.append(ReasoningPart(text=text))

    def _result(self, block: dict[str, Any], meta: dict[str, Any]) -> None:
        named = text_at(block, "tool_use_id")
        if named is None and self._unnamed:
            named = self._unnamed.popleft()
        content = block.get("content")
        texts = [_text_of(each) for each in content] if isinstance(content, list) else []
        result = ToolResult(
            call_id="",
            status="failed" if block.get("is_error") is True else "success",
            content="\n".join(map(str, texts)) if texts and all(texts) else as_text(content),
            provider_id=named,
        )
        self._step_ended = True
        self.log.result(result, **meta)

    def _called(self, line: dict[str, Any], call: dict[str, Any], meta: dict[str, Any]) -> None:
        own_id = text_at(line, "call_id")
        name, given, result = _call_in(call)
        if line.get("subtype") == "started" and name is not None:
            self._answer(meta).calls.append(request_of(name, as_text(given or {}), own_id))
        elif line.get("subtype") == "completed":
            end = next((each for each in _ENDS if each in result), None)
            value = result if end is None else result[end]
            text = text_at(value, "content") or as_text(value)
            failed = end in ("error", "rejected")
            data = ToolResult(
                call_id="",
                status="denied" if end == "rejected" else "failed" if failed else "success",
                content=None if failed else text,
                error=(text_at(value, "reason") or text) if failed else None,
                provider_id=own_id,
                raw=None if end is None or failed else {FORMAT: result},
            )
            self._step_ended = True
            self.log.result(data, **meta)
        else:
            self._left_out.note("tool_call", known=False)


def _call_in(call: dict[str, Any]) -> tuple[str | None, Any, dict[str, Any]]:
    """Return the tool, the arguments and the result in a ``tool_call``."""
    for key, value in call.items():
        if not isinstance(value, dict):
            continue
        if key == "function":
            return text_at(value, "name"), value.get("arguments"), object_in(value, "result")
        if key.endswith("ToolCall"):
            given = object_in(value, "args")
            named = text_at(given, "toolName") or key.removesuffix("ToolCall")
            inner = given.get("args") if key == "mcpToolCall" else given
            return named, inner, object_in(value, "result")
    return None, None, {}


def _append(answer: OpenAnswer, text: str) -> None:
    """Add a text, or a piece of one that has begun."""
    before = answer.parts[-1] if answer.parts else None
    if isinstance(before, TextPart):
        answer.parts[-1] = TextPart(text=before.text + text)
    else:
        answer.parts.append(TextPart(text=text))


def _text_of(block: Any) -> str | None:
    return text_at(block, "text") if block_of(block) == "text" else None
