"""What a rebuild reads of many streams at once is what is read of each alone."""

from __future__ import annotations

import pytest

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.errors import EventDamaged
from eventstore.sql.read import WholeStreams, read_page
from projections import Views
from projections.errors import ProjectionFailed
from projections.tokens import Tokenizer
from projections.tokens import counts as token_counts
from projections.tokens.counts import TokenCounts, known_of
from projections.upkeep import rebuild
from tests.contract.plain import PlainClient
from tests.projections.support import converse
from tests.projections.test_token_counts import MESSAGE, O200K, no_tokenizing
from tests.raw_events import insert_raw_event


def test_each_stream_gets_its_own_events_once(store: EventStore) -> None:
    """In order of version, with what stands in blobs, as often as it is asked for them: once."""
    several = [converse(store, turns) for turns in (3, 1, 2)]
    large = store.append(new_id(), [e.UserMessage.text("long " * 40_000)]).conversation_id
    with store.reading() as connection:
        streams = WholeStreams.read(connection, [*several, large, new_id()])
        for each in (large, *several):
            assert read_page(connection, each) == streams.take(each, connection)
            assert streams.take(each, connection) is None


def test_only_what_is_not_plain_needs_a_connection(store: EventStore) -> None:
    """A rebuild folds the others when its transaction has ended; nothing is lost by asking."""
    plain = converse(store, 1)
    large = store.append(new_id(), [e.UserMessage.text("long " * 40_000)]).conversation_id
    with store.reading() as connection:
        streams = WholeStreams.read(connection, [plain, large])
    assert [*store.read(plain)] == streams.take(plain)
    assert streams.take(large) is None
    with store.reading() as connection:
        assert read_page(connection, large) == streams.take(large, connection)


def test_forks_and_what_is_not_there_are_left_to_be_read_alone(store: EventStore) -> None:
    """A fork's first events stand in its parent."""
    parent = converse(store, 2)
    fork = store.fork(parent, before=5).conversation_id
    store.append(fork, [e.UserMessage.text("another way")])
    with store.reading() as connection:
        streams = WholeStreams.read(connection, [fork, empty := new_id()])
        assert streams.take(fork) is None
        assert streams.take(empty) is None


def test_a_damaged_stream_costs_no_other(store: EventStore, views: Views) -> None:
    """It is found when it is asked for, and the rebuild says which event it is."""
    sound, damaged = converse(store, 1), converse(store, 1)
    insert_raw_event(store, damaged, "user_message", "{}", meta="[1]")
    with store.reading() as connection:
        streams = WholeStreams.read(connection, [sound, damaged])
        with pytest.raises(EventDamaged):
            streams.take(damaged)
        assert read_page(connection, sound) == streams.take(sound)
    with pytest.raises(ProjectionFailed) as failed:
        rebuild(store)
    version = store.get(damaged).version
    assert (damaged, version) == (failed.value.conversation_id, failed.value.version)


def test_bytes_that_are_no_text_are_told_of_their_event(sqlite_url: str) -> None:
    """SQLite takes them; Python does not say in which row of a query they stand."""
    with EventStore.open(sqlite_url) as store, PlainClient(sqlite_url) as client:
        sound, damaged = converse(store, 1), converse(store, 1)
        client.disarm()
        spoiled = "UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE version = 2"
        client.execute(f"{spoiled} AND conversation_id = ?", damaged)
        with store.reading() as connection:
            assert WholeStreams.read(connection, [sound, damaged]).take(sound) is None
        with pytest.raises(ProjectionFailed) as failed:
            rebuild(store)
    assert (damaged, 2) == (failed.value.conversation_id, failed.value.version)


@pytest.mark.parametrize("most", [50_000, 1])
def test_counts_of_several_conversations_are_known_from_one_query(
    store: EventStore, views: Views, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each its own; where they are too many to be held, each is looked up."""
    monkeypatch.setattr(token_counts, "_MOST_LOADED", most)
    ids = [converse(store, 1) for _ in range(2)]
    for cid in ids:
        with store.writing() as connection:
            counts = TokenCounts(cid)
            counted = counts.count(MESSAGE, O200K)
            counts.write(connection)
    with store.reading() as connection:
        known = known_of(connection, [*ids, none := new_id()])
        with no_tokenizing():
            assert [counted] * 2 == [known[cid].count(MESSAGE, O200K) for cid in ids]
        assert counted == known[none].count(MESSAGE, Tokenizer("o200k_base"))
        assert [False, False, True] == [known[each].has_new for each in known]
