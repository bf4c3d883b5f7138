"""Messages of Vercel's AI SDK (``UIMessage``), read, and written as versions 5 and 6 write them.

A file holds one conversation: an array of messages, JSON Lines of them, or an object with them
under ``messages``. An assistant message is one or more answers, each after a ``step-start``, with
the results of its tools. Parts that models do not see (sources, data) are kept next to those that
they do. A message that would be written differently from how it was read is kept whole, in the
``raw`` of its first event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats.extras import facts_of, left_out
from agent_eventstore.formats.left_out import UI_MESSAGE
from agent_eventstore.formats.source import Record, Source
from agent_eventstore.formats.transcript import (
    UNINTERPRETED,
    Draft,
    Transcript,
    anchored,
    canonical,
    explicit_id,
    moment_of,
    title_of,
)
from agent_eventstore.formats.ui_parts import (
    answers_of,
    assistant_parts,
    is_call,
    parts_of,
    result_of,
    text_in,
    ui_calls,
    ui_parts,
)
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmError,
    Meta,
    RecordedEvent,
    Summary,
    SystemInstruction,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import EventData
from eventstore.ids import StreamId

__all__ = ["FORMAT", "ORIGINAL", "export_ui_messages", "message_id", "read", "recognises"]

FORMAT = "ui-messages"
ORIGINAL = UI_MESSAGE

_ANSWERED = (AssistantMessage, ToolResult, LlmError)
_SPOKEN = (SystemInstruction, Summary, UserMessage, *_ANSWERED)
_ROLES = ("system", "user", "assistant")
_LONGEST_ID = 500


def recognises(value: Any) -> bool:
    """Whether a value is a message, an array of them, or an object that holds them."""
    if isinstance(value, list):
        return bool(value) and _is_message(value[0])
    held = value.get("messages") if isinstance(value, dict) else None
    return _is_message(value) or (isinstance(held, list) and bool(held) and _is_message(held[0]))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("role") not in _ROLES:
        return False
    parts = value.get("parts")
    # Gemini's contents have parts too, but without a type.
    return isinstance(parts, list) and (not parts or any(map(_has_type, parts)))


def _has_type(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's conversations: bare messages as one, and one per object with messages."""
    for found in source.lists("messages"):
        yield found if isinstance(found, ImportFailed) else _conversation(source, *found)


def _conversation(
    source: Source, rest: dict[str, Any], messages: list[Record]
) -> Transcript | ImportFailed:
    """Return a conversation; one broken message excludes all of it."""
    for number, record in enumerate(messages, start=1):
        if not isinstance(record.value, dict) or not isinstance(record.value.get("parts"), list):
            reason = f"message {number} is not an object with a list of parts"
            return source.failed(record.line, reason)
    draft = Draft(
        anchored(FORMAT, explicit_id(rest, "id"), messages), source.file, messages[0].line
    )
    start = ConversationStart(title=title_of(rest), raw=rest or None)
    draft.start(start, Meta(occurred_at=moment_of(rest)))
    ids: set[str] = set()
    for place, record in enumerate(messages):
        _add(draft, record.value, place, ids)
    return draft.finish()


def _add(draft: Draft, message: dict[str, Any], place: int, ids: set[str]) -> None:
    told, named = message.get("metadata"), message.get("id")
    plain = isinstance(named, str) and 0 < len(named) <= _LONGEST_ID and named not in ids
    own_id = str(named) if plain else f"message {place}"
    ids.add(own_id)
    fields: dict[str, Any] = {
        "occurred_at": moment_of(told if isinstance(told, dict) else message),
        "extra": {ORIGINAL: own_id},
    }
    first = draft.next_version
    found = list(_payloads(message, draft))
    written = _written([(first + n, data) for n, data in enumerate(found)], named)
    if not plain or canonical(written) != canonical(message):
        head = found[0]
        raw = {ORIGINAL: message}
        unknown = isinstance(head, UnknownEvent)
        found[0] = UnknownEvent(UNINTERPRETED, 1, raw) if unknown else _with_raw(head, raw)
    for data in found:
        draft.add(data, draft.place(data, **fields), named=own_id if plain else None)


def _with_raw(data: Any, raw: dict[str, Any]) -> EventData:
    kept: EventData = data.model_copy(update={"raw": raw})
    return kept


