"""Store Pydantic AI's messages in the ``raw`` of events and its records as events; read both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from typing_extensions import TypedDict

from agent_eventstore.integrations.pydantic_messages import KEY, PydanticAIRecord
from eventstore.events.codec import loads_json
from eventstore.sql.read import EventText

__all__ = ["RECORD", "KeptMessage", "message_in", "raw_of", "record_event", "record_in"]

RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)

_CONFIG = ConfigDict(val_json_bytes="base64")  # as in `ModelMessagesTypeAdapter`


class KeptMessage(TypedDict):
    """A stored message; ``span`` is the number of its events, of which this is the last."""

    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    id: str
    parent: str | None
    span: int
    message: ModelMessage


class _Raw(TypedDict):
    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    pydantic_ai: KeptMessage


class _Ending(TypedDict):
    __pydantic_config__ = _CONFIG  # type: ignore[misc]

    raw: _Raw


_ENDING: TypeAdapter[_Ending] = TypeAdapter(_Ending)


def raw_of(message: ModelMessage, entry_id: str, parent_id: str | None, span: int) -> Any:
    """Return the ``raw`` of the last of a message's ``span`` events."""
    [made] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return {KEY: {"id": entry_id, "parent": parent_id, "span": span, "message": made}}


def message_in(text: str) -> KeptMessage | None:
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
            told = loads_json(event.text).get("record")
            return told if told and told["conversation_id"] == conversation_id else None
    return None
