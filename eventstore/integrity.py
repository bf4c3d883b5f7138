"""The hash chain: what an event commits to, and the check that nothing was altered.

Each event's ``data_digest`` is SHA-256 over a random salt and the payload's JSON text; ``chain`` is
SHA-256 over the chain value before it, the event's header and that digest. Erasing a payload takes
away text and salt, and leaves the digest, so that the chain can still be verified while the text
cannot be guessed from it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

__all__ = ["Problem", "ProblemKind", "Verification", "chain_start", "chain_step", "commit_to"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

ProblemKind = Literal[
    "data_altered",
    "header_altered",
    "gap",
    "data_missing",
    "blob_missing",
    "blob_altered",
    "head_differs",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written; ``version`` is where it first shows."""

    conversation_id: UUID
    version: int
    kind: ProblemKind
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification read, and what it found."""

    conversations: int
    events: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def chain_start(conversation_id: UUID) -> bytes:
    """Return the chain value before the first event."""
    return hashlib.sha256(b"agent-eventstore chain 1" + conversation_id.bytes).digest()


def commit_to(salt: bytes, data: str) -> bytes:
    """Return the salted commitment to a payload's JSON text."""
    return hashlib.sha256(salt + data.encode()).digest()


def chain_step(
    previous: bytes,
    version: int,
    event_id: UUID,
    type_name: str,
    schema_version: int,
    recorded_at: datetime,
    meta: str,
    data_digest: bytes,
) -> bytes:
    """Return the chain value of an event, from the one before it and the event's own header."""
    microseconds = (recorded_at - _EPOCH) // _MICROSECOND
    meta_bytes = meta.encode()
    # Lengths are part of what is hashed, so that no two headers run together alike.
    header = f"{version}|{microseconds}|{schema_version}|{len(meta_bytes)}|{type_name}|"
    return hashlib.sha256(
        previous + event_id.bytes + header.encode() + meta_bytes + data_digest
    ).digest()
