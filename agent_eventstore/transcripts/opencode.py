"""Sessions of OpenCode: the output of ``opencode export``, ``{"info": ..., "messages": [...]}``.

A session's file in OpenCode's own folder, ``storage/session/PROJECT/SESSION.json``, is such an
``info``; its messages are the files in ``storage/message/SESSION``, and the parts of each those in
``storage/part/MESSAGE``.

A message is ``info`` (who, when, tokens, model) and ``parts``. An assistant message is one answer,
or several, each from a ``step-start``; its tools contain their results. An assistant message that
is a ``summary`` replaces everything before it. Parts of another type are passed over, and counted.
Other fields of a message's ``info``, or of a tool's ``state``, are kept under ``raw["opencode"]``.
There is no export to this format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog
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
from agent_eventstore.transcripts.transcript import Transcript, identify, moment_of, title_of
from eventstore.events import (
    ContentPart,
    ConversationStart,
    FilePart,
    ImagePart,
    Invocation,
    LlmError,
    OtherPart,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolResult,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.events.values import ToolStatus
from projections.providers.answer import request_of
from projections.providers.reasoning import metadata_of, signature_in

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises", "storage_of"]

FORMAT = "opencode"
ORIGINAL = "opencode"
"""The key in ``raw`` of the fields of ``info`` that the event does not hold."""

_SILENT = frozenset("step-start step-finish snapshot patch agent compaction".split())
_TEXTS = dict.fromkeys("id sessionID role modelID providerID".split(), str)
_TOLD: FieldTypes = {**_TEXTS, "tokens": dict}
_RUN: FieldTypes = {"input": object, "output": str, "attachments": list}
_ID = re.compile(r"[\w-]+")
_REJECTED = "The user rejected permission"


def recognises(value: Any) -> bool:
    """Whether a value is a session."""
    listed = value.get("messages") if isinstance(value, dict) else None
    if isinstance(listed, list):
        return bool(listed) and _is_message(listed[0])
    return _is_stored(value)


def _is_stored(value: Any) -> bool:
    """Whether a value is the ``info`` of a session in OpenCode's folder."""
    return (
        isinstance(value, dict)
        and _ID.fullmatch(text_at(value, "id") or "") is not None
        and isinstance(value.get("projectID"), str)
        and isinstance(value.get("time"), dict)
    )


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return False
    parts = value.get("parts")
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's sessions; one broken message excludes all of its session."""
    for found in source.lists("messages"):
        if isinstance(found, ImportFailed):
            yield found
            continue
        about, messages = found
        if not about and len(messages) == 1 and _is_stored(messages[0].value):
            about = {"info": messages[0].value}
            stored = _messages_of(source, messages[0].value["id"])
            if isinstance(stored, ImportFailed):
                yield stored
                continue
            messages = stored
        wrong = next((n for n, each in enumerate(messages, 1) if not _is_message(each.value)), 0)
        if wrong:
            reason = f"message {wrong} is not an object with info and a list of parts"
            yield source.failed(messages[0].line, reason)
        else:
            yield _transcript(source, about, messages)


def storage_of(path: Path) -> Path | None:
    """Return OpenCode's folder if a session's file is where OpenCode keeps it."""
    sessions = path.absolute().parent.parent
    return sessions.parent if sessions.name == "session" else None


def _messages_of(source: Source, session_id: str) -> list[Record] | ImportFailed:
    """Return the messages of a session in OpenCode's folder, in order; a report if one is bad."""
    storage, found = storage_of(source.path), list[Record]()
    if storage is None:
        return source.failed(1, "the folder session is not around it, in which OpenCode keeps it")
    for info in _values_in(storage / "message" / session_id):
        if isinstance(info, ImportFailed):
            return info
        parts = list[Any]()
        own_id = text_at(info, "id") or ""
        for part in _values_in(storage / "part" / own_id) if _ID.fullmatch(own_id) else ():
            if isinstance(part, ImportFailed):
                return part
            parts.append(part)
        found.append(Record({"info": info, "parts": parts}, 1))
    return found or source.failed(1, "there are no messages of this session in the folder")


