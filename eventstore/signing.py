"""Ed25519 signatures of checkpoints: keys in PEM, by the extra ``checkpoints`` (`cryptography`).

The package is imported where it is needed, so that checkpoints without a signature need no extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore.errors import KeyRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["is_signed", "new_key", "public_key", "sign"]

_MISSING = "signatures need the extra: pip install 'agent-eventstore[checkpoints]'"


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
        KeyRefused: It is no private Ed25519 key in PEM, or the extra is not installed.
    """
    key = _private(private_pem)
    return key.public_key().public_bytes_raw(), key.sign(message)


def public_key(pem: bytes) -> bytes:
    """Return the 32 bytes of a public key in PEM; of a private one, those of its public key.

    Raises:
        KeyRefused: It is no Ed25519 key in PEM, or the extra is not installed.
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
    """Whether the signature of a message is that of a public key's 32 bytes.

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
        raise KeyRefused("the key has a password: give one that has none") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyRefused("this is not a private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyRefused("this is not an Ed25519 key")
    return key
