"""Convert Pydantic AI's messages to events that hold the parsed form and the message itself.

A request may become several events (instructions, user prompts, tool results); a response is one.
The last of them holds the message itself in ``raw``, as `ModelMessagesTypeAdapter` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai import messages as said
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from typing_extensions import TypedDict

from agent_eventstore.inputs import content_of
from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.integrations.pydantic_ai.messages import (
    KEY,
    PydanticAIMessage,
    PydanticAIRecord,
)
from eventstore.database import EventText
from eventstore.events import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    Invocation,
    NewEvent,
    OtherPart,
    Payload,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    ToolResult,
    UserMessage,
)
from eventstore.events.bounds import fitted
from eventstore.events.codec import loads_json
from projections.providers.answer import request_of
from projections.providers.reasoning import signature_in
from projections.providers.stream_base import plain
from projections.providers.usage import any_usage

__all__ = [
    "RECORD",
    "StoredMessage",
    "events_of",
    "message_in",
    "raw_of",
    "record_event",
    "record_in",
]


RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


_CONFIG = ConfigDict(val_json_bytes="base64")  # as in `ModelMessagesTypeAdapter`


class StoredMessage(TypedDict):
    """A stored message; ``span`` is the number of its events, of which this is the last."""

    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    id: str
    parent: str | None
    span: int
    message: ModelMessage


class _Raw(TypedDict):
    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    pydantic_ai: StoredMessage


class _Ending(TypedDict):
    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    raw: _Raw


_ENDING: TypeAdapter[_Ending] = TypeAdapter(_Ending)


def raw_of(message: ModelMessage, entry_id: str, parent_id: str | None, span: int) -> Any:
    """Return the ``raw`` of the last of a message's ``span`` events."""
    [made] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return {KEY: {"id": entry_id, "parent": parent_id, "span": span, "message": made}}


def message_in(text: str) -> StoredMessage | None:
    """Return the message that a payload's JSON holds in ``raw``; None if it holds none."""
    try:
        return _ENDING.validate_json(text)["raw"]["pydantic_ai"]
    except ValidationError:  # no message, or lone surrogates, which this parser refuses
        payload = loads_json(text)
        raw = payload.get("raw")
        if not isinstance(raw, dict) or KEY not in raw:
            return None
        return _ENDING.validate_python(payload)["raw"]["pydantic_ai"]


def record_event(record: ConversationRecord) -> PydanticAIRecord:
    """Return the event of a record."""
    return PydanticAIRecord(record=RECORD.dump_python(record, mode="json"))


def record_in(events: Iterable[EventText], conversation_id: str) -> Any:
    """Return the newest record, from events newest first; None if deleted or another's."""
    for event in events:
        if event.type == PydanticAIRecord.type and event.text is not None:
            record = loads_json(event.text).get("record")
            return record if record and record["conversation_id"] == conversation_id else None
    return None


_OF_OPENAI = frozenset({"openai", "azure"})


_OF_CLAUDE = frozenset({"anthropic", "bedrock"})


_STATUS = {"success": "success", "denied": "denied", "interrupted": "outcome_unknown"}


def events_of(
    message: ModelMessage,
    entry_id: str,
    parent_id: str | None,
    places: Places,
    llm_call_id: str | None = None,
) -> list[NewEvent]:
    """Return the events of a message; the last one's event id is the message's id."""
    made: list[Any] = [*_payloads(message, places)]
    if llm_call_id is not None and isinstance(message, ModelResponse):
        made = [(made[0][0].model_copy(update={"llm_call_id": llm_call_id}), False)]
    payloads = [(fitted(data, lambda _: None), begins) for data, begins in made]
    raw = raw_of(message, entry_id, parent_id, max(len(payloads), 1))
    if not payloads:
        return [places.put(PydanticAIMessage(raw=raw), event_id=UUID(entry_id))]
    events = [places.put(data, begins=begins) for data, begins in payloads[:-1]]
    data, begins = payloads[-1]
    last = data.model_copy(update={"raw": raw})
    return [*events, places.put(last, begins=begins, event_id=UUID(entry_id))]


