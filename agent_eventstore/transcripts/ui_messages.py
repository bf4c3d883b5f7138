"""Messages of Vercel's AI SDK (``UIMessage``), read, and written as versions 5 and 6 write them.

A file holds one conversation: an array of messages, JSON Lines of them, or an object with them
under ``messages``. An assistant message is one or more answers, each after a ``step-start``, with
the results of its tools. Parts that models do not see (sources, data) are kept next to those that
they do. A message that would be written differently from how it was read is kept whole, in the
``raw`` of its first event.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.extras import facts_of, left_out
from agent_eventstore.transcripts.left_out import UI_MESSAGE
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Transcript,
    TranscriptDraft,
    anchored,
    canonical,
    explicit_id,
    moment_of,
    title_of,
)
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    ConversationStart,
    FilePart,
    ImagePart,
    Invocation,
    LlmError,
    Meta,
    OtherPart,
    ReasoningPart,
    RecordedEvent,
    RefusalPart,
    Summary,
    SystemInstruction,
    TextPart,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.codec import dumps
from eventstore.events.records import EventData
from eventstore.ids import StreamId, call_id
from projections.payload_text import spoken
from projections.providers.answer import request_of
from projections.providers.reasoning import metadata_of, signature_in

__all__ = [
    "FORMAT",
    "ORIGINAL",
    "answers_of",
    "assistant_parts",
    "ended",
    "export_ui_messages",
    "has_invocations",
    "is_call",
    "message_id",
    "output_value",
    "parts_of",
    "read",
    "recognises",
    "result_of",
    "text_in",
    "ui_calls",
    "ui_parts",
]


_UNKNOWN_TYPE = "application/octet-stream"


_STATES_OF_4 = {"partial-call": "input-streaming", "result": "output-available"}


def answers_of(parts: Sequence[Any]) -> list[list[Any]]:
    """Return an assistant's parts by answer: a ``step-start`` begins one."""
    steps: list[list[Any]] = [[]]
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(_newer(part))
    return [step for step in steps if step] or [[]]


def _newer(part: Any) -> Any:
    """Return a version 4 part in the form of later versions, and any other unchanged."""
    match part:
        case {"type": "tool-invocation", "toolInvocation": {"toolName": str(name)} as told}:
            state = _STATES_OF_4.get(str(told.get("state")), "input-available")
            given = {"input": told.get("args"), "output": told.get("result"), "state": state}
            return {
                "type": "dynamic-tool",
                "toolName": name,
                "toolCallId": told.get("toolCallId"),
                **given,
            }
        case {"type": "reasoning", "reasoning": str(text)}:
            return {"type": "reasoning", "text": text}
    return part


def is_call(part: Any) -> bool:
    """Whether a part is a tool call whose input is complete and which no provider executes."""
    return _is_user_part(part) and part.get("providerExecuted") is not True


def _is_user_part(part: Any) -> bool:
    return _tool_of(part) is not None and part.get("state") != "input-streaming"


