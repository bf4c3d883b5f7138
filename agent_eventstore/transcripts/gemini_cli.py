"""Session files of Gemini CLI: ``~/.gemini/tmp/<project>/chats/session-*.json`` and ``.jsonl``.

A file is an object with ``messages`` or, in newer versions, lines: the header; messages, which
replace an earlier one with the same id; ``$set`` with more of the header, or with the ``messages``
that replace the list; and ``$rewindTo``, which leaves a message and everything after it. An answer
contains its calls, and they contain their results, which newer versions repeat as a user message.
Messages of the program (``info``, ``error``, ``warning``) are kept verbatim, and counted. Other
fields of a message or a call are kept under ``raw["gemini_cli"]``. There is no export to this
format. The rules are those of ``loadConversationRecord`` in Gemini CLI 0.61 (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog
from agent_eventstore.transcripts.claude_code import block_of, call_of, parts_of, result_of
from agent_eventstore.transcripts.json_fields import (
    FieldTypes,
    naming_of,
    object_in,
    text_at,
    unheld,
    whole_at,
)
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Transcript,
    explicit_id,
    identify,
    moment_of,
    title_of,
)
from eventstore.events import (
    ContentPart,
    ConversationStart,
    Invocation,
    OtherPart,
    ReasoningPart,
    TokenUsage,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import dumps
from projections.providers.answer import request_of
from projections.providers.gemini.contents import message_in

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "gemini-cli"
ORIGINAL = "gemini_cli"
"""The key in ``raw`` of a message's fields that its event does not hold."""

_REWIND = "$rewindTo"
_TEXTS = dict.fromkeys("id timestamp type model".split(), str)
_SAID: FieldTypes = {
    **_TEXTS,
    "content": object,
    "toolCalls": list,
    "thoughts": list,
    "tokens": dict,
}
_CALLED: FieldTypes = {"id": str, "name": str, "args": object, "result": object, "timestamp": str}
_STATUS = {"error": "failed", "cancelled": "denied"}
_OF_REQUESTS = ("user", "gemini")
_PARENTS = "chats"


def recognises(value: Any) -> bool:
    """Whether a value is a session, or the header of one."""
    return isinstance(value, dict) and {"sessionId", "projectHash"} <= value.keys()


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, after reports of what could not be read."""
    about, listed = dict[str, Any](), _GeminiMessages()
    for item in source.records():
        value = None if isinstance(item, ImportFailed) else item.value
        if isinstance(item, ImportFailed):
            yield item
        elif not isinstance(value, dict):
            yield source.failed(item.line, "a line must be an object")
        elif (name := text_at(value, _REWIND)) is not None:
            listed.rewind(name)
        elif "type" in value:
            listed.keep(value)
        elif isinstance(fields := value.get("$set", value), dict):
            if isinstance(given := fields.get("messages"), list):
                messages = [each for each in given if isinstance(each, dict)]
                for _ in range(len(given) - len(messages)):
                    yield source.failed(item.line, "a message must be an object")
                listed.replace(messages)
            about |= {key: each for key, each in fields.items() if key != "messages"}
    if listed.entries:
        yield _transcript(source, about, listed.entries)
    else:
        yield source.failed(1, "there are no messages")


class _GeminiMessages:
    """The messages of a file, and the rewinds that leave some of them, in order."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}  # of the messages that were not left
        self._sent: dict[str, None] = {}  # those of them that requests contain

    def keep(self, message: dict[str, Any]) -> None:
        """Add a message, or replace the one with the same id."""
        name = text_at(message, "id")
        if name in self._places:
            self.entries[self._places[name]] = message
            return
        if name is not None:
            self._places[name] = len(self.entries)
            if message.get("type") in _OF_REQUESTS:
                self._sent[name] = None
        self.entries.append(message)

    def rewind(self, name: str) -> None:
        """Leave a message and everything after it; everything, if the message is unknown."""
        left = name if name in self._places else next(iter(self._places), None)
        while left in self._places:
            self._sent.pop(gone := self._places.popitem()[0], None)
            left = None if gone == left else left
        self.entries.append({_REWIND: name})

    def replace(self, messages: list[dict[str, Any]]) -> None:
        """Leave the messages that a new list lacks, and add those that only the list has.

        Messages that the list begins with as before stay as they were: when Gemini CLI compresses
        the history, it replaces the output of tools in them by a note. The program's own messages
        are in no such list.
        """
        same = 0
        for name in self._sent:
            if same == len(messages) or messages[same].get("id") != name:
                self.rewind(name)
                break
            same += 1
        for each in messages[same:]:
            self.keep(each)


def _transcript(source: Source, about: dict[str, Any], entries: list[dict[str, Any]]) -> Transcript:
    started = moment_of({"time": about.get("startTime")}) or moment_of(entries[0])
    reader = _GeminiReader(ConversationStart(title=title_of(about, "summary"), raw=about), started)
    for message in entries:
        reader.take(message)
    reader.log.close()
    stated = identify(FORMAT, explicit_id(about, "sessionId"), entries)
    # A subagent's file is in a directory that is named for its parent's session.
    above = source.path.absolute().parent.name
    nested = about.get("kind") == "subagent" and above not in ("", _PARENTS)
    return Transcript(
        stated,
        tuple(reader.log.take()),
        file=source.file,
        line=1,
        parent=identify(FORMAT, above) if nested else None,
        left_out=reader.left_out,
    )


