"""Keys in files: one for each conversation's key, in a directory outside of the database.

Each file is written whole and durable before anything is sealed with its key, and is readable for
its owner alone; with a wrapping key what stands in it is encrypted itself. A destroyed key leaves
an empty file that says so. Backups of the directory bring back what was destroyed since.
"""

from __future__ import annotations

import os
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from eventstore.errors import KeyUnavailable
from eventstore.sealing import KEY_BYTES, Keyring
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["DirectoryKeys", "WrappingKey", "destroy_retired", "retire"]


WrappingKey = bytes | str | Path | Callable[[], bytes]
"""32 bytes; their text in hexadecimal digits or base64; a file of either; or what returns them."""

_NONCE_BYTES = 12
_KEY, _GONE = ".key", ".gone"
_FILE = re.compile(r"[0-9a-f-]{36}\.[0-9a-f]{16}\.key")
_ID = re.compile("[0-9a-f]{16}")
_PLAIN = "plain"


class DirectoryKeys:
    """A `KeyProvider` over a directory, which all processes of a product may share.

    Args:
        directory: Where the files are; it is made if it is not there.
        wrapping: What the keys are encrypted with in their files: the one that new keys get, then
            older ones, which still open what was not rewrapped yet. Without any, whoever can read
            the files has the keys.

    Raises:
        ValueError: A wrapping key is not one of 32 bytes.
        OSError: The directory cannot be made, or a file with a wrapping key not be read.
    """

    def __init__(
        self, directory: str | Path, wrapping: WrappingKey | Sequence[WrappingKey] = ()
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        given = wrapping if isinstance(wrapping, tuple | list) else (wrapping,)
        self._wrapping = {_id_of(key): key for key in map(_read, given)}

    def create(self, conversation_id: UUID, key_id: str) -> bytes:
        """Return a new key, once its file is durable."""
        key = os.urandom(KEY_BYTES)
        self._write(self._path(conversation_id, key_id, _KEY), self._wrapped(key))
        return key

    def get(self, conversation_id: UUID, key_id: str) -> bytes | None:
        """Return a key, or None if it has been destroyed.

        Raises:
            LookupError: It has never been here, is damaged, or was wrapped with a key that is not
                given.
            OSError: Its file cannot be read.
        """
        if self._path(conversation_id, key_id, _GONE).exists():
            return None
        try:
            text = self._path(conversation_id, key_id, _KEY).read_text("ascii")
        except FileNotFoundError:
            raise LookupError(f"{self.directory} has no key {key_id} of it") from None
        return self._unwrapped(text)

    def destroy(self, conversation_id: UUID, key_id: str) -> None:
        """Overwrite and delete a key's file, having noted that it is destroyed.

        Raises:
            OSError: It could not be; the file may still be there.
        """
        path = self._path(conversation_id, key_id, _KEY)
        self._write(self._path(conversation_id, key_id, _GONE), "")
        try:
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        except FileNotFoundError:
            return
        _sync(path.parent)

    def rewrap(self) -> int:
        """Wrap every key with the first wrapping key, and return how many had another, or none.

        Each file is exchanged as a whole, so that readers go on meanwhile, and a run that was
        interrupted can be repeated.

        Raises:
            LookupError: One was wrapped with a key that is not given.
        """
        own = next(iter(self._wrapping), _PLAIN)
        done = 0
        for path in self._files():
            try:
                text = path.read_text("ascii")
            except FileNotFoundError:  # destroyed meanwhile
                continue
            if text.split(" ", 1)[0] != own:
                self._write(path, self._wrapped(self._unwrapped(text)))
                if path.with_suffix(_GONE).exists():
                    path.unlink(missing_ok=True)
                done += 1
        return done

    def _files(self) -> Iterator[Path]:
        for path in sorted(self.directory.glob("??/*" + _KEY)):
            if _FILE.fullmatch(path.name):
                yield path

    def _path(self, conversation_id: UUID, key_id: str, suffix: str) -> Path:
        if not _ID.fullmatch(key_id):
            raise ValueError(f"{key_id!r:.80} is not a key's id")
        # By the end of the id, which is random: no directory grows too large.
        name = str(conversation_id)
        return self.directory / name[-2:] / f"{name}.{key_id}{suffix}"

    def _write(self, path: Path, text: str) -> None:
        """Make a file of mode 0600 that is whole and durable, or none."""
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _sync(self.directory)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new.")  # of mode 0600
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def _wrapped(self, key: bytes) -> str:
        for name, wrapping in self._wrapping.items():
            nonce = os.urandom(_NONCE_BYTES)
            return (
                f"{name} {b64encode(nonce + _cipher(wrapping).encrypt(nonce, key, b'')).decode()}"
            )
        return f"{_PLAIN} {b64encode(key).decode()}"

    def _unwrapped(self, text: str) -> bytes:
        name, _, base64 = text.partition(" ")
        if name != _PLAIN and name not in self._wrapping:
            reason = f"its key was wrapped with the wrapping key {name}, which is not given"
            raise LookupError(reason)
        from cryptography.exceptions import InvalidTag

        try:
            raw = b64decode(base64, validate=True)
            if name == _PLAIN:
                return raw
            nonce, wrapped = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return _cipher(self._wrapping[name]).decrypt(nonce, wrapped, b"")
        except (InvalidTag, ValueError) as error:
            reason = "the file of its key is damaged: restore it from a backup"
            raise LookupError(reason) from error


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _id_of(wrapping: bytes) -> str:
    return sha256(b"agent-eventstore wrapping key" + wrapping).hexdigest()[:8]


def _read(given: WrappingKey) -> bytes:
    raw = given.read_bytes() if isinstance(given, Path) else given
    if callable(raw):
        raw = raw()
    if isinstance(raw, bytes) and len(raw) != KEY_BYTES:
        raw = raw.decode("ascii", "replace")
    key = raw if isinstance(raw, bytes) else _decoded(raw.strip())
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"a wrapping key has {KEY_BYTES} bytes, or is their hexadecimal or base64 text"
        )
    return key


