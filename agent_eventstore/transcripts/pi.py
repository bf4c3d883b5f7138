"""Session files of pi and OpenClaw: ``~/.pi/agent/sessions/<directory>/<session>.jsonl``.

A line is the header (``session``), a ``message``, a ``compaction``, a new name (``session_info``),
or bookkeeping. ``parentId`` makes the lines a tree: a prompt that follows an earlier line instead
of the newest leaves a branch. Other fields of a message, and of its blocks (in ``content``), are
kept under ``raw["pi"]``. There is no export to this format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, SessionFile
from agent_eventstore.transcripts.claude_code import failure_kind, parts_of
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
from agent_eventstore.transcripts.transcript import Transcript, copied, identify, moment_of
from eventstore.events import (
    ContentPart,
    ConversationStart,
    ConversationUpdate,
    ImagePart,
    Invocation,
    LlmError,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import dumps
from projections.providers.answer import request_of
from projections.providers.reasoning import thought_of

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "pi"
ORIGINAL = "pi"
"""The key in ``raw`` of a message's fields that its event does not hold."""

_LOOK_AHEAD = 200
_SILENT = frozenset("model_change thinking_level_change label custom".split())
_TEXTS = dict.fromkeys("role model provider toolCallId toolName".split(), str)
_SAID: FieldTypes = {**_TEXTS, "content": object, "usage": dict, "timestamp": object}
_OF_BLOCK: FieldTypes = {
    **dict.fromkeys("type text thinking id name data mimeType".split(), str),
    "arguments": object,
}
_SIGNING = "anthropic-messages"
_OF_RESPONSES = ("openai-responses", "openai-codex-responses", "azure-openai-responses")
_SPECIFICATIONS = {
    _SIGNING: "anthropic_messages",
    "openai-completions": "openai_chat",
    "openai-responses": "openai_responses",
}


