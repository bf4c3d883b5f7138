"""A cipher for LangGraph's serialiser that encrypts."""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Sealing"]


class Sealing:
    """Writes the same text in other bytes each time."""

    def __init__(self) -> None:
        self.cipher = AESGCM(bytes(16))

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Seal a text."""
        nonce = os.urandom(12)
        return "aes", nonce + self.cipher.encrypt(nonce, plaintext, None)

    def decrypt(self, name: str, ciphertext: bytes) -> bytes:
        """Open it."""
        return self.cipher.decrypt(ciphertext[:12], ciphertext[12:], None)
