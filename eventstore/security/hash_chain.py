"""The hash chain: what an event commits to, and the check that nothing was altered.

Each event's ``data_digest`` is SHA-256 over a random salt and the payload's JSON text; ``chain`` is
SHA-256 over the previous chain value, the event's header and that digest. The chain starts with the
conversation's id, owner, parent and key, so these cannot be swapped either. Erasing a payload
deletes text and salt but keeps the digest: the chain can still be verified, and the text cannot be
guessed from it.

The chain covers an event's ``meta`` column verbatim, so that column can never be erased. Metadata
that identifies a person (who caused the event, the product's own ids of causes, its ``extra``) is
therefore stored in the ``data`` column, before the payload, and is erased with it:
``{"$meta":{"actor":"..."},...payload...}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from json import JSONDecoder
from typing import Literal
from uuid import UUID

__all__ = [
    "PRIVATE",
    "WRAPPED",
    "Problem",
    "ProblemKind",
    "Verification",
    "chain_start",
    "chain_step",
    "commit_to",
    "fork_start",
    "microseconds_of",
    "unwrapped",
    "wrapped",
]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

ProblemKind = Literal[
    "start_altered",
    "data_altered",
    "header_altered",
    "gap",
    "data_missing",
    "data_returned",
    "receipt_missing",
    "receipt_altered",
    "place_altered",
    "blob_missing",
    "blob_altered",
    "head_differs",
    "conversation_missing",
    "tail_missing",
    "history_differs",
]

PRIVATE = ("actor", "causation_id", "correlation_id", "extra")
"""The metadata fields that are stored with the payload."""

WRAPPED = '{"$meta":'
_VALUE = '"$value":'  # before a payload that is not an object, or starts like one of these
_decode = JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written; ``version`` is the first version affected."""

    conversation_id: UUID
    version: int
    kind: ProblemKind
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification read and found.

    ``unregistered`` counts, by type, the events whose type this process has no class for.
    """

    conversations: int
    events: int
    problems: tuple[Problem, ...]
    unregistered: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def chain_start(
    conversation_id: UUID,
    tenant_id: str | None,
    user_id: str | None,
    parent: UUID | None,
    parent_version: int | None,
    key: str | None = None,
) -> bytes:
    """Return the chain value before the first event; it covers id, owner, parent and key.

    Without a key the value is the same as before keys existed.
    """
    owner = [tenant_id, user_id, None if parent is None else str(parent), parent_version]
    owner += [] if key is None else [key]
    start = b"agent-eventstore chain 2" + conversation_id.bytes
    return sha256(start + json.dumps(owner).encode()).digest()


def fork_start(start: bytes, parent_chain: bytes) -> bytes:
    """Return the chain value before a fork's first own event; it covers the shared events too.

    ``start`` is the fork's `chain_start`, ``parent_chain`` the parent's chain value at the last
    shared version.
    """
    return sha256(b"agent-eventstore fork 1" + start + parent_chain).digest()


def commit_to(salt: bytes, data: str) -> bytes:
    """Return the salted commitment to a payload's JSON text."""
    return sha256(salt + data.encode()).digest()


def microseconds_of(moment: datetime) -> int:
    """Return a time in the form that the chain covers: microseconds since 1970 in UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def chain_step(
    previous: bytes,
    version: int,
    event_id: bytes,
    type_name: str,
    schema_version: int,
    microseconds: int,
    meta: str,
    data_digest: bytes,
) -> bytes:
    """Return the chain value of an event, from the previous one and the event's own header.

    Args:
        previous: The previous chain value.
        version: The event's version.
        event_id: The 16 bytes of the event's id.
        type_name: The event's type.
        schema_version: The version of its payload's schema.
        microseconds: When it was recorded, see `microseconds_of`.
        meta: The JSON text of its metadata.
        data_digest: The commitment to its payload.
    """
    meta_bytes = meta.encode()
    # Lengths are hashed too, so that two different headers never concatenate to the same bytes.
    header = f"{version}|{microseconds}|{schema_version}|{len(meta_bytes)}|{type_name}|"
    return sha256(previous + event_id + header.encode() + meta_bytes + data_digest).digest()


def wrapped(payload: str, private: str) -> str:
    """Return the text to store for a payload and its private metadata (JSON, ``""`` for none)."""
    if not private and not payload.startswith(WRAPPED):
        return payload
    start = f"{WRAPPED}{private or '{}'}"
    if not payload.startswith("{") or payload.startswith("{" + _VALUE):
        return f"{start},{_VALUE}{payload}}}"
    return f"{start}{'' if payload == '{}' else ','}{payload[1:]}"


def unwrapped(stored: str) -> tuple[str, str]:
    """Return the payload's JSON text, and that of its private metadata or ``""``.

    Raises:
        ValueError: It is not JSON.
    """
    if not stored.startswith(WRAPPED):
        return stored, ""
    _, end = _decode(stored, len(WRAPPED))
    rest, private = stored[end:].removeprefix(","), stored[len(WRAPPED) : end]
    if rest.startswith(_VALUE):
        return rest[len(_VALUE) : -1], private
    return "{" + rest, private
