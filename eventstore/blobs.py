"""Payloads too large for a row: compressed, stored by content hash, read back where they belong.

A tool result's text goes to a blob and the event keeps a preview, the reference and an alias; any
other payload over the threshold is replaced by a stub that reading resolves by itself. Each
conversation keeps its own blobs.

A preview keeps both ends of a text. JSON stays JSON: prose is cut first, then the ends of long
lists and objects; keys, numbers and short texts, such as identifiers, stay as long as they fit.
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
from eventstore.sealing import BLOB, SEALED, SealingKey
from eventstore.sql.backend import AnyConnection, Backend, Statement, backend_of, cursor, keys_of

__all__ = [
    "MOST_BYTES",
    "PREVIEW_CHARS",
    "THRESHOLD_BYTES",
    "Blob",
    "alias_of",
    "externalise",
    "is_json",
    "preview_of",
    "read_blob",
]


MOST_BYTES = 1 << 30
"""Bytes that a blob may be unpacked to: what either database takes as one value."""

THRESHOLD_BYTES = 32 * 1024
"""Payloads of more JSON bytes than this are kept in a blob."""

PREVIEW_CHARS = 2_000
"""Characters that a preview has at most."""

_STUB = '{"$blob":'
_DIGEST = re.compile("[0-9a-f]{64}")
_INSERT = Statement(
    """
    INSERT INTO blobs (conversation_id, digest, size_bytes, compression, content)
    VALUES (:conversation_id, :digest, :size_bytes, :compression, :content)
    ON CONFLICT (conversation_id, digest) DO NOTHING
    """
)
_SELECT = Statement(
    """
    SELECT content, size_bytes, compression FROM blobs
    WHERE conversation_id = :conversation_id AND digest = :digest
    """
)
_KEY_ID = Statement("SELECT key_id FROM conversations WHERE conversation_id = :conversation_id")
_ZSTD, _SEALED_ZSTD = "zstd", "zstd, sealed"

_MOST_PARSED = 8_000_000  # characters; parsing more would make an append wait
_DEEPEST = 8
_ELLIPSIS = "…"
# How many entries of a list, and characters of a text, are kept: the first that fits is taken.
_SIZES = ((24, 200), (12, 120), (8, 80), (5, 48), (3, 32), (2, 24), (1, 16))


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes to be kept: their SHA-256, their count, and the compressed form, sealed or not.

    A sealed one's digest is the name that its key gives it.
    """

    digest: str
    size_bytes: int
    content: bytes
    compression: str = _ZSTD

    @classmethod
    def of(cls, raw: bytes) -> Blob:
        """Compress the bytes."""
        digest = hashlib.sha256(raw).hexdigest()
        return cls(digest, len(raw), zstandard.compress(raw, level=3))

    def sealed(self, key: SealingKey) -> Blob:
        """Return the blob as a conversation with a key keeps it."""
        name = key.name_of(self.digest)
        return Blob(name, self.size_bytes, key.seal(BLOB, name, self.content), _SEALED_ZSTD)


def alias_of(call_id: str, text: str) -> str:
    """Return the path under which a model may ask for a call's whole result (document 000).

    It ends in ``.json`` where the text is a JSON object or list, else in ``.txt``.
    """
    return f"@state/logs/tool-results/{call_id}.{'json' if is_json(text) else 'txt'}"


def externalise(data: EventData, text: str, threshold: int) -> tuple[EventData, str, Blob | None]:
    """Return payload, JSON text and blob as they are to be stored; most come back unchanged."""
    # Somebody else's payload that reading would take for a stub, or for a sealed one.
    if text.startswith((_STUB, SEALED)):
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
                "alias": data.alias or alias_of(data.call_id, data.content),
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
    backend = backend_of(connection)
    cursor(connection).execute(
        _INSERT.on(backend),
        {
            "conversation_id": backend.from_id(conversation_id),
            "digest": blob.digest,
            "size_bytes": blob.size_bytes,
            "compression": blob.compression,
            "content": blob.content,
        },
    )


def read_blob(
    connection: AnyConnection, conversation_id: UUID, digest: str, key: SealingKey | None = None
) -> bytes:
    """Return a blob's bytes.

    Args:
        connection: In a transaction of the caller's.
        conversation_id: Whose blob.
        digest: As the event names it.
        key: The event's; without, that which the conversation has now.

    Raises:
        BlobNotFound: The conversation keeps no such blob.
        BlobDamaged: Its bytes cannot be unpacked, or are not those that were kept.
        KeyUnavailable: The conversation is sealed, and its key is not to be had.
    """
    found = None
    # A driver raises its own error for text that a column cannot hold.
    if _DIGEST.fullmatch(digest):
        key = key or _current_key(connection, conversation_id)
        found = _fetch(cursor(connection), backend_of(connection), conversation_id, digest, key)
    if found is None:
        raise BlobNotFound(conversation_id, digest)
    return found


