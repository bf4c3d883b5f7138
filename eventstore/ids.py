"""Identifiers: time-ordered ids for new objects, derived ids for imported ones."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid5

import uuid_utils

from eventstore.errors import InvalidEvent

__all__ = [
    "DerivedId",
    "StreamId",
    "call_id",
    "derived_id",
    "fresh_id",
    "keyed_id",
    "new_id",
    "to_owner",
    "uuid_in",
]

StreamId = UUID | str
"""A conversation: its id (a UUID or its text), or the product's own key for it.

A key is looked up within the given tenant, or the tenant that the store is bound to."""

_NAMESPACE = UUID("0d5c1f9e-7a0b-5b8e-9a55-6c1a5f0f6c3d")
_KEYS = UUID("7b1f7c52-52c4-5d0e-8f0c-3c4f8a9b6e21")


def new_id() -> UUID:
    """Return a fresh UUIDv7: unique, and ordered by time of creation."""
    return UUID(int=uuid_utils.uuid7().int)


def fresh_id() -> tuple[str, bytes]:
    """Return a fresh UUIDv7 as text and as bytes; creating a `UUID` costs more than both."""
    made = uuid_utils.uuid7()
    return str(made), made.bytes


def derived_id(*parts: str | int | UUID) -> UUID:
    """Return the UUIDv5 of the parts: the same parts give the same id on every machine."""
    name = "\x1f".join(str(part) for part in parts)
    return uuid5(_NAMESPACE, name.encode("utf-8", "surrogatepass").hex())


class DerivedId(UUID):
    """The id of a conversation that this package derived from something other than a key."""

    __slots__ = ()

    @classmethod
    def of(cls, *parts: str | int | UUID) -> DerivedId:
        """Return `derived_id` of the parts, as the id of a conversation to create."""
        return cls(int=derived_id(*parts).int)

    def __repr__(self) -> str:
        """Return the representation of a plain UUID."""
        return f"UUID({str(self)!r})"

    def __reduce__(self) -> tuple[type[UUID], tuple[str]]:
        """Copy and pickle as a plain UUID."""
        return UUID, (str(self),)


class KeyedId(UUID):
    """The id of a conversation that the caller named by its key, so that errors name the key."""

    __slots__ = ("key",)

    key: str

    def __init__(self, key: str, tenant_id: str | None) -> None:
        super().__init__(int=uuid5(_KEYS, json.dumps([tenant_id, key])).int)
        object.__setattr__(self, "key", key)  # a UUID refuses it otherwise

    def __repr__(self) -> str:
        """Return the representation of a plain UUID."""
        return f"UUID({str(self)!r})"

    def __reduce__(self) -> tuple[type[UUID], tuple[str]]:
        """Copy and pickle as a plain UUID."""
        return UUID, (str(self),)


def keyed_id(key: str, tenant_id: str | None = None) -> UUID:
    """Return the id of the conversation with a key, within a tenant.

    This is the UUIDv5 of both as JSON, which differs for any two pairs.
    """
    return KeyedId(key, tenant_id)


def call_id(version: int, index: int) -> str:
    """Return our own id for a tool call: the assistant message's version and the call's index."""
    return f"{version}.{index}"


def to_owner(name: str, value: Any) -> str | None:
    """Return the id of a tenant or user, which must be text.

    Raises:
        InvalidEvent: It is not text (a number, say), or is empty.
    """
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, str):
        raise InvalidEvent(f"{name} is empty: pass a text, or leave it out")
    raise InvalidEvent(f"{name} must be text: pass {str(value)!r}, not {value!r}")


def uuid_in(value: UUID | str) -> UUID | None:
    """Return a UUID, given one or its text; None if the text is not a UUID."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None