def _payloads(message: ModelMessage, places: Places) -> Iterator[tuple[Payload, bool]]:
    """Yield the payloads of a message, and for each whether it may begin a turn."""
    if isinstance(message, ModelResponse):
        yield answer_of(message), False
        return
    spoken = False
    for part in message.parts:
        match part:
            case said.SystemPromptPart():
                yield SystemInstruction(text=part.content, continues=places.version > 1), False
            case said.UserPromptPart():
                content = [part.content] if isinstance(part.content, str) else part.content
                parts = tuple(each for item in content for each in _parts(item))
                yield UserMessage(parts=parts), not spoken
                spoken = True
            case said.SpeechPart() if part.transcript:
                yield UserMessage.text(part.transcript), not spoken
                spoken = True
            case said.RetryFeedbackPart():
                yield UserMessage.text(part.model_response()), False
            case said.ToolReturnPart():
                yield _result(part, places), False


def _signed(part: Any) -> dict[str, str] | None:
    """Return Gemini's signature of a call, or None."""
    signature = signature_in(part.provider_details)
    return None if signature is None else {"thoughtSignature": signature}


def answer_of(message: ModelResponse) -> AssistantMessage:
    """Return a response as an assistant message."""
    calls = tuple(
        request_of(part.tool_name, part.args_as_json_str(), part.tool_call_id).model_copy(
            update={"raw": _signed(part)}
        )
        for part in message.parts
        if isinstance(part, said.ToolCallPart)
    )
    return AssistantMessage(
        parts=tuple(each for part in message.parts for each in _answered(part)),
        tool_calls=calls,
        tools_elsewhere=bool(calls),
        final=not calls,
        usage=any_usage(plain(message.usage)) if message.usage.has_values() else None,
        finish_reason=message.finish_reason,
        invocation=Invocation(provider=message.provider_name, model=message.model_name),
        response_id=message.provider_response_id,
    )


def _answered(part: Any) -> Iterator[ContentPart]:
    match part:
        case said.TextPart():
            yield TextPart(text=part.content)
        case said.SpeechPart() if part.transcript:
            yield TextPart(text=part.transcript)
        case said.ThinkingPart():
            yield _thought(part)
        case said.FilePart():
            yield _file(part.content)
        case said.ToolCallPart():
            return
        case _:
            yield OtherPart(raw={"part_kind": part.part_kind})


def _thought(part: Any) -> ReasoningPart:
    """Return a thought, with whose it is; the framework names the maker of each."""
    maker, signature = part.provider_name or "", part.signature
    if signature and maker in _OF_OPENAI:
        named = {"id": part.id} if part.id else {}
        raw = {"type": "reasoning", **named, "encrypted_content": signature}
        return ReasoningPart(text=part.content, signature=signature, raw=raw)
    if part.id == "redacted_thinking" and signature:
        return ReasoningPart(text="", raw={"type": "redacted_thinking", "data": signature})
    if signature and maker.startswith("google"):
        raw = {"thoughtSignature": signature}
        return ReasoningPart(text=part.content, signature=signature, raw=raw)
    if signature and maker in _OF_CLAUDE:
        raw = {"type": "thinking"}
        return ReasoningPart(text=part.content, signature=signature, raw=raw)
    return ReasoningPart(text=part.content, signature=signature)


def _result(part: Any, places: Places) -> ToolResult:
    content = part.model_response_str()
    status: Any = _STATUS.get(part.outcome, "failed")
    return ToolResult(
        call_id=places.calls.answer(part.tool_call_id),
        status=status,
        name=part.tool_name,
        content=content_of(content),
        error=content if status == "failed" else None,
        provider_id=part.tool_call_id,
    )


def _parts(item: Any) -> Iterator[ContentPart]:
    """Yield the parts of a user prompt's item; one without a type here is only named."""
    match item:
        case str():
            yield TextPart(text=item)
        case said.TextContent():
            yield TextPart(text=item.content)
        case said.ImageUrl():
            yield ImagePart(url=item.url)
        case said.FileUrl():
            yield FilePart(url=item.url)
        case said.BinaryContent():
            yield _file(item)
        case said.UploadedFile():
            yield FilePart(file_id=item.file_id)
        case _:
            yield OtherPart(raw={"kind": json.dumps(getattr(item, "kind", None))})


def _file(content: Any) -> ContentPart:
    if content.is_image:
        return ImagePart(url=content.data_uri, media_type=content.media_type)
    return FilePart(url=content.data_uri, media_type=content.media_type)
