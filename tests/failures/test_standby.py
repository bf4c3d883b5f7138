"""A store that reads from a streaming standby: it never misses what it has written itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import AsyncEventStore, EventStore, new_id
from eventstore import standby as reading_elsewhere
from eventstore.errors import CannotConnect, ConversationNotFound, InvalidUrl
from projections import AsyncViews, Views
from tests.cli.program import run
from tests.contract.facade import say
from tests.postgres import PostgresServer, fill, place_of_many_files
from torture.server import PostgresServer as Standby

_PATIENCE_S = 30


@dataclass
class Pair:
    """A primary and its streaming standby."""

    primary: PostgresServer
    standby: Standby

    def open(self, *, read_only: bool = False) -> EventStore:
        """Return a store that writes to one and reads from the other."""
        url, read_url = self.primary.url(), self.standby.url()
        return EventStore.open(url, read_url=read_url, read_only=read_only)

    def replayed(self) -> None:
        """Wait until the standby shows everything that the primary has."""
        [(place,)] = self.primary.execute("SELECT CAST(pg_current_wal_insert_lsn() AS text)")
        self.primary.execute("CHECKPOINT")  # Otherwise the last records wait for the next flush.
        until = time.monotonic() + _PATIENCE_S
        there = f"SELECT pg_last_wal_replay_lsn() >= '{place}'"
        while not self.standby.execute(there)[0][0]:
            assert time.monotonic() < until
            time.sleep(0.01)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the standby replay nothing in the block."""
        self.standby.execute("SELECT pg_wal_replay_pause()")
        try:
            yield
        finally:
            self.standby.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture(scope="module")
def pair(template_server: PostgresServer) -> Iterator[Pair]:
    """Give a primary with a store, and its standby."""
    with closing(PostgresServer(directory=place_of_many_files())) as primary:
        fill(primary, template_server)
        primary.start()
        with EventStore.open(primary.url()) as store:
            Views(store)
        with closing(primary.standby(place_of_many_files())) as standby:
            standby.start()
            yield Pair(primary, standby)


def _texts(views: Views, cid: UUID) -> list[str | None]:
    return [item.text for item in views.timeline(cid)]


def _begun(pair: Pair, *texts: str) -> UUID:
    """Return a conversation that another process has written, and that both servers have."""
    with EventStore.open(pair.primary.url()) as store:
        cid = store.append(new_id(), say(*texts)).conversation_id
    pair.replayed()
    return cid


