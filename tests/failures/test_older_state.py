"""The database goes back to an older state, by a restored backup, under a process that lives on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from agent_eventstore import AsyncConversation, Conversation
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore import events as e
from eventstore.errors import (
    ConversationNotFound,
    InvalidCursor,
    LogWentBack,
    WriterFenced,
    WrongExpectedVersion,
)
from projections import Views
from projections.catalogue import PROJECTIONS
from projections.engine import follower
from projections.engine.catch_up import CatchUp
from projections.engine.follower import catch_up_behind
from projections.engine.generations import find_all_live
from projections.models.timeline import TIMELINE
from projections.upkeep import compare, rebuild
from tests.connected import disconnect
from tests.contract.facade import say, texts
from tests.database_backup import Backup
from tests.exhaustive import partly
from tests.feed_wait import wait_for_feed
from tests.integration.recording import ask, ask_for_tool
from tests.postgres import PostgresServer
from tests.projections.support import converse


@pytest.fixture
def postgres_url(fresh_postgres_url: str) -> str:
    """URL of a PostgreSQL database that belongs to this test, and may be dropped."""
    return fresh_postgres_url


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give the store of the process that lives on."""
    with EventStore.open(database_url) as store:
        yield store


@contextmanager
def backed_up(store: EventStore) -> Iterator[Callable[[], None]]:
    """Make a backup; give a function that restores it."""

    def restore() -> None:
        backup.restore()
        disconnect(store)  # Its connections to PostgreSQL have ended; what it remembers stays.

    with Backup(store.engine.url.render_as_string(hide_password=False)) as backup:
        disconnect(store)
        yield restore


class TestCursors:
    """A feed that is read on from a cursor skips nothing, or says that it cannot."""

    def test_a_cursor_ahead_of_the_log_is_refused(self, store: EventStore) -> None:
        """At the moment of the restore there is nothing after the cursor, and nothing at it."""
        cid = new_id()
        store.append(cid, say("kept"))
        with backed_up(store) as restore:
            store.append(cid, say("lost"))
            cursor = wait_for_feed(store).read_all().cursor
            restore()
            with pytest.raises(InvalidCursor):
                store.read_all(after=cursor)

    def test_a_cursor_at_another_event_is_refused(self, store: EventStore) -> None:
        """Where new events take the places of the lost ones, they would have been skipped."""
        cid = new_id()
        store.append(cid, say("kept"))
        with backed_up(store) as restore:
            store.append(cid, say("lost 1", "lost 2"))
            cursor = wait_for_feed(store).read_all().cursor
            restore()
            store.append(cid, say("new 1", "new 2", "new 3"))
            wait_for_feed(store)
            with pytest.raises(InvalidCursor):
                store.read_all(after=cursor)

    def test_a_cursor_within_the_backup_holds(self, store: EventStore) -> None:
        """A reader that had not come further than the backup reads on."""
        cid = new_id()
        store.append(cid, say("kept 1", "kept 2"))
        cursor = wait_for_feed(store).read_all(limit=1).cursor
        with backed_up(store) as restore:
            store.append(cid, say("lost"))
            restore()
            store.append(cid, say("new"))
            assert ["kept 2", "new"] == texts(wait_for_feed(store).read_all(after=cursor))

    def test_a_replica_that_lags_is_waited_for(self, private_postgres: PostgresServer) -> None:
        """A cursor of the primary's may be ahead of it: the page is empty, and nothing is lost."""
        cid = new_id()
        with EventStore.open(private_postgres.url()) as store:
            store.append(cid, say("first"))
            ahead = wait_for_feed(store).read_all().cursor.replace("p2:1:", "p2:1:9")
            private_postgres.stop()
            (private_postgres.directory / "data" / "standby.signal").touch()
            private_postgres.start()
        with EventStore.open(private_postgres.url(), read_only=True) as replica:
            assert ((), ahead) == (
                replica.read_all(after=ahead).events,
                replica.read_all(after=ahead).cursor,
            )
            assert ["first"] == texts(replica.read_all())


