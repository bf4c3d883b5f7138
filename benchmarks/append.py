"""What a durable append costs, beside a bare ``sqlite3`` insert at the same sync level."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from benchmarks.measure import Figure, in_turns
from eventstore import EventStore, events, new_id
from eventstore.sql.engines import Synchronous

__all__ = ["single_appends"]

_TEXT = "a message of the usual length " * 10


def single_appends(folder: Path, synchronous: Synchronous, rounds: int) -> list[Figure]:
    """Time one bare insert and one append of one event, in turns, on two SQLite files."""
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute(f"PRAGMA synchronous={synchronous}")
    bare.execute(
        "CREATE TABLE events (position INTEGER PRIMARY KEY AUTOINCREMENT, conversation_id TEXT, "
        "version INTEGER, data TEXT)"
    )
    store = EventStore.open(f"sqlite:///{folder / 'store.db'}", synchronous=synchronous)
    conversation_id, message = new_id(), events.UserMessage.text(_TEXT)
    row = (str(conversation_id), 1, message.model_dump_json())

    def insert() -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO events (conversation_id, version, data) VALUES (?, ?, ?)", row)
        bare.execute("COMMIT")

    def append() -> None:
        store.append(conversation_id, [message])

    try:
        return in_turns({"bare sqlite3 insert": insert, "EventStore.append": append}, rounds)
    finally:
        store.close()
        bare.close()