def _values_in(directory: Path) -> Iterator[Any]:
    """Yield the values of a folder's files, or reports; ids, and so names, are in order of time."""
    for path in sorted(directory.glob("*.json")):
        for each in Source(path).document():
            yield each.value if isinstance(each, Record) else each


def _transcript(source: Source, about: dict[str, Any], messages: list[Record]) -> Transcript:
    info, reader = object_in(about, "info"), _OpenCodeReader()
    started = _moment(info, "created") or _moment(messages[0].value["info"], "created")
    reader.log.add(ConversationStart(title=title_of(info), raw=about or None), occurred_at=started)
    for record in messages:
        reader.take(record.value["info"], record.value["parts"])
    reader.log.close()
    if "revert" in info:
        reader.left_out.note("revert: the reverted messages stay", known=False)
    parent = text_at(info, "parentID")
    return Transcript(
        identify(FORMAT, text_at(info, "id"), (record.value for record in messages)),
        tuple(reader.log.take()),
        file=source.file,
        line=messages[0].line,
        parent=None if parent is None else identify(FORMAT, parent),
        left_out=reader.left_out,
    )


class _OpenCodeReader:
    """Turns one session's messages into events."""

    def __init__(self) -> None:
        self.log, self.left_out = AgentSessionLog({}), LeftOut()

    def take(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        """Process a message."""
        meta = {"occurred_at": _moment(info, "created")}
        raw = {ORIGINAL: unheld(info, _TOLD)}
        if info.get("role") == "user":
            if content := self._content_of(parts):
                self.log.prompt(UserMessage(parts=content, raw=raw), **meta)
        elif info.get("role") != "assistant":
            self.left_out.note(f"message of role {info.get('role')}", known=False)
        else:
            texts = [part for part in parts if part.get("type") == "text"]
            summed = texts if info.get("summary") is True else []
            for number, step in enumerate(_steps(parts)):
                self._answered(info, step, f"{info.get('id')}/{number}", raw)
            if text := "\n".join(filter(None, (text_at(each, "text") for each in summed))):
                self.log.summary(text, FORMAT, occurred_at=meta["occurred_at"])
            if error := object_in(info, "error"):
                self.log.add(_failure(error), **meta)

    def _content_of(self, parts: list[dict[str, Any]]) -> tuple[ContentPart, ...]:
        found: list[ContentPart] = []
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)} if part.get("ignored") is not True:
                    found.append(TextPart(text=text))
                case {"type": "reasoning", "text": str(text)}:
                    signed = metadata_of(part.get("metadata"), text)
                    found.append(ReasoningPart(text=text) if signed is None else signed)
                case {"type": "file", "url": str(url)}:
                    found.append(_file(part, url))
                case {"type": "tool"}:
                    found += () if _is_call(part) else (OtherPart(raw=part),)
                case _:
                    kind = part.get("type")
                    self.left_out.note(f"part {kind}", known=kind in ("text", *_SILENT))
        return tuple(found)

    def _answered(self, info: dict[str, Any], step: list[Any], key: str, raw: Any) -> None:
        content, tools = self._content_of(step), [part for part in step if _is_call(part)]
        token_counts = [part.get("tokens") for part in step if part.get("type") == "step-finish"]
        spent = _tokens((token_counts or [info.get("tokens")])[-1])
        if (
            not content
            and not tools
            and (spent is None or not spent.prompt_tokens + spent.completion_tokens)
        ):
            return
        answer = self.log.answer(key[:200], occurred_at=_moment(info, "created"))
        answer.parts += () if info.get("summary") is True else content
        answer.usage, answer.raw = spent, raw
        answer.identity = _identity(info, key, tools, spent)
        answer.finish_reason = text_at(info, "finish")
        maker, model = text_at(info, "providerID"), text_at(info, "modelID")
        answer.invocation = Invocation(provider=maker, model=model)
        for number, part in enumerate(tools):
            state = object_in(part, "state")
            named = text_at(part, "callID") or f"{key}.{number}"
            given = dumps({} if (arguments := state.get("input")) is None else arguments)
            requested = request_of(part["tool"], given, named)
            if signature := signature_in({"providerMetadata": part.get("metadata")}):
                requested = requested.model_copy(update={"raw": {"thoughtSignature": signature}})
            answer.calls.append(requested)
            if state.get("status") in ("completed", "error"):
                at = _moment(state, "end") or _moment(info, "created")
                self.log.result(_result(state, named), occurred_at=at)
        self.log.close()


