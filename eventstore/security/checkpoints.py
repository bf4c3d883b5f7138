"""Checkpoints: the heads of all chains, signed and kept elsewhere, to check the log against later.

A log alone cannot show that its last events were cut off, that a conversation was deleted with all
its rows, or that an older copy was restored: what is left is as it was written. A checkpoint can.
It is a file of JSON Lines, written and read with bounded memory: a header with the store's
identity, an array for each conversation (id, version, chain value), and a last line with the
counts, the SHA-256 of all previous lines and the Ed25519 signature of that hash.

Signing needs the extra ``checkpoints`` (`cryptography`), which is imported only when it is used;
checkpoints without a signature need no extra. Keys are PEM.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from eventstore.errors import CheckpointRefused, ConversationNotFound, KeyRefused
from eventstore.security.hash_chain import Problem, Verification
from eventstore.sql.streams import Mark, differences, next_marks, store_id_of
from eventstore.sql.transactions import Transactions
from eventstore.sql.verify import Progress, verify

__all__ = [
    "Checkpoint",
    "is_signed",
    "new_key",
    "raw_public_key",
    "read_checkpoint",
    "save_checkpoint",
    "sign",
    "verify_against",
    "write_checkpoint",
]


if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_MISSING = "signatures need the extra: pip install 'agent-eventstore[checkpoints]'"

_FORMAT = 1
_PURPOSE = b"agent-eventstore checkpoint 1\n"
_PAGE = 1_000
_LONGEST_LINE = 1_000


def new_key() -> tuple[bytes, bytes]:
    """Return a new private key and its public key, both as PEM.

    Raises:
        KeyRefused: The extra is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise KeyRefused(_MISSING) from error
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = key.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


def sign(private_pem: bytes, message: bytes) -> tuple[bytes, bytes]:
    """Return the public key's 32 bytes, and the signature of a message.

    Raises:
        KeyRefused: It is not a private Ed25519 key in PEM, or the extra is not installed.
    """
    key = _private(private_pem)
    return key.public_key().public_bytes_raw(), key.sign(message)


