"""Keys in files: one file for each conversation's key, in a directory outside the database.

Each file is complete and durable before anything is sealed with its key, and only its owner can
read it. With a wrapping key, its content is encrypted too. A destroyed key leaves an empty marker
file. Restoring a backup of the directory restores keys that were destroyed since.
"""

from __future__ import annotations

import os
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from eventstore.errors import KeyUnavailable
from eventstore.security.sealing import KEY_BYTES, Keyring
from eventstore.sql.schema import metadata_for
from eventstore.sql.transactions import Transactions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["DirectoryKeys", "WrappingKey", "destroy_retired", "retire"]


WrappingKey = bytes | str | Path | Callable[[], bytes]
"""32 bytes; their hexadecimal or base64 text; a file of either; or a function that returns them."""

_NONCE_BYTES = 12
_KEY, _GONE = ".key", ".gone"
_FILE = re.compile(r"[0-9a-f-]{36}\.[0-9a-f]{16}\.key")
_ID = re.compile("[0-9a-f]{16}")
_PLAIN = "plain"
_DAMAGED = "the file of its key is damaged: restore it from a backup"


class DirectoryKeys:
    """A `KeyProvider` that uses a directory, which all processes of a product can share.

    Args:
        directory: The directory of the files; created if it does not exist.
        wrapping: The keys that encrypt the files: first the one for new keys, then older ones,
            which still open files that have not been rewrapped. Without any, anyone who can read
            the files has the keys.

    Raises:
        ValueError: A wrapping key does not have 32 bytes.
        OSError: The directory cannot be created, or the file of a wrapping key cannot be read.
    """

    def __init__(
        self, directory: str | Path, wrapping: WrappingKey | Sequence[WrappingKey] = ()
    ) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        wrapping_keys = wrapping if isinstance(wrapping, tuple | list) else (wrapping,)
        self._wrapping = {_id_of(key): key for key in map(_read, wrapping_keys)}

    def create(self, conversation_id: UUID, key_id: str) -> bytes:
        """Return a new key, once its file is durable."""
        key = os.urandom(KEY_BYTES)
        self._write(self._path(conversation_id, key_id, _KEY), lambda: self._wrapped(key))
        return key

    def get(self, conversation_id: UUID, key_id: str) -> bytes | None:
        """Return a key, or None if it has been destroyed.

        Raises:
            LookupError: The directory never had it, it is damaged, or it was wrapped with a key
                that is not given.
            OSError: Its file cannot be read.
        """
        if self._path(conversation_id, key_id, _GONE).exists():
            return None
        try:
            text = self._path(conversation_id, key_id, _KEY).read_text("ascii")
        except FileNotFoundError:
            raise LookupError(f"{self.directory} has no key {key_id} for it") from None
        except (IsADirectoryError, NotADirectoryError, UnicodeDecodeError) as error:
            raise LookupError(_DAMAGED) from error
        return self._unwrapped(text)

    def destroy(self, conversation_id: UUID, key_id: str) -> None:
        """Write the marker of a destroyed key, then overwrite and delete the key's file.

        Raises:
            OSError: A file cannot be written or deleted; the key's file may still exist.
        """
        path = self._path(conversation_id, key_id, _KEY)
        self._write(self._path(conversation_id, key_id, _GONE), str)
        # Copies first: a process that rewraps the key, or was killed while it did, has one, and
        # once its copy is gone it cannot replace the file any more.
        for each in (*path.parent.glob(_new(path) + "*"), path):
            try:
                with each.open("r+b") as file:
                    file.write(bytes(each.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                each.unlink()
            except (
                FileNotFoundError,
                IsADirectoryError,
            ):  # a folder holds no key
                continue
        _sync(path.parent)

    def rewrap(self) -> int:
        """Wrap every key with the first wrapping key, and return how many files changed.

        Each file is replaced atomically, so readers are not disturbed and an interrupted run can be
        repeated.

        Raises:
            LookupError: A key was wrapped with a key that is not given.
        """
        own = next(iter(self._wrapping), _PLAIN)
        done = 0
        for path in self._files():
            try:
                if path.read_text("ascii").split(" ", 1)[0] != own:
                    self._write(path, partial(self._rewrapped, path))
                    done += 1
            except FileNotFoundError:  # destroyed concurrently
                continue
        return done

    def _rewrapped(self, path: Path) -> str:
        text = path.read_text("ascii")
        # The new file exists by now: `destroy` either finds it, or has already left its marker.
        if path.with_suffix(_GONE).exists():
            raise FileNotFoundError(path)
        return self._wrapped(self._unwrapped(text))

    def _files(self) -> Iterator[Path]:
        for path in sorted(self.directory.glob("??/*" + _KEY)):
            if _FILE.fullmatch(path.name):
                yield path

    def _path(self, conversation_id: UUID, key_id: str, suffix: str) -> Path:
        if not _ID.fullmatch(key_id):
            raise ValueError(f"{key_id!r:.80} is not a key's id")
        # Folders are named by the end of the id, which is random, so that none grows too large.
        name = str(conversation_id)
        return self.directory / name[-2:] / f"{name}.{key_id}{suffix}"

    def _write(self, path: Path, text: Callable[[], str]) -> None:
        """Create a complete, durable file of mode 0600, or none; ``text`` is called in between."""
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _sync(self.directory)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_new(path))  # of mode 0600
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text())
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
            reason = f"its key is wrapped with the wrapping key {name}, which is not given"
            raise LookupError(reason)
        from cryptography.exceptions import InvalidTag

        try:
            raw = b64decode(base64, validate=True)
            if name == _PLAIN:
                return raw
            nonce, wrapped = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return _cipher(self._wrapping[name]).decrypt(nonce, wrapped, b"")
        except (InvalidTag, ValueError) as error:
            raise LookupError(_DAMAGED) from error


def _new(path: Path) -> str:
    """Return how the names of a file's copies begin while it is being written."""
    return f".new.{path.name}."


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _id_of(wrapping: bytes) -> str:
    return sha256(b"agent-eventstore wrapping key" + wrapping).hexdigest()[:8]


def _read(wrapping: WrappingKey) -> bytes:
    raw = wrapping.read_bytes() if isinstance(wrapping, Path) else wrapping
    if callable(raw):
        raw = raw()
    if isinstance(raw, bytes) and len(raw) != KEY_BYTES:
        raw = raw.decode("ascii", "replace")
    key = raw if isinstance(raw, bytes) else _decoded(raw.strip())
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"a wrapping key has {KEY_BYTES} bytes: give these or their hexadecimal or base64 text"
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
    """Retire a conversation's key, in the caller's transaction, so that it can be destroyed."""
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
    """Destroy the retired keys of one conversation or of all, and then forget them.

    Raises:
        KeyUnavailable: The provider could not destroy some of them; the error names the first.
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
