"""Answers of Bedrock's ``Converse``, and the events of ``ConverseStream``.

An event is an object with one key, its name. Text, tool use and reasoning become parts and calls;
other blocks are kept as received. Usage arrives after the end, as ``metadata``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, object_of, place_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import unknown_fields
from projections.providers.usage import bedrock_usage

__all__ = ["EVENTS", "BedrockParser"]

EVENTS = frozenset(
    {
        *("messageStart", "messageStop", "metadata"),
        *("contentBlockStart", "contentBlockDelta", "contentBlockStop"),
    }
)
"""The names of events other than errors."""

_OF_RESPONSE = frozenset({"ResponseMetadata", "output", "stopReason", "usage"})


class BedrockParser(ChunkParser):
    """Parses the events of one answer."""

    specification: ClassVar[str] = "bedrock_converse"
    server: ClassVar[str | None] = "aws"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._calls = ToolCalls(self._answer, RULES[self.specification])
        self._counted = False

    def _take(self, event: JsonObject) -> None:
        for name, body in event.items():
            if name.endswith("Exception"):
                detail = body if isinstance(body, dict) else {"message": text(body)}
                self._fail({"code": name, **detail}, event)
            elif name not in EVENTS or not isinstance(body, dict):
                self._answer.keep({name: body})
            elif name == "contentBlockStart":
                self._start(place_of(body.get("contentBlockIndex")), body.get("start"))
            elif name == "contentBlockDelta":
                self._grow(place_of(body.get("contentBlockIndex")), body.get("delta"))
            elif name == "contentBlockStop":
                self._calls.stop(place_of(body.get("contentBlockIndex")))
            elif name == "messageStop":
                self._end(body)
            elif name == "metadata":
                self._count(bedrock_usage, body.get("usage"))
                self._counted = True
                self._of_response |= unknown_fields(body, _OF_RESPONSE)

    def _read(self, response: JsonObject) -> None:
        output = response.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        for place, block in enumerate(content if isinstance(content, list) else ()):
            self._start(place, block)
            if not (isinstance(block, dict) and object_of(block.get("toolUse"))):
                self._grow(place, block)
        self._counts = bedrock_usage(response.get("usage"))
        self._of_response = unknown_fields(response, _OF_RESPONSE)
        self._end(response)

    def _start(self, place: Any, start: Any) -> None:
        use = start.get("toolUse") if isinstance(start, dict) else None
        if isinstance(use, dict):
            self._calls.begin(
                Piece.of_arguments(
                    use.get("input"),
                    name=text(use.get("name")),
                    call_id=text(use.get("toolUseId")) or None,
                    index=place,
                )
            )

    def _grow(self, place: Any, delta: Any) -> None:
        pieces = delta if isinstance(delta, dict) else {"text": delta}
        use, thought = object_of(pieces.get("toolUse")), object_of(pieces.get("reasoningContent"))
        if unknown_fields(use, frozenset()):
            self._calls.add(
                Piece.of_arguments(
                    use.get("input"),
                    name=text(use.get("name")),
                    call_id=text(use.get("toolUseId")) or None,
                    index=place,
                )
            )
        elif unknown_fields(thought, frozenset()):
            self._think(place, thought)
        elif isinstance(pieces.get("text"), str):
            self._answer.say("text", place, pieces["text"])
        elif delta is not None and unknown_fields(
            pieces, frozenset({"toolUse", "reasoningContent"})
        ):
            self._show_other(delta, delta)

    def _think(self, place: Any, thought: JsonObject) -> None:
        whole = thought.get("reasoningText")
        pieces = whole if isinstance(whole, dict) else thought
        self._answer.say("reasoning", place, text(pieces.get("text")))
        if text(pieces.get("signature")):
            self._answer.sign(place, pieces["signature"])
        elif "redactedContent" in thought:
            self._answer.sign(place, None, thought)
            self._answer.keep({"reasoningContent": thought})

    def _end(self, body: JsonObject) -> None:
        self._finish_reason = text(body.get("stopReason")) or self._finish_reason
        self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._calls.close_all()

    def _ended_in_order(self, closed: bool, marked: bool) -> bool:
        """Whether the counts have come, which are last."""
        return self._counted or super()._ended_in_order(closed, marked)