def _tool_of(part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return None
    if kind == "dynamic-tool":
        name = part.get("toolName")
        return name if isinstance(name, str) else None
    return kind.removeprefix("tool-") if kind.startswith("tool-") and kind != "tool-" else None


def parts_of(parts: Sequence[Any]) -> tuple[ContentPart, ...]:
    """Return what models see of a message: text, reasoning, files, and what providers ran."""
    found: list[ContentPart | None] = []
    for part in parts:
        if isinstance(part, dict):
            found += _executed(part) if _is_user_part(part) and not is_call(part) else [_part(part)]
    return tuple(part for part in found if part is not None)


def _executed(part: Mapping[str, Any]) -> list[ContentPart]:
    """Return the call that a provider has executed, and its result, as Anthropic blocks.

    We did not run it, so it is not one of our tool calls; models see it described in words.
    """
    name, named = _tool_of(part), part.get("toolCallId")
    given = {"type": "server_tool_use", "id": named, "name": name, "input": part.get("input")}
    match part.get("state"):
        case "output-available":
            content = part.get("output")
        case "output-error" | "output-denied":
            content = {"error_code": part.get("errorText") or "denied"}
        case _:
            return [OtherPart(raw=given)]
    came = {"type": f"{name}_tool_result", "tool_use_id": named, "content": content}
    return [OtherPart(raw=given), OtherPart(raw=came)]


def _part(part: Mapping[str, Any]) -> ContentPart | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "reasoning", "text": str(text)}:
            signed = metadata_of(part.get("providerMetadata"), text)
            return ReasoningPart(text=text) if signed is None else signed
        case {"type": "file", "mediaType": str(media_type), "url": str(url)}:
            if media_type.startswith("image/") and "filename" not in part:
                return ImagePart(url=url, media_type=media_type)
            name = part.get("filename")
            return FilePart(
                name=name if isinstance(name, str) else None, url=url, media_type=media_type
            )
    return None


def text_in(parts: Sequence[Any]) -> str:
    """Return the text of a message's parts."""
    return spoken(parts_of(parts))


def ui_calls(parts: Sequence[Mapping[str, Any]]) -> tuple[ToolCallRequest, ...]:
    """Return the calls in tool parts."""
    return tuple(_call(part) for part in parts)


def _call(part: Mapping[str, Any]) -> ToolCallRequest:
    given, named = part.get("input", part.get("rawInput")), part.get("toolCallId")
    text = given if isinstance(given, str) else dumps({} if given is None else given)
    found = request_of(_tool_of(part) or "", text, named if isinstance(named, str) else None)
    signature = signature_in({"callProviderMetadata": part.get("callProviderMetadata")})
    raw = None if signature is None else {"thoughtSignature": signature}
    return found.model_copy(update={"raw": raw})


def result_of(part: Mapping[str, Any], own_id: str) -> ToolResult | None:
    """Return the result in a tool part, or None if it has none yet."""
    named, output, error = part.get("toolCallId"), part.get("output"), part.get("errorText")
    provider_id = named if isinstance(named, str) else None
    fields: dict[str, Any] = {"call_id": own_id, "provider_id": provider_id}
    match part.get("state"):
        case "output-available":
            content = output if isinstance(output, str) else dumps(output)
            return ToolResult(content=content, **fields)
        case "output-error":
            text = error if isinstance(error, str) else "the tool failed"
            return ToolResult(status="failed", content=text, error=text, **fields)
        case "output-denied":
            return ToolResult(status="denied", content="the user denied it", **fields)
    return None


def ui_parts(
    parts: Sequence[ContentPart], *, of_model: bool, made: Invocation | None = None
) -> list[dict[str, Any]]:
    """Return parts in the AI SDK's form; those of the model are marked as done."""
    done = {"state": "done"} if of_model else {}
    return [_ui_part(part, done, made) for part in parts]


def _ui_part(part: ContentPart, done: Mapping[str, str], made: Invocation | None) -> dict[str, Any]:
    match part:
        case TextPart() | RefusalPart():
            return {"type": "text", "text": part.text, **done}
        case ReasoningPart():
            found = {"type": "reasoning", "text": part.text, **done}
            native = _signed(part, made) if part.signature is not None or part.raw else None
            return found if native is None else {**found, "providerMetadata": native}
        case ImagePart():
            return {"type": "file", "mediaType": _media_type(part, "image/*"), "url": part.url}
        case FilePart(url=str(url)):
            media_type = _media_type(part, _UNKNOWN_TYPE)
            file = {"type": "file", "mediaType": media_type, "url": url}
            return file if part.name is None else {**file, "filename": part.name}
        case FilePart():
            native = {"filename": part.name, "path": part.path, "fileId": part.file_id}
            return {"type": "data-file", "data": {k: v for k, v in native.items() if v is not None}}
    return {"type": "data-part", "data": part.raw}