def _current_key(connection: AnyConnection, conversation_id: UUID) -> SealingKey | None:
    keys = keys_of(connection)
    if keys is None:
        return None
    rows = _KEY_ID.rows(connection, conversation_id=conversation_id)
    return keys.find(conversation_id, rows[0][0]) if rows and rows[0][0] is not None else None


def resolve(
    cur: Any, backend: Backend, conversation_id: UUID, text: str, key: SealingKey | None = None
) -> str:
    """Return a payload's JSON text, fetched from its blob if the row holds a stub."""
    stub = stub_of(text)
    if stub is None:
        return text
    found = _fetch(cur, backend, conversation_id, stub.digest, key)
    if found is None:
        raise BlobNotFound(conversation_id, stub.digest)
    return found.decode()


def stub_of(text: str) -> BlobRef | None:
    """Return the reference that a stub holds, or None if the text is a payload itself."""
    if not text.startswith(_STUB):
        return None
    return BlobRef.model_validate(json.loads(text)["$blob"])


def _fetch(
    cur: Any, backend: Backend, conversation_id: UUID, digest: str, key: SealingKey | None
) -> bytes | None:
    row = None
    # Under its own digest it stands if it was kept before the conversation had a key.
    for name in (digest,) if key is None else (key.name_of(digest), digest):
        wanted = {"conversation_id": backend.from_id(conversation_id), "digest": name}
        cur.execute(_SELECT.on(backend), wanted)
        row = cur.fetchone()
        if row is not None:
            break
    if row is None:
        return None
    try:
        content = bytes(row[0])
        if key is not None and row[2] == _SEALED_ZSTD:
            content = key.open(BLOB, name, content)
        return _unpacked(content, int(row[1]), digest)
    except (zstandard.ZstdError, TypeError, ValueError) as error:
        raise BlobDamaged(conversation_id, digest) from error


def _unpacked(content: bytes, size_bytes: int, digest: str) -> bytes:
    """Return what was packed, if it is that; no more memory is taken than it should need.

    Raises:
        ZstdError: The bytes are damaged.
        ValueError: They claim, or turn out, to be another blob.
    """
    claimed = zstandard.frame_content_size(content)
    if claimed not in (-1, size_bytes) or not 0 <= size_bytes <= MOST_BYTES:
        raise ValueError(f"it claims {claimed:,} bytes in place of {size_bytes:,}")
    # A reader, since what a frame claims to hold would be allocated at once.
    with zstandard.ZstdDecompressor().stream_reader(content) as reader:
        raw = reader.read(size_bytes + 1)
    if len(raw) != size_bytes or hashlib.sha256(raw).hexdigest() != digest:
        raise ValueError("it holds other bytes than were kept")
    return bytes(raw)


def _stub(text: str, blob: Blob) -> str:
    reference = BlobRef(
        digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json"
    )
    return dumps({"$blob": reference.model_dump(mode="json"), "preview": text[:PREVIEW_CHARS]})


def preview_of(text: str) -> str:
    """Return the preview of a text; a JSON object or list gives a smaller one of the same shape."""
    value = _parsed(text)
    if value is not None:
        for entries, characters in _SIZES:
            smaller = json.dumps(_cut(value, entries, characters, _DEEPEST), ensure_ascii=False)
            if len(smaller) <= PREVIEW_CHARS:
                return smaller
    return _ends(text)


def _ends(text: str) -> str:
    """Return the start of a text and its end, where what went wrong often stands."""
    if len(text) <= PREVIEW_CHARS:
        return text
    end = PREVIEW_CHARS // 4
    return f"{text[: PREVIEW_CHARS - end - 3]}\n{_ELLIPSIS}\n{text[-end:]}"


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list; one too long to be parsed is none."""
    return _parsed(text) is not None


def _parsed(text: str) -> Any:
    if text[:1] not in ("{", "[") or len(text) > _MOST_PARSED:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cut(value: Any, entries: int, characters: int, depth: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else value[:characters] + _ELLIPSIS
    if not isinstance(value, dict | list) or not value:
        return value
    if not depth:
        return _ELLIPSIS
    if isinstance(value, list):
        kept = [_cut(each, entries, characters, depth - 1) for each in value[:entries]]
        more = len(value) - len(kept)
        return [*kept, f"{_ELLIPSIS} {more} more"] if more else kept
    # Objects are wider than lists are long: their keys tell what there is.
    held = list(value.items())
    inner = {key: _cut(each, entries, characters, depth - 1) for key, each in held[: entries * 3]}
    more = len(held) - len(inner)
    return {**inner, _ELLIPSIS: f"{more} more"} if more else inner