class TestViews:
    """What a process remembers of a conversation is of the log that there was."""

    @pytest.mark.parametrize("new", partly([2, 1, 3]))
    @pytest.mark.parametrize("read", ["now", "later"])
    def test_a_request_holds_what_the_log_holds(
        self, store: EventStore, new: int, read: str
    ) -> None:
        """Fewer new events than were lost, as many, or more: nothing lost goes to the model."""
        views, cid = Views(store), converse(store, 6)
        views.context(cid, max_tokens=300)
        with backed_up(store) as restore:
            store.append(cid, say("lost 1", "lost 2"))
            assert "lost 2" in str(views.context(cid, max_tokens=300).messages)
            restore()
            if read == "now":
                views.context(cid, max_tokens=300)
            store.append(cid, say(*(f"new {number}" for number in range(new))))
            expected = Views(store).context(cid, max_tokens=300)
            assert expected == views.context(cid, max_tokens=300)
            assert "lost" not in str(expected.messages)

    def test_another_process_has_folded_on(self, store: EventStore) -> None:
        """Where heads have moved past what was read last, the log itself is asked."""
        views, cid = Views(store), converse(store, 6)
        with backed_up(store) as restore:
            store.append(cid, say("lost 1", "lost 2"))
            views.context(cid)
            restore()
            store.append(cid, say("new 1", "new 2", "new 3"))
            expected = Views(store).context(cid)
            assert expected == views.context(cid)


