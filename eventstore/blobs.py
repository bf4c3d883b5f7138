"""Payloads too large for a row: compressed, addressed by content, kept per conversation.

A tool result's text goes to a blob and the event keeps a preview, the reference and an alias; any
other payload over the threshold is replaced by a stub that reading resolves by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import zstandard

from eventstore.errors import BlobDamaged, BlobNotFound
from eventstore.events import BlobRef, ToolResult
from eventstore.events.codec import dumps, encode
from eventstore.events.records import EventData
from eventstore.previews import PREVIEW_CHARS, preview_of
from eventstore.sql.dialect import AnyConnection, Dialect, Statement, cursor, dialect_of

__all__ = ["THRESHOLD_BYTES", "Blob", "alias_of", "externalise", "read_blob"]

THRESHOLD_BYTES = 32 * 1024
"""Payloads of more JSON bytes than this are kept in a blob."""

_STUB = '{"$blob":'
_DIGEST = re.compile("[0-9a-f]{64}")
_INSERT = Statement(
    """
    INSERT INTO blobs (conversation_id, digest, size_bytes, compression, content)
    VALUES (:conversation_id, :digest, :size_bytes, 'zstd', :content)
    ON CONFLICT (conversation_id, digest) DO NOTHING
    """
)
_SELECT = Statement(
    "SELECT content FROM blobs WHERE conversation_id = :conversation_id AND digest = :digest"
)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes to be kept: their SHA-256, their count, and the compressed form."""

    digest: str
    size_bytes: int
    content: bytes

    @classmethod
    def of(cls, raw: bytes) -> Blob:
        """Compress the bytes."""
        digest = hashlib.sha256(raw).hexdigest()
        return cls(digest, len(raw), zstandard.compress(raw, level=3))


def alias_of(call_id: str) -> str:
    """Return the path under which a model may ask for a call's whole result (document 000)."""
    return f"@state/logs/tool-results/{call_id}.json"


def externalise(data: EventData, text: str, threshold: int) -> tuple[EventData, str, Blob | None]:
    """Return payload, JSON text and blob as they are to be stored; most come back unchanged."""
    if text.startswith(_STUB):  # somebody else's payload that reading would take for a stub
        return data, _stub(text, whole := Blob.of(text.encode())), whole
    # A quarter of the threshold in characters cannot exceed it in bytes.
    if len(text) * 4 <= threshold or len(text.encode()) <= threshold:
        return data, text, None
    if isinstance(data, ToolResult) and isinstance(data.content, str):
        blob = Blob.of(data.content.encode("utf-8", "surrogatepass"))
        kept = data.model_copy(
            update={
                "content": None,
                "blob": BlobRef(digest=blob.digest, size_bytes=blob.size_bytes),
                "preview": data.preview or preview_of(data.content),
                "alias": data.alias or alias_of(data.call_id),
            }
        )
        kept_text = encode(kept)
        if len(kept_text.encode()) <= threshold:
            return kept, kept_text, blob
        return data, _stub(text, whole := Blob.of(text.encode())), whole
    blob = Blob.of(text.encode())
    return data, _stub(text, blob), blob


def store_blob(connection: AnyConnection, conversation_id: UUID, blob: Blob) -> None:
    """Keep a blob, in the caller's transaction; storing the same bytes again changes nothing."""
    dialect = dialect_of(connection)
    cursor(connection).execute(
        _INSERT.on(dialect),
        {
            "conversation_id": dialect.from_id(conversation_id),
            "digest": blob.digest,
            "size_bytes": blob.size_bytes,
            "content": blob.content,
        },
    )


def read_blob(connection: AnyConnection, conversation_id: UUID, digest: str) -> bytes:
    """Return a blob's bytes.

    Raises:
        BlobNotFound: The conversation keeps no such blob.
        BlobDamaged: Its bytes cannot be unpacked.
    """
    found = None
    # A driver raises its own error for text that a column cannot hold.
    if _DIGEST.fullmatch(digest):
        found = _fetch(cursor(connection), dialect_of(connection), conversation_id, digest)
    if found is None:
        raise BlobNotFound(conversation_id, digest)
    return found


def resolve(cur: Any, dialect: Dialect, conversation_id: UUID, text: str) -> str:
    """Return a payload's JSON text, fetched from its blob if the row holds a stub."""
    stub = stub_of(text)
    if stub is None:
        return text
    found = _fetch(cur, dialect, conversation_id, stub.digest)
    if found is None:
        raise BlobNotFound(conversation_id, stub.digest)
    return found.decode()


def stub_of(text: str) -> BlobRef | None:
    """Return the reference that a stub holds, or None if the text is a payload itself."""
    if not text.startswith(_STUB):
        return None
    return BlobRef.model_validate(json.loads(text)["$blob"])


def _fetch(cur: Any, dialect: Dialect, conversation_id: UUID, digest: str) -> bytes | None:
    cur.execute(
        _SELECT.on(dialect),
        {"conversation_id": dialect.from_id(conversation_id), "digest": digest},
    )
    row = cur.fetchone()
    if row is None:
        return None
    try:
        return zstandard.decompress(bytes(row[0]))
    except zstandard.ZstdError as error:
        raise BlobDamaged(conversation_id, digest) from error


def _stub(text: str, blob: Blob) -> str:
    reference = BlobRef(
        digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json"
    )
    return dumps({"$blob": reference.model_dump(mode="json"), "preview": text[:PREVIEW_CHARS]})