def _identity(
    info: dict[str, Any], key: str, tools: list[dict[str, Any]], spent: TokenUsage | None
) -> tuple[Any, ...] | None:
    """Return what all copies of an answer have in common: a fork gives the messages new ids."""
    started, ended = _moment(info, "created"), _moment(info, "completed")
    if started is None:
        return None
    model = (text_at(info, "providerID"), text_at(info, "modelID"))
    called = [text_at(part, "callID") for part in tools]
    tokens = spent and (spent.prompt_tokens, spent.completion_tokens)
    return FORMAT, started, ended, key.rpartition("/")[2], *model, called, tokens


def _is_call(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "tool" and naming_of(part, "tool", "callID") is not None


def _result(state: dict[str, Any], named: str) -> ToolResult:
    error, listed = text_at(state, "error"), state.get("attachments")
    content: Any = text_at(state, "output")
    if isinstance(listed, list):
        files = [_file(each, url) for each in listed if (url := text_at(each, "url"))]
        content = (TextPart(text=content or ""), *files) if files else content
    failed: ToolStatus = "denied" if (error or "").startswith(_REJECTED) else "failed"
    return ToolResult(
        call_id="",
        status="success" if state["status"] == "completed" else failed,
        content=content,
        error=error,
        provider_id=named,
        raw={ORIGINAL: unheld(state, _RUN)},
    )


def _failure(error: dict[str, Any]) -> LlmError:
    data, named = object_in(error, "data"), text_at(error, "name") or "error"
    text, status = text_at(data, "message") or named, whole_at(data, "statusCode")
    return LlmError(
        kind="cancelled" if "Abort" in named else failure_kind(status, text),
        message=text,
        retryable=data.get("isRetryable") is True,
        status_code=status,
        raw={ORIGINAL: error},
    )


def _moment(value: Mapping[str, Any], key: str) -> datetime | None:
    return moment_of({"time": object_in(value, "time").get(key)})


def _steps(parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the parts of each model call of a message; parts before the first belong to it."""
    starts = [place for place, part in enumerate(parts) if part.get("type") == "step-start"]
    cuts = [0, *starts[1:], len(parts)]
    return [parts[first:last] for first, last in pairwise(cuts)]


def _file(part: Mapping[str, Any], url: str) -> ContentPart:
    kind = text_at(part, "mime")
    if (kind or "").startswith("image/") and url.startswith(("data:", "http")):
        return ImagePart(url=url, media_type=kind)
    return FilePart(name=text_at(part, "filename"), url=url, media_type=kind)


def _tokens(value: Any) -> TokenUsage | None:
    """Return the counts; the cache is counted apart from the input, reasoning from the output."""
    counts = value if isinstance(value, dict) else {}
    input_tokens, output_tokens = whole_at(counts, "input"), whole_at(counts, "output")
    cache, thought = object_in(counts, "cache"), whole_at(counts, "reasoning")
    read, written = whole_at(cache, "read"), whole_at(cache, "write")
    total = whole_at(counts, "total")
    if input_tokens is None and output_tokens is None:
        return None
    prompt, given = (input_tokens or 0) + (read or 0) + (written or 0), output_tokens or 0
    apart = total != prompt + given
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=given + (thought or 0) * apart,
        total_tokens=total,
        cached_prompt_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        raw=counts,
    )
