"""``index.json`` of a project: its conversations, with title and mode (document 000).

It is a list of entries, a list under ``conversations``, or an object with the entries by id. A
conversation's entry is found by the name of its directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.formats.source import Source
from agent_eventstore.formats.transcript import explicit_id

__all__ = ["INDEX", "Entry", "entries_in", "entry_of", "name_of"]

INDEX = "index.json"

Entry = dict[str, Any]


def entries_in(path: Path) -> Iterator[Entry | ImportFailed]:
    """Iterate over the entries of an index, and over reports of anything that is not an entry."""
    source = Source(path)
    for item in source.document():
        if isinstance(item, ImportFailed):
            yield item
            continue
        found = item.value
        if isinstance(found, dict) and name_of(found) is None:
            listed = found.get("conversations", found)
            values: Iterable[Any] = listed if isinstance(listed, list) else _keyed(listed)
        else:
            values = [found]
        for value in values:
            if isinstance(value, dict) and name_of(value) is not None:
                yield value
            else:
                yield source.failed(item.line, "an entry must be an object with an id")


def name_of(entry: Any) -> str | None:
    """Return the id in an entry, which is the name of its directory; None if it has none."""
    own = entry.get("id") if isinstance(entry, dict) else None
    if (isinstance(own, str) and own) or type(own) is int:
        return str(own)
    return explicit_id(entry)


def entry_of(path: Path, names: Collection[str | None]) -> Iterator[Entry | ImportFailed]:
    """Yield the entry of the conversation in a file, found by name, or reports of why not.

    Args:
        path: The conversation's file; the index is next to it, or next to its directory.
        names: The possible names of the conversation.
    """
    for directory in list(path.absolute().parents)[:2]:
        if (directory / INDEX).is_file():
            for item in entries_in(directory / INDEX):
                if isinstance(item, ImportFailed):
                    yield item
                elif name_of(item) in names:
                    yield item
                    return
            return


def _keyed(entries: Any) -> list[Any]:
    if not isinstance(entries, dict):
        return [entries]
    return [
        {"id": key, **value} if isinstance(value, dict) else value for key, value in entries.items()
    ]
