"""Sessions of Copilot Chat in VS Code: exported, or as the editor keeps them.

An export (``Chat: Export Chat...``) and a file below ``workspaceStorage/*/chatSessions`` hold one
session, ``{"requests": [{"message": {"text"}, "response": [...], "result": {...}}]}``. Newer
editors keep it as a log of changes, one per line: the whole session (``kind`` 0), a value that is
set (1), values that are pushed after an array is cut (2), a value that is deleted (3).

A request is a question and its answer: pieces of text with references between them, reasoning, and
tool calls. What a call was given and returned stands in the request's ``result``; where it does
not, the editor's own line about the call is its result. Edits of files and the editor's marks are
passed over, and counted. So is, in a log, an answer without a ``result``: it has not ended, and the
next import adds it. The shapes are those of VS Code 1.109. There is no export to this format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.json_fields import as_text, object_in, text_at, whole_at
from agent_eventstore.transcripts.openai_messages import transcript_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, identify

__all__ = ["FORMAT", "read", "recognises"]

FORMAT = "vscode-copilot"

Message = dict[str, Any]

_WHOLE, _SET, _PUSH, _DELETE = range(4)
_OF_SESSION = ("responderUsername", "requesterUsername", "sessionId")
_TEXTS = (None, "markdownContent", "markdownVuln")
_CALL = "toolInvocationSerialized"


def recognises(value: Any) -> bool:
    """Whether a value is a session, or the first line of a log of one."""
    if isinstance(value, dict) and "requests" not in value and value.get("kind") == _WHOLE:
        value = value.get("v")
    if not isinstance(value, dict) or not isinstance(value.get("requests"), list):
        return False
    return any(key in value for key in _OF_SESSION)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Iterate over the file's sessions, and over reports of what cannot be read."""
    records = source.records()
    for record in records:
        if isinstance(record, ImportFailed):
            yield record
        elif not recognises(record.value):
            yield source.failed(record.line, "it is not a chat session of VS Code")
        else:
            is_log = "requests" not in record.value
            yield from _session(source, record, records if is_log else ())
            if is_log:
                return  # after a line that is no change, the others change an unknown session


def _session(
    source: Source, record: Record, changes: Iterable[Record | ImportFailed]
) -> Iterator[Transcript | ImportFailed]:
    session: Message = record.value if "requests" in record.value else record.value["v"]
    for change in changes:
        if isinstance(change, ImportFailed):  # perhaps a line that is being written
            yield change
            break
        if not _is_applied(session, change.value):
            yield source.failed(
                change.line, "it changes no place of the session: nothing after it is read"
            )
            break
    rest = {key: value for key, value in session.items() if key != "requests"}
    rest |= {"title": rest.get("customTitle"), "created_at": rest.get("creationDate")}
    requests = session.get("requests")
    passed_over = Counter[str]()
    messages = [
        message
        for request in (requests if isinstance(requests, list) else ())
        for message in _messages(request, passed_over, ended=session is record.value)
    ]
    origin = identify(FORMAT, text_at(session, "sessionId"), (messages[:1],))
    yield transcript_of(source, messages, rest, record.line, origin, passed_over)


def _is_applied(session: Message, change: Any) -> bool:
    """Change a session as a line of its log says; return whether the line names a place in it."""
    kind, path = (change.get("kind"), change.get("k")) if isinstance(change, dict) else (None, None)
    if kind not in (_SET, _PUSH, _DELETE) or not isinstance(path, list) or not path:
        return False
    *way, last = path
    at: Any = session
    for key in way:
        if isinstance(at, dict):
            at = at.setdefault(key, {}) if isinstance(key, str) else None
        elif isinstance(at, list) and type(key) is int and 0 <= key < len(at):
            at = at[key]
        else:
            return False
    if isinstance(at, list):
        if type(last) is not int or not 0 <= last < len(at):
            return False
    elif not isinstance(at, dict) or not isinstance(last, str):
        return False
    if kind != _PUSH:
        at[last] = change.get("v")
        return True
    before = at[last] if isinstance(at, list) else at.setdefault(last, [])
    added, length = change.get("v") or [], change.get("i")
    if not isinstance(before, list) or not isinstance(added, list):
        return False
    if type(length) is int and length >= 0:
        del before[length:]
    before += added
    return True


def _messages(request: Any, passed_over: Counter[str], *, ended: bool) -> Iterator[Message]:
    """Yield a request as messages of a chat API; unless ``ended``, its answer may be growing."""
    if not isinstance(request, dict):
        passed_over["request that is not an object"] += 1
        return
    given = request.get("message")
    question: Message = {"role": "user", "id": request.get("requestId")}
    question["content"] = text_at(given, "text") or (given if isinstance(given, str) else "")
    question["timestamp"] = request.get("timestamp")
    shown = ("requestId", "message", "response", "result", "modelId", "timestamp", "responseId")
    yield {key: value for key, value in request.items() if key not in shown and value} | question
    if not ended and not isinstance(request.get("result"), dict):
        passed_over["answer that has not ended"] += 1
        return
    yield from _AnswerText(request).messages(request.get("response"), passed_over)


