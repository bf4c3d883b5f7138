"""Zip archives of exports, as ChatGPT, claude.ai and others hand them out."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile, ZipFile, is_zipfile

from agent_eventstore.errors import ImportFailed

__all__ = ["is_archive", "unpack"]

MOST_BYTES = 8 * 2**30
"""The most bytes that are unpacked of one archive."""

_MOST_FILES = 1_000
_CHUNK = 2**20


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive by its name and content; Inspect's ``.eval`` is not one."""
    return path.suffix.lower() == ".zip" and path.is_file() and is_zipfile(path)


def unpack(path: Path, directory: Path) -> list[Path]:
    """Write the JSON files of an archive into a directory; return their paths, in order of name.

    Their names begin with the archive's. Nothing is written outside the directory, whatever the
    names in the archive.

    Raises:
        ImportFailed: The archive is damaged or encrypted, has no JSON file, more than a thousand,
            or more than `MOST_BYTES` of them.
    """
    found, left = list[Path](), MOST_BYTES
    try:
        with ZipFile(path) as archive:
            names = sorted(
                name
                for name in archive.namelist()
                if name.lower().endswith((".json", ".jsonl")) and not name.startswith("__MACOSX/")
            )
            if not names:
                raise ImportFailed(str(path), 1, "the archive has no JSON file")
            if len(names) > _MOST_FILES:
                reason = (
                    f"the archive has {len(names):,} JSON files: unpack it, and name the folder"
                )
                raise ImportFailed(str(path), 1, reason)
            for number, name in enumerate(names):
                place = directory / f"{path.name}.{number}.{Path(name).name}"
                with archive.open(name) as member, place.open("xb") as file:
                    while chunk := member.read(min(_CHUNK, left + 1)):
                        left -= len(chunk)
                        if left < 0:
                            reason = f"the archive has more than {MOST_BYTES:,} bytes of JSON"
                            raise ImportFailed(str(path), 1, reason)
                        file.write(chunk)
                found.append(place)
    except (BadZipFile, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise ImportFailed(str(path), 1, f"the archive cannot be unpacked: {error}") from error
    return found
