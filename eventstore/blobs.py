"""Payloads too large for a row: compressed, stored by content hash, put back on reading.

The text of a tool result moves to a blob; the event keeps a preview, the reference and an alias.
Any other payload over the threshold is replaced by a stub, which reading resolves by itself. Each
conversation has its own blobs.

A preview keeps both ends of a text. JSON stays JSON: prose is cut first, then the ends of long
lists and objects; keys, numbers and short texts, such as identifiers, stay as long as they fit.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from eventstore.errors import BlobDamaged, BlobNotFound
from eventstore.events import BlobRef, ToolResult
from eventstore.events.codec import dumps, encode
from eventstore.events.records import EventData
from eventstore.security.sealing import BLOB, SEALED, SealingKey
from eventstore.sql.backend import AnyConnection, Backend, Statement, backend_of, cursor, keys_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
"""The most bytes that a blob may unpack to: both databases accept this much as one value."""

THRESHOLD_BYTES = 32 * 1024
"""Payloads of more JSON bytes than this are stored in a blob."""

PREVIEW_CHARS = 2_000
"""The most characters of a preview."""

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

_MOST_PARSED = 8_000_000  # characters; parsing more would delay an append
_DEEPEST = 8
_ELLIPSIS = "…"
# How many entries of a list and characters of a text to keep: the first pair that fits is used.
_SIZES = ((24, 200), (12, 120), (8, 80), (5, 48), (3, 32), (2, 24), (1, 16))


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob to store: the SHA-256 and count of its bytes, and their compressed form.

    The content of a sealed blob is encrypted too, and its digest is a name derived with its key.
    """

    digest: str
    size_bytes: int
    content: bytes
    compression: str = _ZSTD

    @classmethod
    def of(cls, raw: bytes) -> Blob:
        """Compress the bytes."""
        digest = hashlib.sha256(raw).hexdigest()
        return cls(digest, len(raw), zstd.compress(raw, level=3))

    def sealed(self, key: SealingKey) -> Blob:
        """Return the blob as a sealed conversation stores it."""
        name = key.name_of(self.digest)
        return Blob(name, self.size_bytes, key.seal(BLOB, name, self.content), _SEALED_ZSTD)


def alias_of(call_id: str, text: str) -> str:
    """Return the path under which a model may request a call's full result (document 000).

    It ends in ``.json`` if the text is a JSON object or list, otherwise in ``.txt``.
    """
    return f"@state/logs/tool-results/{call_id}.{'json' if is_json(text) else 'txt'}"


def externalise(data: EventData, text: str, threshold: int) -> tuple[EventData, str, Blob | None]:
    """Return payload, JSON text and blob to store; most payloads are returned unchanged."""
    # A foreign payload that reading would mistake for a stub or a sealed text.
    if text.startswith((_STUB, SEALED)):
        return data, _stub(text, whole := Blob.of(text.encode())), whole
    # A quarter of the threshold in characters cannot exceed it in bytes.
    if len(text) * 4 <= threshold or len(text.encode()) <= threshold:
        return data, text, None
    if isinstance(data, ToolResult) and isinstance(data.content, str):
        blob = Blob.of(data.content.encode("utf-8", "surrogatepass"))
        stored = data.model_copy(
            update={
                "content": None,
                "blob": BlobRef(digest=blob.digest, size_bytes=blob.size_bytes),
                "preview": data.preview or preview_of(data.content),
                "alias": data.alias or alias_of(data.call_id, data.content),
            }
        )
        stored_text = encode(stored)
        if len(stored_text.encode()) <= threshold:
            return stored, stored_text, blob
        return data, _stub(text, whole := Blob.of(text.encode())), whole
    blob = Blob.of(text.encode())
    return data, _stub(text, blob), blob


