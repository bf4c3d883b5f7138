"""Crypto-shredding: each conversation's content is sealed with its own key, kept elsewhere.

Payloads, metadata and blobs are encrypted with AES-256-GCM before they are written. The stored text
names the key, and the chain covers the text as stored. A `KeyProvider` keeps the keys outside the
database, so destroying a key leaves nothing readable in backups, logs and replicas of it.
"""

from __future__ import annotations

import hmac
import os
import re
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from typing import Protocol
from uuid import UUID

from eventstore.errors import EventStoreError, KeyUnavailable

__all__ = [
    "BLOB",
    "DATA",
    "META",
    "OPTION",
    "SEALED",
    "KeyProvider",
    "Keyring",
    "SealingKey",
    "key_of",
    "opened",
]

DATA, META, BLOB = b"data", b"meta", b"blob"
"""The kinds of sealed text: one kind cannot be passed off as another."""

SEALED = '{"$sealed":"'
"""The start of a sealed text; it is JSON, like every payload and all metadata."""

OPTION = "eventstore_keys"
"""The engine's execution option that holds its store's keyring."""

KEY_BYTES = 32
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12
_FORMAT = b"\x01"
_START = len(_FORMAT) + _KEY_ID_BYTES
_MOST_KEYS = 8_192
_KEY_ID = re.compile("[0-9a-f]{16}")


class KeyProvider(Protocol):
    """Keeps the keys of conversations, outside the database and its backups.

    A key is 32 random bytes, identified by its conversation and an id of 16 hexadecimal digits that
    the store chooses. The methods are called from any thread; `create` and the first `get` of a
    conversation run in a transaction that holds its lock. Their errors reach the caller as
    `KeyUnavailable`: a `LookupError`, or a value that is not a key, as lasting, any other as
    possibly temporary. Views and rebuilds go on without the conversations whose key is not
    available, report them, and try again those whose key may come back: limit how long a request to
    a remote service may take. The feed passes only what is lost for good. A rebuild with several
    processes passes each of them a copy of the provider, using `pickle`.
    """

    def create(self, conversation_id: UUID, key_id: str) -> bytes:
        """Return a new key once it is as durable as the database."""

    def get(self, conversation_id: UUID, key_id: str) -> bytes | None:
        """Return a key, or None if it has been destroyed.

        Raises:
            LookupError: The provider never had this key.
        """

    def destroy(self, conversation_id: UUID, key_id: str) -> None:
        """Destroy a key for good and remember that it was destroyed; return once both are durable.

        Destroying a key again, or one that the provider never had, has no further effect.
        """