def _payloads(message: dict[str, Any], draft: Draft) -> Iterator[EventData]:
    """Yield a message's payloads, at least one; calls have the ids that they will get."""
    parts, version = message["parts"], draft.next_version
    match message.get("role"):
        case "system":
            yield SystemInstruction(text=text_in(parts))
        case "user":
            yield UserMessage(parts=parts_of(parts))
        case "assistant":
            for step in answers_of(parts):
                calls = [part for part in step if is_call(part)]
                answer = AssistantMessage(
                    parts=parts_of(step),
                    tool_calls=ui_calls(calls),
                    tools_elsewhere=bool(calls),
                    final=not calls,
                )
                yield answer
                results = [
                    result
                    for index, part in enumerate(calls)
                    if (result := result_of(part, f"{version}.{index}")) is not None
                ]
                yield from results
                version += 1 + len(results)
        case _:
            yield UnknownEvent(UNINTERPRETED, 1, {})


def export_ui_messages(store: EventStore, conversation_id: StreamId) -> list[dict[str, Any]]:
    """Return a conversation's messages as the AI SDK stores them, in order of version.

    Messages that came from a file are restored unchanged. Everything that answers a user is one
    message. Retracted messages and those on another branch are omitted.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    stream = store.get(conversation_id).conversation_id
    gone = left_out(store.read(stream))
    running = _running(store, stream)
    groups: list[tuple[str, list[tuple[RecordedEvent, EventData]]]] = []
    for event, data in facts_of(store, stream):
        spoken = isinstance(data, _SPOKEN) or (
            isinstance(data, UnknownEvent) and data.type == UNINTERPRETED
        )
        shown = event.meta.in_context or isinstance(data, SystemInstruction)
        if not spoken or not shown or event.version in gone or _folded_away(data):
            continue
        if running is not None and event.meta.turn == running and not isinstance(data, UserMessage):
            continue
        key = _key(event, data)
        if not groups or groups[-1][0] != key:
            groups.append((key, []))
        groups[-1][1].append((event, data))
    used: set[str] = set()
    return [_message(stream, events, used) for _, events in groups]


def message_id(conversation_id: UUID, turn: int | None, version: int) -> str:
    """Return the id of a turn's answer, which its stream uses too."""
    return f"{conversation_id}/{f'turn-{turn}' if turn is not None else version}"


def _running(store: EventStore, conversation_id: UUID) -> int | None:
    """Return the turn in progress, whose answer the stream delivers."""
    writer = store.writer(conversation_id)
    if writer is None or not writer.live:
        return None
    for event in store.read(conversation_id, backward=True):
        if isinstance(event.data, TurnStart | TurnEnd):
            return event.meta.turn if isinstance(event.data, TurnStart) else None
    return None


def _key(event: RecordedEvent, data: EventData) -> str:
    """Return what the events of one message have in common."""
    if (told := _told_id(event)) is not None:
        return f"message {told}"
    if isinstance(data, _ANSWERED):
        return f"answer in turn {event.meta.turn}"
    return f"version {event.version}"


def _folded_away(data: EventData) -> bool:
    """Whether a program wrote it in a user's place; users are not shown such messages."""
    return isinstance(data, UserMessage) and data.ui is not None and data.ui.collapsed is True


def _told_id(event: RecordedEvent) -> str | None:
    """Return the id that the message had in a file."""
    told = (event.meta.extra or {}).get(ORIGINAL)
    return told if isinstance(told, str) else None


def _role(data: EventData) -> str:
    if isinstance(data, UserMessage):
        return "user"
    return "assistant" if isinstance(data, _ANSWERED) else "system"


def _message(
    conversation_id: UUID, events: list[tuple[RecordedEvent, EventData]], used: set[str]
) -> dict[str, Any]:
    event, head = events[0]
    raw = head.raw if hasattr(head, "raw") else None
    original = raw.get(ORIGINAL) if isinstance(raw, dict) else None
    if isinstance(original, dict):
        return original
    turn = event.meta.turn if isinstance(head, _ANSWERED) else None
    named = _told_id(event) or message_id(conversation_id, turn, event.version)
    if named in used:  # a message within the turn
        named = message_id(conversation_id, None, event.version)
    used.add(named)
    return _written([(event.version, data) for event, data in events], named)


def _written(events: list[tuple[int, EventData]], named: Any) -> dict[str, Any]:
    """Return the message for payloads, by their versions."""
    head = events[0][1]
    parts: list[Any] = []
    match head:
        case SystemInstruction():
            parts = [{"type": "text", "text": head.text}]
        case Summary():
            parts = [{"type": "text", "text": head.text}]
        case UserMessage():
            parts = ui_parts(head.parts, of_model=False)
        case _:
            parts = assistant_parts(events)
    return {"id": named, "role": _role(head), "parts": parts}