def recognises(value: Any) -> bool:
    """Whether a value is the header of such a file."""
    if not isinstance(value, dict) or value.get("type") != "session":
        return False
    return {"id", "timestamp", "cwd"} <= value.keys() and text_at(value, "id") is not None


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, whose events are read on demand."""
    for item in islice(Source(source.path).lines(), _LOOK_AHEAD):
        if isinstance(item, Record) and recognises(item.value):
            place, stream = identify(FORMAT, item.value["id"]), SessionFile(source, _PiSession)
            yield Transcript(place, file=source.file, line=item.line, stream=stream)
            return
    yield source.failed(1, f"none of the first {_LOOK_AHEAD} lines is the head of a session")


class _PiSession:
    """The lines of one session while they become events."""

    def __init__(self, source: Source, log: AgentSessionLog, left_out: LeftOut) -> None:
        self.log = log
        self._source, self._left_out = source, left_out
        self._places: dict[str, int] = {}

    def line(self, record: Record) -> ImportFailed | None:
        """Process a line; return why it cannot be used, or None."""
        line, kind = record.value, text_at(record.value, "type")
        if not isinstance(line, dict) or kind is None:
            return self._source.failed(record.line, "a line must be an object with a type")
        if self.log.last == 0:
            about = {ORIGINAL: line} if kind == "session" else None
            self.log.add(ConversationStart(raw=about), occurred_at=moment_of(line))
        meta: dict[str, Any] = {"occurred_at": moment_of(line)}
        text = text_at(line, "summary")
        if kind == "message":
            self._message(object_in(line, "message"), line, meta)
        elif kind == "compaction" and text:
            first_place = self._places.get(str(line.get("firstKeptEntryId")))
            self.log.summary(text, FORMAT, before=first_place, **meta)
        elif kind == "session_info" and text_at(line, "name"):
            self.log.add(ConversationUpdate(title=line["name"][:500]), **meta)
        elif kind != "session":
            self._left_out.note(kind, known=kind in _SILENT)
        if (name := text_at(line, "id")) is not None:
            self._places[name] = self.log.last
        return None

    def _message(self, message: dict[str, Any], line: dict[str, Any], meta: dict[str, Any]) -> None:
        rest = unheld(message, _SAID)
        if any(beside := _beside(message)):
            rest["content"] = beside
        raw = {ORIGINAL: rest} if rest else None
        match message.get("role"):
            case "user":
                after = self._places.get(str(line.get("parentId")))
                if after is not None:
                    self.log.withdraw(after, meta["occurred_at"])
                self.log.prompt(UserMessage(parts=_parts(message), raw=raw), **meta)
            case "assistant":
                self._answered(message, raw, meta, _identity(message, line))
            case "toolResult":
                parts = _parts(message)
                plain = len(parts) == 1 and isinstance(parts[0], TextPart)
                result = ToolResult(
                    call_id="",
                    status="failed" if message.get("isError") is True else "success",
                    content="\n".join(getattr(p, "text", "") for p in parts) if plain else parts,
                    name=text_at(message, "toolName"),
                    provider_id=text_at(message, "toolCallId"),
                    raw=raw,
                )
                self.log.result(result, **meta)
            case role:
                self._left_out.note(f"message of role {role}", known=False)

    def _answered(
        self, message: dict[str, Any], raw: Any, meta: dict[str, Any], identity: tuple[Any, ...]
    ) -> None:
        self.log.close()
        answer = self.log.answer(f"pi-{self.log.last}", **meta)
        answer.identity = identity or None
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            named = naming_of(block, "name", "id")
            if isinstance(block, dict) and block.get("type") == "toolCall" and named:
                given = dumps({} if (arguments := block.get("arguments")) is None else arguments)
                request = request_of(named[0], given, named[1])
                if signed := text_at(block, "thoughtSignature"):
                    request = request.model_copy(update={"raw": {"thoughtSignature": signed}})
                answer.calls.append(request)
            else:
                answer.parts += _parts({**message, "content": [block]})
        answer.usage, answer.raw = _tokens(object_in(message, "usage")), raw
        answer.finish_reason = text_at(message, "stopReason")
        answer.invocation = Invocation(
            provider=text_at(message, "provider"),
            specification=_SPECIFICATIONS.get(text_at(message, "api") or ""),
            model=text_at(message, "model"),
        )
        if (error := text_at(message, "errorMessage")) is not None:
            kind = "cancelled" if answer.finish_reason == "aborted" else failure_kind(None, error)
            extra = copied((*identity, "error")) if identity else None
            self.log.add(LlmError(kind=kind, message=error), **meta, extra=extra)


def _identity(message: dict[str, Any], line: dict[str, Any]) -> tuple[Any, ...]:
    """Return what all copies of an answer have in common: a fork keeps its line as it is."""
    if response := text_at(message, "responseId"):
        return FORMAT, response
    name, moment = text_at(line, "id"), moment_of(line)
    return (FORMAT, name, moment) if name and moment is not None else ()


def _parts(message: dict[str, Any]) -> tuple[ContentPart, ...]:
    content = message.get("content")
    found: list[ContentPart] = []
    for block in content if isinstance(content, list) else [content]:
        match block:
            case {"type": "image", "data": str(data), "mimeType": str(kind)}:
                found.append(ImagePart(url=f"data:{kind};base64,{data}", media_type=kind))
            case None | "":
                pass
            case {"type": "thinking", "thinking": str(text), "thinkingSignature": str(signed)} if (
                message.get("api") == _SIGNING
            ):
                redacted = {"type": "redacted_thinking", "data": signed}
                found.append(
                    ReasoningPart(text="", raw=redacted)
                    if block.get("redacted") is True
                    else ReasoningPart(text=text, signature=signed)
                )
            case {"type": "thinking", "thinking": str(text), "thinkingSignature": str(signed)} if (
                thought := _signed(text, signed, message.get("api"))
            ) is not None:
                found.append(thought)
            case _:
                found += parts_of([block]) or ()
    return tuple(found)


def _signed(text: str, signed: str, api: Any) -> ReasoningPart | None:
    """Return a thought with its maker's signature: Responses keep their whole item there."""
    if api in _OF_RESPONSES:
        try:
            item = json.loads(signed)
        except (ValueError, RecursionError):
            return None
        thought = thought_of(item) if isinstance(item, dict) else None
        signed_text = text if thought is None or not thought.text else thought.text
        return None if thought is None else thought.model_copy(update={"text": signed_text})
    if isinstance(api, str) and api.startswith("google-") and signed:
        return ReasoningPart(text=text, signature=signed, raw={"thoughtSignature": signed})
    return None


def _beside(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each block of a message the fields that its event does not hold."""
    content, signing = message.get("content"), message.get("api") == _SIGNING
    known_fields = {**_OF_BLOCK, **({"thinkingSignature": str} if signing else {})}
    return [
        unheld(block, known_fields) if isinstance(block, dict) else {}
        for block in (content if isinstance(content, list) else ())
    ]


def _tokens(counts: dict[str, Any]) -> TokenUsage | None:
    """Return the counts; the cache is counted apart from the input."""
    input_tokens, output_tokens = whole_at(counts, "input"), whole_at(counts, "output")
    read, written = whole_at(counts, "cacheRead"), whole_at(counts, "cacheWrite")
    if input_tokens is None and output_tokens is None:
        return None
    return TokenUsage(
        prompt_tokens=(input_tokens or 0) + (read or 0) + (written or 0),
        completion_tokens=output_tokens or 0,
        total_tokens=whole_at(counts, "totalTokens"),
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        raw=counts,
    )