def _decoded(text: str) -> bytes:
    try:
        return bytes.fromhex(text) if len(text) == 2 * KEY_BYTES else b64decode(text, validate=True)
    except ValueError:
        return b""


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def retire(connection: Connection, conversation_id: UUID, key_id: str, now: datetime) -> None:
    """Take a conversation's key away from it, in the caller's transaction, to be destroyed."""
    tables = metadata_for(connection.dialect.name).tables
    streams, retired = tables["conversations"], tables["retired_keys"]
    connection.execute(
        insert(retired).values(conversation_id=conversation_id, key_id=key_id, retired_at=now)
    )
    connection.execute(
        update(streams).where(streams.c.conversation_id == conversation_id).values(key_id=None)
    )


def destroy_retired(
    transactions: Transactions, keys: Keyring, conversation_id: UUID | None = None
) -> None:
    """Destroy the retired keys of a conversation, or of all, and then forget them.

    Raises:
        KeyUnavailable: The provider could not destroy one of them, the first of which this names.
    """
    retired = metadata_for(transactions.engine.dialect.name).tables["retired_keys"]
    query = select(retired.c.conversation_id, retired.c.key_id)
    if conversation_id is not None:
        query = query.where(retired.c.conversation_id == conversation_id)
    with transactions.reading() as connection:
        found = connection.execute(query).all()
    failed: KeyUnavailable | None = None
    for stream, key_id in found:
        try:
            keys.destroy(stream, key_id)
        except KeyUnavailable as error:  # The others are destroyed all the same.
            failed = failed or error
            continue
        with transactions.writing() as connection:
            connection.execute(
                delete(retired).where(
                    retired.c.conversation_id == stream, retired.c.key_id == key_id
                )
            )
    if failed is not None:
        raise failed
