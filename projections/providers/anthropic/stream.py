"""Events of Anthropic's Messages: content blocks that open, grow and close one by one.

Text, thinking and tool use become parts and calls. Other blocks (server tools and their results,
redacted thinking, future types) are kept as received, with their pieces joined. The message's
``raw`` holds the blocks only if they cannot be rebuilt from parts and calls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eventstore.events import ReasoningPart, TextPart, TokenUsage
from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import Growing, unknown_fields, whole
from projections.providers.usage import anthropic_usage, updated

__all__ = ["AnthropicParser"]

_OF_TOOL = frozenset({"id", "input", "name", "type"})
_PIECES = {"text_delta": "text", "thinking_delta": "thinking"}
_OF_MESSAGE = frozenset({"stop_reason"})
_BESIDE = ("stop_sequence", "stop_details", "container", "context_management")
_OWN = ("text", "thinking", "tool_use")
_NO_INPUT = ("", "text", "thinking", "tool_use")
"""The blocks whose ``input_json_delta`` is a piece of a tool call, as that of an unknown block."""
_TWO_MESSAGES = "a second message began within one stream"


@dataclass(slots=True)
class _Block:
    place: int
    start: JsonObject
    index: Any = None
    call: int | None = None
    input_pieces: list[str] = field(default_factory=list)
    citations: list[Any] | None = None
    grown: Growing | None = None
    closed: bool = False

    @property
    def kind(self) -> str:
        return text(self.start.get("type"))

    def cite(self, citation: Any) -> None:
        """Add a citation to those in the block's start."""
        if self.citations is None:
            cited = self.start.get("citations")
            self.citations = [*cited] if isinstance(cited, list) else []
            self.start["citations"] = self.citations
        self.citations.append(citation)

    def settle(self) -> None:
        """Replace the start by the grown block."""
        if self.grown is not None:
            self.start, self.grown = self.grown.value(), None


