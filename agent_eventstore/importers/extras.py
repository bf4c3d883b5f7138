"""What a project's message has besides OpenAI's fields, for its user interface and for us.

``partType``, ``isCollapsed`` and ``widget`` are those of document 000 (4.1). ``status``, ``error``,
``instruction``, ``continues`` and ``summarises`` are this project's own additions: without them an
exported conversation would not come back as it was. Others ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from eventstore.events import (
    AssistantMessage,
    LlmError,
    Summary,
    SystemInstruction,
    ToolResult,
    Ui,
    VersionRange,
)
from eventstore.events.records import EventData
from eventstore.events.values import ToolStatus

from .failures import error_in
from .openai_parts import text_of
from .openai_wire import marked, slim
from .transcript import mode_of, moment_of

__all__ = ["NAMES", "Extras", "ui_of"]

NAMES = {"part_type": "partType", "collapsed": "isCollapsed", "widget": "widget"}
"""What the fields of `Ui` are called in a project's message."""


def ui_of(message: Any) -> Ui | None:
    """Return how a message is shown; None if it does not say.

    A field of a wrong kind is left out. A widget that is too large is replaced by a note of it.
    """
    if not isinstance(message, Mapping):
        return None
    fields: dict[str, Any] = {}
    told = {name: message.get(key) for name, key in NAMES.items()}
    for name, value in told.items():
        if value is None:
            continue
        try:
            Ui.model_validate({name: value}, strict=True)
        except ValidationError as error:
            too_large = isinstance(value, dict) and error.errors()[0]["type"] == "value_error"
            if not too_large:
                continue
            value = {"left_out": error.errors()[0]["msg"].removeprefix("Value error, ")}
        fields[name] = value
    return Ui(**fields) if fields else None


class Extras:
    """Takes over what the messages of one conversation have besides, in order."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def told(self, message: Mapping[str, Any], version: int) -> dict[str, Any]:
        """Return the metadata of a message that will stand at ``version``."""
        if isinstance(name := message.get("id"), str):
            self._versions[name] = version
        return {
            "mode": mode_of(message.get("mode")),
            "run_id": _text(message.get("runId")),
            "workflow_id": _text(message.get("workflowId")),
            "agent_id": _text(message.get("agentId")),
            "in_context": message.get("includeInContext") is not False,
            "occurred_at": moment_of(message),
        }

    def payload(self, message: Mapping[str, Any], data: EventData, original: str) -> EventData:
        """Return a message's payload with what it has besides.

        Args:
            message: As it came.
            data: What OpenAI's fields of it say.
            original: The key in ``raw`` under which the message is kept.
        """
        if isinstance(data, AssistantMessage) and not data.tool_calls:
            data = error_in(text_of(message.get("content"))) or data
        fields: dict[str, Any] = {"raw": {original: slim(message, data)}}
        if isinstance(data, ToolResult | AssistantMessage | LlmError):
            fields["duration_ms"] = _milliseconds(message.get("duration"))
        if isinstance(data, ToolResult):
            fields |= _executed(message, data)
        if isinstance(data, Summary):
            fields["versions"] = self._ranges(message)
        if isinstance(data, SystemInstruction):
            fields["continues"] = message.get("continues") is True
        if hasattr(data, "ui"):
            fields["ui"] = ui_of(message)
        return marked(data, fields)

    def _ranges(self, message: Mapping[str, Any]) -> tuple[VersionRange, ...]:
        listed = message.get("summarises")
        names = listed if isinstance(listed, list) else []
        known = {self._versions.get(name) for name in names if isinstance(name, str)}
        ranges: list[VersionRange] = []
        for version in sorted(version for version in known if version is not None):
            if ranges and ranges[-1].last == version - 1:
                ranges[-1] = VersionRange(first=ranges[-1].first, last=version)
            else:
                ranges.append(VersionRange(first=version, last=version))
        return tuple(ranges)


def _executed(message: Mapping[str, Any], data: ToolResult) -> dict[str, Any]:
    status = next((s for s in get_args(ToolStatus) if s == message.get("status")), None)
    if status is None:
        return {}
    return {"status": status, "error": _text(message.get("error")) or data.error}


def _milliseconds(value: Any) -> int | None:
    return round(value) if type(value) in (int, float) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
