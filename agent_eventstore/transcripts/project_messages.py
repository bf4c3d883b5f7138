"""``messages.json`` of a project's conversation (document 000, sections 3.1 and 4.1).

The file is an array of messages in a superset of OpenAI's shape; fields that older files lack get
the defaults of section 6. An ``index.json`` next to the file, or next to its directory, adds title
and mode. An element that is not a message is reported, and the others are imported.

The conversation's id comes from the ``conversationId`` in its messages if they have one, then from
its entry in the index, otherwise from its first message: all of these stay the same while the
product rewrites the file.

Exports are ``messages.json`` and ``messages.jsonl``. Messages that came from such a file are
restored unchanged. The others are OpenAI's with the fields of document 000 (4.1): id, time, mode,
run, and what the user interface shows. Messages that a request would not contain (withdrawn,
replaced, or made up for) are marked ``includeInContext: false``. A failed model call is an
assistant message with its ``LLM_ERROR`` block. Sessions, turns, runs, requests and the notebook
have no message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import chat_jsonl
from agent_eventstore.transcripts.extras import (
    NAMES,
    PROJECT_MESSAGE,
    Extras,
    facts_of,
    left_out,
    moment,
)
from agent_eventstore.transcripts.json_fields import text_at
from agent_eventstore.transcripts.openai_parts import known
from agent_eventstore.transcripts.openai_wire import (
    message_of,
    payload_of,
    restored,
    text_with_heading,
)
from agent_eventstore.transcripts.record_source import Parsed, Record, Source
from agent_eventstore.transcripts.transcript import (
    Origin,
    Transcript,
    TranscriptDraft,
    anchored,
    explicit_id,
    mode_of,
    moment_of,
    title_of,
)
from eventstore import EventStore, RecordedEvent
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    LlmError,
    Meta,
    Summary,
    SystemInstruction,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import EventData
from eventstore.ids import call_id
from projections.context import payload_messages
from projections.version_ranges import joined

__all__ = [
    "FORMAT",
    "INDEX",
    "Entry",
    "entries_in",
    "entry_of",
    "export_messages_json",
    "export_messages_jsonl",
    "name_of",
    "read",
    "read_entry",
    "recognises",
]


INDEX = "index.json"


Entry = dict[str, Any]


def entries_in(path: Path) -> Iterator[Entry | ImportFailed]:
    """Iterate over the entries of an index, and over reports of anything that is not an entry."""
    source = Source(path)
    for item in source.document():
        if isinstance(item, ImportFailed):
            yield item
            continue
        found = item.value
        if isinstance(found, dict) and name_of(found) is None:
            listed = found.get("conversations", found)
            values: Iterable[Any] = listed if isinstance(listed, list) else _keyed(listed)
        else:
            values = [found]
        for value in values:
            if isinstance(value, dict) and name_of(value) is not None:
                yield value
            else:
                yield source.failed(item.line, "an entry must be an object with an id")


def name_of(entry: Any) -> str | None:
    """Return the id in an entry, which is the name of its directory; None if it has none."""
    own = entry.get("id") if isinstance(entry, dict) else None
    if (isinstance(own, str) and own) or type(own) is int:
        return str(own)
    return explicit_id(entry)


def entry_of(path: Path, names: Collection[str | None]) -> Iterator[Entry | ImportFailed]:
    """Yield the entry of the conversation in a file, found by name, or reports of why not.

    Args:
        path: The conversation's file; the index is next to it, or next to its directory.
        names: The possible names of the conversation.
    """
    for directory in list(path.absolute().parents)[:2]:
        if (directory / INDEX).is_file():
            for item in entries_in(directory / INDEX):
                if isinstance(item, ImportFailed):
                    yield item
                elif name_of(item) in names:
                    yield item
                    return
            return


def _keyed(entries: Any) -> list[Any]:
    if not isinstance(entries, dict):
        return [entries]
    return [
        {"id": key, **value} if isinstance(value, dict) else value for key, value in entries.items()
    ]


FORMAT = "messages-json"


"""The key in ``raw`` under which the message is kept, except for a text content."""


_OWN_FIELDS = {"createdAt", "partType", "isCollapsed", "includeInContext", "toolName"}


Message = dict[str, Any]


def recognises(value: Any) -> bool:
    """Whether a value is a message of such a file."""
    return isinstance(value, dict) and "role" in value and not _OWN_FIELDS.isdisjoint(value)


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Yield the file's one conversation, after reports of what could not be read."""
    messages = list[Record]()
    yield from _messages(source, messages)
    stated = explicit_id(messages[0].value) if messages else None
    entry: Entry = {}
    for found in entry_of(source.path, {source.path.absolute().parent.name, stated}):
        if isinstance(found, ImportFailed):
            yield found
        else:
            entry = found
    if messages:
        yield _transcript(source, messages, entry)