class TestReads:
    """Who answers a read."""

    def test_standby_answers_while_the_primary_is_down(self, pair: Pair) -> None:
        """What the standby has is read without the primary."""
        cid = _begun(pair, "before")
        with pair.open() as store:
            views = Views(store)
            views.conversations()  # The primary folds what the list lacks.
            pair.replayed()
            pair.primary.stop("immediate")
            try:
                assert ["before"] == _texts(views, cid)
                assert cid in [each.conversation_id for each in views.conversations()]
                with pytest.raises(CannotConnect):
                    views.open_work(cid)
            finally:
                pair.primary.start()

    def test_own_append_is_read(self, pair: Pair) -> None:
        """A conversation is read from the primary until the standby has this store's append."""
        mine, other = _begun(pair, "1"), _begun(pair, "1")
        with pair.open() as store, EventStore.open(pair.primary.url()) as another:
            views = Views(store)
            with pair.paused():
                store.append(mine, say("2"))
                another.append(other, say("2"))
                assert ["1", "2"] == _texts(views, mine)
                assert ["1"] == _texts(views, other)
            pair.replayed()
            assert (["1", "2"], ["1", "2"]) == (_texts(views, mine), _texts(views, other))

    def test_new_conversation_is_listed_and_found(self, pair: Pair) -> None:
        """Reads of many conversations have what this store wrote, whichever it was."""
        with pair.open() as store, pair.paused():
            views = Views(store)
            cid = store.append(new_id(), say("an unmistakable word")).conversation_id
            assert cid in [each.conversation_id for each in views.conversations()]
            assert [cid] == [each.conversation_id for each in views.search("unmistakable")]
            fork = store.fork(cid, title="forked").conversation_id
            assert "an unmistakable word" == _texts(views, fork)[0]

    def test_conversation_that_the_standby_lacks(self, pair: Pair) -> None:
        """A conversation that is not there yet is the primary's to know."""
        with pair.open() as store, EventStore.open(pair.primary.url()) as another, pair.paused():
            views = Views(store)
            cid = another.append(new_id(), say("new")).conversation_id
            assert ["new"] == _texts(views, cid)
            with pytest.raises(ConversationNotFound):
                views.timeline(new_id())

    def test_nothing_erased_or_purged_is_read(self, pair: Pair) -> None:
        """After an erasure or a purge the standby's old rows are not shown."""
        erased, purged, several = (_begun(pair, "secret") for _ in range(3))
        with pair.open() as store, pair.paused():
            views = Views(store)
            store.erase(erased, reason="asked for")
            assert "secret" not in _texts(views, erased)
            store.purge(purged, reason="asked for")
            with pytest.raises(ConversationNotFound):
                views.timeline(purged)
            assert several in [each.conversation_id for each in views.conversations()]
            assert erased not in [each.conversation_id for each in views.conversations()]

    def test_list_that_is_behind_there(self, pair: Pair) -> None:
        """A list whose rows are not folded yet is the primary's, which folds and saves them."""
        cid = _begun(pair, "new")
        with pair.open() as store:
            views = Views(store)
            assert cid in [each.conversation_id for each in views.conversations()]
            with EventStore.open(pair.standby.url(), read_only=True) as standby:
                pair.replayed()
                rows = Views(standby).rows("directory", conversation_id=cid)
            assert ["new"] == [row["last_user_text"] for row in rows]

    def test_append_in_the_products_transaction(self, pair: Pair) -> None:
        """What a transaction of the product's own appended is read once it is committed."""
        cid = _begun(pair, "1")
        with pair.open() as store, pair.paused():
            views = Views(store)
            with store.transaction() as connection:
                store.append(cid, say("2"), connection=connection)
                assert ["1"] == _texts(views, cid)
            assert ["1", "2"] == _texts(views, cid)
            assert [2] == [
                each.version for each in views.conversations() if each.conversation_id == cid
            ]

    def test_more_conversations_than_are_remembered(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Versions that are no longer remembered are covered by a place in the log."""
        monkeypatch.setattr(reading_elsewhere, "_MOST_VERSIONS", 2)
        cids = [_begun(pair, "1") for _ in range(4)]
        with pair.open() as store, pair.paused():
            views = Views(store)
            for cid in cids:
                store.append(cid, say("2"))
            assert [["1", "2"]] * 4 == [_texts(views, cid) for cid in cids]

    def test_own_writes_under_load(self, pair: Pair) -> None:
        """Threads that write and read at once always find what they wrote."""

        def converse(views: Views) -> int:
            cid, missed = new_id(), 0
            for number in range(30):
                version = views.store.append(cid, say(f"{number}")).version
                missed += len(views.timeline(cid)) < version
                listed = views.conversations(limit=20)
                missed += cid not in [each.conversation_id for each in listed]
            return missed

        with pair.open() as store, ThreadPoolExecutor(4) as threads:
            views = Views(store)
            assert [0, 0, 0, 0] == list(threads.map(converse, [views] * 4))

    def test_asynchronous_store(self, pair: Pair) -> None:
        """The asynchronous store and its views do the same."""
        cid = _begun(pair, "1")

        async def converse() -> list[str | None]:
            url, read_url = pair.primary.url(), pair.standby.url()
            async with await AsyncEventStore.open(url, read_url=read_url) as store:
                await store.append(cid, say("2"))
                return [item.text for item in await AsyncViews(store).timeline(cid)]

        with pair.paused():
            assert ["1", "2"] == asyncio.run(converse())


class TestOwners:
    """A store for one owner reads only that owner's rows, from the standby too."""

    def test_bound_store(self, pair: Pair) -> None:
        """Lists of a bound store contain the owner's conversations, its latest included."""
        with pair.open() as store:
            for user in ("anna", "ben"):
                store.append(new_id(), say(user), user_id=user)
            pair.replayed()
            views = Views(store).for_owner(user_id="anna")
            assert {"anna"} == {each.user_id for each in views.conversations()}
            with pair.paused():
                cid = views.store.append(new_id(), say("more")).conversation_id
                assert cid in [each.conversation_id for each in views.conversations()]

    def test_row_level_security(self, private_postgres: PostgresServer) -> None:
        """The database of the standby limits the rows as the primary's does."""
        private_postgres.execute("CREATE ROLE product LOGIN PASSWORD 'product'")
        with EventStore.open(private_postgres.url()) as store:
            for user in ("anna", "ben"):
                store.append(new_id(), say(user), user_id=user)
            Views(store).conversations()
        for command in (("grant", "product"), ("secure",)):
            assert 0 == run("db", *command, url=private_postgres.url()).status
        with closing(private_postgres.standby(place_of_many_files())) as standby:
            standby.start()
            pair = Pair(private_postgres, standby)
            pair.replayed()
            url, read_url = (
                each.url().replace(f"postgres:{each.password}@", "product:product@")
                for each in (private_postgres, standby)
            )
            with EventStore.open(url, read_url=read_url, migrate=False) as store:
                views = Views(store).for_owner(user_id="anna")
                private_postgres.stop("immediate")
                found = [each.user_id for each in views.conversations()]
                private_postgres.start()
            assert ["anna"] == found


class TestFailures:
    """What happens without the standby."""

    def test_standby_goes_and_comes_back(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The primary answers in the meantime, and the log says so once."""
        monkeypatch.setattr(reading_elsewhere, "_PAUSE_S", 0.0)
        caplog.set_level(logging.INFO, "eventstore.standby")
        cid = _begun(pair, "1")
        with pair.open() as store:
            views = Views(store)
            pair.standby.stop("immediate")
            assert [["1"]] * 3 == [_texts(views, cid) for _ in range(3)]
            pair.standby.start()
            pair.replayed()
            assert ["1"] == _texts(views, cid)
        levels = [each.levelname for each in caplog.records if each.name == "eventstore.standby"]
        assert ["WARNING", "INFO"] == levels

    def test_standby_is_down_when_the_store_is_opened(self, pair: Pair) -> None:
        """The store opens all the same."""
        pair.standby.stop()
        try:
            with pair.open() as store:
                cid = store.append(new_id(), say("1")).conversation_id
                assert ["1"] == _texts(Views(store), cid)
        finally:
            pair.standby.start()

    def test_promoted_standby(self, private_postgres: PostgresServer) -> None:
        """A standby that became a primary of its own shows no less than this store has written."""
        cid = new_id()
        with EventStore.open(private_postgres.url()) as store:
            Views(store)
            store.append(cid, say("1"))
        with closing(private_postgres.standby(place_of_many_files())) as standby:
            standby.start()
            pair = Pair(private_postgres, standby)
            with pair.open() as store:
                views = Views(store)
                pair.replayed()
                standby.promote()
                store.append(cid, say("2"))
                assert ["1", "2"] == _texts(views, cid)

    def test_another_store(self, pair: Pair, postgres_url: str) -> None:
        """A URL of another store is refused at once."""
        EventStore.open(postgres_url).close()
        with pytest.raises(InvalidUrl, match="not a standby of"):
            EventStore.open(pair.primary.url(), read_url=postgres_url)

    def test_sqlite(self, pair: Pair, tmp_path: Path) -> None:
        """SQLite has no standby, and a store that only reads needs none."""
        file = f"sqlite:///{tmp_path}/store.db"
        for urls in ((file, pair.standby.url()), (pair.primary.url(), file)):
            with pytest.raises(InvalidUrl, match="read_url needs PostgreSQL"):
                EventStore.open(urls[0], read_url=urls[1])
        with pytest.raises(ValueError, match="open the standby itself"):
            pair.open(read_only=True)


def test_what_a_writer_decides_by(pair: Pair) -> None:
    """Open work, tasks and run states come from the primary, whoever wrote them."""
    cid = _begun(pair, "1")
    with pair.open() as store, EventStore.open(pair.primary.url()) as another, pair.paused():
        another.append(cid, say("2"))
        assert Views(store).open_work(cid).last_version == 2
