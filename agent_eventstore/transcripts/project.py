"""Whole projects of document 000 (section 3.1): an index, and a directory for each conversation.

``index.json`` lists the conversations, and ``<id>/messages.json`` next to it holds the messages of
each; both may be below ``conversations/``. A missing or broken conversation is reported, and does
not stop the others. Directories that the index does not list are imported too, without title and
mode. Without a readable index nothing is imported: the conversations would get different ids, and
be imported a second time once the index is repaired.

In an export, a conversation that came from a project gets its original name and index entry; others
have our own id. The index is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts.extras import moment
from agent_eventstore.transcripts.openai_parts import known
from agent_eventstore.transcripts.project_messages import (
    INDEX,
    Entry,
    entries_in,
    export_messages_json,
    name_of,
    read_entry,
)
from agent_eventstore.transcripts.record_source import Source
from agent_eventstore.transcripts.transcript import Transcript
from eventstore import EventStore
from eventstore.arguments import require_several
from eventstore.errors import EventStoreError
from eventstore.events import ConversationFork, ConversationStart, ModeSwitch

__all__ = [
    "FORMAT",
    "MESSAGES",
    "ProjectReport",
    "export_project",
    "files_of",
    "fits",
    "json_text",
    "read",
    "root_of",
]


FORMAT = "project"
MESSAGES = "messages.json"

_NESTED = "conversations"
_SHOWN = 80  # characters of an id in a report


def read(
    directory: Path, on_read: Callable[[float], None] | None = None
) -> Iterator[Transcript | ImportFailed]:
    """Iterate over a project's conversations, and over reports of what could not be read.

    Args:
        directory: The project's directory, its ``conversations``, or the index in it.
        on_read: Called with the share of the bytes that have been read, from 0.0 to 1.0.
    """
    root = root_of(directory)
    if root is None:
        yield ImportFailed(
            str(directory),
            None,
            f"not a project: this directory has neither {INDEX} nor {_NESTED}/{INDEX}",
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
        return "has an id that is not a valid directory name; it was skipped"
    path = root / name / MESSAGES
    try:
        if not path.is_file():
            return f"is listed, but there is no file {path}"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not path.resolve().is_relative_to(root.resolve()):
        return "is reached through a link out of the project; it was skipped"
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


@dataclass(slots=True)
class ProjectReport:
    """The number of exported conversations, and those that failed, with the reasons."""

    conversations: int = 0
    failures: list[tuple[UUID, str]] = field(default_factory=list)


def export_project(
    store: EventStore,
    directory: Path,
    conversations: Iterable[UUID],
    *,
    on_progress: Callable[[ProjectReport], None] | None = None,
) -> ProjectReport:
    """Write conversations as a project below a directory, and return a report.

    A conversation that cannot be read is reported, and the others are written.

    Args:
        store: The store to read from.
        directory: Gets ``conversations/``; it is created if it does not exist.
        conversations: The conversations, in the order of the index.
        on_progress: Called after each with the report so far.

    Raises:
        FileExistsError: The directory already contains a project.
        OSError: A file cannot be written.
    """
    require_several(conversations=conversations)
    root, report = directory / "conversations", ProjectReport()
    if (root / INDEX).exists():
        raise FileExistsError(f"{root / INDEX} already exists")
    root.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, Any]] = []
    names: set[str] = set()
    for conversation_id in conversations:
        try:
            index.append(_export(store, conversation_id, root, names))
            report.conversations += 1
        except EventStoreError as error:
            report.failures.append((conversation_id, str(error)))
        if on_progress is not None:
            on_progress(report)
    _write(root / INDEX, index)
    return report


def _export(
    store: EventStore, conversation_id: UUID, root: Path, taken: set[str]
) -> dict[str, Any]:
    """Write a conversation's messages under a name that is not taken; return its index entry."""
    entry = _entry(store, conversation_id, taken)
    messages = export_messages_json(store, conversation_id)
    name = str(name_of(entry))
    taken.add(name)
    (root / name).mkdir(exist_ok=True)
    _write(root / name / MESSAGES, messages)
    return entry


def json_text(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a JSON document for people, in UTF-8 if it can encode all characters.

    ``default`` converts values that are not JSON.
    """
    text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-8 cannot encode lone surrogates; escapes preserve them.
        text = json.dumps(value, default=default, allow_nan=False, indent=2)
    return f"{text}\n"


def _write(path: Path, value: Any) -> None:
    try:
        path.write_text(json_text(value), encoding="utf-8", newline="\n")
    except OSError as error:  # unlike opening, writing does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _entry(store: EventStore, conversation_id: UUID, taken: set[str]) -> dict[str, Any]:
    """Return the entry of a conversation in the index, under a name that is not taken."""
    info = store.get(conversation_id)
    title, mode, given, created = None, None, None, info.created_at
    for event in store.read(conversation_id):
        if isinstance(event.data, ConversationStart):
            title, mode = event.data.title, event.data.mode
            raw, created = event.data.raw, event.occurred_at
            given = raw.get("index_entry") if isinstance(raw, dict) else None
        elif isinstance(event.data, ConversationFork):
            title, created = event.data.title or title, event.occurred_at
        elif isinstance(event.data, ModeSwitch):
            mode = event.data.mode
    entry = dict(given) if isinstance(given, dict) else {}
    name = name_of(entry) or str(conversation_id)
    if not fits(name) or name in taken:
        name = str(conversation_id)
    if name != name_of(entry):
        entry["id"] = name
    if not isinstance(given, dict):
        times = {"createdAt": moment(created), "updatedAt": moment(info.last_active_at)}
        return known({**entry, "title": title, "activeType": mode, **times})
    if mode is not None and mode != entry.get("activeType", entry.get("mode")):
        entry["activeType"] = mode
    return entry
