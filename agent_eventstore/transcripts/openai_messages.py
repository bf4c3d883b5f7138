"""Messages arrays of OpenAI or Anthropic: one conversation, several, or objects that hold them.

A conversation is an array of messages, or of items of OpenAI's Responses, or an object with one
under ``messages``, ``traj``, ``history`` (SWE-agent), ``contents`` (Gemini), ``input`` or
``output`` (a request or response of Responses). A file holds one conversation, a JSON array of
them, or JSON Lines of them. The object's other fields are kept in the `ConversationStart`'s
``raw``. A conversation with a broken message is one bad record: a transcript with a gap would be
misleading.

An export is a copy of the facts, not a request for a model. Messages that came from a file are
restored unchanged; retracted ones are included, because they are facts too. Anything without a
message form (model errors, turns, runs) is omitted. For a request's messages use the ``context``
view, which repairs and trims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.anthropic_messages import ORIGINAL as ANTHROPIC
from agent_eventstore.transcripts.anthropic_messages import instructions_in, payloads_of
from agent_eventstore.transcripts.extras import PROJECT_MESSAGE, facts_of
from agent_eventstore.transcripts.json_fields import object_in, text_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.openai_wire import message_of, restored
from agent_eventstore.transcripts.record_source import Parsed, Record, Source
from agent_eventstore.transcripts.response_items import grouped, is_item, items_of, transcribed
from agent_eventstore.transcripts.transcript import (
    Origin,
    Transcript,
    TranscriptDraft,
    explicit_id,
    identify,
    moment_of,
    title_of,
)
from eventstore import EventStore
from eventstore.events import AssistantMessage, ConversationStart, Invocation, Meta
from eventstore.events.records import EventData
from projections.providers.usage import agent_usage, any_usage

__all__ = [
    "FORMAT",
    "export_openai",
    "holder_of",
    "read",
    "recognises",
    "transcript_of",
    "with_facts",
]


FORMAT = "openai"
_HOLDERS = ("messages", "traj")
_MAYBE_HOLDERS = ("history", "input", "output", "contents")

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


def holder_of(value: Any) -> str | None:
    """Return the key under which an object holds its messages, or None."""
    if not isinstance(value, dict):
        return None
    present = (key for key in _HOLDERS if isinstance(value.get(key), list))
    # Elsewhere these words mean other things: their value must begin with a message.
    other = (key for key in _MAYBE_HOLDERS if _begins_with_message(value.get(key)))
    return next(chain(present, other), None)


def _begins_with_message(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and _is_message(value[0])


def recognises(value: Any) -> bool:
    """Whether a value is a conversation, or a message of one."""
    return isinstance(value, list) or holder_of(value) is not None or _is_message(value)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Iterate over the file's conversations, and over reports of those that cannot be read."""
    if source.is_lines():
        yield from _conversations(source, source.lines())
    elif source.is_array():
        yield from _array(source)
    else:
        yield from _conversations(source, source.document())


def _array(source: Source) -> Iterator[Transcript | ImportFailed]:
    elements, head, single = source.document(), list[Parsed](), False
    for element in elements:
        head.append(element)
        if isinstance(element, Record) and recognises(element.value):
            single = _is_message(element.value)
            break
    everything = chain(head, elements)
    yield from _single(source, everything) if single else _conversations(source, everything)


def _conversations(
    source: Source, records: Iterator[Parsed]
) -> Iterator[Transcript | ImportFailed]:
    for ordinal, record in enumerate(records):
        if isinstance(record, ImportFailed):
            yield record
            continue
        try:
            yield _conversation(source, record, ordinal)
        except ImportFailed as failure:
            yield failure


def _single(source: Source, elements: Iterator[Parsed]) -> Iterator[Transcript | ImportFailed]:
    messages, whole = list[Any](), True
    first_line: int | None = None
    for element in elements:
        if isinstance(element, ImportFailed):
            whole = False
            yield element
        elif not isinstance(element.value, dict):
            whole = False
            yield source.failed(element.line, "a message must be an object")
        else:
            messages.append(element.value)
            first_line = first_line or element.line
    if whole:
        yield from _conversations(source, iter([Record(messages, first_line or 1)]))


