"""Whole project directories of document 000 (section 3.1), one conversation after the other.

``index.json`` lists the conversations, and ``<id>/messages.json`` beside it holds what was said in
each. One that is missing or broken is reported, and stops no other. Directories that the index does
not list are imported too, without title and mode. Without an index that can be read nothing is
imported: the conversations would get other ids, and come again once it is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from eventstore.errors import ImportFailed

from .project_index import INDEX, Entry, entries_in, name_of
from .project_messages import read_entry
from .source import Source
from .transcript import Transcript

__all__ = ["FORMAT", "MESSAGES", "files_of", "fits", "read", "root_of"]

FORMAT = "project"
MESSAGES = "messages.json"

_NESTED = "conversations"
_SHOWN = 80  # characters of an id in a report


def read(
    directory: Path, on_read: Callable[[float], None] | None = None
) -> Iterator[Transcript | ImportFailed]:
    """Iterate over a project's conversations, and over reports of what could not be read.

    Args:
        directory: The project's, its ``conversations``, or the index in there.
        on_read: Called with the share of the bytes that have been read, from 0.0 to 1.0.
    """
    root = root_of(directory)
    if root is None:
        yield ImportFailed(
            str(directory),
            None,
            f"no project: there is no {INDEX} and no {_NESTED}/{INDEX} in this directory",
        )
        return
    broken = [item for item in Source(root / INDEX).document() if isinstance(item, ImportFailed)]
    for failure in broken:
        reason = f"{failure.reason}; nothing of the project was imported"
        yield ImportFailed(failure.file, failure.line, reason)
    if not broken:
        yield from _listed(root, on_read or (lambda share: None))


def _listed(root: Path, on_read: Callable[[float], None]) -> Iterator[Transcript | ImportFailed]:
    entries: dict[str, Entry] = {}
    for item in entries_in(root / INDEX):
        if isinstance(item, ImportFailed):
            yield item
        elif (name := str(name_of(item))) in entries:
            yield ImportFailed(str(root / INDEX), None, f"conversation {name!r} is listed twice")
        else:
            entries[name] = item
    for path in _directories(root):
        entries.setdefault(path.name, {"id": path.name})
    yield from _conversations(root, entries, on_read)


def files_of(directory: Path) -> list[Path]:
    """Return the files of a project's conversations that exist."""
    root = root_of(directory)
    return [] if root is None else [path / MESSAGES for path in _directories(root)]


def _conversations(
    root: Path, entries: dict[str, Entry], on_read: Callable[[float], None]
) -> Iterator[Transcript | ImportFailed]:
    total = max(sum(path.stat().st_size for path in files_of(root)), 1)
    done = 0
    for name, entry in entries.items():
        path = root / name / MESSAGES
        reason = _unfit(root, name)
        if reason is not None:
            yield ImportFailed(str(root / INDEX), None, f"conversation {name[:_SHOWN]!r} {reason}")
            continue
        size = path.stat().st_size

        def at(share: float, done: int = done, size: int = size) -> None:
            on_read((done + share * size) / total)

        try:
            yield from read_entry(Source(path, at), entry)
        except OSError as error:
            reason = f"the file cannot be read: {error.strerror or error}"
            yield ImportFailed(str(path), None, reason)
        done += size
    on_read(1.0)


def _unfit(root: Path, name: str) -> str | None:
    """Return why a conversation cannot be read, or None."""
    if not fits(name):
        return "has an id that is no directory's name; it was left out"
    path = root / name / MESSAGES
    try:
        if not path.is_file():
            return f"is listed, but there is no file {path}"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not path.resolve().is_relative_to(root.resolve()):
        return "leads out of the project through a link; it was left out"
    return None


def root_of(directory: Path) -> Path | None:
    """Return the directory with the index."""
    directory = directory.parent if directory.name == INDEX else directory
    places = (directory / _NESTED, directory)
    return next((place for place in places if (place / INDEX).is_file()), None)


def fits(name: str) -> bool:
    """Whether a conversation's id can be the name of its directory."""
    return name not in ("", ".", "..") and not set(name) & set("/\\\0")


def _directories(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if (path / MESSAGES).is_file())
