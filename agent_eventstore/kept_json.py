"""JSON objects of a product's own that are kept with conversations and events, within bounds."""

from __future__ import annotations

from typing import Any

from eventstore.errors import InvalidEvent
from eventstore.events import Meta
from eventstore.events.bounds import Extra, excess_of
from eventstore.events.codec import dumps

__all__ = ["kept_json", "with_extra"]


def kept_json(kind: Any, name: str, value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a JSON object of the product's, if it is one of at most the size of its kind.

    Raises:
        InvalidEvent: It is too large, nested too deeply, or no JSON.
    """
    if found := excess_of(kind, name, value):
        raise InvalidEvent(str(found[0]), field=found[0].field, limit=found[0].limit)
    if value is not None:
        if not isinstance(value, dict):
            raise InvalidEvent(f"{name} is a JSON object, not {value!r:.80}", field=name)
        dumps(value)
    return value


def with_extra(meta: Meta, extra: dict[str, Any] | None) -> Meta:
    """Return metadata with further keys in ``extra``.

    Raises:
        InvalidEvent: See `kept_json`.
    """
    if not kept_json(Extra, "extra", extra):
        return meta
    both = {**(meta.extra or {}), **(extra or {})}
    return meta.model_copy(update={"extra": kept_json(Extra, "extra", both)})