def read_entry(source: Source, entry: Entry) -> Iterator[Transcript | ImportFailed]:
    """Yield the conversation of an index entry, even if it has no messages yet.

    A file whose messages are all broken yields none.
    """
    messages, broken = list[Record](), False
    for failure in _messages(source, messages):
        broken = True
        yield failure
    if messages or not broken:
        yield _transcript(source, messages, entry)


def _messages(source: Source, messages: list[Record]) -> Iterator[ImportFailed]:
    """Collect a file's messages, and yield reports of elements that are not messages."""
    for element in _elements(source):
        if isinstance(element, ImportFailed):
            yield element
        elif not isinstance(element.value, dict):
            yield source.failed(element.line, "a message must be an object")
        else:
            messages.append(element)


def _elements(source: Source) -> Iterator[Parsed]:
    if source.is_array():
        yield from source.document()
        return
    for item in source.document():
        lists = (
            item.value.get("messages")
            if isinstance(item, Record) and isinstance(item.value, dict)
            else None
        )
        if isinstance(item, Record) and isinstance(lists, list):
            yield from (Record(message, item.line) for message in lists)
        else:
            yield item


def _transcript(source: Source, messages: list[Record], entry: Entry) -> Transcript:
    line = messages[0].line if messages else None
    draft = TranscriptDraft(_origin(messages, entry), source.file, line)
    start = ConversationStart(
        title=title_of(entry),
        mode=mode_of(entry.get("activeType", entry.get("mode"))),
        raw={"index_entry": dict(entry)} if entry else None,
    )
    draft.start(start, Meta(occurred_at=moment_of(entry)))
    extras = Extras()
    for record in messages:
        message = record.value
        data = extras.payload(message, _payload(message, draft), PROJECT_MESSAGE)
        meta = draft.place(data, **extras.event_fields(message, draft.next_version))
        ours = message.get("instruction") is True
        draft.add(data, meta, as_recorded=ours, named=text_at(message, "id"))
    return draft.finish()


def _origin(messages: list[Record], entry: Entry) -> Origin:
    stated = explicit_id(messages[0].value) if messages else None
    if stated is None and entry:
        # Ids such as "1" recur in other projects; the time sets them apart.
        return Origin(FORMAT, place=("index entry", name_of(entry), entry.get("createdAt")))
    return anchored(FORMAT, stated, messages)


def _payload(message: dict[str, Any], draft: TranscriptDraft) -> EventData:
    known = message
    if message.get("role") == "tool" and "name" not in message:
        known = {**message, "name": message.get("toolName")}
    return payload_of(known, draft.next_version, draft.calls)


