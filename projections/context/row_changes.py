"""Row changes made by the fold of the messages[] view: new rows, results, visibility."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from eventstore.events import RecordedEvent
from projections.context.detail import plain
from projections.context.prompts import place_of
from projections.context.rows import CONTEXT_MESSAGES, Kind
from projections.engine.projection import Patch, Put
from projections.engine.quoting import PLACE

__all__ = ["TABLE", "hide", "hide_where", "new_row", "placeholder", "result_row"]

TABLE = CONTEXT_MESSAGES.name
_NO_NATIVE: dict[str, Any] = {"native": None}
_NO_PLACE = dict.fromkeys(column.name for column in PLACE)


def new_row(
    event: RecordedEvent,
    kind: Kind,
    held: dict[str, Any],
    *,
    version: int | None = None,
    part: int = 0,
    **values: Any,
) -> Put:
    """Return a new row; ``held`` has the columns of its message."""
    message = held["message"]
    told = vars(event.meta)  # a model's own attributes take three times as long to read
    columns = {
        "role": message["role"],
        "kind": kind,
        **_NO_NATIVE,
        **held,
        **place_of(event, message),
        "sealed": False,
        "hidden": None if told["in_context"] else "excluded",
        "source_versions": [event.version],
        "mode": told["mode"],
        "run_id": told["run_id"],
        "turn": told["turn"],
        "step": told["step"],
        **values,
    }
    return Put(TABLE, (event.version if version is None else version, part), columns)


def result_row(call_id: str, held: dict[str, Any], sources: Sequence[int], **values: Any) -> Put:
    """Return the change of an existing tool row; its visibility is unchanged."""
    version, index = map(int, call_id.split("."))
    values["source_versions"] = [version, *sources]
    return Put(TABLE, (version, index + 1), {**held, **values})


@cache
def _held_placeholder(text: str) -> dict[str, Any]:
    return {**plain({"role": "tool", "content": text}), **_NO_NATIVE, **_NO_PLACE}


def placeholder(text: str) -> dict[str, Any]:
    """Return the columns of a tool message whose text no event has."""
    columns = _held_placeholder(text)
    return {**columns, "message": columns["message"].copy()}


def hide(version: int, reason: str | None) -> Put:
    """Return the change of an existing message's visibility; a summary there is not affected."""
    return Put(TABLE, (version, 0), {"hidden": reason})


def hide_where(first: int, last: int, was: str | None, hidden: str | None) -> Patch:
    """Return the change of the rows in a range that have the visibility ``was``."""
    return Patch(TABLE, "version", first, last, {"hidden": hidden}, only=("hidden", was))