class _GeminiReader:
    """Turns one session's messages into events."""

    def __init__(self, start: ConversationStart, started: datetime | None) -> None:
        self.log, self.left_out = AgentSessionLog({}), LeftOut()
        self._moment, self._number = started, 0
        self._places: dict[str, int] = {}
        self.log.add(start, occurred_at=started)

    def take(self, message: dict[str, Any]) -> None:
        """Process a message, or a rewind."""
        self._moment = moment_of(message) or self._moment
        self._number += 1
        self.log.close()
        if (name := text_at(message, _REWIND)) is not None and "type" not in message:
            after = self._places.get(name, 1)
            left = None if self.log.has_prompt(after) else (after + 1, self.log.turn)
            self.log.withdraw(after, self._moment, left)
            return
        if (name := text_at(message, "id")) is not None:
            self._places[name] = self.log.last
        meta, rest = {"occurred_at": self._moment}, _rest(message, _SAID)
        match message.get("type"):
            case "user":
                self._user(message, rest, meta)
            case "gemini":
                self._answered(message, rest, meta)
            case _:
                self.log.add(UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: message}), **meta)

    def _user(self, message: dict[str, Any], rest: Any, meta: dict[str, Any]) -> None:
        blocks = _blocks(message.get("content"))
        user_blocks = [each for each in blocks if block_of(each) != "tool_result"]
        for block in blocks:
            if block_of(block) == "tool_result":
                result = result_of(block, None)
                if self.log.is_answered(result.provider_id):
                    self.left_out.note("result that occurs twice", known=True)
                else:
                    named = result.model_copy(update={"name": text_at(block, "name")})
                    self.log.result(named, **meta)
        if user_blocks or not blocks:
            self.log.prompt(UserMessage(parts=parts_of(user_blocks) or (), raw=rest), **meta)

    def _answered(self, message: dict[str, Any], rest: Any, meta: dict[str, Any]) -> None:
        key = f"gemini-cli-{self._number - 1}"
        answer = self.log.answer(key, **meta)
        answer.parts += _thoughts(message.get("thoughts"))
        if name := text_at(message, "id"):
            answer.identity = (FORMAT, name, moment_of(message))
        answer.usage, answer.raw = _tokens(object_in(message, "tokens")), rest
        answer.invocation = Invocation(provider="gemini", model=text_at(message, "model"))
        tool_calls = message.get("toolCalls")
        calls = tool_calls if isinstance(tool_calls, list) else []
        known = {text_at(call, "id") for call in calls}
        for block in _blocks(message.get("content")):
            if (requested := call_of(block)) is None:
                answer.parts += parts_of([block]) or ()
            elif requested.provider_id is None or requested.provider_id not in known:
                answer.calls.append(requested)
        for number, call in enumerate(calls):
            if (naming := naming_of(call, "name", "id")) is None:
                answer.parts.append(OtherPart(raw=call))
                continue
            named, given = naming[1] or f"{key}-{number}", call.get("args")
            text = given if isinstance(given, str) else dumps({} if given is None else given)
            answer.calls.append(request_of(naming[0], text, named))
            if (result := _result(call, named)) is not None:
                self.log.result(result, occurred_at=moment_of(call) or meta["occurred_at"])


def _result(call: dict[str, Any], named: str) -> ToolResult | None:
    """Return the result of a call, or None if the call was still running."""
    status, value = _STATUS.get(str(call.get("status"))), call.get("result")
    if value is None and status is None:
        return None
    blocks, rest = _blocks(value), _rest(call, _CALLED)
    first = next((each for each in blocks if block_of(each) == "tool_result"), {"content": None})
    others = [each for each in blocks if each is not first]
    found = result_of(first, None)
    content: Any = found.content
    if others:
        result_content = parts_of(content) if isinstance(content, str) else content
        content = (*(result_content or ()), *(parts_of(others) or ()))
    return found.model_copy(
        update={
            "content": content,
            "status": status or found.status,
            "provider_id": named,
            "name": text_at(call, "name"),
            "raw": rest,
        }
    )


def _rest(value: dict[str, Any], known_fields: FieldTypes) -> dict[str, Any] | None:
    rest = unheld(value, known_fields)
    return {ORIGINAL: rest} if rest else None


def _blocks(content: Any) -> list[Any]:
    """Return a content, which is a text, a part or a list of them, as Anthropic blocks."""
    listed = content if isinstance(content, list) else [] if content in (None, "") else [content]
    parts = [{"text": each} if isinstance(each, str) else each for each in listed]
    message = message_in({"parts": parts})
    return parts if message is None else list(message["content"])


def _thoughts(listed: Any) -> list[ContentPart]:
    found: list[ContentPart] = []
    for each in listed if isinstance(listed, list) else ():
        texts = [text_at(each, "subject"), text_at(each, "description")]
        text = "\n".join(filter(None, texts))
        found.append(ReasoningPart(text=text) if text else OtherPart(raw=each))
    return found


def _tokens(counts: Mapping[str, Any]) -> TokenUsage | None:
    """Return the counts; thoughts are counted apart from the output, tools from the input."""
    input_tokens, tools = whole_at(counts, "input"), whole_at(counts, "tool")
    output_tokens, thought = whole_at(counts, "output"), whole_at(counts, "thoughts")
    if input_tokens is None and output_tokens is None:
        return None
    return TokenUsage(
        prompt_tokens=(input_tokens or 0) + (tools or 0),
        completion_tokens=(output_tokens or 0) + (thought or 0),
        total_tokens=whole_at(counts, "total"),
        cached_prompt_tokens=whole_at(counts, "cached"),
        reasoning_tokens=thought,
        raw=dict(counts),
    )
