"""Erasure takes what was indexed, to the last byte."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, make_url

from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from projections.context.compression import Embedding, Retrieval
from projections.context_reading import bring_up
from tests.projections.searching import (
    EACH,
    FACT,
    MARKER,
    QUESTION,
    Counted,
    in_database,
    small_talk,
    talk,
)
from tests.projections.support import everything


def test_erasure_leaves_nothing(store: EventStore, views: Views, cid: UUID) -> None:
    """No row, no term and no vector of the conversation; those of another one stay."""
    other, strategy = new_id(), Retrieval(embedding=Embedding("letters", Counted()))
    for stream in (cid, other):
        talk(store, stream, FACT, *small_talk(300), QUESTION)
        views.context(stream, max_tokens=600, strategy=strategy, settings=EACH)
    before = in_database(store, other, QUESTION)
    store.erase(cid, reason="asked for")
    tables = {name: rows for name, rows in held(store).items() if name.startswith("search_")}
    own = {name for name, rows in tables.items() for row in rows if search_mark(cid) in row}
    assert set() == own
    assert before == in_database(store, other, QUESTION)
    views.context(cid, max_tokens=600, strategy=strategy, settings=EACH)
    assert {} == in_database(store, cid, MARKER)


def search_mark(cid: UUID) -> str:
    """Return what is in every row of a conversation's search, and in each of its terms."""
    return str(cid)[-8:]


def held(store: EventStore) -> dict[str, list[str]]:
    """Return the rows of every table; on SQLite those of the index as its terms."""
    with store.reading() as connection:
        if connection.dialect.name != "sqlite":
            return everything(store)
        names = ("search_rows", "search_heads", "search_vectors", "search_postings")
        return {name: _rows(connection, name) for name in names}


def _rows(connection: Connection, name: str) -> list[str]:
    return [repr(tuple(row)) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")]


def test_no_byte_of_it_stays_in_a_sqlite_file(sqlite_url: str, cid: UUID) -> None:
    """Not in the index's segments, not of what was withdrawn before, not in a free page."""
    needle = MARKER.lower().encode()
    other = new_id()
    with EventStore.open(sqlite_url) as store:
        Views(store)
        for stream, text in ((cid, FACT), (other, "Good morning")):
            talk(store, stream, text, *small_talk(100))
            bring_up(store, stream)
        talk(store, cid, f"{MARKER} again", "yes")
        bring_up(store, cid)
        store.append(cid, [e.Retraction(versions=(e.VersionRange(first=1, last=1),))])
        bring_up(store, cid)
        assert any(needle in data for data in _files(sqlite_url))
        store.erase(cid, reason="asked for")
        bring_up(store, cid)
    assert not any(needle in data for data in _files(sqlite_url))


def _files(url: str) -> list[bytes]:
    path = Path(str(make_url(url).database))
    return [file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name)]