def _signed(part: ReasoningPart, made: Invocation | None) -> dict[str, Any] | None:
    """Return the provider's signature of reasoning, under the AI SDK's names."""
    raw = part.raw or {}
    if raw.get("type") == "redacted_thinking":
        return {"anthropic": {"redactedData": raw.get("data")}}
    if "reasoning_details" in raw:
        return {"openrouter": {"reasoning_details": raw["reasoning_details"]}}
    if part.signature is None:
        return None
    if made is None and raw.get("type") == "reasoning":
        named = {"itemId": raw["id"]} if raw.get("id") else {}
        return {"openai": {**named, "reasoningEncryptedContent": part.signature}}
    if made is None and signature_in(raw):
        return {"google": {"thoughtSignature": part.signature}}
    match None if made is None else made.specification:
        case None | "anthropic_messages":
            return {"anthropic": {"signature": part.signature}}
        case "openai_responses" if isinstance(part.raw, dict) and part.raw.get("id"):
            sealed = {"itemId": part.raw["id"], "reasoningEncryptedContent": part.signature}
            return {"openai": sealed}
        case "gemini_generate_content":
            return {"google": {"thoughtSignature": part.signature}}
        case "bedrock_converse":
            return {"bedrock": {"signature": part.signature}}
    return None


def _media_type(part: ImagePart | FilePart, otherwise: str) -> str:
    url = part.url or ""
    if part.media_type is not None:
        return part.media_type
    if url.startswith("data:"):
        return url[5:].partition(",")[0].partition(";")[0] or otherwise
    return mimetypes.guess_type(url)[0] or otherwise


def assistant_parts(events: Sequence[tuple[int, EventData]]) -> list[dict[str, Any]]:
    """Return the parts of an answer: answers, tools with results, and an error at the end.

    ``events`` are the payloads with their versions.
    """
    parts: list[dict[str, Any]] = []
    tools: dict[str, dict[str, Any]] = {}
    used: set[str] = set()
    for place, (version, data) in enumerate(events):
        if isinstance(data, AssistantMessage):
            parts += [
                {"type": "step-start"},
                *ui_parts(data.parts, of_model=True, made=data.invocation),
            ]
            for index, call in enumerate(data.tool_calls):
                own = call_id(version, index)
                tools[own] = _tool_part(call, own, used)
                parts.append(tools[own])
        elif isinstance(data, ToolResult) and data.call_id in tools:
            tools[data.call_id] |= ended(data)
        elif isinstance(data, LlmError):
            if data.partial_text:
                parts.append({"type": "text", "text": data.partial_text, "state": "done"})
            if place == len(events) - 1:
                error_fields = {"kind": data.kind, "message": data.message}
                parts.append({"type": "data-error", "data": error_fields})
    return parts


def _tool_part(call: ToolCallRequest, own_id: str, used: set[str]) -> dict[str, Any]:
    # Providers' ids are not unique, but must be within a message.
    named = own_id if call.provider_id is None or call.provider_id in used else call.provider_id
    used.add(named)
    given = call.arguments if call.arguments is not None else call.arguments_text
    return {
        "type": f"tool-{call.name}",
        "toolCallId": named,
        "state": "input-available",
        "input": given,
    }


def ended(result: ToolResult) -> dict[str, Any]:
    """Return a tool part's fields for its complete result: its state and output."""
    text = result.content
    if isinstance(text, tuple):
        text = dumps(ui_parts(text, of_model=False))
    if result.status == "success":
        return {"state": "output-available", "output": output_value(text)}
    error_text = result.error or text or result.status.replace("_", " ")
    return {"state": "output-error", "errorText": error_text}


def output_value(text: str | None) -> Any:
    """Return a tool's output: the JSON value of its text, or the text."""
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


FORMAT = "ui-messages"


ORIGINAL = UI_MESSAGE


_ANSWERED = (AssistantMessage, ToolResult, LlmError)