def raw_public_key(pem: bytes) -> bytes:
    """Return the 32 bytes of a public key in PEM; for a private key, those of its public key.

    Raises:
        KeyRefused: It is not an Ed25519 key in PEM, or the extra is not installed.
    """
    if b"PRIVATE KEY" in pem:
        return _private(pem).public_key().public_bytes_raw()
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise KeyRefused(_MISSING) from error
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyRefused("this is not a public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyRefused("this is not an Ed25519 key")
    return key.public_bytes_raw()


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a message's signature matches a public key, given as its 32 bytes.

    Raises:
        KeyRefused: The extra is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise KeyRefused(_MISSING) from error
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(pem: bytes) -> Ed25519PrivateKey:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise KeyRefused(_MISSING) from error
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise KeyRefused("the key has a password: give a key without one") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyRefused("this is not a private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyRefused("this is not an Ed25519 key")
    return key


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The facts in a checkpoint's file; ``signed_by`` is the public key's 32 bytes, or None."""

    store_id: UUID
    made_at: datetime
    conversations: int
    events: int
    sha256: bytes
    signed_by: bytes | None


def save_checkpoint(
    transactions: Transactions, path: str | PathLike[str], key: bytes | None, now: datetime
) -> Checkpoint:
    """Write a checkpoint to a new file; delete the file if writing fails.

    Raises:
        FileExistsError: The file exists: checkpoints are never overwritten.
        KeyRefused: See `write_checkpoint`.
    """
    with Path(path).open("xb") as file:
        try:
            return write_checkpoint(transactions, file, key, now)
        except BaseException:
            with suppress(OSError):
                Path(path).unlink()
            raise


def write_checkpoint(
    transactions: Transactions, file: IO[bytes], key: bytes | None, now: datetime
) -> Checkpoint:
    """Write the version and chain value of every conversation, in order of id.

    Uses short transactions.

    Args:
        transactions: The store.
        file: The file to write to.
        key: A private Ed25519 key in PEM; without it the checkpoint is not signed.
        now: The checkpoint's time.

    Raises:
        KeyRefused: The key cannot be used; nothing was written.
        ConversationDamaged: A conversation's own row holds values that no append has written.
    """
    if key is not None:
        sign(key, b"")
    digest, conversations, events = sha256(), 0, 0

    def write(line: Any) -> None:
        text = _line(line)
        digest.update(text)
        file.write(text)

    with transactions.reading() as connection:
        store_id = store_id_of(connection)
    made_at = now.isoformat()
    write({"checkpoint": _FORMAT, "store_id": str(store_id), "made_at": made_at})
    for mark in _marks(transactions):
        write([str(mark.conversation_id), mark.version, mark.chain.hex()])
        conversations, events = conversations + 1, events + mark.version
    end: dict[str, Any] = {"conversations": conversations, "events": events}
    end["sha256"] = digest.hexdigest()
    public = None
    if key is not None:
        public, signature = sign(key, _PURPOSE + digest.digest())
        end |= {"public_key": public.hex(), "signature": signature.hex()}
    file.write(_line(end))
    return Checkpoint(store_id, now, conversations, events, digest.digest(), public)


def read_checkpoint(path: str | PathLike[str], public_key: bytes | None = None) -> Checkpoint:
    """Return the facts in a checkpoint, after checking all of it.

    Args:
        path: The checkpoint's file.
        public_key: The public key in PEM that the checkpoint must be signed with. Without it, the
            signature is checked with the key in the file itself, which only detects damage.

    Raises:
        CheckpointRefused: It is not a checkpoint, was altered, or is not signed by the key.
        KeyRefused: The key cannot be used.
    """
    reader = _CheckpointReader(path, public_key)
    deque(reader, maxlen=0)
    return reader.checkpoint


def verify_against(
    transactions: Transactions,
    path: str | PathLike[str],
    *,
    public_key: bytes | None = None,
    conversation_id: UUID | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Verify the store's contents, and that it still holds everything in the checkpoint.

    Raises:
        CheckpointRefused: See `read_checkpoint`; or it was made of another store.
        KeyRefused: The key cannot be used.
        ConversationNotFound: Neither the store nor the checkpoint has a conversation with this id.
    """
    known = read_checkpoint(path, public_key)
    with transactions.reading() as connection:
        store_id = store_id_of(connection)
    if known.store_id != store_id:
        reason = f"it was made of another store, {known.store_id}; this one is {store_id}"
        raise CheckpointRefused(str(path), reason)
    reader = _CheckpointReader(path, public_key)
    wanted = (mark for mark in reader if conversation_id in (None, mark.conversation_id))
    missing = list(_missing(transactions, wanted))
    if reader.checkpoint != known:
        raise CheckpointRefused(str(path), "it was changed while it was being read")
    try:
        found = verify(transactions, conversation_id, progress)
    except ConversationNotFound:
        if not missing:
            raise
        found = Verification(0, 0, ())
    return replace(found, problems=(*found.problems, *missing))


def _marks(transactions: Transactions) -> Iterator[Mark]:
    after: UUID | None = None
    while True:
        with transactions.reading() as connection:
            page = next_marks(connection, after, _PAGE)
        if not page:
            return
        yield from page
        after = page[-1].conversation_id


def _missing(transactions: Transactions, marks: Iterator[Mark]) -> Iterator[Problem]:
    while page := list(islice(marks, _PAGE)):
        with transactions.reading() as connection:
            found = list(differences(connection, page))
        yield from found


class _CheckpointReader:
    """The marks of a file; ``checkpoint`` is set once all of them have been read and checked."""

    checkpoint: Checkpoint

    def __init__(self, path: str | PathLike[str], public_key: bytes | None) -> None:
        self._path = Path(path)
        self._wanted = None if public_key is None else raw_public_key(public_key)

    def __iter__(self) -> Iterator[Mark]:
        digest, conversations, events = sha256(), 0, 0
        with self._path.open("rb") as file:
            try:
                line = file.readline(_LONGEST_LINE)
                store_id, made_at = _header(line)
                digest.update(line)
                while (line := file.readline(_LONGEST_LINE)).startswith(b"["):
                    mark = _mark(line)
                    digest.update(line)
                    conversations, events = conversations + 1, events + mark.version
                    yield mark
                counts = {"conversations": conversations, "events": events}
                signed_by = self._signer(_end(line, counts, digest.digest()), digest.digest())
                if file.read(1):
                    raise ValueError
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise self._refused("it is not a checkpoint, or was altered or cut off") from error
        if self._wanted not in (None, signed_by):
            reason = "it is not signed" if signed_by is None else "it is signed by another key"
            raise self._refused(reason)
        self.checkpoint = Checkpoint(
            store_id, made_at, conversations, events, digest.digest(), signed_by
        )

    def _signer(self, end: dict[str, Any], digest: bytes) -> bytes | None:
        if "signature" not in end:
            return None
        public, signature = bytes.fromhex(end["public_key"]), bytes.fromhex(end["signature"])
        if not is_signed(public, signature, _PURPOSE + digest):
            raise ValueError
        return public

    def _refused(self, reason: str) -> CheckpointRefused:
        return CheckpointRefused(str(self._path), reason)


def _header(line: bytes) -> tuple[UUID, datetime]:
    header = json.loads(line)
    if header["checkpoint"] != _FORMAT:
        raise ValueError
    return UUID(header["store_id"]), datetime.fromisoformat(header["made_at"])


def _mark(line: bytes) -> Mark:
    conversation_id, version, chain = json.loads(line)
    return Mark(UUID(conversation_id), int(version), bytes.fromhex(chain))


def _end(line: bytes, counts: dict[str, int], digest: bytes) -> dict[str, Any]:
    end: dict[str, Any] = json.loads(line)
    if any(end[name] != count for name, count in counts.items()):
        raise ValueError
    if bytes.fromhex(end["sha256"]) != digest:
        raise ValueError
    return end


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
