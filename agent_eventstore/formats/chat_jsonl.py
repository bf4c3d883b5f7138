"""``messages.jsonl`` and the ``meta.json`` beside it (document 002, section 2.2).

One line is one message of the user or of a named participant; products differ in how they call the
fields, so the usual names are tried in turn and each line is kept whole. A line that is not a
message is reported, and the others are imported. ``meta.json`` gives the conversation's id, mode
and title; if it is broken, the file is reported and left alone, for its messages would get
another id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats.extras import Extras
from agent_eventstore.formats.openai_wire import payload_of
from agent_eventstore.formats.source import Record, Source
from agent_eventstore.formats.transcript import (
    Draft,
    Transcript,
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
"""The key in ``raw`` under which the line stands as it came, but for a text ``content``."""

_TEXTS = ("content", "text", "message")
_SENDERS = ("sender", "cat_id", "catId", "agent_id", "agentId", "author", "from", "speaker", "name")
_THREADS = ("threadId", "thread_id")
_CALLS = ("tool_calls", "tool_call_id")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_USERS = ("user", "human", "owner")


def recognises(value: Any) -> bool:
    """Whether a value is a message of such a file."""
    return isinstance(value, dict) and _role(value) is not None and _text_key(value) is not None


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Give the file's one conversation, after reports of what could not be read."""
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
    draft = Draft(anchored(FORMAT, stated, messages), source.file, messages[0].line)
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
        data = _payload(message, draft, extras)
        sender = _sender(message)
        told = extras.told(message, draft.next_version) | {"session_id": session_id}
        if sender is not None:
            told["actor"] = sender
            told["agent_id"] = sender if isinstance(data, AssistantMessage) else told["agent_id"]
        ours = message.get("instruction") is True
        draft.add(data, draft.place(data, **told), as_told=ours)
    return draft.finish()


def _payload(message: dict[str, Any], draft: Draft, extras: Extras) -> EventData:
    role, key = _role(message), _text_key(message)
    known: dict[str, Any] = {name: message[name] for name in _CALLS if name in message}
    known |= {"role": role, "content": None if key is None else message[key]}
    if role in ("assistant", "tool"):
        known["name"] = message.get("toolName") if role == "tool" else None
        known["name"] = known["name"] or _sender(message)
    data = payload_of(known, draft.next_version, draft.calls)
    if isinstance(data, UnknownEvent):
        return UnknownEvent(data.type, data.schema_version, {ORIGINAL: message})
    data = extras.payload(message, data, ORIGINAL)
    if isinstance(data, UserMessage):
        data = data.model_copy(update={"mentions": _mentions(message.get("mentions"))})
    return data


def _role(message: Mapping[str, Any]) -> str | None:
    """Return the message's role; someone who is not the user answers as an assistant."""
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
