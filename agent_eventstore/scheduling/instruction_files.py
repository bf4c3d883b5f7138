"""Instructions that a model names by a file: read in the working directory, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MOST_BYTES", "read_instructions"]

MOST_BYTES = 256 * 1024
"""How large a file of instructions may be."""


def read_instructions(directory: Path, name: str) -> str:
    """Return the text of a file within a directory.

    Where a name leads out of the directory, by ``..``, as an absolute path or through a link, it is
    refused, and so is what is no plain file.

    Raises:
        ValueError: The file is not in the directory, is too large, or holds no text.
        OSError: It cannot be read.
    """
    root = directory.resolve(strict=True)
    if "\0" in name or not name.strip() or Path(name).is_absolute():
        raise ValueError("name a file by its path relative to the working directory")
    path = (root / name).resolve(strict=True)
    if not path.is_relative_to(root) or not path.is_file():
        raise ValueError("it is not a file in the working directory")
    with os.fdopen(_opened(root, path.relative_to(root).parts), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES // 1024} KB")
    return content.decode("utf-8")


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Open a file step by step, so that no link counts which is put there meanwhile."""
    *folders, last = parts
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