@dataclass(slots=True)
class _AnswerText:
    """A request's answer: messages of the model, each with its calls and their results."""

    request: Message
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Message] = field(default_factory=list)
    number: int = 0

    def messages(self, response: Any, passed_over: Counter[str]) -> Iterator[Message]:
        """Yield the answer's messages; the last one has its usage, and its error if it failed."""
        common: Message = {"id": self.request.get("responseId")}
        common["timestamp"] = self.request.get("timestamp")
        model, result = text_at(self.request, "modelId"), object_in(self.request, "result")
        common |= {"model": model.removeprefix("copilot/")} if model else {}
        metadata = object_in(result, "metadata")
        prompt, completion = (whole_at(metadata, each) for each in ("promptTokens", "outputTokens"))
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        rounds = _objects(metadata.get("toolCallRounds"))
        self.calls = [call for each in rounds for call in _objects(each.get("toolCalls"))]
        for part in response if isinstance(response, list) else ():
            kind = part.get("kind") if isinstance(part, dict) else None
            if kind == _CALL:
                call = self._call(part, metadata)
                yield {**common, **self._taken([call[0]])}
                yield from call[1:]
            elif (text := _text_of(part, kind)) is not None:
                (self.thoughts if kind == "thinking" else self.texts).append(text)
            else:
                passed_over[str(kind)] += 1
        failed = text_at(object_in(result, "errorDetails"), "message")
        if self.texts or self.thoughts or failed:
            common |= {"usage": usage} if None not in (prompt, completion) else {}
            yield {**common, **self._taken(), **({"error": failed} if failed else {})}

    def _taken(self, calls: list[Message] | None = None) -> Message:
        """Return the text and the reasoning since the last message."""
        text, thoughts = "".join(self.texts), "\n\n".join(filter(None, self.thoughts))
        self.texts, self.thoughts = [], []
        message: Message = {"role": "assistant", "content": text or None}
        message |= {"tool_calls": calls} if calls else {"content": text}
        return message | ({"reasoning_content": thoughts} if thoughts else {})

    def _call(self, part: Message, metadata: Message) -> list[Message]:
        """Return a call, and the message with its result, if it has ended."""
        stated = text_at(part, "toolCallId")
        by_id = (call for call in self.calls if stated and text_at(call, "id") == stated)
        in_order = self.calls[self.number : self.number + 1]
        made: Message = next(chain(by_id, in_order), {})
        self.number += 1
        own_id = stated or text_at(made, "id") or f"{self.request.get('requestId')}-{self.number}"
        name = text_at(made, "name") or text_at(part, "toolId") or "unknown"
        arguments = made.get("arguments", part.get("toolSpecificData") or {})
        results = object_in(metadata, "toolCallResults")
        known = results.get(text_at(made, "id") or own_id)
        content = _result_text(known) or _result_text(part.get("resultDetails"))
        if not content and part.get("isComplete") is not False:
            content = _line(part.get("pastTenseMessage")) or _line(part.get("invocationMessage"))
        function = {"name": name, "arguments": as_text(arguments)}
        found: list[Message] = [{"id": own_id, "type": "function", "function": function}]
        if content:
            found.append({"role": "tool", "tool_call_id": own_id, "content": content})
        return found


def _objects(value: Any) -> list[Message]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text_of(part: Any, kind: Any) -> str | None:
    """Return the text of a piece of an answer; None if it has none of the conversation."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    if kind == "thinking":
        value = part.get("value")
        return "\n".join(map(as_text, value)) if isinstance(value, list) else _line(value)
    if kind == "inlineReference":
        return f"`{name}`" if (name := _name_of(part)) else ""
    return _line(part.get("value", part.get("content"))) if kind in _TEXTS else None


def _name_of(part: Message) -> str | None:
    named = object_in(part, "inlineReference")
    place = object_in(named, "location") or named
    path = text_at(place, "path") or text_at(object_in(place, "uri"), "path")
    return text_at(part, "name") or text_at(named, "name") or (path and path.rsplit("/", 1)[-1])


def _line(value: Any) -> str:
    """Return a text that stands alone, or under ``value``."""
    return text_at(value, "value") or (value if isinstance(value, str) else "")


def _result_text(result: Any) -> str:
    """Return the texts of a tool's result; parts without a text as JSON."""
    content = result.get("content", result.get("output")) if isinstance(result, dict) else None
    parts = content if isinstance(content, list) else [content] if content else []
    return "\n".join(_line(each) or as_text(each) for each in parts)
