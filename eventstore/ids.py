"""Identifiers: time-ordered ones for new things, derived ones for things that are imported."""

from __future__ import annotations

from uuid import UUID, uuid5

import uuid_utils

from eventstore.errors import InvalidEvent

__all__ = ["call_id", "derived_id", "new_id", "to_uuid"]

_NAMESPACE = UUID("0d5c1f9e-7a0b-5b8e-9a55-6c1a5f0f6c3d")


def new_id() -> UUID:
    """Return a fresh UUIDv7: unique, and ordered by time of creation."""
    return UUID(int=uuid_utils.uuid7().int)


def derived_id(*parts: str | int | UUID) -> UUID:
    """Return the UUIDv5 of the parts: the same parts give the same id, on every machine."""
    name = "\x1f".join(str(part) for part in parts)
    return uuid5(_NAMESPACE, name.encode("utf-8", "surrogatepass").hex())


def call_id(version: int, index: int) -> str:
    """Return our own id of a tool call: the assistant message's version and the call's index."""
    return f"{version}.{index}"


def to_uuid(value: UUID | str) -> UUID:
    """Return a UUID from one or from its text.

    Raises:
        InvalidEvent: The text is no UUID.
    """
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidEvent(f"{value!r} is no conversation id: a UUID is needed") from error
