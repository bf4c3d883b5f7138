"""Rows as messages of Anthropic's API: content blocks, and the required order of them.

Rules: API reference "Create a Message", guides "Tool use", "Extended thinking", "Vision" and "PDF
support" (all 2025), and "What's new in Claude 4.6" (2026), since which a request must not end with
an assistant message.

- The system part is a separate field. Later system messages (summaries) and failed model calls
  become notes in the user's turn, since the API has no other role for them.
- Turns alternate and begin with the user; adjacent messages of one role are merged. All results of
  a turn come first in the user turn directly after it; unsuccessful ones are marked as errors.
- Thinking is returned unmodified with its signature, in its place among the blocks, to the provider
  that made it. Reasoning of any other model is left out: it has no valid signature.
- Texts must contain more than whitespace. Images are JPEG, PNG, GIF or WebP, as base64 or at an
  ``https:`` URL; documents are PDF or plain text. File ids belong to another provider, so they are
  described as text; so is all other content that has no block.
- Thinking must not be the last block of an assistant message; an answer that was interrupted while
  thinking therefore loses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from projections.context import prompts
from projections.context.images import IMAGE_TYPES, data_of, text_of
from projections.context.payload_messages import INVALID
from projections.context.rows import ContextRow
from projections.providers import request_base
from projections.providers.anthropic.block_shapes import paired
from projections.providers.provider_limits import unfit_file, without_excess_images
from projections.providers.request_base import (
    Additions,
    Json,
    Wire,
    arguments_of,
    call_ids,
    native_for,
    outcome,
    parts_of,
    split_front,
    system_text,
    text_in,
)

__all__ = ["ADDITIONS", "SPECIFICATION", "blocks_of", "text_block", "wire"]

SPECIFICATION = "anthropic_messages"

_NOTE = request_base.note("")

# ``once`` includes a note for the digest, which is made from many rows and belongs to none.
ADDITIONS = Additions(
    once=(request_base.NO_USER, request_base.CLOSING, _NOTE),
    notes=frozenset({"summary", "error"}),
    note=_NOTE,
)

_NO_ERRORS = frozenset({"success", "withdrawn", "not_shown"})

_ROLES = {"assistant": "assistant"}
_OWN_WORDS = frozenset({"assistant", "tool", "user"})

_THINKING = frozenset({"thinking", "redacted_thinking"})


def text_block(text: str) -> Json:
    """Return a text as a content block."""
    return {"type": "text", "text": text}


def blocks_of(parts: Iterable[Json]) -> list[Json]:
    """Return parts as blocks, without texts that contain only whitespace."""
    blocks = (_block(part) for part in parts)
    return [block for block in blocks if block.get("text", "x").strip()]


def _block(part: Json) -> Json:
    match part.get("type"):
        case "text":
            return text_block(part["text"])
        case "image_url":
            url = part["image_url"]["url"]
            return _image(url) or text_block(prompts.image_mention(url))
        case "file":
            file = part["file"]
            name, url = file.get("filename"), file.get("file_data")
            why = unfit_file(url, SPECIFICATION) if isinstance(url, str) else ""
            mention = prompts.file_mention(name, file.get("file_id"), why=why)
            return text_block(mention) if why else _document(name, url) or text_block(mention)
        case "input_audio":
            return text_block(request_base.AUDIO)
    return text_block(json.dumps(part, ensure_ascii=False))


def _image(url: str) -> Json | None:
    if url.startswith("https://"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media, data = data_of(url)
    if media not in IMAGE_TYPES or not data:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _document(name: Any, url: Any) -> Json | None:
    media, data = data_of(url) if isinstance(url, str) else ("", "")
    source: Json
    if media == "application/pdf" and data:
        source = {"type": "base64", "media_type": media, "data": data}
    elif isinstance(url, str) and (text := text_of(url)) and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        return None
    titled = {"title": name} if isinstance(name, str) and name.strip() else {}
    return {"type": "document", "source": source, **titled}


def wire(rows: Iterable[ContextRow], *, provider: str | None = None) -> Wire:
    """Return the rows in this format: at least one message, the last one from the user.

    If the model has paused its turn, the last message is the assistant's.
    """
    front, rest = split_front(rows)
    talk = _AnthropicMessages()
    messages = [
        (_ROLES.get(row.kind, "user"), _blocks_of_row(row, ids, provider))
        for row, ids in zip(rest, call_ids(rest, SPECIFICATION), strict=True)
    ]
    paused = bool(rest) and (native_for(rest[-1], SPECIFICATION, provider) or {}).get("paused")
    for role, blocks in _without_last_thoughts(paired(messages, paused=bool(paused))):
        talk.say(role, blocks)
    without_excess_images(talk.messages, SPECIFICATION, text_block)
    talk.added += [_NOTE for row in rest if row.kind not in _OWN_WORDS]
    if not talk.messages:
        talk.add(request_base.NOTHING_YET)
    elif talk.messages[0]["role"] == "assistant":
        talk.messages.insert(0, {"role": "user", "content": [text_block(request_base.NO_USER)]})
        talk.added.insert(0, request_base.NO_USER)
    # The model continues a paused turn when the turn is sent back unchanged.
    if talk.messages[-1]["role"] == "assistant" and not paused:
        talk.add(request_base.CLOSING)
    return Wire(SPECIFICATION, tuple(talk.messages), system_text(front), tuple(talk.added))


def _blocks_of_row(row: ContextRow, ids: tuple[str, ...], provider: str | None) -> list[Json]:
    match row.kind:
        case "tool":
            return [_result(row, ids[0])]
        case "assistant":
            return _assistant(row, ids, provider)
        case "user":
            return _user(row.message)
    return [text_block(request_base.note(text_in(row.message)))]


def _without_last_thoughts(
    messages: Sequence[tuple[str, list[Json]]],
) -> list[tuple[str, list[Json]]]:
    """Return the entries, without thinking that no other block of its message follows."""
    found: list[tuple[str, list[Json]]] = []
    follows = False  # whether a block of the same message follows
    for role, blocks in reversed(messages):
        if role == "assistant":
            while blocks and not follows and blocks[-1]["type"] in _THINKING:
                blocks = blocks[:-1]
            follows = follows or bool(blocks)
        elif blocks:
            follows = False
        found.append((role, blocks))
    return found[::-1]


class _AnthropicMessages:
    """The turns so far, with alternating roles."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.added: list[str] = []

    def say(self, role: str, blocks: Sequence[Json]) -> None:
        """Add blocks to the turn of a role; an empty list starts no turn."""
        if not blocks:
            return
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        self.messages[-1]["content"].extend(blocks)

    def add(self, text: str) -> None:
        """Add a text of this format, not of the user, to the user's turn."""
        self.say("user", [text_block(text)])
        self.added.append(text)


