"""ChatGPT's data export, ``conversations.json``: an array of conversations, each a tree.

Understood are texts, code, thoughts, tool calls and their results, custom instructions, images and
files by name, transcripts of speech, and branches: an edited message, a regenerated answer. The
branch of ``current_node`` is the active one, and the others remain as alternatives. Consecutive
messages of an answer are one event. Each event keeps its messages under ``raw["chatgpt_message"]``,
except for the texts that the event holds. Content of another type is kept whole, and counted.
Messages without content are passed over, and counted. The bytes of images and files are next to the
export, and are not read. There is no export to this format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.agent_session_log import AgentSessionLog, cuts_in
from agent_eventstore.transcripts.json_fields import object_in, text_at
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import (
    UNINTERPRETED,
    Transcript,
    explicit_id,
    identify,
    moment_of,
)
from eventstore.events import (
    ContentPart,
    ConversationStart,
    FilePart,
    Invocation,
    OtherPart,
    ReasoningPart,
    SystemInstruction,
    TextPart,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from eventstore.events.records import RecordedEvent
from projections.payload_text import spoken
from projections.providers.answer import request_of

__all__ = ["FINISHED", "FORMAT", "ORIGINAL", "parts_of", "read", "recognises", "slim", "text_in"]


FINISHED = {"stop": "stop", "max_tokens": "length", "interrupted": "interrupted"}


"""Finish reasons, with the names of OpenAI's API where it has one."""


