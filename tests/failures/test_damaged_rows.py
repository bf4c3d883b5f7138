"""Values that SQLite takes in any column, and that this package never writes: a typed error each.

PostgreSQL's types keep most of them out.
"""

from __future__ import annotations

import io
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent_eventstore import Conversation, recover
from eventstore import EventStore
from eventstore.errors import EventStoreError
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine.lag import measure
from projections.upkeep import compare, rebuild, status
from tests.exhaustive import partly
from tests.integration.recording import ask_for_tool

PLACES = [
    "context_active_g1.mode",
    "context_active_g1.tool_policy",
    "context_messages_g1.message",
    "context_messages_g1.native",
    "context_messages_g1.part",
    "context_messages_g1.source_versions",
    "context_messages_g1.tokens",
    "conversation_state_g1.notebook",
    "conversation_state_g1.open_calls",
    "conversations.conversation_id",
    "conversations.version",
    "directory_g1.created_at",
    "directory_g1.parent_conversation_id",
    "events.conversation_id",
    "events.data_digest",
    "open_work_g1.last_version",
    "open_work_g1.session",
    "projection_heads.state",
    "projection_heads.version",
    "projections.generation",
    "projections.tables",
    "runs_g1.directive",
    "runs_g1.end_version",
    "runs_g1.started_at",
    "timeline_items_g1.widget",
    "tool_calls_g1.name",
    "usage_by_call_g1.started_at",
]
READ_MODEL = re.compile(r"_g\d+\.")
NEVER_NULL = {
    "context_messages_g1.part",
    "conversations.conversation_id",
    "conversations.version",
    "events.conversation_id",
    "events.data_digest",
    "projection_heads.state",
    "projection_heads.version",
    "projections.generation",
    "projections.tables",
}
VALUES = {
    "bytes": b"\xff\xfe",
    "a number": 12345678901234567,
    "a word": "x",
    "a fraction": -1.5,
    "nothing": None,
}
CASES = {
    f"{name}-{place}": (place, value)
    for name, value in VALUES.items()
    for place in PLACES
    if value is not None or place not in NEVER_NULL
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a database with a conversation whose views are caught up."""
    path = tmp_path_factory.mktemp("damaged") / "store.db"
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        conversation = Conversation.start(store, mode="chat")
        conversation.start_run("digest", directive="Do it.")
        with conversation.turn("find") as turn, turn.tool(ask_for_tool(turn)) as tool:
            tool.result("found")
        compare(store)
    return path


def alter(path: Path, place: str, value: object) -> None:
    """Put a value into a column of a table's last row, which no trigger keeps out any more."""
    table, column = place.split(".")
    with closing(sqlite3.connect(path)) as connection, connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        for (trigger,) in connection.execute(query).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        last = f"(SELECT max(rowid) FROM {table})"
        done = connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {last}", (value,))
        assert 1 == done.rowcount


@pytest.mark.parametrize("case", partly(CASES, every=3))
def test_of_every_reader(recorded: Path, tmp_path: Path, case: str) -> None:
    """Nothing but this project's errors leaves whoever meets the row, and nobody waits for ever."""
    place, value = CASES[case]
    path = tmp_path / "store.db"
    shutil.copy(recorded, path)
    with EventStore.open(f"sqlite:///{path}") as store:
        [cid] = [info.conversation_id for info in store.list()]
    alter(path, place, value)
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        try:
            views = Views(store)
        except EventStoreError:
            return  # Nobody can say which tables there are.
        for read in (
            lambda: list(store.read(cid)),
            lambda: store.read_all(),
            lambda: store.list(),
            lambda: store.verify(),
            lambda: store.checkpoint(io.BytesIO()),
            lambda: views.timeline(cid),
            lambda: views.run_state(cid),
            lambda: views.open_work(cid),
            lambda: views.tool_policy(cid),
            lambda: views.tool_calls(conversation_id=cid),
            lambda: views.usage(by="user"),
            lambda: views.conversations(),
            lambda: views.search("hello"),
            lambda: views.context(cid),
            lambda: views.context(cid, mode="run"),
            lambda: status(store),
            lambda: measure(store, PROJECTIONS),
            lambda: compare(store),
            lambda: Conversation.open(store, cid),
            lambda: recover(store, views, cid),
            # Last: it replaces the rows of a read model, which it does not read.
            lambda: READ_MODEL.search(place) or rebuild(store),
        ):
            try:
                read()
            except EventStoreError:
                continue
