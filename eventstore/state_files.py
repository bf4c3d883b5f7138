"""Files of tool outputs in a product's state directory: their place, writing and deletion.

In the directory each conversation has a folder named by its id; ``@state`` in its aliases refers to
this folder. The log holds the text of every file, so the files can be deleted at any time.

Tools work in these folders too, and may put anything in the place of a folder or file, at any
moment. So every folder below the state directory is opened from the one above it and never through
a link, and every file is named relative to its open folder, and never opened if it exists.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from eventstore.erasure import erasure_count
from eventstore.errors import EventStoreError, OutputFileError
from eventstore.events import ToolResult
from eventstore.reader import EventReader

__all__ = ["delete_erased", "state_root", "write_output"]

# An output's file name, or the name of its temporary file, left when the process was killed.
_OUTPUT = re.compile(r"\.?([0-9]{1,18}\.[0-9]{1,9})\..+")
_BELOW = ("logs", "tool-results")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_root(directory: str | Path) -> Path:
    """Return the path of a product's state directory, as the other functions here expect it.

    The product may use a link to it. Later, a link in its place is not followed.
    """
    return Path(os.path.realpath(directory))


def write_output(state: Path, conversation_id: UUID, name: str, content: bytes) -> None:
    """Write a file of a conversation's outputs: completely and durably, or not at all.

    Missing folders are created, and the state directory too. Only their owner has access to them
    and to the file.

    Raises:
        OutputFileError: A folder or file cannot be written, or a folder is a link.
    """
    place = _place(state, conversation_id) / name
    with _named(place), _folders(state, conversation_id, create=True) as (*_, folder):
        # The name begins like those that `delete_erased` deletes.
        new = f".{name}.{os.urandom(8).hex()}"
        try:
            with os.fdopen(os.open(new, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise


def delete_erased(store: EventReader, conversation_id: UUID, state: Path) -> None:
    """If anything was erased, delete the conversation's files whose text the log no longer holds.

    A file that cannot be deleted does not stop the others.

    Raises:
        OutputFileError: Files cannot be deleted, or a folder is a link; it names each of them.
        EventStoreError: The conversation's events cannot be read; no file was deleted.
    """
    with _named(state / str(conversation_id)):
        try:
            os.lstat(state / str(conversation_id))
        except FileNotFoundError:
            return
    with store.reading() as connection:
        if not erasure_count(connection, [conversation_id]):
            return
    data = (event.data for event in store.read(conversation_id))
    keep = {each.call_id for each in data if isinstance(each, ToolResult)}
    with (
        _named(_place(state, conversation_id)),
        suppress(FileNotFoundError),
        _folders(state, conversation_id) as folders,
    ):
        _delete(folders[-1], _place(state, conversation_id), keep)
        # The folders that are empty by now, but not the state directory itself.
        names = (str(conversation_id), *_BELOW)
        for parent, name in reversed([*zip(folders, names, strict=False)]):
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:  # not empty
                return


def _place(state: Path, conversation_id: UUID) -> Path:
    return state.joinpath(str(conversation_id), *_BELOW)


def _delete(folder: int, place: Path, keep: Container[str]) -> None:
    """Delete all outputs in an open folder, except those of the calls to ``keep``."""
    left: list[tuple[Path, str]] = []
    for name in sorted(os.listdir(folder)):
        match = _OUTPUT.fullmatch(name)
        if match is None or match[1] in keep:
            continue
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append((place / name, error.strerror or str(error)))
    if left:
        raise OutputFileError(left)


@contextmanager
def _folders(
    state: Path, conversation_id: UUID, *, create: bool = False
) -> Iterator[tuple[int, ...]]:
    """Open the state directory and the folders down to the outputs, each from the one above.

    Raises:
        FileNotFoundError: One does not exist, and is not to be created.
        OutputFileError: One of them is a link, or not a folder.
        OSError: One cannot be opened or created.
    """
    opened: list[int] = []
    try:
        if create and not state.exists():
            state.parent.mkdir(parents=True, exist_ok=True)
            state.mkdir(mode=0o700, exist_ok=True)
        opened.append(os.open(state, _FOLDER))
        path = state
        for name in (str(conversation_id), *_BELOW):
            path /= name
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=opened[-1])
            try:
                opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            except OSError as error:
                kind = _kind(name, opened[-1])
                if kind is None or stat.S_ISDIR(kind):
                    raise
                what = "a link, which leads out of the state directory"
                what = what if stat.S_ISLNK(kind) else "not a folder"
                raise OutputFileError([(path, f"it is {what}")]) from error
        yield tuple(opened)
    finally:
        for each in opened:
            os.close(each)


def _kind(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None


@contextmanager
def _named(place: Path) -> Iterator[None]:
    """Raise this package's error for the system's, which names no more than a part of the path."""
    try:
        yield
    except EventStoreError:
        raise
    except OSError as error:
        raise OutputFileError([(place, error.strerror or str(error))]) from error