def export_messages_json(store: EventStore, conversation_id: UUID) -> list[Message]:
    """Return a conversation's ``messages.json``, in order of version.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    return _ProjectExport(store, conversation_id, PROJECT_MESSAGE).messages()


def export_messages_jsonl(store: EventStore, conversation_id: UUID) -> Iterator[Message]:
    """Iterate over the lines of a conversation's ``messages.jsonl``, in order of version.

    Each line names its conversation, and its sender if known.

    Raises:
        ConversationNotFound: The conversation does not exist.
    """
    export = _ProjectExport(store, conversation_id, chat_jsonl.ORIGINAL)
    for message in export.messages():
        known = message.get("id")  # a restored message may have none
        ours = isinstance(known, str) and known in export.made
        yield {**message, "conversationId": str(conversation_id)} if ours else message


class _ProjectExport:
    """The messages of one conversation; ``original`` is the key under which originals are kept."""

    def __init__(self, store: EventStore, conversation_id: UUID, original: str) -> None:
        self._facts = list(facts_of(store, conversation_id))
        self._left_out = left_out(event for event, _ in self._facts)
        self._original = original
        self._wire_ids: dict[str, str] = {}
        self._used_ids: set[str] = set()
        self._names: dict[int, str] = {}
        self._leading, self._instructed = True, False
        self.made = set[str]()
        """The ids of the messages that were created here, not restored."""

    def messages(self) -> list[Message]:
        found = (self._message(event, data) for event, data in self._facts)
        return [message for message in found if message is not None]

    def _message(self, event: RecordedEvent, data: EventData) -> Message | None:
        raw = data.raw if isinstance(data, UnknownEvent) else getattr(data, "raw", None)
        original = raw.get(self._original) if isinstance(raw, dict) else None
        if original is None and isinstance(raw, dict) and self._original in raw:
            return None  # restored with the previous event, which came from the same message
        if isinstance(original, dict):
            message: Message | None = self._given_back(event, restored(original, data), data)
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
        message = self._instructions(event, data)
        if message is None or isinstance(data, UnknownEvent):
            return message
        own = {"id": str(event.event_id), "role": None, "createdAt": moment(event.occurred_at)}
        message = {**own, **message, **self._instructing(event, data), **_further(event, data)}
        if isinstance(message["id"], str):
            self.made.add(message["id"])
        self._note(event, data)
        return message

    def _instructions(self, event: RecordedEvent, data: EventData) -> Message | None:
        """Return role and content, and the fields that belong to them."""
        match data:
            case ConversationStart():
                instructions = (data.base_instructions, data.user_instructions)
                text = "\n\n".join(filter(None, instructions))
                return {"role": "system", "content": text} if text else None
            case LlmError():
                return payload_messages.error(data)
            case Summary():
                message = {"role": "system", "content": text_with_heading(data)}
                return message | ({"summarises": self._covered(data)} if data.versions else {})
            case ToolResult():
                return self._result(event, data)
            case AssistantMessage():
                return self._calling(message_of(data, event.version) or {}, event, data)
            case UserMessage() if not data.parts and data.sections:
                return payload_messages.user(data)
        return message_of(data, event.version)

    def _covered(self, data: Summary) -> list[str]:
        """Return the ids of the messages that a summary stands for."""
        known = list(self._names)  # in order
        return [
            self._names[version]
            for first, last in joined((each.first, each.last) for each in data.versions)
            for version in known[bisect_left(known, first) : bisect_right(known, last)]
        ]

    def _result(self, event: RecordedEvent, data: ToolResult) -> Message:
        message = dict(message_of(data, event.version) or {})
        if data.content is None and data.error is None:
            message["content"] = payload_messages.tool(data)["content"]
        if (wire_id := self._wire_ids.get(data.call_id)) is not None:
            message["tool_call_id"] = wire_id
        if data.name is not None and message.get("name") == data.name:
            del message["name"]
        failed = data.status != "success"
        fields = {"toolName": data.name, "status": data.status if failed else None}
        return message | known({**fields, "error": data.error})

    def _calling(self, message: Message, event: RecordedEvent, data: AssistantMessage) -> Message:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) != len(data.tool_calls):
            return message
        # Ids that are used twice would be paired by order, which may differ.
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
        """Return the fields that mark an instruction, if its place does not show that it is one."""
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
