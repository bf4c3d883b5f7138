"""Answers of Gemini's Interactions API, whole or streamed.

An interaction is a list of steps: thoughts, model output, function calls. Other steps are kept as
received. An interaction that continues in the background is not an answer yet. Source: Gemini's API
reference, "Interactions" (2026).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from eventstore.events.base import JsonObject
from projections.providers.parser import ChunkParser, object_of, place_of, text
from projections.providers.pieces import RULES, Piece, ToolCalls
from projections.providers.stream_base import unknown_fields
from projections.providers.usage import interactions_usage

__all__ = ["InteractionsParser"]

_OF_INTERACTION = frozenset(
    {"id", "object", "model", "status", "steps", "usage", "created", "updated", "error"}
)
_GOES_ON = ("", "in_progress", "queued")
_SILENT = ("interaction.status_update",)


class InteractionsParser(ChunkParser):
    """Parses the events of one answer."""

    specification: ClassVar[str] = "gemini_interactions"
    server: ClassVar[str | None] = "google"

    def __init__(self, provider: str | None = None) -> None:
        super().__init__(provider)
        self._kinds: dict[Any, str] = {}
        self._calls = ToolCalls(self._answer, RULES[self.specification])
        self._seen: dict[str, int] = {}
        self._steps: dict[Any, JsonObject] = {}

    def _take(self, event: JsonObject) -> None:
        kind, place = text(event.get("event_type")), place_of(event.get("index"))
        if self._is_seen(event):
            return
        if kind == "error" or (not kind and event.get("error")):
            self._fail(event.get("error"), event)
        elif kind == "step.start":
            self._step(place, event.get("step"))
        elif kind == "step.delta":
            self._grow(place, event.get("delta"))
        elif kind == "step.stop":
            self._calls.stop(place)
        elif isinstance(event.get("interaction"), dict):
            self._end(event["interaction"])
        elif kind not in _SILENT:
            self._answer.keep(event)

    def _is_seen(self, event: JsonObject) -> bool:
        """Whether an event has come before: a resumed stream may repeat some."""
        name = text(event.get("event_id"))
        if not name:
            return False
        content = hash(json.dumps(event, sort_keys=True))
        seen, self._seen[name] = self._seen.get(name), content
        return seen == content

    def _read(self, response: JsonObject) -> None:
        steps = response.get("steps")
        for place, step in enumerate(steps if isinstance(steps, list) else ()):
            self._step(place, step)
        self._end(response)

    def _step(self, place: Any, step: Any) -> None:
        """Add a complete step, or one that begins."""
        if not isinstance(step, dict):
            self._keep_other(step)
            return
        kind = self._kinds[place] = text(step.get("type"))
        content = step.get("content", step.get("summary"))
        match kind:
            case "thought":
                self._grow(place, step)
            case "function_call":
                self._calls.begin(_piece(place, step))
            case "user_input":
                self._answer.keep(step)
            case "model_output":
                pass
            case _ if unknown_fields(step, frozenset()):
                self._steps[place] = dict(step)
                self._answer.show(("step", place), self._steps[place])
                self._answer.keep(step)
        if kind in ("thought", "model_output"):
            for block in content if isinstance(content, list) else [content]:
                self._say(place, block)

    def _grow(self, place: Any, delta: Any) -> None:
        if not isinstance(delta, dict):
            self._keep_other(delta)
        elif self._kinds.get(place) == "function_call" or (
            place not in self._steps and "arguments" in delta
        ):
            self._calls.add(_piece(place, delta))
        elif place in self._steps:
            self._steps[place] |= unknown_fields(delta, frozenset({"type"}))
            self._answer.keep(delta)
        elif isinstance(signature := delta.get("signature"), str):
            if signature:  # some are empty
                self._answer.sign(place, signature)
        elif delta.get("type") in ("text", "thought_summary"):
            self._say(place, delta.get("content", delta))
        elif delta.get("type") != "thought" and unknown_fields(delta, frozenset({"type"})):
            self._keep_other(delta)

    def _say(self, place: Any, block: Any) -> None:
        content = object_of(block).get("text")
        kind = "reasoning" if self._kinds.get(place) == "thought" else "text"
        if isinstance(content, str):
            self._answer.say(kind, place, content)  # type: ignore[arg-type]
        else:
            self._keep_other(block)

    def _keep_other(self, value: Any) -> None:
        if value is not None:
            self._show_other(value, value)

    def _end(self, body: JsonObject) -> None:
        self._note(body)
        status = text(body.get("status"))
        self._count(interactions_usage, body.get("usage"))
        self._of_response |= unknown_fields(body, _OF_INTERACTION)
        if status == "failed" or body.get("error"):
            self._fail(body.get("error") or {"message": "the interaction failed"}, body)
        elif status not in _GOES_ON:
            self._finish_reason = status
            if self.error is None:
                self._finish()
        else:
            self.pending = status or None

    def _finish(self) -> None:
        self.finished = True
        self._calls.close_all()


def _piece(place: Any, step: JsonObject) -> Piece:
    """Return a function call, or a piece of one."""
    return Piece.of_arguments(
        step.get("arguments"),
        name=text(step.get("name")),
        call_id=text(step.get("id")) or None,
        index=place,
    )