_TEXTS = {
    "code": ("text",),
    "execution_output": ("text",),
    "computer_output": ("text",),
    "system_error": ("name", "text"),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("title", "url", "text"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
}


"""For each type of content, the fields whose texts are used."""


_FILES = ("image_asset_pointer", "audio_asset_pointer", "video_container_asset_pointer")


def parts_of(content: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """Return the parts of a message's content; an empty list if it has none."""
    kind = text_at(content, "content_type")
    listed = content.get("parts")
    if kind in ("text", "multimodal_text") and isinstance(listed, list):
        return tuple(part for each in listed if (part := _part(each)) is not None)
    if kind == "thoughts" and isinstance(thoughts := content.get("thoughts"), list):
        return tuple(_thought(each) for each in thoughts)
    if kind in _TEXTS:
        texts = [text for key in _TEXTS[kind] if (text := text_at(content, key))]
        return (TextPart(text="\n".join(texts)),) if texts else ()
    return (_other(content),) if content else ()


def text_in(parts: Sequence[ContentPart], *, alone: bool = False) -> Any:
    """Return the text of parts; with ``alone``, None if they hold anything else too."""
    if alone and not all(isinstance(part, TextPart) for part in parts):
        return None
    return spoken(parts)


def slim(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without the text that its event holds."""
    content = object_in(message, "content")
    parts = content.get("parts")
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], str):
        return {**message, "content": {**content, "parts": None}}
    if _TEXTS.get(text_at(content, "content_type") or "") == ("text",) and text_at(content, "text"):
        return {**message, "content": {**content, "text": None}}
    return dict(message)


def _part(value: Any) -> ContentPart | None:
    if isinstance(value, str):
        return TextPart(text=value) if value else None
    kind = text_at(value, "content_type")
    if kind == "audio_transcription" and (text := text_at(value, "text")) is not None:
        return TextPart(text=text)
    if kind in _FILES and (path := text_at(value, "asset_pointer")) is not None:
        return FilePart(path=path)
    return None if value is None else _other(value)


def _thought(value: Any) -> ContentPart:
    texts = [text for key in ("summary", "content") if (text := text_at(value, key))]
    return ReasoningPart(text="\n".join(texts)) if texts else _other(value)


def _other(value: Any) -> OtherPart:
    """Return uninterpreted content, with its type where `LeftOut` counts it."""
    kind = text_at(value, "content_type")
    return OtherPart(raw=value if kind is None else {"type": kind, **value})


FORMAT = "chatgpt"


ORIGINAL = "chatgpt_message"


"""The key in ``raw`` of the original message without its text, or of an answer's messages."""


_INSTRUCTING = ("user_editable_context", "model_editable_context")


_SILENT = ("reasoning_recap",)  # shown next to the thoughts, such as "Thought for 5 seconds"


def recognises(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    mapping = value.get("mapping") if isinstance(value, dict) else None
    return isinstance(mapping, dict) and any(
        isinstance(node, dict) and "message" in node and ("parent" in node or "children" in node)
        for node in mapping.values()
    )


def read(source: Source) -> Iterator[Transcript | ImportFailed]:
    """Iterate over the file's conversations, and over reports of those that cannot be read."""
    for record in source.records():
        if isinstance(record, ImportFailed):
            yield record
        elif not isinstance(record.value, dict) or not isinstance(
            record.value.get("mapping"), dict
        ):
            yield source.failed(record.line, "a conversation must be an object with a mapping")
        else:
            yield _conversation(source, record)


def _conversation(source: Source, record: Record) -> Transcript | ImportFailed:
    value: dict[str, Any] = record.value
    try:
        walk = list(_walk(value["mapping"], value.get("current_node")))
    except ValueError as error:
        return source.failed(record.line, str(error))
    reader, title = _read(value, walk, ()), text_at(value, "title")
    return Transcript(
        identify(FORMAT, explicit_id(value, "id"), (value,)),
        tuple(reader.log.take()),
        title=title,
        file=source.file,
        line=record.line,
        left_out=reader.left_out,
        grown=lambda stored: tuple(_read(value, walk, stored).log.take()),
    )


def _read(
    value: dict[str, Any], walk: list[_NodePlace], stored: Iterable[RecordedEvent]
) -> _ChatGptReader:
    """Return the reader of a conversation's nodes, given the events that an import has stored."""
    rest = {key: field_value for key, field_value in value.items() if key != "mapping"}
    start = ConversationStart(title=text_at(value, "title"), raw=rest or None)
    reader = _ChatGptReader(cuts_in(stored))
    reader.log.add(start, occurred_at=moment_of({"time": value.get("create_time")}))
    for place, following in zip(walk, (*walk[1:], None), strict=True):
        reader.visit(place, following)
    reader.log.close()
    return reader


class _NodePlace:
    """A node of the tree, when it is visited."""

    __slots__ = ("again", "fork", "id", "message", "parent")

    def __init__(self, named: str, node: dict[str, Any], parent: str | None, number: int) -> None:
        self.id, self.parent, self.message = named, parent, node.get("message")
        self.again = number > 0  # whether it replaces a node visited earlier
        self.fork = False  # whether it has several successors


def _walk(mapping: dict[str, Any], current: Any) -> Iterator[_NodePlace]:
    """Yield the nodes, one branch at a time, the current branch last.

    Raises:
        ValueError: The mapping is not a tree.
    """
    below: dict[str | None, list[str]] = {}
    for named, node in mapping.items():
        if not isinstance(node, dict):
            raise ValueError(f"node {named[:40]!r} of the mapping is not an object")
        parent = node.get("parent")
        known = isinstance(parent, str) and parent in mapping
        below.setdefault(parent if known else None, []).append(named)
    active = set[str]()
    while isinstance(current, str) and current in mapping and current not in active:
        active.add(current)
        current = mapping[current].get("parent")
    for parent, children in below.items():
        listed = mapping[parent].get("children") if parent is not None else None
        names = listed if isinstance(listed, list) else []
        rank = {name: place for place, name in enumerate(names) if isinstance(name, str)}
        children.sort(key=lambda name, rank=rank: (name in active, rank.get(name, len(rank))))  # type: ignore[misc]
    left, seen = [(name, None, n) for n, name in enumerate(below.get(None, ()))][::-1], 0
    todo: list[tuple[str, str | None, int]] = [*left]
    while todo:
        named, parent, number = todo.pop()
        seen += 1
        place = _NodePlace(named, mapping[named], parent, number)
        children = below.get(named, [])
        place.fork = len(children) > 1
        todo += [(name, named, n) for n, name in enumerate(children)][::-1]
        yield place
    if seen < len(mapping):
        raise ValueError("the mapping is not a tree: a node is its own ancestor")


class _Calls:
    """The calls of a turn on one branch: messages that wait for a result, in order, by tool."""

    def __init__(self) -> None:
        # Under None are those of all tools.
        self._waiting: dict[str | None, deque[str]] = {}
        self._last: dict[str | None, str] = {}

    def copy(self) -> _Calls:
        """Return the same calls, for another branch."""
        found = _Calls()
        found._waiting = {tool: waiting.copy() for tool, waiting in self._waiting.items()}
        found._last = self._last.copy()
        return found

    def note(self, node: str, tool: str) -> None:
        """Add the call of a message."""
        for key in (tool, None):
            self._waiting.setdefault(key, deque()).append(node)
            self._last[key] = node

    def waiting(self, tool: str | None) -> int:
        """Return the number of calls that wait for a result of a tool."""
        return len(self._waiting.get(tool if tool in self._last else None, ()))

    def answered(self, tool: str | None, settled: set[str]) -> str | None:
        """Return the message whose call a result answers: the first that waits for its tool."""
        key = tool if tool in self._last else None
        waiting = self._waiting.get(key, deque())
        while waiting:
            if (found := waiting.popleft()) not in settled:
                settled.add(found)
                return found
        return self._last.get(key)


class _ChatGptReader:
    """Turns the nodes of one conversation into events."""

    def __init__(self, cuts: Mapping[int, int]) -> None:
        self.log, self.left_out = AgentSessionLog(cuts), LeftOut()
        # For each node with several successors: its version, and where the newest branch begins.
        self._forks: dict[str | None, tuple[int, tuple[int, int]]] = {None: (1, (2, 0))}
        # For each node: the calls of its turn so far.
        self._calls: dict[str | None, _Calls] = {}
        self._settled = set[str]()
        self._answer: str | None = None
        self._instructed = self._has_question = False
        # Messages of a tool whose result continues in the next message.
        self._unfinished: list[dict[str, Any]] = []

    def visit(self, place: _NodePlace, following: _NodePlace | None) -> None:
        """Process a node, given the one after it."""
        message = place.message if isinstance(place.message, dict) else None
        if place.again:
            self._leave(place.parent, message)
        calls = self._calls.get(place.parent) or _Calls()
        self._calls[place.id] = calls.copy() if place.parent in self._forks else calls
        if message is not None and self._continues(place, message, following):
            self._unfinished.append(message)
        elif message is not None:
            self._take(message, place.id)
        elif place.message is not None:
            self.left_out.note("message that is not an object", known=False)
        if place.fork:
            self.log.close()
            self._answer = None
            self._forks[place.id] = (self.log.last, (self.log.last + 1, self.log.turn))

    def _leave(self, fork: str | None, message: dict[str, Any] | None) -> None:
        """Go back to where a branch began, and start the next one."""
        after, answer = self._forks[fork]
        moment = None if message is None else _moment(message)
        role = object_in(message or {}, "author").get("role")
        self.log.close()
        self._answer = None
        if self.log.last > after:
            has_question = role == "user" and self.log.has_prompt(after)
            self.log.withdraw(after, moment, None if has_question else answer)
        self._forks[fork] = (after, (self.log.last + 1, self.log.turn))

    def _continues(
        self, place: _NodePlace, message: dict[str, Any], following: _NodePlace | None
    ) -> bool:
        """Whether a tool's result continues: no other call of it waits for the next message."""
        author = object_in(message, "author")
        if author.get("role") != "tool" or following is None or following.parent != place.id:
            return False
        if place.fork or not isinstance(following.message, dict):
            return False
        after = object_in(following.message, "author")
        same = after.get("role") == "tool" and after.get("name") == author.get("name")
        shown = bool(parts_of(object_in(following.message, "content")))
        waiting = self._calls[place.id].waiting(text_at(author, "name"))
        return same and shown and waiting == 1

    def _take(self, message: dict[str, Any], node: str) -> None:
        content, role = object_in(message, "content"), object_in(message, "author").get("role")
        kind = content.get("content_type")
        meta = {"occurred_at": _moment(message)}
        raw: dict[str, Any] = {ORIGINAL: slim(message)}
        parts = parts_of(content)
        called = role == "assistant" and message.get("recipient") not in (None, "all")
        if kind in _SILENT or (not parts and not called and role != "tool"):
            self.left_out.note(f"{kind} of {role} without content", known=True)
        elif role == "system" or kind in _INSTRUCTING:
            aside = {"in_context": False} if self._has_question else {}
            text, continues = text_in(parts), self._instructed and not self._has_question
            self._instructed = self._instructed or not self._has_question
            self._answer = None
            self.log.add(
                SystemInstruction(text=text, continues=continues, raw=raw), **aside, **meta
            )
        elif role == "user":
            self._has_question, self._answer, self._calls[node] = True, None, _Calls()
            self.log.prompt(UserMessage(parts=parts, raw=raw), **meta)
        elif role == "assistant":
            self._answered(message, node, called=called)
        elif role == "tool":
            self._answer = None
            earlier, self._unfinished = self._unfinished, []
            if earlier:
                contents = [parts_of(object_in(each, "content")) for each in earlier]
                parts = tuple(part for each in (*contents, parts) for part in each)
                raw["earlier"] = [slim(each) for each in earlier]
            text, name = text_in(parts, alone=True), text_at(message.get("author"), "name")
            self.log.result(
                ToolResult(
                    call_id="",
                    name=name,
                    status="failed" if kind == "system_error" else "success",
                    content=parts if text is None else text,
                    provider_id=self._calls[node].answered(name, self._settled),
                    raw=raw,
                ),
                **meta,
            )
        else:
            self._answer = None
            self.log.add(UnknownEvent(UNINTERPRETED, 1, {ORIGINAL: message}), **meta)

    def _answered(self, message: dict[str, Any], node: str, *, called: bool) -> None:
        about = object_in(message, "metadata")
        self._answer = self._answer or f"chatgpt-{node}"[:200]
        answer = self.log.answer(self._answer, occurred_at=_moment(message))
        # A conversation that begins as a branch of another one repeats its messages.
        answer.identity = answer.identity or (FORMAT, self._answer, _moment(message))
        remaining, parts = slim(message), parts_of(object_in(message, "content"))
        if called:
            tool = str(message["recipient"])
            answer.calls.append(request_of(tool, text_in(parts), node))
            self._calls[node].note(node, tool)
        else:
            answer.parts += parts
        answer.keep(ORIGINAL, remaining)
        model, finish = text_at(about, "model_slug"), object_in(about, "finish_details")
        answer.invocation = Invocation(provider="openai", model=model)
        answer.finish_reason = FINISHED.get(text_at(finish, "type") or "", answer.finish_reason)


def _moment(message: dict[str, Any]) -> Any:
    return moment_of({"time": message.get("create_time")})
