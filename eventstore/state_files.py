"""Files of tool outputs in a product's state directory: their place and their deletion.

In the directory each conversation has a folder named by its id; ``@state`` in its aliases refers to
this folder. The log holds the text of every file, so the files can be deleted at any time.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from pathlib import Path
from uuid import UUID

from eventstore.erasure import erasure_count
from eventstore.events import ToolResult
from eventstore.reader import EventReader

__all__ = ["delete_erased", "outputs_directory"]

# An output's file name, or the name of its temporary file, left when the process was killed.
_OUTPUT = re.compile(r"\.?([0-9]{1,18}\.[0-9]{1,9})\..+")


def outputs_directory(state: Path, conversation_id: UUID) -> Path:
    """Return the directory of a conversation's outputs, whether it exists or not.

    Raises:
        OSError: A link leads out of the state directory: a tool that works there may have replaced
            a folder with one.
    """
    own = Path(str(conversation_id), "logs", "tool-results")
    if (state / own).resolve() != state.resolve() / own:
        raise OSError(f"{state / own} leads out of the state directory")
    return state / own


def delete_erased(store: EventReader, conversation_id: UUID, state: Path) -> None:
    """If anything was erased, delete the conversation's files whose text the log no longer holds.

    Raises:
        OSError: See `outputs_directory`; or a file cannot be deleted.
    """
    if not (state / str(conversation_id)).exists():
        return
    with store.reading() as connection:
        if not erasure_count(connection, [conversation_id]):
            return
    data = (event.data for event in store.read(conversation_id))
    _delete(state, conversation_id, {each.call_id for each in data if isinstance(each, ToolResult)})


def _files(state: Path, conversation_id: UUID) -> Iterator[tuple[str, Path]]:
    """Yield the id of the call and the path, for each file of a conversation's outputs."""
    directory = outputs_directory(state, conversation_id)
    for path in directory.iterdir() if directory.is_dir() else ():
        if match := _OUTPUT.fullmatch(path.name):
            yield match[1], path


def _delete(state: Path, conversation_id: UUID, keep: Container[str]) -> None:
    """Delete all files except those of the calls to ``keep``, and folders that become empty."""
    for call_id, path in list(_files(state, conversation_id)):
        if call_id not in keep:
            path.unlink(missing_ok=True)
    directory = outputs_directory(state, conversation_id)
    for folder in (directory, *directory.parents[:2]):
        if not folder.is_dir() or any(folder.iterdir()):
            return
        folder.rmdir()