def _user(message: Json) -> list[Json]:
    blocks = blocks_of(parts_of(message)) or [text_block(request_base.EMPTY_USER)]
    name = message.get("name")
    if not name:
        return blocks
    first = blocks[0]
    if first["type"] == "text":
        return [text_block(request_base.by(name, first["text"])), *blocks[1:]]
    return [text_block(request_base.by(name, "")), *blocks]


def _assistant(row: ContextRow, ids: tuple[str, ...], provider: str | None) -> list[Json]:
    calls = [
        _call(call, wire_id)
        for call, wire_id in zip(row.message.get("tool_calls") or (), ids, strict=True)
    ]
    native = native_for(row, SPECIFICATION, provider)
    if native is None:
        text, name = text_in(row.message), row.message.get("name")
        content_blocks = (
            [text_block(request_base.by(name, text) if name else text)] if text.strip() else []
        )
        return [*content_blocks, *calls]
    blocks: list[Json] = []
    for block in native["content"]:
        if "call" in block:
            extra = {key: value for key, value in block.items() if key != "call"}
            blocks.append({**calls[block["call"]], **extra})
        else:
            blocks.append(dict(block))
    return blocks


def _call(call: Json, wire_id: str) -> Json:
    text = call["function"]["arguments"]
    given = arguments_of(text)
    return {
        "type": "tool_use",
        "id": wire_id,
        "name": call["function"]["name"],
        "input": {INVALID: text} if given is None else given,
    }


def _result(row: ContextRow, wire_id: str) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": wire_id}
    rich = (row.native or {}).get("content")
    text = text_in(row.message)
    if rich:
        block["content"] = blocks_of(rich)
    elif text.strip():
        block["content"] = text
    if outcome(row) not in _NO_ERRORS:
        block["is_error"] = True
    return block
