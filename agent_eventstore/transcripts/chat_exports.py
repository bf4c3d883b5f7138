"""Exports of chat programs: claude.ai, LibreChat, Open WebUI.

Each is a conversation, or an array of them, whose messages form a tree: an edited message or a
regenerated answer is a further branch. The branch that the program shows becomes the conversation,
and each other one a conversation of its own, with the messages that both share. Understood are
texts, reasoning, tool calls with their results, and the text of attached files; files without text
are named. An event keeps the other fields of its message. There is no export to these formats.

The shapes are those of claude.ai's data export (``conversations.json``), LibreChat's export as JSON
(tree or list), and Open WebUI's export of chats, all as of 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.json_fields import as_text, object_in, text_at
from agent_eventstore.transcripts.openai_messages import transcript_of
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.transcript import Transcript, explicit_id, identify

__all__ = ["CLAUDE_AI", "LIBRECHAT", "OPEN_WEBUI", "ChatExport"]

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Tree:
    """A conversation: its messages by id, each with its parent's, and the last one shown.

    Attributes:
        messages: The messages in the program's form, in the order of the file.
        parents: The parent of each; a missing one is a root.
        shown: The id of the last message of the branch that the program shows; None: the newest.
        rest: The other fields of the conversation.
    """

    messages: dict[str, Message]
    parents: dict[str, str]
    shown: str | None
    rest: Message

    def branches(self) -> Iterator[tuple[str | None, list[Message]]]:
        """Yield each branch with its name, the one shown first.

        A branch is named by the last message at which it left its elder siblings, so that it has
        the same name after it has grown; the eldest has none.

        Raises:
            ValueError: Messages follow each other in a circle that no branch leaves.
        """
        children: dict[str | None, list[str]] = {}
        for own_id in self.messages:
            parent = self.parents.get(own_id)
            children.setdefault(parent if parent in self.messages else None, []).append(own_id)
        last = [own_id for own_id in self.messages if own_id not in children]
        paths = [self._path(each) for each in last]
        if {*self.messages}.difference(*paths):
            raise ValueError("its messages are not a tree")
        shown = next((path for path in paths if self.shown in path), paths[-1] if paths else [])
        for path in sorted(paths, key=lambda path: path is not shown):
            turns = [each for each in path if each != children[self._parent(each)][0]]
            yield turns[-1] if turns else None, [self.messages[each] for each in path]

    def _parent(self, own_id: str) -> str | None:
        parent = self.parents.get(own_id)
        return parent if parent in self.messages else None

    def _path(self, last: str) -> list[str]:
        path = dict[str, None]()
        at: str | None = last
        while at is not None and at not in path:  # a circle ends where it closes
            path[at] = None
            at = self._parent(at)
        return [*path][::-1]


@dataclass(frozen=True, slots=True)
class ChatExport:
    """A reader of one program's export.

    Attributes:
        FORMAT: The name of the format.
        recognises: Whether a value is a conversation of such an export.
        tree: Returns a conversation's messages; raises `ValueError` if they are not of this form.
        written: Returns a message as messages of a chat API.
    """

    FORMAT: str
    recognises: Callable[[Any], bool]
    tree: Callable[[Message], _Tree]
    written: Callable[[Message], list[Message]]

    def read(self, source: Source) -> Iterator[Transcript | ImportFailed]:
        """Iterate over the file's conversations, and over reports of those that cannot be read."""
        for ordinal, record in enumerate(source.records()):
            if isinstance(record, ImportFailed):
                yield record
                continue
            try:
                if not self.recognises(record.value):
                    raise ValueError(f"it is not a conversation of {self.FORMAT}")
                yield from self._branches(source, record, ordinal)
            except ImportFailed as failure:
                yield failure
            except ValueError as error:
                yield source.failed(record.line, str(error))

    def _branches(self, source: Source, record: Record, ordinal: int) -> Iterator[Transcript]:
        tree = self.tree(record.value)
        stated = explicit_id(tree.rest, "id", "uuid")
        for name, path in tree.branches():
            rest = tree.rest if name is None else {**tree.rest, "branch": name}
            place = stated if name is None or stated is None else f"{stated}/{name}"
            origin = identify(self.FORMAT, place, (record.value, ordinal, name))
            messages = [written for each in path for written in self.written(each)]
            yield transcript_of(source, messages, rest, record.line, origin)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _without(message: Mapping[str, Any], *names: str) -> Message:
    return {key: value for key, value in message.items() if key not in names and value}


def _attached(files: Any, name: str, text: str) -> Iterator[str]:
    """Yield what is known of attached files: their texts, or at least their names."""
    for each in files if isinstance(files, list) else ():
        if isinstance(each, dict) and (named := each.get(name)):
            content = _text(each.get(text))
            yield f"[file {named}]\n{content}" if content else f"[file {named}]"