class AnthropicParser(ChunkParser):
    """Parses the events of one message."""

    specification: ClassVar[str] = "anthropic_messages"
    server: ClassVar[str | None] = "anthropic"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._totals: JsonObject = {}
        self._blocks: list[_Block] = []
        self._by_index: dict[Any, _Block] = {}
        self._open_blocks: dict[int, _Block] = {}
        self._calls = ToolCalls(self._answer, RULES[self.specification])
        self._started_twice = False
        self._counted = False

    def _take(self, event: JsonObject) -> None:
        kind, index = event.get("type"), _hashable(event.get("index"))
        if self._started_twice:
            self._answer.keep(event)
        elif kind == "message_start" and isinstance(event.get("message"), dict):
            self._begin(event)
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self._open(index, event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            self._grow(index, event["delta"], event)
        elif kind == "content_block_stop":
            for block in [each for each in self._open_blocks.values() if each.index == index]:
                self._close(block)
        elif kind == "message_delta":
            self._end(event)
        elif kind == "message_stop":
            self._finish()
        elif kind == "error" or (kind is None and event.get("error")):
            self._fail(event.get("error"), event)
        elif kind != "ping":
            self._answer.keep(event)

    def _read(self, response: JsonObject) -> None:
        self._start(response)
        self._finish()

    def _begin(self, event: JsonObject) -> None:
        if not self._blocks and not self._finish_reason:
            # A proxy may send one of its own, or repeat it.
            self._start(event["message"])
            return
        # Two answers in one stream: the rest cannot be assigned to either.
        self._started_twice, self.finished = True, False
        self._answer.keep(event)
        self._fail({"type": "protocol_error", "message": _TWO_MESSAGES}, event)

    def _start(self, message: JsonObject) -> None:
        self._note(message)
        self._finish_reason = text(message.get("stop_reason")) or self._finish_reason
        fields = {key: message.get(key) for key in _BESIDE}
        self._of_response |= unknown_fields(fields, _OF_MESSAGE)
        self._add_counts(message.get("usage"))
        content = message.get("content")
        content = [content] if isinstance(content, str) else content
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, str):
                block = {"type": "text", "text": block}
            if isinstance(block, dict):
                self._open(index, block)
                self._close(self._by_index[index])
            elif block is not None:
                self._answer.keep({"content": [block]})

    def _open(self, index: Any, start: JsonObject) -> None:
        known = self._by_index.get(index)
        if known is not None and known.call is not None and _is_same(known.start, start):
            return
        block = _Block(len(self._blocks), start, index)
        self._blocks.append(block)
        self._by_index[index] = self._open_blocks[block.place] = block
        if block.kind == "tool_use":
            piece = Piece.of_arguments(
                start.get("input") or {},
                name=text(start.get("name")),
                call_id=text(start.get("id")) or None,
                index=index,
                raw=unknown_fields(start, _OF_TOOL),
            )
            block.call = self._calls.begin(piece)
        elif block.kind == "text" and isinstance(start.get("text"), str | None):
            self._answer.say("text", block.place, text(start.get("text")))
            self._keep_citations(start)
        elif block.kind == "thinking":
            self._answer.say("reasoning", block.place, text(start.get("thinking")))
            self._sign(block, start.get("signature"))
        elif block.kind == "redacted_thinking":
            self._answer.sign(block.place, None, block.start)
            self._answer.keep({"type": "content_block_start", "content_block": block.start})
        elif unknown_fields(start, frozenset()):
            self._answer.show(block.place, block.start)
            self._answer.keep({"type": "content_block_start", "content_block": block.start})

    def _keep_citations(self, start: JsonObject) -> None:
        if start.get("citations"):
            self._answer.keep({"citations": start["citations"]})

    def _sign(self, block: _Block, signature: Any) -> None:
        if text(signature):
            block.start["signature"] = signature
            self._answer.sign(block.place, signature)

    def _grow(self, index: Any, delta: JsonObject, event: JsonObject) -> None:
        kind, block = delta.get("type"), self._by_index.get(index)
        if isinstance(kind, str) and kind in _PIECES and not _can_have(block, kind):
            self._open(index, {"type": _PIECES[kind]})
            block = self._by_index[index]
        of_tool = kind == "input_json_delta" and (block is None or block.kind in _NO_INPUT)
        if of_tool and delta.get("partial_json"):
            piece = Piece.of_arguments(delta["partial_json"], index=index)
            if self._calls.add(piece) is None:
                self._answer.keep(event)
        elif block is None or block.closed:
            if unknown_fields(delta, frozenset({"type"})):
                self._answer.keep(event)
        elif kind == "text_delta" and block.kind == "text":
            self._answer.say("text", block.place, text(delta.get("text")))
        elif kind == "thinking_delta" and block.kind == "thinking":
            self._answer.say("reasoning", block.place, text(delta.get("thinking")))
        elif kind == "signature_delta" and block.kind == "thinking":
            self._sign(block, delta.get("signature"))
        else:
            self._grow_other(block, delta, event)

    def _grow_other(self, block: _Block, delta: JsonObject, event: JsonObject) -> None:
        self._answer.keep(event)
        if delta.get("type") == "input_json_delta":
            block.input_pieces.append(text(delta.get("partial_json")))
        elif delta.get("type") == "citations_delta":
            block.cite(delta.get("citation"))
        elif block.kind not in ("text", "thinking", "tool_use"):
            block.grown = block.grown or Growing(block.start)
            block.grown.add({k: v for k, v in delta.items() if k != "type"})
            self._show(block)

    def _close(self, block: _Block | None) -> None:
        if block is None or block.closed:
            return
        block.closed = True
        self._open_blocks.pop(block.place, None)
        block.settle()
        if block.call is not None:
            self._calls.close(block.call)
        elif joined := "".join(block.input_pieces):
            try:
                block.start["input"] = json.loads(joined)
            except (ValueError, RecursionError):
                block.start["input"] = joined
            self._show(block)

    def _show(self, block: _Block) -> None:
        value = block.grown or block.start
        if block.kind == "redacted_thinking":
            self._answer.sign(block.place, None, value)
        elif block.kind not in ("text", "thinking", "tool_use"):
            self._answer.show(block.place, value)

    def _end(self, event: JsonObject) -> None:
        delta = event.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        self._add_counts(event.get("usage"))
        self._counted = self._counted or bool(event.get("usage"))
        others = {key: event.get(key) for key in ("context_management",)}
        self._of_response |= unknown_fields({**others, **delta}, _OF_MESSAGE)
        reason = text(delta.get("stop_reason"))
        if reason and reason.lower() not in ("none", "null"):
            self._finish_reason = reason
            self._finish()

    def _finish(self) -> None:
        for block in list(self._open_blocks.values()):
            self._close(block)
        self.finished = True

    def _ended_in_order(self, closed: bool, marked: bool) -> bool:
        """Whether the counts of the whole answer have come, as they do after its last block."""
        counted = self._counted and not self._open_blocks
        return counted or super()._ended_in_order(closed, marked)

    def _add_counts(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._totals = updated(self._totals, unknown_fields(usage, frozenset()))

    def _usage(self) -> TokenUsage | None:
        return anthropic_usage(self._totals)

    def _raw(self) -> JsonObject:
        blocks = [self._whole(block) for block in self._blocks if not self._is_empty(block)]
        found = {} if blocks == self._rendered() else {"content": blocks}
        return unknown_fields({**found, "response": self._of_response}, frozenset())

    def _whole(self, block: _Block) -> JsonObject:
        """Return a block in the form in which it is sent back."""
        found = unknown_fields(block.start, frozenset())
        if block.call is not None:
            request = self._answer.calls[block.call].request(complete=True)
            return {**found, "name": request.name, "input": request.arguments or {}}
        if block.kind == "text":
            return {**found, "text": self._answer.text_of("text", block.place)}
        if block.kind == "thinking":
            thought = self._answer.text_of("reasoning", block.place)
            return {"signature": "", **found, "thinking": thought}
        return whole(block.grown or block.start)  # type: ignore[no-any-return]

    def _is_empty(self, block: _Block) -> bool:
        """Whether a block is empty; Anthropic rejects an empty text block in a request."""
        if block.kind == "tool_use":
            return block.call is None or not self._answer.calls[block.call].name
        if not unknown_fields(block.start, frozenset()):
            return True
        if block.kind == "text":
            return not self._answer.text_of("text", block.place)
        if block.kind == "thinking" and not block.start.get("signature"):
            return not self._answer.text_of("reasoning", block.place)
        return False

    def _rendered(self) -> list[JsonObject]:
        """Return the blocks that can be rebuilt from parts and calls."""
        found: list[JsonObject] = []
        for part in self._answer.parts():
            if isinstance(part, TextPart):
                found.append({"type": "text", "text": part.text})
            elif isinstance(part, ReasoningPart):
                signature = part.signature or ""
                thought = {"type": "thinking", "thinking": part.text, "signature": signature}
                found.append(part.raw or thought)
        for call in self._answer.calls:
            if not call.name:
                continue
            request = call.request(complete=True)
            found.append(
                {
                    **{key: value for key, value in call.whole_raw.items() if value is not None},
                    "type": "tool_use",
                    "id": call.provider_id,
                    "name": call.name,
                    "input": request.arguments or {},
                }
            )
        return found


def _is_same(block: JsonObject, start: JsonObject) -> bool:
    """Whether an event begins a tool call again."""
    return bool(text(start.get("id"))) and all(
        block.get(key) == start.get(key) for key in ("id", "name", "type")
    )


def _can_have(block: _Block | None, kind: str) -> bool:
    """Whether a piece of text belongs to a block; one of another type begins a block of its own.

    Some servers omit the start of a block, or number the text after a tool call as the call.
    """
    if block is None or not unknown_fields(block.start, frozenset()) or block.closed:
        return False
    return block.kind == _PIECES[kind] or block.kind not in (*_OWN, "redacted_thinking")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | str | float | None) else str(value)