def _conversation(source: Source, record: Record, ordinal: int) -> Transcript:
    holder = holder_of(record.value)
    if isinstance(record.value, list):
        messages, rest = record.value, {}
    elif holder is not None:
        messages = record.value[holder]
        rest = {key: value for key, value in record.value.items() if key != holder}
    else:
        reason = "neither an array of messages nor an object with one under messages or traj"
        raise source.failed(record.line, reason)
    origin = identify(FORMAT, explicit_id(rest, "id"), (record.value, ordinal))
    return transcript_of(source, messages, rest, record.line, origin)


def transcript_of(
    source: Source,
    messages: list[Any],
    rest: dict[str, Any],
    line: int,
    origin: Origin,
    passed_over: Counter[str] | None = None,
) -> Transcript:
    """Return the conversation in an array of messages, and in the fields next to it.

    ``passed_over`` is what the caller has left out of the messages, by kind.

    Raises:
        ImportFailed: A message is not an object.
    """
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict):
            raise source.failed(line, f"message {number} is not an object")
    draft = TranscriptDraft(origin, source.file, line)
    start = ConversationStart(
        title=title_of(rest),
        base_instructions=instructions_in(rest),
        raw=rest or None,
    )
    draft.start(start, Meta(occurred_at=moment_of(rest)))
    items = any(map(is_item, messages))
    for group in grouped(messages) if items else ([message] for message in messages):
        version = draft.next_version
        for data in (
            [transcribed(group, version, draft.calls)]
            if items
            else payloads_of(group[0], version, draft.calls)
        ):
            shown = with_facts(group[0], data)
            named = text_at(group[0], "id") or text_at(_response(group[0]), "id")
            draft.add(shown, draft.place(shown, occurred_at=moment_of(group[0])), named=named)
    found = draft.finish()
    if not passed_over:
        return found
    left_out = LeftOut(passed_over=passed_over)
    left_out += found.left_out
    return replace(found, left_out=left_out)


def with_facts(message: dict[str, Any], data: EventData) -> EventData:
    """Return an answer with the tokens and the model given next to its message.

    Cline has its own names for them; mini-swe-agent has them in the whole response.
    """
    if not isinstance(data, AssistantMessage):
        return data
    response = _response(message)
    counts = any_usage(message.get("usage")) or any_usage(response.get("usage"))
    usage = data.usage or counts or agent_usage(message.get("metrics"))
    names = message.get("model"), response.get("model"), object_in(message, "modelInfo").get("id")
    model = next((name for name in names if isinstance(name, str) and name), None)
    made = data.invocation or Invocation()
    if model is not None and made.model is None:
        made = made.model_copy(update={"model": model})
    invocation = data.invocation if made == Invocation() else made
    return data.model_copy(update={"usage": usage, "invocation": invocation})


def _response(message: dict[str, Any]) -> dict[str, Any]:
    """Return the whole response that mini-swe-agent keeps with a message; empty without one."""
    return object_in(object_in(message, "extra"), "response")


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or holder_of(value) is not None:
        return False
    return isinstance(value.get("role"), str) or is_item(value)


def export_openai(store: EventStore, conversation_id: UUID) -> list[dict[str, Any]]:
    """Return a conversation's messages, in order of version.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    found: list[dict[str, Any]] = []
    for event, data in facts_of(store, conversation_id):
        if (items := items_of(getattr(data, "raw", None))) is not None:
            found += items
        elif (message := _message(data, event.version)) is not None:
            found.append(message)
    return found


def _message(data: EventData, version: int) -> dict[str, Any] | None:
    raw = getattr(data, "raw", None)
    if isinstance(raw, dict) and ANTHROPIC in raw:
        return raw[ANTHROPIC] if isinstance(raw[ANTHROPIC], dict) else None
    project_message = raw.get(PROJECT_MESSAGE) if isinstance(raw, dict) else None
    message = message_of(data, version)
    if not isinstance(project_message, dict):
        return message
    # A project's message is OpenAI's with more fields, which no API accepts.
    original = restored(project_message, data)
    return (message or {}) | {key: original[key] for key in _FIELDS if key in original}
