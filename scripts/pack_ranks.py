"""Regenerate the token ranks bundled with the package, from tiktoken's own text files.

For maintainers, when an encoding is added. The directory must contain ``<encoding>.tiktoken`` for
each bundled encoding; the same files under the SHA-1 of their URL, as in wheels with tiktoken's
cache, are accepted too. Prints the digests to enter in ``ranks.py``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from projections.tokens.ranks import BUNDLED, pack, unpack

DATA = Path(__file__).resolve().parent.parent / "projections" / "tokens" / "data"
_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


def main() -> None:
    """Pack every bundled encoding from the given directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, help="directory of the .tiktoken text files")
    parser.add_argument("--output", type=Path, default=DATA, help="default: the package's data")
    args = parser.parse_args()
    for name in BUNDLED:
        tokens = _tokens(_text(args.directory, name), name)
        packed = pack(tokens)
        if unpack(packed) != tokens:
            raise SystemExit(f"{name} does not survive packing")
        (args.output / f"{name}.ranks.xz").write_bytes(packed)
        digest = hashlib.sha256(packed).hexdigest()
        sys.stdout.write(f"{name}: {len(packed)} bytes, packed_sha256 {digest}\n")


def _text(directory: Path, name: str) -> bytes:
    cached = hashlib.sha1(_ADDRESS.format(name).encode(), usedforsecurity=False).hexdigest()
    for candidate in (directory / f"{name}.tiktoken", directory / cached):
        if candidate.exists():
            return candidate.read_bytes()
    raise SystemExit(f"{directory} holds neither {name}.tiktoken nor {cached}")


def _tokens(text: bytes, name: str) -> list[bytes]:
    """Return the tokens by rank.

    Raises:
        SystemExit: The text is not the file that tiktoken expects, or its ranks have gaps.
    """
    if hashlib.sha256(text).hexdigest() != BUNDLED[name].text_sha256:
        raise SystemExit(f"{name}.tiktoken is not the file that tiktoken expects")
    rows = [line.split() for line in text.splitlines()]
    if [int(rank) for _, rank in rows] != list(range(len(rows))):
        raise SystemExit(f"the ranks of {name} have gaps: the packed form cannot hold them")
    return [base64.b64decode(token) for token, _ in rows]


if __name__ == "__main__":
    main()
