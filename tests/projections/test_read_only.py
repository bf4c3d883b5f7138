"""On a connection that may only read, every view answers as it would where one may write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import ConversationNotFound, NotWritable
from projections import Views
from projections.upkeep import compare, rebuild, status
from tests.projections.support import converse, everything, read_all_views


@pytest.fixture
def replica(store: EventStore, database_url: str) -> Iterator[EventStore]:
    """Give a read-only store on the database of the writable one."""
    with EventStore.open(database_url, read_only=True) as replica:
        yield replica


def conversations(store: EventStore) -> list[UUID]:
    """Append conversations of two users, one of them erased."""
    cids = [converse(store, 2, user=user) for user in ("ann", "bob", "ann")]
    store.erase(cids[2], reason="asked for", versions=[1, 3])
    return cids


def check_same(store: EventStore, replica: EventStore, cid: UUID) -> None:
    """Expect the replica to answer first, write nothing, and answer as the store does then."""
    before = everything(store)
    answer = read_all_views(Views(replica), cid)
    assert before == everything(store)
    assert promised(store, read_all_views(Views(store), cid)) == promised(store, answer)


def promised(store: EventStore, answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a replica promises to answer alike: of a search all but how hits are ranked.

    What is behind is searched in SQLite, in memory: it ranks as a store on SQLite does.
    """
    if store.engine.dialect.name == "sqlite":
        return answer
    hits = (replace(hit, rank=0.0) for hit in answer["search"])
    ordered = sorted(hits, key=lambda hit: (hit.conversation_id, hit.version))
    return answer | {"search": ordered}


def test_views_that_nobody_has_installed(store: EventStore, replica: EventStore) -> None:
    """Without any table everything is folded in memory."""
    cids = conversations(store)
    assert [] == everything(store)["projections"]
    check_same(store, replica, cids[2])


def test_views_that_are_partly_behind(store: EventStore, replica: EventStore) -> None:
    """What the tables lack of some conversations is folded on top of what they hold."""
    cids = conversations(store)
    read_all_views(Views(store), cids[0])
    store.append(
        cids[0],
        [e.UserMessage.text("news"), e.Retraction(versions=(e.VersionRange(first=2, last=3),))],
    )
    store.append(cids[1], [e.ToolResult(call_id="3.0", status="failed", content="late")])
    cids.append(converse(store, 1, user="bob"))
    for cid in cids:
        check_same(store, replica, cid)


def test_views_after_a_rebuild(store: EventStore, replica: EventStore) -> None:
    """The replica follows the cut-over."""
    cids = conversations(store)
    reader = Views(replica)
    reader.timeline(cids[0])
    Views(store)
    rebuild(store)
    store.append(cids[0], [e.UserMessage.text("news")])
    assert "news" == reader.timeline(cids[0])[-1].text
    check_same(store, replica, cids[0])


def test_questions_on_a_replica(store: EventStore, replica: EventStore) -> None:
    """Filters work on the copy in memory as they do in the database."""
    conversations(store)
    reader = Views(replica)
    assert 2 == len(reader.conversations(user_id="ann"))
    assert 4 == sum(total.calls for total in reader.usage(user_id="bob"))
    assert 2 == len(reader.tool_calls(tool="search", limit=2))
    with pytest.raises(ConversationNotFound):
        reader.timeline(new_id())


@pytest.mark.parametrize("installed", [False, True])
def test_standing_and_difference_on_a_replica(
    store: EventStore, replica: EventStore, installed: bool
) -> None:
    """`status` and `compare` look at what is there, and write nothing."""
    conversations(store)
    if installed:
        Views(store).conversations()
    before = everything(store)
    assert compare(replica).ok
    behind = {each.name: each.behind for each in status(replica)}
    assert (0 if installed else 3, 3) == (behind["directory"], behind["timeline"])
    assert before == everything(store)


def test_the_connection_itself_refuses_to_write(replica: EventStore) -> None:
    """Read-only is the database's own word, not this library's good will."""
    with pytest.raises(NotWritable), replica.writing() as connection:
        connection.execute(text("DELETE FROM projection_heads"))
