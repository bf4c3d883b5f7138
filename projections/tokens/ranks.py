"""The merge ranks of the bundled encodings, and the tiktoken encodings built from them.

tiktoken downloads its ranks, and its registry breaks if a plugin provides an encoding with the same
name. Encodings are therefore built here, from package data, at their first use.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import threading
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken


@dataclass(frozen=True, slots=True)
class Bundled:
    """The parts of an encoding other than its ranks.

    Attributes:
        packed_sha256: Digest of the packed file, checked at every load.
        text_sha256: Digest of the ``.tiktoken`` text, which tiktoken itself checks.
        pattern: How text is split before merging, as in ``tiktoken_ext.openai_public``.
        special_tokens: Control tokens; they never match in counted text.
    """

    packed_sha256: str
    text_sha256: str
    pattern: str
    special_tokens: dict[str, int]


BUNDLED: dict[str, Bundled] = {
    "cl100k_base": Bundled(
        packed_sha256="3e05cca62d1de5cd5c0e4171f8c083a3d900aab7f58fe72bb1d8aff42f8ca83c",
        text_sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
            r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": Bundled(
        packed_sha256="d986d321acd9b13f444135d44ff9411adeafd128322e75a9729d7658304ca817",
        text_sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern=(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
}

_encodings: dict[str, tiktoken.Encoding] = {}
_building = threading.Lock()


def _unlock() -> None:
    global _building
    _building = threading.Lock()


if hasattr(os, "register_at_fork"):  # A thread of the parent may have held the lock.
    os.register_at_fork(after_in_child=_unlock)


def pack(tokens: list[bytes]) -> bytes:
    """Return the packed form of tokens, given in order of rank.

    It is the xz compression of: the number of tokens (4 bytes, little endian), the length of each
    token (one byte each), and all tokens concatenated.
    """
    body = len(tokens).to_bytes(4, "little") + bytes(map(len, tokens)) + b"".join(tokens)
    return lzma.compress(body, preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes) -> list[bytes]:
    """Return the tokens, in order of rank, of a form that ``pack`` produced."""
    body = lzma.decompress(packed)
    start = 4 + int.from_bytes(body[:4], "little")
    offsets = accumulate(body[4:start], initial=start)
    return [body[begin:end] for begin, end in pairwise(offsets)]


def tokens_of(name: str) -> list[bytes]:
    """Return the tokens of a bundled encoding, in order of rank.

    Raises:
        RuntimeError: The installed file differs from the released one.
    """
    file = resources.files("projections.tokens") / "data" / f"{name}.ranks.xz"
    packed = file.read_bytes()
    if hashlib.sha256(packed).hexdigest() != BUNDLED[name].packed_sha256:
        raise RuntimeError(f"the ranks of {name} are damaged: reinstall this package")
    return unpack(packed)


def encoding(name: str) -> tiktoken.Encoding:
    """Return a bundled encoding, built at its first use (about a fifth of a second) and kept.

    Safe to call from several threads; each encoding is built once.
    """
    found = _encodings.get(name)
    if found is not None:
        return found
    import tiktoken  # only processes that count tokens need it

    with _building:
        if name not in _encodings:
            made = tiktoken.Encoding(
                name,
                pat_str=BUNDLED[name].pattern,
                mergeable_ranks={token: rank for rank, token in enumerate(tokens_of(name))},
                special_tokens=BUNDLED[name].special_tokens,
            )
            # The compiled part has its own copy; this one, of 30 MB, only serves to pickle it.
            del made._mergeable_ranks
            _encodings[name] = made
        return _encodings[name]
