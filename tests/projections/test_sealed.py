"""Views of sealed conversations: as of any other, and nothing is set aside for want of keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import DirectoryKeys, EventStore, new_id
from eventstore import events as e
from eventstore.errors import KeyUnavailable
from projections import Views
from projections.engine.set_aside import noted
from projections.upkeep import rebuild
from projections.worker import run
from tests.projections.support import converse, everything, read_all_views

LONG = "It was a dark and stormy night; the rain fell in torrents. " * 20


@pytest.fixture
def keys(tmp_path: Path) -> DirectoryKeys:
    """Give the keys of the store."""
    return DirectoryKeys(tmp_path / "keys")


@pytest.fixture
def store(database_url: str, keys: DirectoryKeys) -> Iterator[EventStore]:
    """Give a store that seals, once for each backend."""
    with EventStore.open(database_url, keys=keys) as store:
        yield store


def test_rows_have_their_own_texts(views: Views, store: EventStore, cid: UUID) -> None:
    """SQL finds nothing in a sealed event, so that no row may quote one."""
    call = e.ToolCallRequest(name="look", arguments_text="{}", arguments={})
    parts = (e.ReasoningPart(text=LONG), e.TextPart(text=LONG))
    said = [
        e.UserMessage.text(LONG),
        e.AssistantMessage(parts=parts, tool_calls=(call,)),
        e.ToolResult(call_id="2.0", content=LONG),
    ]
    store.append(cid, said)

    assert [LONG] * 4 == [item.text for item in views.timeline(cid) if item.text]
    sent = views.context(cid, max_tokens=8_000, model="gpt-4o").messages
    assert [LONG] * 2 == [each["content"] for each in sent if each["role"] in ("user", "tool")]
    with store.reading() as connection:
        query = "SELECT count(*) FROM timeline_items WHERE text LIKE '%stormy night%'"
        assert 4 == connection.exec_driver_sql(query.replace("%", "%%")).scalar()


def test_views_of_an_erased_conversation(views: Views, store: EventStore) -> None:
    """Every view can be read when neither payloads nor metadata are to be had any more."""
    cid = converse(store, 3)
    read_all_views(views, cid)
    store.erase(cid, reason="test")

    read_all_views(views, cid)

    assert ["test"] == [item.text for item in views.timeline(cid) if item.text]
    store.append(cid, [e.UserMessage.text("again")])
    assert ["test", "again"] == [item.text for item in views.timeline(cid) if item.text]


def test_without_keys_nothing_is_set_aside(
    views: Views, store: EventStore, database_url: str, cid: UUID
) -> None:
    """A worker that was started without them stops, and says whose are missing."""
    store.append(cid, [e.UserMessage.text(LONG)])
    with EventStore.open(database_url) as bare:
        for read in (
            lambda: Views(bare).timeline(cid),
            lambda: Views(bare).conversations(),
            lambda: run(bare),
        ):
            with pytest.raises(KeyUnavailable):
                read()
        with bare.reading() as connection:
            assert [] == noted(connection)
    assert [LONG] == [item.text for item in views.timeline(cid)]


def test_a_lost_key_sets_one_conversation_aside(
    views: Views, store: EventStore, database_url: str, keys: DirectoryKeys, cid: UUID
) -> None:
    """The others are read as ever."""
    store.append(cid, [e.UserMessage.text("1")])
    store.append(other := new_id(), [e.UserMessage.text("2")])
    for path in keys.directory.rglob(f"{cid}.*"):
        path.unlink()
    with EventStore.open(database_url, keys=keys) as later:
        with pytest.raises(KeyUnavailable, match="has no key"):
            Views(later).timeline(cid)
        assert [other] == [row.conversation_id for row in Views(later).conversations()]


def test_rebuild_in_several_processes(views: Views, store: EventStore) -> None:
    """Each gets the keys, and the new rows are those that were there."""
    cid = converse(store, 3)
    read_all_views(views, cid)
    before = [item.text for item in views.timeline(cid)]

    rebuild(store, ["timeline"], workers=2)

    assert before == [item.text for item in views.timeline(cid)]
    assert any("timeline_items_g2" in name for name in everything(store))