class SealingKey:
    """A conversation's key: seals and opens the content of that conversation only."""

    __slots__ = ("_cipher", "_names", "_prefix", "conversation_id", "key_id")

    def __init__(self, conversation_id: UUID, key_id: str, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.conversation_id = conversation_id
        self.key_id = key_id
        self._cipher = AESGCM(key)
        self._names = hmac.digest(key, b"agent-eventstore names of blobs", "sha256")
        self._prefix = _FORMAT + bytes.fromhex(key_id)

    def seal(self, part: bytes, name: str, raw: bytes) -> bytes:
        """Encrypt bytes; they can only be opened as this part of this event or blob."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._prefix + nonce + self._cipher.encrypt(nonce, raw, self._about(part, name))

    def open(self, part: bytes, name: str, sealed: bytes) -> bytes:
        """Decrypt bytes.

        Raises:
            ValueError: This key did not seal these bytes under this name.
        """
        from cryptography.exceptions import InvalidTag

        nonce, rest = sealed[_START : _START + _NONCE_BYTES], sealed[_START + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, rest, self._about(part, name))
        except InvalidTag as error:
            raise ValueError(f"the sealed {part.decode()} of {name} was altered") from error

    def seal_text(self, part: bytes, name: str, text: str) -> str:
        """Return the sealed JSON text to store instead of a JSON text."""
        sealed = b2a_base64(self.seal(part, name, text.encode()), newline=False)
        return f'{SEALED}{sealed.decode()}"}}'

    def name_of(self, digest: str) -> str:
        """Return the name to store a blob under; its bytes could be guessed from a plain digest."""
        return hmac.digest(self._names, digest.encode(), "sha256").hex()

    def _about(self, part: bytes, name: str) -> bytes:
        return b"%b|%b|%b" % (part, self.conversation_id.bytes, name.encode())


class Keyring:
    """A store's keys: a provider with a cache of recent keys; threads may share it."""

    def __init__(self, provider: KeyProvider) -> None:
        if not callable(getattr(provider, "create", None)):
            raise TypeError(f"keys must be a KeyProvider (DirectoryKeys(path)), not {provider!r}")
        try:
            import cryptography  # noqa: F401 - to fail here and not at the first append
        except ImportError as error:
            needed = "keys need the package cryptography: pip install agent-eventstore[encryption]"
            raise ImportError(needed) from error
        self.provider = provider
        self._known: dict[tuple[int, str], SealingKey | None] = {}

    def create(self, conversation_id: UUID) -> SealingKey:
        """Return a new key for a conversation, which the provider has made durable.

        Raises:
            KeyUnavailable: The provider could not create it.
        """
        key_id = os.urandom(_KEY_ID_BYTES).hex()
        try:
            made = self.provider.create(conversation_id, key_id)
        except Exception as error:
            raise _unavailable(conversation_id, error) from error
        if (key := self._remember(conversation_id, key_id, made)) is None:
            reason = "the provider returned None instead of a new key"
            raise KeyUnavailable(conversation_id, reason, lasting=True)
        return key

    def find(self, conversation_id: UUID, key_id: str) -> SealingKey | None:
        """Return a key of a conversation, or None if it has been destroyed.

        Raises:
            KeyUnavailable: The provider has never had it, or cannot be reached.
        """
        try:
            return self._known[conversation_id.int, key_id]
        except KeyError:
            pass
        _check(conversation_id, key_id)
        try:
            found = self.provider.get(conversation_id, key_id)
        except Exception as error:
            raise _unavailable(conversation_id, error) from error
        return self._remember(conversation_id, key_id, found)

    def destroy(self, conversation_id: UUID, key_id: str) -> None:
        """Destroy a key for good.

        Raises:
            KeyUnavailable: The provider could not.
        """
        _check(conversation_id, key_id)
        self._known.pop((conversation_id.int, key_id), None)
        try:
            self.provider.destroy(conversation_id, key_id)
        except Exception as error:
            raise _unavailable(conversation_id, error) from error

    def _remember(self, conversation_id: UUID, key_id: str, key: object) -> SealingKey | None:
        made: SealingKey | None = None
        if key is not None:
            if not isinstance(key, bytes | bytearray | memoryview):
                what = type(key).__name__
                reason = f"the provider returned {what} instead of {KEY_BYTES} bytes"
                raise KeyUnavailable(conversation_id, reason, lasting=True)
            if len(raw := bytes(key)) != KEY_BYTES:
                reason = f"the provider's key has {len(raw)} bytes instead of {KEY_BYTES}"
                raise KeyUnavailable(conversation_id, reason, lasting=True)
            made = SealingKey(conversation_id, key_id, raw)
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
        self._known[conversation_id.int, key_id] = made
        return made


def key_of(keys: Keyring | None, conversation_id: UUID, text: str) -> SealingKey | None:
    """Return the key of a sealed text, or None if it has been destroyed.

    Raises:
        KeyUnavailable: The store has no keys, or the provider has never had this one.
        ValueError: The text is not a sealed text.
    """
    head = _bytes_of(text, _START)
    if head[:1] != _FORMAT or len(head) < _START:
        raise ValueError("the text was not sealed by this library")
    if keys is None:
        raise KeyUnavailable(conversation_id, "the store was opened without keys")
    return keys.find(conversation_id, head[1:].hex())


def opened(key: SealingKey | None, part: bytes, name: str, text: str) -> str | None:
    """Return the JSON text that was sealed, or None if its key has been destroyed.

    Raises:
        ValueError: It was not sealed under this name.
    """
    return None if key is None else key.open(part, name, _bytes_of(text)).decode()


def _bytes_of(text: str, first: int | None = None) -> bytes:
    base64 = text[len(SEALED) : -2 if first is None else len(SEALED) + first // 3 * 4]
    try:
        return a2b_base64(base64, strict_mode=True)
    except NotBase64 as error:
        raise ValueError("the sealed text is not base64") from error


def _check(conversation_id: UUID, key_id: str) -> None:
    """Refuse a stored value that is not a key's id: a provider may use it in a path."""
    if not _KEY_ID.fullmatch(key_id):
        raise KeyUnavailable(conversation_id, f"{key_id!r:.80} is not a key's id", lasting=True)


def _unavailable(conversation_id: UUID, error: Exception) -> EventStoreError:
    if isinstance(error, EventStoreError):
        return error
    reason = str(error) or type(error).__name__
    lasting = isinstance(error, LookupError)
    return KeyUnavailable(conversation_id, reason, lasting=lasting, passing=not lasting)