_SPOKEN = (SystemInstruction, Summary, UserMessage, *_ANSWERED)


_ROLES = ("system", "user", "assistant")


_LONGEST_ID = 500


def recognises(value: Any) -> bool:
    """Whether a value is a message, an array of them, or an object that holds them."""
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        return _is_message(value) or has_invocations(value)
    return _is_message(messages[0]) or any(map(has_invocations, messages))


def has_invocations(message: Any) -> bool:
    """Whether a message of version 4 has its tool calls beside its text."""
    return (
        isinstance(message, dict)
        and message.get("role") == "assistant"
        and isinstance(message.get("toolInvocations"), list)
    )


def _parts_in(message: Any) -> list[Any] | None:
    """Return a message's parts; those of version 4 may stand beside its text, in fields of theirs.

    What its tools returned came before the text.
    """
    if not isinstance(message, dict):
        return None
    if isinstance(parts := message.get("parts"), list):
        return parts
    text, found, step = message.get("content"), list[Any](), None
    if not isinstance(text, str):
        return None
    if isinstance(message.get("reasoning"), str):
        found.append({"type": "reasoning", "text": message["reasoning"]})
    for call in message.get("toolInvocations") or ():
        if isinstance(call, dict) and step not in (None, call.get("step")):
            found.append({"type": "step-start"})
        step = call.get("step") if isinstance(call, dict) else None
        found.append({"type": "tool-invocation", "toolInvocation": call})
    if text or not found:
        found += [{"type": "step-start"}] if message.get("toolInvocations") else []
        found.append({"type": "text", "text": text})
    for file in message.get("experimental_attachments") or ():
        if isinstance(file, dict) and isinstance(url := file.get("url"), str):
            kind = file.get("contentType") or "application/octet-stream"
            found.append(
                {"type": "file", "mediaType": kind, "url": url, "filename": file.get("name")}
            )
    return found


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
        if _parts_in(record.value) is None:
            reason = f"message {number} is not an object with a list of parts"
            return source.failed(record.line, reason)
    draft = TranscriptDraft(
        anchored(FORMAT, explicit_id(rest, "id"), messages), source.file, messages[0].line
    )
    start = ConversationStart(title=title_of(rest), raw=rest or None)
    draft.start(start, Meta(occurred_at=moment_of(rest)))
    ids: set[str] = set()
    for place, record in enumerate(messages):
        _add(draft, record.value, place, ids)
    return draft.finish()


def _add(draft: TranscriptDraft, message: dict[str, Any], place: int, ids: set[str]) -> None:
    metadata, named = message.get("metadata"), message.get("id")
    plain = isinstance(named, str) and 0 < len(named) <= _LONGEST_ID and named not in ids
    own_id = str(named) if plain else f"message {place}"
    ids.add(own_id)
    fields: dict[str, Any] = {
        "occurred_at": moment_of(metadata if isinstance(metadata, dict) else message),
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
    with_raw: EventData = data.model_copy(update={"raw": raw})
    return with_raw


def _payloads(message: dict[str, Any], draft: TranscriptDraft) -> Iterator[EventData]:
    """Yield a message's payloads, at least one; calls have the ids that they will get."""
    parts, version = _parts_in(message) or [], draft.next_version
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
    if (own_key := _own_id(event)) is not None:
        return f"message {own_key}"
    if isinstance(data, _ANSWERED):
        return f"answer in turn {event.meta.turn}"
    return f"version {event.version}"


def _folded_away(data: EventData) -> bool:
    """Whether a program wrote it in a user's place; users are not shown such messages."""
    return isinstance(data, UserMessage) and data.ui is not None and data.ui.collapsed is True


def _own_id(event: RecordedEvent) -> str | None:
    """Return the id that the message had in a file."""
    own_id = (event.meta.extra or {}).get(ORIGINAL)
    return own_id if isinstance(own_id, str) else None


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
    named = _own_id(event) or message_id(conversation_id, turn, event.version)
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
