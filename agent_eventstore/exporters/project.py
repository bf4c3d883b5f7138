"""Whole projects of document 000: ``conversations/index.json``, and a directory for each.

A conversation that came from a project is called what it was called there, and its entry in the
index is given back; others have our own id. The index is written last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from agent_eventstore.importers.project import MESSAGES, fits
from agent_eventstore.importers.project_index import INDEX, name_of
from eventstore import EventStore
from eventstore.errors import EventStoreError
from eventstore.events import ConversationStart, ModeSwitch

from .project_messages import export_messages_json
from .session_lines import known, moment

__all__ = ["ProjectReport", "export_project", "json_text"]


@dataclass(slots=True)
class ProjectReport:
    """What was exported, and what could not be, with the reasons."""

    conversations: int = 0
    failures: list[tuple[UUID, str]] = field(default_factory=list)


def export_project(
    store: EventStore,
    directory: Path,
    conversations: Iterable[UUID],
    *,
    on_progress: Callable[[ProjectReport], None] | None = None,
) -> ProjectReport:
    """Write conversations as a project below a directory, and return what was done.

    One that cannot be read is reported, and the others are written.

    Args:
        store: Where from.
        directory: Gets ``agent_eventstore/``; it is made if it does not exist.
        conversations: Which, in the order of the index.
        on_progress: Called after each with the report so far.

    Raises:
        FileExistsError: A project stands there already.
        OSError: A file cannot be written.
    """
    root, report = directory / "conversations", ProjectReport()
    if (root / INDEX).exists():
        raise FileExistsError(f"{root / INDEX} is there already")
    root.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, Any]] = []
    names: set[str] = set()
    for conversation_id in conversations:
        try:
            entry = _entry(store, conversation_id, names)
            messages = export_messages_json(store, conversation_id)
        except EventStoreError as error:
            report.failures.append((conversation_id, str(error)))
        else:
            name = str(name_of(entry))
            names.add(name)
            (root / name).mkdir(exist_ok=True)
            _write(root / name / MESSAGES, messages)
            index.append(entry)
            report.conversations += 1
        if on_progress is not None:
            on_progress(report)
    _write(root / INDEX, index)
    return report


def json_text(value: Any) -> str:
    """Return a document of JSON for people, in UTF-8 where it has all the characters."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates have no UTF-8; as escapes they are kept.
        text = json.dumps(value, allow_nan=False, indent=2)
    return f"{text}\n"


def _write(path: Path, value: Any) -> None:
    path.write_text(json_text(value), encoding="utf-8", newline="\n")


def _entry(store: EventStore, conversation_id: UUID, taken: set[str]) -> dict[str, Any]:
    """Return the entry of a conversation in the index, under a name that is not taken."""
    info = store.get(conversation_id)
    title, mode, given, created = None, None, None, info.created_at
    for event in store.read(conversation_id):
        if isinstance(event.data, ConversationStart):
            title, mode = event.data.title, event.data.mode
            raw, created = event.data.raw, event.occurred_at
            given = raw.get("index_entry") if isinstance(raw, dict) else None
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