def store_blob(connection: AnyConnection, conversation_id: UUID, blob: Blob) -> None:
    """Store a blob, in the caller's transaction; storing the same bytes again changes nothing."""
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
        conversation_id: The conversation.
        digest: The blob's digest in the event.
        key: The event's key; by default the conversation's current key.

    Raises:
        BlobNotFound: The conversation has no such blob.
        BlobDamaged: Its bytes cannot be unpacked, or do not match the digest.
        KeyUnavailable: The conversation is sealed, and its key is not available.
    """
    found = None
    # For text that a column cannot hold, a driver would raise its own error.
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
    """Return a payload's JSON text, read from its blob if the row holds a stub."""
    stub = stub_of(text)
    if stub is None:
        return text
    found = _fetch(cur, backend, conversation_id, stub.digest, key)
    if found is None:
        raise BlobNotFound(conversation_id, stub.digest)
    return found.decode()


def stub_of(text: str) -> BlobRef | None:
    """Return a stub's blob reference, or None if the text is a payload itself."""
    if not text.startswith(_STUB):
        return None
    return BlobRef.model_validate(json.loads(text)["$blob"])


def _fetch(
    cur: Any, backend: Backend, conversation_id: UUID, digest: str, key: SealingKey | None
) -> bytes | None:
    row = None
    # A blob stored before the conversation had a key is named by its own digest.
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
    except (zstd.ZstdError, TypeError, ValueError) as error:
        raise BlobDamaged(conversation_id, digest) from error


def _unpacked(content: bytes, size_bytes: int, digest: str) -> bytes:
    """Return the unpacked bytes if they are the blob, using no more memory than it should need.

    Raises:
        ZstdError: The bytes are damaged.
        ValueError: The size or the digest is wrong.
    """
    claimed = zstd.get_frame_info(content).decompressed_size
    if claimed not in (None, size_bytes) or not 0 <= size_bytes <= MOST_BYTES:
        raise ValueError(f"the blob claims {claimed} bytes instead of {size_bytes:,}")
    # With a limit: without one, it would take as much memory as the bytes unpack to.
    raw = zstd.ZstdDecompressor().decompress(content, size_bytes + 1)
    if len(raw) != size_bytes or hashlib.sha256(raw).hexdigest() != digest:
        raise ValueError("the blob's bytes do not match its digest")
    return raw


def _stub(text: str, blob: Blob) -> str:
    reference = BlobRef(
        digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json"
    )
    return dumps({"$blob": reference.model_dump(mode="json"), "preview": text[:PREVIEW_CHARS]})


def preview_of(text: str) -> str:
    """Return the preview of a text; a JSON object or list becomes a smaller one of its shape."""
    value = _parsed(text)
    if value is not None:
        for entries, characters in _SIZES:
            smaller = json.dumps(_cut(value, entries, characters, _DEEPEST), ensure_ascii=False)
            if len(smaller) <= PREVIEW_CHARS:
                return smaller
    return _ends(text)


def _ends(text: str) -> str:
    """Return the start of a text and its end, where errors are often reported."""
    if len(text) <= PREVIEW_CHARS:
        return text
    end = PREVIEW_CHARS // 4
    return f"{text[: PREVIEW_CHARS - end - 3]}\n{_ELLIPSIS}\n{text[-end:]}"


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list; False if it is too long to be parsed."""
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
        end = characters // 4
        cut = f"{value[: characters - end]}{_ELLIPSIS}{value[len(value) - end :]}"
        return value if len(value) <= characters else cut
    if not isinstance(value, dict | list) or not value:
        return value
    if not depth:
        return _ELLIPSIS
    if isinstance(value, list):
        more = len(value) - entries
        if more <= 0:
            return [_cut(each, entries, characters, depth - 1) for each in value]
        last = value[-1:] if entries > 1 else []
        leading = value[: entries - len(last)]
        first, last = (
            [_cut(each, entries, characters, depth - 1) for each in end] for end in (leading, last)
        )
        return [*first, f"{_ELLIPSIS} {more} more", *last]
    # Keep more keys of an object than entries of a list: the keys show what it contains.
    items = list(value.items())
    inner = {key: _cut(each, entries, characters, depth - 1) for key, each in items[: entries * 3]}
    more = len(items) - len(inner)
    return {**inner, _ELLIPSIS: f"{more} more"} if more else inner
