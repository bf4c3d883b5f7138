"""Session files of Gemini CLI: ``~/.gemini/tmp/<project>/chats/session-*.json`` and ``.jsonl``.

A file is an object with ``messages`` or, in newer versions, lines: the header; messages, which
replace an earlier one with the same id; ``$set`` with more of the header; and ``$rewindTo``, which
leaves a message and everything after it. An answer contains its calls, and they contain their
results. Messages of the program (``info``, ``error``, ``warning``) are kept verbatim, and counted.
Other fields of a message or a call are kept under ``raw["gemini_cli"]``. There is no export to this
format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats.agent_session import SessionLog, object_in, text_at, whole_at
from agent_eventstore.formats.claude_code_lines import block_of, parts_of, result_of
from agent_eventstore.formats.gemini_contents import message_in
from agent_eventstore.formats.openai_wire import request_of
from agent_eventstore.formats.source import Source
from agent_eventstore.formats.transcript import (
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

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "gemini-cli"
ORIGINAL = "gemini_cli"
"""The key in ``raw`` of a message's fields that its event does not hold."""

_REWIND = "$rewindTo"
_SAID = frozenset("id timestamp type content toolCalls thoughts tokens model".split())
_CALLED = frozenset("id name args result timestamp".split())
_STATUS = {"error": "failed", "cancelled": "denied"}


def recognises(value: Any) -> bool:
    """Whether a value is a session, or the header of one."""
    return isinstance(value, dict) and {"sessionId", "projectHash"} <= value.keys()


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's session, after reports of what could not be read."""
    about, entries, places = dict[str, Any](), list[dict[str, Any]](), dict[str, int]()
    for item in source.records():
        value = None if isinstance(item, ImportFailed) else item.value
        if isinstance(item, ImportFailed):
            yield item
        elif not isinstance(value, dict):
            yield source.failed(item.line, "a line must be an object")
        else:
            told = value.get("$set", value)
            listed = told.get("messages") if isinstance(told, dict) else None
            for each in listed if isinstance(listed, list) else ():
                if isinstance(each, dict):
                    _keep(each, entries, places)
                else:
                    yield source.failed(item.line, "a message must be an object")
            if "type" in value or _REWIND in value:
                _keep(value, entries, places)
            elif isinstance(told, dict):
                about |= {key: each for key, each in told.items() if key != "messages"}
    if entries:
        yield _transcript(source, about, entries)
    else:
        yield source.failed(1, "there are no messages")


def _keep(message: dict[str, Any], entries: list[dict[str, Any]], places: dict[str, int]) -> None:
    """Put a message in its place: at the end, or where the same message was before."""
    name = text_at(message, "id")
    if _REWIND in message or name is None:
        entries.append(message)
        places.clear() if _REWIND in message else None
    elif name in places:
        entries[places[name]] |= message
    else:
        places[name] = len(entries)
        entries.append(dict(message))


def _transcript(source: Source, about: dict[str, Any], entries: list[dict[str, Any]]) -> Transcript:
    log, places = SessionLog({}), dict[str, int]()
    begun = moment_of({"time": about.get("startTime")}) or moment_of(entries[0])
    log.add(ConversationStart(title=title_of(about, "summary"), raw=about), occurred_at=begun)
    moment = begun
    for number, message in enumerate(entries):
        moment = moment_of(message) or moment
        if _REWIND in message:
            log.withdraw(places.get(str(message[_REWIND]), 1), moment)
            continue
        log.close()
        places[str(message.get("id"))] = log.last
        meta, rest = {"occurred_at": moment}, _rest(message, _SAID)
        match message.get("type"):
            case "user":
                parts = parts_of(_blocks(message.get("content"))) or ()
                log.prompt(UserMessage(parts=parts, raw=rest), **meta)
            case "gemini":
                _answered(log, message, f"gemini-cli-{number}", rest)
            case _:
                log.add(UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: message}), **meta)
    log.close()
    stated = identify(FORMAT, explicit_id(about, "sessionId"), entries)
    return Transcript(stated, tuple(log.take()), file=source.file, line=1)


def _answered(log: SessionLog, message: dict[str, Any], key: str, rest: Any) -> None:
    answer = log.answer(key, occurred_at=moment_of(message))
    answer.parts += _thoughts(message.get("thoughts"))
    answer.parts += parts_of(_blocks(message.get("content"))) or ()
    answer.usage, answer.raw = _tokens(object_in(message, "tokens")), rest
    answer.invocation = Invocation(provider="gemini", model=text_at(message, "model"))
    calls = message.get("toolCalls")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        if not isinstance(call, dict):
            answer.parts.append(OtherPart(raw=call))
            continue
        named, given = text_at(call, "id") or f"{key}-{number}", call.get("args")
        told = given if isinstance(given, str) else dumps({} if given is None else given)
        answer.calls.append(request_of(text_at(call, "name") or "", told, named))
        if (result := _result(call, named)) is not None:
            log.result(result, occurred_at=moment_of(call) or moment_of(message))


def _result(call: dict[str, Any], named: str) -> ToolResult | None:
    """Return the result of a call, or None if the call was still running."""
    status, told = _STATUS.get(str(call.get("status"))), call.get("result")
    if told is None and status is None:
        return None
    blocks, rest = _blocks(told), _rest(call, _CALLED)
    first = next((each for each in blocks if block_of(each) == "tool_result"), {"content": None})
    others = [each for each in blocks if each is not first]
    found = result_of(first, None)
    content: Any = found.content
    if others:
        said = parts_of(content) if isinstance(content, str) else content
        content = (*(said or ()), *(parts_of(others) or ()))
    return found.model_copy(
        update={
            "content": content,
            "status": status or found.status,
            "provider_id": named,
            "name": text_at(call, "name"),
            "raw": rest,
        }
    )


def _rest(value: dict[str, Any], said: frozenset[str]) -> dict[str, Any] | None:
    rest = {key: each for key, each in value.items() if key not in said}
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
        told = [text_at(each, "subject"), text_at(each, "description")]
        text = "\n".join(filter(None, told))
        found.append(ReasoningPart(text=text) if text else OtherPart(raw=each))
    return found


def _tokens(told: Mapping[str, Any]) -> TokenUsage | None:
    """Return the counts; thoughts are counted apart from the output, tools from the input."""
    asked, tools = whole_at(told, "input"), whole_at(told, "tool")
    said, thought = whole_at(told, "output"), whole_at(told, "thoughts")
    if asked is None and said is None:
        return None
    return TokenUsage(
        prompt_tokens=(asked or 0) + (tools or 0),
        completion_tokens=(said or 0) + (thought or 0),
        total_tokens=whole_at(told, "total"),
        cached_prompt_tokens=whole_at(told, "cached"),
        reasoning_tokens=thought,
        raw=dict(told),
    )