class TestFolding:
    """What was folded of the log that there was is not written into the one that there is."""

    def test_by_a_catch_up(self, store: EventStore) -> None:
        """Its head would stand at events that it has never seen."""
        views, cid = Views(store), converse(store, 6)
        views.timeline(cid)
        with store.reading() as connection:
            live = [each for each in find_all_live(connection, PROJECTIONS) if each is not None]
        with backed_up(store) as restore:
            store.append(cid, say("lost 1", "lost 2"))
            catching_up = CatchUp(live, cid)
            with store.reading() as connection:
                catching_up.fold(connection)
            restore()
            store.append(cid, say("new 1", "new 2"))
            with store.writing() as connection:
                catching_up.save(connection)
            assert not compare(store, conversations=[cid]).differences

    def test_by_a_rebuild(self, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Conversations that the log no longer holds to that version are folded again."""
        cid = converse(store, 6)

        def killed(*_: object) -> None:
            raise SystemExit

        def restored(*_: object) -> None:
            restore()
            store.append(cid, say("new 1", "new 2"))
            monkeypatch.undo()

        with monkeypatch.context() as patched:
            patched.setattr("projections.engine.rebuild._fold_all", killed)
            with pytest.raises(SystemExit):
                rebuild(store, [TIMELINE.name])
        with backed_up(store) as restore:
            store.append(cid, say("lost 1", "lost 2"))
            monkeypatch.setattr("projections.engine.rebuild._save_counts", restored)
            rebuild(store, [TIMELINE.name])
            assert not compare(store, [TIMELINE.name]).differences

    def test_by_a_follower(self, store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its place in the feed would lie behind events that it has never looked at."""
        views = Views(store)
        converse(store, 6)
        wait_for_feed(store)
        catch_up_behind(store, PROJECTIONS)
        with backed_up(store) as restore:
            converse(store, 6)
            wait_for_feed(store)
            advance = follower._advance

            def late(*arguments: Any) -> None:
                restore()
                advance(*arguments)

            monkeypatch.setattr(follower, "_advance", late)
            catch_up_behind(store, PROJECTIONS)
            monkeypatch.undo()
            new = new_id()
            store.append(new, say("new"))
            assert new in {row.conversation_id for row in views.conversations()}


class TestRecorder:
    """A session does not go on where what it has written is gone."""

    def test_the_loss_is_named(self, store: EventStore) -> None:
        """With the version, and the events that this process knows."""
        conversation = Conversation.start(store)
        with conversation.turn("kept") as turn:
            ask(turn, ("yes",))
        with backed_up(store) as restore:
            before = store.get(conversation.id).version
            with conversation.turn("lost") as turn:
                ask(turn, ("no",))
            version, lost = conversation.version, list(store.read(conversation.id, after=before))
            restore()
            with pytest.raises(LogWentBack) as caught, conversation.turn("more"):
                pytest.fail("the block must not run")
        error = caught.value
        assert (conversation.id, version, before) == (
            error.conversation_id,
            error.version,
            error.actual,
        )
        assert [event.event_id for event in lost] == [event.event_id for event in error.lost]
        assert before == store.get(conversation.id).version

    @pytest.mark.parametrize("new", partly([1, 20]))
    def test_other_events_in_its_place(self, store: EventStore, new: int) -> None:
        """It does not matter how far the log has come since, nor that nobody has fenced it."""
        conversation = Conversation.start(store)
        with backed_up(store) as restore:
            conversation.append(e.Notebook(text="lost"))
            restore()
            store.append(conversation.id, say(*("new" for _ in range(new))))
            with pytest.raises(LogWentBack):
                conversation.append(e.Notebook(text="more"))
            with pytest.raises(WrongExpectedVersion):
                conversation.write_again()

    def test_the_conversation_itself_is_gone(self, store: EventStore) -> None:
        """It is not begun anew in its midst."""
        with backed_up(store) as restore:
            conversation = Conversation.start(store)
            restore()
            with pytest.raises(LogWentBack) as caught:
                conversation.append(e.Notebook(text="more"))
            assert 0 == caught.value.actual
        with pytest.raises(ConversationNotFound):
            store.get(conversation.id)

    def test_written_again(self, store: EventStore) -> None:
        """The same events at the same versions, and what was kept meanwhile; then it goes on."""
        conversation = Conversation.start(store)
        with conversation.turn("find") as turn:
            with backed_up(store) as restore:
                asked = ask_for_tool(turn)
                tool = turn.tool(asked).__enter__()
                lost = [event.event_id for event in store.read(conversation.id)]
                restore()
                with pytest.raises(LogWentBack):
                    tool.result("found")
            done = conversation.write_again()
            assert done is not None
            assert lost == [event.event_id for event in store.read(conversation.id)][: len(lost)]
            (result,) = [each.data for each in store.read(conversation.id, after=done.version)]
            assert ("tool_result", asked.call_id) == (result.type, result.call_id)  # type: ignore[union-attr]
            assert conversation.write_again() is None
            ask(turn, ("there",))
        assert store.verify(conversation.id).ok

    def test_an_older_session_is_fenced(self, store: EventStore) -> None:
        """Opened again, the lost events may be written by hand, or left."""
        conversation = Conversation.start(store)
        with backed_up(store) as restore:
            conversation.append(e.Notebook(text="lost"))
            restore()
            with Conversation.open(store, conversation.id, if_busy="take_over") as again:
                with pytest.raises(LogWentBack):
                    conversation.append(e.Notebook(text="more"))
                again.append(e.Notebook(text="new"))

    def test_async(self, store: EventStore) -> None:
        """The twin does the same; of several tasks at once, one writes again."""

        async def write() -> LogWentBack:
            conversation = await AsyncConversation.start(AsyncEventStore(store))
            with backed_up(store) as restore:
                await conversation.append(e.Notebook(text="lost"))
                restore()
                with pytest.raises(LogWentBack) as caught:
                    await conversation.append(e.Notebook(text="more"))
                again = (conversation.write_again() for _ in range(4))
                once = [done is not None for done in await asyncio.gather(*again)]
                assert [True, False, False, False] == once
                await conversation.append(e.Notebook(text="more"))
            return caught.value

        assert ["lost"] == [event.data.text for event in asyncio.run(write()).lost]  # type: ignore[union-attr]


class TestWriters:
    """A writer is fenced by whoever opened after it, also where epochs are counted again."""

    def test_the_count_is_given_out_twice(self, store: EventStore) -> None:
        """An old writer that has written nothing has nothing else to be known by."""
        cid = new_id()
        store.append(cid, say("kept"))
        with backed_up(store) as restore:
            old = store.raise_writer_epoch(cid)
            restore()
            new = store.raise_writer_epoch(cid)
        assert old >> 32 == new >> 32
        with pytest.raises(WriterFenced) as caught:
            store.append(cid, say("late"), writer_epoch=old)
        assert (old, new) == (caught.value.epoch, caught.value.current_epoch)
        store.append(cid, say("new"), writer_epoch=new)
        assert ["kept", "new"] == texts(store.read(cid))

    def test_of_two_processes_that_open(self, store: EventStore) -> None:
        """The one whose opening was lost does not write into the other's session."""
        with Conversation.start(store) as conversation:
            cid = conversation.id
        with backed_up(store) as restore:
            old = Conversation.open(store, cid, if_busy="take_over")
            restore()
            new = Conversation.open(store, cid, if_busy="take_over")
            with pytest.raises((WriterFenced, LogWentBack)):
                old.append(e.Notebook(text="late"))
            new.append(e.Notebook(text="new"))
        assert old.epoch != new.epoch


class TestIdempotencyKeys:
    """A key is given out once, also where versions are given out again."""

    def test_another_call_has_another_key(self, store: EventStore) -> None:
        """A payment provider would take the second for a repetition of the first."""
        cid = Conversation.start(store).id
        with backed_up(store) as restore:
            keys = []
            for _ in range(2):
                with (
                    Conversation.open(store, cid, if_busy="take_over") as conversation,
                    conversation.turn("pay") as turn,
                ):
                    asked = ask_for_tool(turn, "pay")
                    with turn.tool(asked) as tool:
                        keys.append((asked.call_id, tool.idempotency_key))
                        tool.result("paid")
                restore()
        assert (keys[0][0], 2) == (keys[1][0], len({key for _, key in keys}))


class TestAnotherCluster:
    """A dump is restored into another server, whose transaction ids have not come so far."""

    @pytest.mark.parametrize("who", ["a process that lives on", "one that must not migrate"])
    def test_the_feed_skips_nothing(self, private_postgres: PostgresServer, who: str) -> None:
        """Whoever appends first begins an epoch, also if nobody migrates."""
        url = private_postgres.url()
        with EventStore.open(url) as store:
            _burn_transaction_ids(store)
            store.append(new_id(), say("one", "two"))
            first, last = (wait_for_feed(store).read_all(limit=limit).cursor for limit in (1, 2))
            private_postgres.replace()
            store.close()
            if who == "a process that lives on":
                store.append(new_id(), say("three"))
            else:
                with EventStore.open(url, migrate=False) as late:
                    late.append(new_id(), say("three"))
            assert ["three"] == texts(wait_for_feed(store).read_all(after=last))
        with EventStore.open(url, read_only=True) as reader:
            assert ["two", "three"] == texts(reader.read_all(after=first))

    def test_who_only_reads_changes_nothing(self, private_postgres: PostgresServer) -> None:
        """The first that writes begins the epoch."""
        with EventStore.open(private_postgres.url()) as store:
            store.append(new_id(), say("one"))
        private_postgres.replace()
        with EventStore.open(private_postgres.url(), read_only=True) as reader:
            assert 1 == _epochs(reader)
        with EventStore.open(private_postgres.url()) as store:
            assert 2 == _epochs(store)


def _epochs(store: EventStore) -> int:
    with store.reading() as connection:
        return int(connection.execute(text("SELECT count(*) FROM store_epochs")).scalar_one())


def _burn_transaction_ids(store: EventStore) -> None:
    """Take a thousand of them, so that a new cluster has not come so far."""
    with store.writing() as connection:
        connection.execute(text("CREATE TEMP TABLE burnt (n INT)"))
        connection.execute(
            text(
                "DO $$ BEGIN FOR n IN 1..1000 LOOP BEGIN INSERT INTO burnt VALUES (n); "
                "EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$"
            )
        )
