"""A conversation as the messages of a project: ``messages.json``, and ``messages.jsonl``.

Messages that came from such a file are given back as they were. The others are OpenAI's with the
fields of document 000 (4.1): id, time, mode, run, what the user interface shows. What a request
would not hold is marked ``includeInContext: false``: what was withdrawn, replaced or made up for. A
failed model call is an assistant message with its ``LLM_ERROR`` block. Sessions, turns, runs,
requests and the notebook have no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from agent_eventstore.importers import chat_jsonl, project_messages
from agent_eventstore.importers.extras import NAMES
from agent_eventstore.importers.headings import text_with_heading
from agent_eventstore.importers.openai_wire import message_of, restored
from eventstore import EventStore, RecordedEvent
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmError,
    Summary,
    SystemInstruction,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import EventData
from eventstore.ids import call_id
from projections.context import content

from .facts import facts_of, left_out
from .session_lines import known, moment

__all__ = ["export_messages_json", "export_messages_jsonl"]

Message = dict[str, Any]


def export_messages_json(store: EventStore, conversation_id: UUID) -> list[Message]:
    """Return a conversation's ``messages.json``, in order of version.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    return _Export(store, conversation_id, project_messages.ORIGINAL).messages()


def export_messages_jsonl(store: EventStore, conversation_id: UUID) -> Iterator[Message]:
    """Iterate over the lines of a conversation's ``messages.jsonl``, in order of version.

    Each names its conversation, and its sender where one is known.

    Raises:
        ConversationNotFound: There is no such conversation.
    """
    export = _Export(store, conversation_id, chat_jsonl.ORIGINAL)
    for message in export.messages():
        known = message.get("id")  # a message that is given back may have none
        ours = isinstance(known, str) and known in export.made
        yield {**message, "conversationId": str(conversation_id)} if ours else message


class _Export:
    """The messages of one conversation; ``original`` is where those of the format are kept."""

    def __init__(self, store: EventStore, conversation_id: UUID, original: str) -> None:
        self._facts = list(facts_of(store, conversation_id))
        self._left_out = left_out(event for event, _ in self._facts)
        self._original = original
        self._wire_ids: dict[str, str] = {}
        self._used_ids: set[str] = set()
        self._names: dict[int, str] = {}
        self._leading, self._instructed = True, False
        self.made = set[str]()
        """The ids of the messages that were made, not given back."""

    def messages(self) -> list[Message]:
        found = (self._message(event, data) for event, data in self._facts)
        return [message for message in found if message is not None]

    def _message(self, event: RecordedEvent, data: EventData) -> Message | None:
        raw = data.raw if isinstance(data, UnknownEvent) else getattr(data, "raw", None)
        kept = raw.get(self._original) if isinstance(raw, dict) else None
        if isinstance(kept, dict):
            message: Message | None = self._given_back(event, restored(kept, data), data)
        else:
            message = self._made(event, data)
        if message is None:
            return None
        if isinstance(message.get("id"), str):
            self._names[event.version] = message["id"]
        if event.version in self._left_out:
            message["includeInContext"] = False
        return message

    def _given_back(self, event: RecordedEvent, message: Message, data: EventData) -> Message:
        if isinstance(data, AssistantMessage):
            for index, call in enumerate(data.tool_calls):
                self._take(call.provider_id or "", call_id(event.version, index))
        self._note(event, data)
        return message

    def _made(self, event: RecordedEvent, data: EventData) -> Message | None:
        message = self._said(event, data)
        if message is None or isinstance(data, UnknownEvent):
            return message
        own = {"id": str(event.event_id), "role": None, "createdAt": moment(event.occurred_at)}
        message = {**own, **message, **self._instructing(event, data), **_further(event, data)}
        if isinstance(message["id"], str):
            self.made.add(message["id"])
        self._note(event, data)
        return message

    def _said(self, event: RecordedEvent, data: EventData) -> Message | None:
        """Return role and content, and what belongs to them."""
        match data:
            case ConversationStart():
                told = (data.base_instructions, data.user_instructions)
                text = "\n\n".join(filter(None, told))
                return {"role": "system", "content": text} if text else None
            case LlmError():
                return content.error(data)
            case Summary():
                message = {"role": "system", "content": text_with_heading(data)}
                listed = [
                    name
                    for version, name in self._names.items()
                    if any(each.first <= version <= each.last for each in data.versions)
                ]
                return {**message, "summarises": listed} if data.versions else message
            case ToolResult():
                return self._result(event, data)
            case AssistantMessage():
                return self._calling(message_of(data, event.version) or {}, event, data)
            case UserMessage() if not data.parts and data.sections:
                return content.user(data)
        return message_of(data, event.version)

    def _result(self, event: RecordedEvent, data: ToolResult) -> Message:
        message = dict(message_of(data, event.version) or {})
        if data.content is None and data.error is None:
            message["content"] = content.tool(data)["content"]
        if (wire_id := self._wire_ids.get(data.call_id)) is not None:
            message["tool_call_id"] = wire_id
        if data.name is not None and message.get("name") == data.name:
            del message["name"]
        failed = data.status != "success"
        told = {"toolName": data.name, "status": data.status if failed else None}
        return message | known({**told, "error": data.error})

    def _calling(self, message: Message, event: RecordedEvent, data: AssistantMessage) -> Message:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) != len(data.tool_calls):
            return message
        # Ids that are used twice would be paired by their order, which may be another one.
        ids = [
            self._take(request.provider_id or "", call_id(event.version, index))
            for index, request in enumerate(data.tool_calls)
        ]
        renamed = [
            {**call, "id": own} if isinstance(call, dict) else call
            for call, own in zip(calls, ids, strict=True)
        ]
        return {**message, "tool_calls": renamed}

    def _take(self, provider_id: str, own_id: str) -> str:
        taken = provider_id if provider_id and provider_id not in self._used_ids else own_id
        self._used_ids.add(taken)
        self._wire_ids[own_id] = taken
        return taken

    def _instructing(self, event: RecordedEvent, data: EventData) -> dict[str, bool]:
        """Return what tells an instruction from history, where its place does not."""
        if not isinstance(data, SystemInstruction) or not self._in_context(event):
            return {}
        if self._leading and data.continues == self._instructed:
            return {}
        return {"instruction": True, **({"continues": True} if data.continues else {})}

    def _note(self, event: RecordedEvent, data: EventData) -> None:
        if isinstance(data, UserMessage | AssistantMessage | LlmError | ToolResult):
            self._leading = False
        elif isinstance(data, SystemInstruction | ConversationStart):
            self._instructed = self._instructed or self._in_context(event)

    def _in_context(self, event: RecordedEvent) -> bool:
        return event.meta.in_context and event.version not in self._left_out


def _further(event: RecordedEvent, data: EventData) -> dict[str, Any]:
    """Return the fields that OpenAI's messages do not have."""
    ui, meta = getattr(data, "ui", None), event.meta
    shown = {} if ui is None else {key: getattr(ui, name) for name, key in NAMES.items()}
    return known(
        {
            "duration": getattr(data, "duration_ms", None),
            **shown,
            "mode": meta.mode,
            "runId": meta.run_id,
            "workflowId": meta.workflow_id,
            "agentId": meta.agent_id,
            "includeInContext": None if meta.in_context else False,
        }
    )
