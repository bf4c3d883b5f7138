"""How many files a reader goes through, from a public method to the statement that it comes to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from sqlalchemy import event

from eventstore import EventStore, new_id
from eventstore.events import UserMessage
from projections import Views

ROOT = Path(__file__).parents[2]
ROOMS = ("eventstore", "projections")
APPEND = ["eventstore/store.py", "eventstore/sql/append.py", "eventstore/sql/sqlite.py"]
TIMELINE = [f"projections/{name}.py" for name in ("views", "reading", "queries")]
MOST = 9

Walk = Callable[[str, Callable[[], object]], list[list[str]]]


def files_of(frame: FrameType | None) -> list[str]:
    """Return the product's files that a call goes through, each once, the outermost first."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS:
            found.append(path.relative_to(ROOT).as_posix())
        frame = frame.f_back
    return list(dict.fromkeys(reversed(found)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    """Give a store of SQLite's, which tells of each statement in the thread that runs it."""
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        yield store


@pytest.fixture
def walk(store: EventStore) -> Walk:
    """Return what calls something, and gives the files down to each statement with a text."""
    walks: list[list[str]] = []
    wanted: list[str] = []

    def ran(statement: str) -> None:
        if wanted and wanted[0] in statement and (way := files_of(sys._getframe())) not in walks:
            walks.append(way)

    @event.listens_for(store.engine, "checkout")
    def traced(connection: object, *_: object) -> None:
        connection.set_trace_callback(ran)  # type: ignore[attr-defined]

    def found(text: str, call: Callable[[], object]) -> list[list[str]]:
        store.close()
        walks.clear()
        wanted[:] = [text]
        call()
        wanted.clear()
        return list(walks)

    return found


def test_an_append_is_three_files(store: EventStore, walk: Walk) -> None:
    """The first of a stream looks it up; those that follow go on from the remembered head."""
    cid = new_id()
    first = walk("INTO events", lambda: store.append(cid, UserMessage.text("one")))
    second = walk("INTO events", lambda: store.append(cid, UserMessage.text("two")))
    assert first == second == [APPEND]


def test_a_view_is_nine_files_at_most(store: EventStore, walk: Walk) -> None:
    """A list is read in three; messages[], which is planned, in nine; both write rows in six."""
    cid, views = new_id(), Views(store)
    store.append(cid, UserMessage.text("one"))
    views.timeline(cid)
    assert walk("FROM timeline_items", lambda: views.timeline(cid)) == [TIMELINE]
    store.append(cid, UserMessage.text("two"))
    written = walk('INTO "timeline_items', lambda: views.timeline(cid))
    context = walk("context_messages", lambda: views.context(cid, max_tokens=4_000))
    assert written
    assert context
    assert [] == [each for each in written + context if len(each) > MOST]


def test_the_page_tells_both_walks() -> None:
    """Each file of the two ways is named where the architecture is told."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.split("## Two walks")[1].split("\n## ")[0]
    assert [] == [file for file in (*APPEND, *TIMELINE) if f"`{file}`" not in section]