def _called(name: str, arguments: Any, result: Any, own_id: str, text: str) -> list[Message]:
    """Return an answer with one call, and its result unless that is None."""
    function = {"name": name, "arguments": as_text(arguments)}
    call = {"id": own_id, "type": "function", "function": function}
    found: list[Message] = [{"role": "assistant", "content": text or None, "tool_calls": [call]}]
    if result is not None:
        found.append({"role": "tool", "tool_call_id": own_id, "content": as_text(result)})
    return found


# claude.ai: {"uuid", "name", "chat_messages": [{"uuid", "sender", "content": [...], ...}]}

_SILENT = ("token_budget", "flag")


def _is_claude(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)


def _claude_tree(value: Message) -> _Tree:
    listed = _listed(value["chat_messages"], "uuid")
    parents, before = dict[str, str](), ""
    for own_id, message in listed.items():
        parent = message.get("parent_message_uuid")
        # Older exports have no parents: a message follows the one before.
        parents[own_id] = parent if isinstance(parent, str) and parent else before
        before = own_id
    rest = {key: each for key, each in value.items() if key != "chat_messages"}
    rest["title"] = rest.get("name") or None
    return _Tree(listed, parents, text_at(value, "current_leaf_message_uuid"), rest)


def _claude_messages(message: Message) -> list[Message]:
    beside = _without(message, "uuid", "sender", "text", "content", "attachments", "files")
    blocks = message.get("content")
    shown = [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
    if not shown and (text := _text(message.get("text"))):
        shown = [{"type": "text", "text": text}]
    role = "user" if message.get("sender") == "human" else "assistant"
    files = (
        *_attached(message.get("attachments"), "file_name", "extracted_content"),
        *_attached(message.get("files"), "file_name", ""),
    )
    shown += [{"type": "text", "text": each} for each in files]
    found, number, waiting = list[Message](), 0, list[str]()

    def add(block: Message, by: str) -> None:
        if not found or found[-1]["role"] != by:
            found.append({"role": by, "content": []})
        found[-1]["content"].append(block)

    for block in shown:
        kind = block.get("type")
        if kind == "tool_use":
            number += 1
            own_id = text_at(block, "id") or f"{message.get('uuid')}-{number}"
            waiting.append(own_id)
            add({**block, "id": own_id}, role)
        elif kind == "tool_result":
            stated = text_at(block, "tool_use_id")
            own_id = stated or (waiting[0] if waiting else f"{message.get('uuid')}-0")
            if own_id in waiting:
                waiting.remove(own_id)
            add({**block, "tool_use_id": own_id}, "user")
        elif kind not in _SILENT:
            add(block, role)
    if not found:
        found.append({"role": role, "content": ""})
    for each in found:  # A text alone is a message of any API.
        if [block.get("type") for block in each["content"]] == ["text"]:
            each["content"] = each["content"][0].get("text") or ""
    found[0] = {"id": message.get("uuid"), **beside, **found[0]}
    return found


# LibreChat: {"conversationId", "messages": [{"messageId", "parentMessageId", "isCreatedByUser"}]}


def _is_librechat(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, dict) else None
    first = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(first, dict) and "messageId" in first and "isCreatedByUser" in first


def _librechat_tree(value: Message) -> _Tree:
    listed = _listed(_flat(value["messages"]), "messageId")
    parents = {own_id: _text(each.get("parentMessageId")) for own_id, each in listed.items()}
    rest = {key: each for key, each in value.items() if key != "messages"}
    return _Tree(listed, parents, None, rest | {"id": value.get("conversationId")})


def _flat(messages: Any) -> Iterator[Message]:
    """Yield messages and those nested under them, parents first."""
    waiting: list[tuple[Any, Message]] = [(messages, {})]
    while waiting:
        level, above = waiting.pop()
        for each in level if isinstance(level, list) else ():
            if isinstance(each, dict):
                yield above | {key: value for key, value in each.items() if key != "children"}
                parent = {"parentMessageId": each.get("messageId")}
                waiting.append((each.get("children"), parent))


def _librechat_messages(message: Message) -> list[Message]:
    beside = _without(message, "messageId", "text", "content", "files", "isCreatedByUser")
    beside["id"] = message.get("messageId")
    if "createdAt" in message:
        beside["created_at"] = message["createdAt"]
    files = [*_attached(message.get("files"), "filename", "text")]
    if message.get("isCreatedByUser"):
        text = "\n\n".join((_text(message.get("text")) or _text_of_parts(message), *files))
        return [{**beside, "role": "user", "content": text}]
    found, texts, thoughts = list[Message](), list[str](), list[str]()
    for number, part in enumerate(message.get("content") or ()):
        if not isinstance(part, dict):
            continue
        kind, call = part.get("type"), part.get("tool_call")
        if kind == "tool_call" and isinstance(call, dict):
            named = object_in(call, "function")
            name = text_at(call, "name") or text_at(named, "name") or "unknown"
            arguments = call.get("args", named.get("arguments", {}))
            own_id = text_at(call, "id") or f"{message.get('messageId')}-{number}"
            result = call.get("output", named.get("output"))
            found += _called(name, arguments, result, own_id, "\n\n".join(texts))
            texts = []
        elif kind == "think":
            thoughts.append(_text(part.get("think")))
        elif text := _part_text(part):
            texts.append(text)
    if not found and not texts:
        texts = [_text(message.get("text"))]
    if texts or not found:
        found.append({"role": "assistant", "content": "\n\n".join((*texts, *files))})
    if thoughts:
        found[0]["reasoning_content"] = "\n\n".join(thoughts)
    found[0] = {**beside, **found[0]}
    return found


def _text_of_parts(message: Message) -> str:
    parts = message.get("content")
    return "\n\n".join(map(_part_text, parts)) if isinstance(parts, list) else ""


def _part_text(part: Any) -> str:
    text = part.get("text", part.get("error")) if isinstance(part, dict) else part
    return _text(text.get("value") if isinstance(text, dict) else text)


# Open WebUI: {"chat": {"history": {"currentId", "messages": {id: {"parentId", "role", ...}}}}}

_DETAILS = re.compile(r"<details\b([^>]*)>(.*?)</details>\s*", re.DOTALL)
_ATTRIBUTE = re.compile(r'([a-z_]+)="([^"]*)"')
_SUMMARY = re.compile(r"<summary>.*?</summary>", re.DOTALL)


def _is_open_webui(value: Any) -> bool:
    history = object_in(object_in(value, "chat"), "history") if isinstance(value, dict) else {}
    return isinstance(history.get("messages"), dict)


def _open_webui_tree(value: Message) -> _Tree:
    history = value["chat"]["history"]
    listed = _listed(history["messages"].values(), "id")
    parents = {own_id: _text(each.get("parentId")) for own_id, each in listed.items()}
    chat = {key: each for key, each in value["chat"].items() if key not in ("history", "messages")}
    rest = {**value, "chat": chat, "title": value.get("title") or chat.get("title")}
    return _Tree(listed, parents, text_at(history, "currentId"), rest)


def _open_webui_messages(message: Message) -> list[Message]:
    names = ("parentId", "childrenIds", "role", "content", "files", "output")
    beside, role = _without(message, *names), text_at(message, "role") or "assistant"
    text = _text(message.get("content"))
    files = [*_attached(message.get("files"), "name", "content")]
    if role != "assistant":
        return [{**beside, "role": role, "content": "\n\n".join((text, *files))}]
    found, thoughts, end = list[Message](), list[str](), 0
    before = ""
    for block in _DETAILS.finditer(text):
        attributes = {key: unescape(value) for key, value in _ATTRIBUTE.findall(block[1])}
        kind = attributes.get("type")
        if kind not in ("reasoning", "tool_calls"):
            continue
        before += text[end : block.start()]
        end = block.end()
        if kind == "reasoning":
            lines = unescape(_SUMMARY.sub("", block[2])).strip().splitlines()
            thoughts.append("\n".join(line.removeprefix(">").strip() for line in lines))
            continue
        own_id = attributes.get("id") or f"{message.get('id')}-{block.start()}"
        result = _decoded(attributes.get("result")) if attributes.get("done") != "false" else None
        arguments = _decoded(attributes.get("arguments") or "{}")
        name = attributes.get("name") or "unknown"
        found += _called(name, arguments, result, own_id, before.strip())
        before = ""
    error = message.get("error")
    failed = text_at(error, "content") if isinstance(error, dict) else None
    rest = "\n\n".join(each for each in ((before + text[end:]).strip(), failed, *files) if each)
    if rest or not found:
        found.append({"role": "assistant", "content": rest})
    if thoughts:
        found[0]["reasoning_content"] = "\n\n".join(thoughts)
    found[0] = {**beside, **found[0]}
    return found


def _decoded(text: str | None) -> Any:
    """Return what an attribute holds: JSON, which may be JSON of a text of JSON."""
    value: Any = text or ""
    for _ in range(2):
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            break
    return value


def _listed(messages: Iterable[Any], key: str) -> dict[str, Message]:
    """Return messages by their id.

    Raises:
        ValueError: One is not an object with an id, or two have the same.
    """
    found: dict[str, Message] = {}
    for number, each in enumerate(messages, start=1):
        own_id = each.get(key) if isinstance(each, dict) else None
        if not isinstance(own_id, str) or not own_id or own_id in found:
            raise ValueError(f"message {number} has no {key} of its own")
        found[own_id] = each
    return found


CLAUDE_AI = ChatExport("claude-ai", _is_claude, _claude_tree, _claude_messages)
LIBRECHAT = ChatExport("librechat", _is_librechat, _librechat_tree, _librechat_messages)
OPEN_WEBUI = ChatExport("open-webui", _is_open_webui, _open_webui_tree, _open_webui_messages)
