"""After an erasure no byte of what was said is left: in no row, index, file, log or freed page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import make_url

from eventstore import EventStore, RecordedEvent
from eventstore import events as e
from projections import PROJECTIONS, ProjectionSet, Views, worker
from projections.context.compression.search import Embedding
from projections.context_reading import bring_up
from projections.engine import rebuild as rebuild_module
from projections.engine.projection import Change, State
from projections.upkeep import rebuild
from tests.feed_wait import wait_for_feed
from tests.projections.support import converse, everything, read_all_views
from tests.projections.test_erasure import MARKER, marked
from tests.projections.toys import Notes, Poison

SHORT = Embedding("short", lambda texts: [[float(len(text)), 1.0] for text in texts])
SMALL = 2_500  # bytes above which payloads go to blobs


@dataclass(frozen=True, slots=True)
class Quoting(Notes):
    """A projection whose fold fails, and quotes a payload in its error."""

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Raise at the first answer of a tool."""
        if event.type == e.ToolResult.type:
            raise Poison(repr(event.data))
        return Notes.fold(self, state, event)


OURS = ProjectionSet([Quoting()])
"""One of them fails, so that something is set aside."""


class _Killed(Exception):
    """What ends a rebuild before its time."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a rebuild be killed between two conversations."""
    monkeypatch.setattr(rebuild_module, "_PAGE_CONVERSATIONS", 1)


def holding(store: EventStore) -> set[str]:
    """Return the tables that hold the marker, in whatever case; an index has it in its own."""
    tables = everything(store)
    return {
        name for name, rows in tables.items() if any(MARKER.lower() in row.lower() for row in rows)
    }


def files_holding(url: str) -> list[str]:
    """Return the files of a SQLite database in which a byte of the marker stands."""
    path = Path(str(make_url(url).database))
    files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
    return sorted(f.name for f in files if MARKER.lower().encode() in f.read_bytes().lower())


def spread(store: EventStore, views: Views, cid: UUID) -> None:
    """Have a conversation's words copied to wherever this project copies any."""
    marked(store, cid)
    store.append(cid, [e.AssistantMessage.of("x", raw={MARKER: [MARKER] * 1_000})])
    read_all_views(views, cid)
    store.append(cid, [e.UserMessage.text(f"who was in {MARKER}?")])
    bring_up(store, cid, SHORT)
    # Rows are written over, and so leave copies in pages.
    for word in ("a", "b"):
        store.append(cid, [e.AssistantChunk(llm_call_id="open", index=1, text=MARKER + word)])
        views.timeline(cid)
    worker.run(wait_for_feed(store), projections=OURS, once=True)
    rebuild(store, projections=OURS, skip_broken=True)

    def killed(done: int, _of: int) -> None:
        if done > 20:
            raise _Killed

    with suppress(_Killed):
        rebuild(store, [each.name for each in PROJECTIONS], on_progress=killed)


def test_no_row_of_any_table_holds_it(database_url: str, installed: None, cid: UUID) -> None:
    """Events, blobs, every generation, states, failures, counts and the index: all are cleaned."""
    with EventStore.open(database_url, blob_threshold=SMALL) as store:
        views = Views(store, OURS)
        converse(store, 1)
        spread(store, views, cid)
        held = holding(store)
        kinds = {name.rsplit("_g", 1)[0] for name in held}
        assert {"events", "projection_heads", "projection_failures", "search_rows"} <= kinds
        assert {"timeline_items", "context_messages", "tool_calls", "directory"} <= kinds
        generations = {name for name in held if name.startswith("timeline_items_g")}
        assert 2 == len(generations), "one of them half-built"
        store.erase(cid, reason="asked for")
        assert set() == holding(store)
        assert MARKER not in repr(read_all_views(views, cid))
        worker.run(wait_for_feed(store), projections=OURS, once=True)
        rebuild(store, projections=OURS, skip_broken=True)
        assert set() == holding(store)


def test_no_file_holds_it(sqlite_url: str, installed: None, cid: UUID) -> None:
    """Neither the file with its free pages and index, nor the log, also while the store is open."""
    with EventStore.open(sqlite_url, blob_threshold=SMALL) as store:
        views = Views(store, OURS)
        other = converse(store, 1)
        spread(store, views, cid)
        assert "store.db-wal" in files_holding(sqlite_url)
        store.erase(cid, reason="asked for")
        assert [] == files_holding(sqlite_url)
        read_all_views(views, cid)
        read_all_views(views, other)
        assert [] == files_holding(sqlite_url)
    assert [] == files_holding(sqlite_url)


def test_no_file_holds_what_one_version_said(sqlite_url: str, installed: None, cid: UUID) -> None:
    """The same holds where only some versions are erased, and the others are folded again."""
    with EventStore.open(sqlite_url, blob_threshold=SMALL) as store:
        views = Views(store, OURS)
        store.append(cid, [e.UserMessage.text("kept"), e.UserMessage.text(MARKER * 500)])
        store.append(cid, [e.ToolResult(call_id="1.0", content=MARKER * 500)])
        bring_up(store, cid, SHORT)
        worker.run(wait_for_feed(store), projections=OURS, once=True)
        store.erase(cid, reason="asked for", versions=[2, 3])
        assert [] == files_holding(sqlite_url)
        bring_up(store, cid, SHORT)
        worker.run(wait_for_feed(store), projections=OURS, once=True)
        assert [] == files_holding(sqlite_url)
        assert "kept" in repr(views.timeline(cid))


def test_no_row_of_any_table_holds_what_was_purged(
    database_url: str, installed: None, cid: UUID
) -> None:
    """Nor does any after a worker and a rebuild, and a diff finds nothing."""
    with EventStore.open(database_url, blob_threshold=SMALL) as store:
        views = Views(store, OURS)
        other = converse(store, 1)
        spread(store, views, cid)
        store.purge(cid, reason="asked for")
        assert set() == holding(store)
        mine = str(cid).lower()
        named = {name for name, rows in everything(store).items() if mine in repr(rows).lower()}
        assert {"purges"} == named
        worker.run(wait_for_feed(store), projections=OURS, once=True)
        rebuild(store, projections=OURS, skip_broken=True)
        assert set() == holding(store)
        assert [other] == [each.conversation_id for each in views.conversations()]
        assert [] == views.search(MARKER)
        assert store.verify().ok


def test_no_file_holds_what_was_purged(sqlite_url: str, installed: None, cid: UUID) -> None:
    """Neither the file with its free pages and index, nor the log, also while the store is open."""
    with EventStore.open(sqlite_url, blob_threshold=SMALL) as store:
        views = Views(store, OURS)
        converse(store, 1)
        spread(store, views, cid)
        store.purge(cid, reason="asked for")
        assert [] == files_holding(sqlite_url)
        views.conversations()
        assert [] == files_holding(sqlite_url)
    assert [] == files_holding(sqlite_url)
