"""``messages.jsonl`` and the ``meta.json`` next to it (document 002, section 2.2).

One line is one message of the user or of a named participant. Products name the fields differently,
so the usual names are tried in turn, and each line is kept whole. A line that is not a message is
reported, and the others are imported. ``meta.json`` gives the conversation's id, mode and title. If
it is broken, the file is reported and not imported, because its messages would get a different id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.anthropic_messages import payloads_of
from agent_eventstore.transcripts.extras import Extras
from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.openai_wire import marked
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    Transcript,
    TranscriptDraft,
    anchored,
    explicit_id,
    mode_of,
    moment_of,
    title_of,
)
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    Mention,
    Meta,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import EventData

__all__ = ["FORMAT", "ORIGINAL", "read", "recognises"]

FORMAT = "messages-jsonl"
ORIGINAL = "chat_message"
"""The key in ``raw`` under which the line is kept, except for a text ``content``.

It is null in further events of the same line.
"""

_TEXTS = ("content", "text", "message")
_SENDERS = ("sender", "cat_id", "catId", "agent_id", "agentId", "author", "from", "speaker", "name")
_THREADS = ("threadId", "thread_id")
_CALLS = ("tool_calls", "tool_call_id", "function_call", "error")
_ASIDE = ("reasoning_content", "reasoning", "refusal")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_USERS = ("user", "human", "owner")


def recognises(value: Any) -> bool:
    """Whether a value is a message of such a file."""
    return isinstance(value, dict) and _role(value) is not None and _text_key(value) is not None


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's one conversation, after reports of what could not be read."""
    messages: list[Record] = []
    for line in source.lines():
        if isinstance(line, ImportFailed):
            yield line
        elif not isinstance(line.value, dict):
            yield source.failed(line.line, "a message must be an object")
        else:
            messages.append(line)
    about: dict[str, Any] = {}
    for found in source.beside("meta.json"):
        if isinstance(found, ImportFailed):
            yield found
            return
        about = found if isinstance(found, dict) else {}
    if messages:
        yield _transcript(source, messages, about)


def _transcript(source: Source, messages: list[Record], about: dict[str, Any]) -> Transcript:
    first = messages[0].value
    stated = explicit_id(about, "id") or explicit_id(first, *_THREADS)
    draft = TranscriptDraft(anchored(FORMAT, stated, messages), source.file, messages[0].line)
    start = ConversationStart(
        title=title_of(about, "title", "name"),
        mode=mode_of(about.get("mode")),
        raw={"meta": about} if about else None,
    )
    session_id = explicit_id(about, "id")
    draft.start(start, Meta(session_id=session_id, occurred_at=moment_of(about)))
    extras = Extras()
    for record in messages:
        message = record.value
        sender = _sender(message)
        extra_fields = extras.event_fields(message, draft.next_version) | {"session_id": session_id}
        ours = message.get("instruction") is True
        for data in _payloads(message, draft, extras):
            more: dict[str, Any] = {} if sender is None else {"actor": sender}
            if sender is not None and isinstance(data, AssistantMessage):
                more["agent_id"] = sender
            meta = draft.place(data, **extra_fields | more)
            draft.add(data, meta, as_recorded=ours, named=text_at(message, "id"))
    return draft.finish()


def _payloads(
    message: dict[str, Any], draft: TranscriptDraft, extras: Extras
) -> Iterator[EventData]:
    """Yield a line's payloads; the first keeps the line, which stands for all of them."""
    role, key = _role(message), _text_key(message)
    known: dict[str, Any] = {name: message[name] for name in (*_CALLS, *_ASIDE) if name in message}
    known |= {"role": role, "content": None if key is None else _content(message[key])}
    if role in ("assistant", "tool"):
        known["name"] = message.get("toolName") if role == "tool" else None
        known["name"] = known["name"] or _sender(message)
    head, *others = payloads_of(known, draft.next_version, draft.calls)
    if isinstance(head, UnknownEvent):
        yield UnknownEvent(head.type, head.schema_version, {ORIGINAL: message})
        return
    data: Any = extras.payload(message, head, ORIGINAL)
    if isinstance(data, UserMessage):
        data = data.model_copy(update={"mentions": _mentions(message.get("mentions"))})
    if isinstance(data, AssistantMessage) and data.name is None:
        data = data.model_copy(update={"name": known["name"]})
    yield data
    yield from (marked(each, {"raw": {ORIGINAL: None}}) for each in others)


def _content(content: Any) -> Any:
    """Return a line's content; Cursor has an Anthropic message in its place."""
    if isinstance(content, dict) and "type" not in content and "content" in content:
        content = content["content"]
    return [content] if isinstance(content, dict) and "type" in content else content


def _role(message: Mapping[str, Any]) -> str | None:
    """Return the message's role; anyone other than the user answers as an assistant."""
    for key in ("role", "type", "sender_type", "senderType"):
        if message.get(key) in _ROLES:
            return str(message[key])
    sender = _sender(message)
    if sender is None:
        return None
    return "user" if sender.lower() in _USERS else "assistant"


def _sender(message: Mapping[str, Any]) -> str | None:
    found = (message.get(key) for key in _SENDERS)
    return next((sender for sender in found if isinstance(sender, str) and sender), None)


def _text_key(message: Mapping[str, Any]) -> str | None:
    return next((key for key in _TEXTS if key in message), None)


def _mentions(mentions: Any) -> tuple[Mention, ...]:
    if not isinstance(mentions, list):
        return ()
    return tuple(
        Mention(participant=mention.removeprefix("@"), text=mention)
        for mention in mentions
        if isinstance(mention, str)
    )
