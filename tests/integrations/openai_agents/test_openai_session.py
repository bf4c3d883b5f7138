"""`EventStoreSession` holds the contract of the SDK's `Session`, on both databases."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import SessionSettings
from agents.memory import Session

from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore, events
from eventstore.errors import InvalidEvent, OwnerMismatch, StatementRefused, WrongExpectedVersion
from tests.integrations.openai_agents.openai_samples import TURN, fresh_id, said, turns


def run(work: Any) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


@pytest.fixture
def session(store: EventStore) -> EventStoreSession:
    """Give a session of its own."""
    return EventStoreSession(fresh_id(), store, user_id="ada")


class TestItems:
    """What goes in comes out."""

    def test_is_a_session(self, session: EventStoreSession) -> None:
        """The SDK takes it for one."""
        assert isinstance(session, Session)

    def test_a_new_one_is_empty(self, session: EventStoreSession, store: EventStore) -> None:
        """Reading does not begin a conversation."""
        assert [] == run(session.get_items())
        assert None is store.find(key=session.session_id)

    def test_items_come_out_as_they_went_in(self, session: EventStoreSession) -> None:
        """Byte for byte: the same keys in the same order."""
        run(session.add_items(TURN))

        assert json.dumps(TURN) == json.dumps(run(session.get_items()))

    def test_adding_nothing_writes_nothing(
        self, session: EventStoreSession, store: EventStore
    ) -> None:
        """An empty list begins no conversation."""
        run(session.add_items([]))

        assert None is store.find(key=session.session_id)

    def test_another_object_sees_them(self, session: EventStoreSession, store: EventStore) -> None:
        """What one object has added, another one of the same id reads."""
        run(session.add_items(TURN))

        assert TURN == run(EventStoreSession(session.session_id, store).get_items())

    def test_ids_are_apart(self, session: EventStoreSession, store: EventStore) -> None:
        """Each session has its own items, and each tenant its own sessions."""
        run(session.add_items(TURN))

        assert [] == run(EventStoreSession(fresh_id(), store).get_items())
        assert [] == run(EventStoreSession(session.session_id, store, tenant_id="b").get_items())

    def test_of_another_user(self, session: EventStoreSession, store: EventStore) -> None:
        """A session that is somebody else's is refused."""
        run(session.add_items(TURN))

        with pytest.raises(OwnerMismatch):
            run(EventStoreSession(session.session_id, store, user_id="bob").get_items())

    @pytest.mark.parametrize(
        "item",
        [
            {"type": "a_kind_yet_unknown", "b": None, "a": [1.5, {"z": True}]},
            {"type": "compaction", "encrypted_content": "gAAAA"},
            {"type": "item_reference", "id": "msg_1"},
            {"role": "assistant", "content": "short form"},
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A"}}]},
            {"type": "function_call_output", "call_id": "never_called", "output": "late"},
            {"type": "mcp_approval_response", "approval_request_id": "r", "approve": False},
            {"type": ["no", "text"], "role": {"no": "text"}},
            {"type": "message", "role": "assistant", "content": None},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{not JSON"},
            {},
        ],
        ids=lambda item: str(item.get("type", item.get("role")))[:24],
    )
    def test_kinds(self, session: EventStoreSession, item: dict[str, Any]) -> None:
        """Any JSON object is kept, whether somebody understands it or not."""
        run(session.add_items([said("first"), item]))

        assert json.dumps([said("first"), item]) == json.dumps(run(session.get_items()))

    def test_what_is_no_json_is_refused_whole(self, session: EventStoreSession) -> None:
        """All items of a call are added, or none."""
        with pytest.raises(InvalidEvent):
            run(session.add_items([said("fine"), said("not a number") | {"n": float("nan")}]))

        assert [] == run(session.get_items())


class TestLimit:
    """The newest items, as many as are wanted."""

    @pytest.mark.parametrize("limit", [0, 1, 3, 6, 7, 50])
    def test_newest(self, session: EventStoreSession, limit: int) -> None:
        """They are the last ones, in order."""
        run(session.add_items(TURN))

        assert (TURN[-limit:] if limit else []) == run(session.get_items(limit))

    def test_settings(self, session: EventStoreSession) -> None:
        """The settings say what holds where nothing is asked; what is asked wins."""
        session.session_settings = SessionSettings(limit=2)
        run(session.add_items(TURN))

        assert TURN[-2:] == run(session.get_items())
        assert TURN[-4:] == run(session.get_items(4))

    def test_settings_as_a_dict(self, store: EventStore) -> None:
        """A dict says the same."""
        session = EventStoreSession(fresh_id(), store, session_settings={"limit": 1})

        assert 1 == session.session_settings.limit

    def test_over_withdrawn_items(self, session: EventStoreSession) -> None:
        """What was popped does not count, however much of it there is."""
        run(session.add_items(kept := turns(4)))
        run(session.add_items(turns(60)))
        for _ in range(120):
            run(session.pop_item())

        assert kept[-5:] == run(session.get_items(5))


class TestPop:
    """The newest item is taken back."""

    def test_one_after_the_other(self, session: EventStoreSession) -> None:
        """Each pop returns the newest that is left, until none is."""
        run(session.add_items(TURN))

        assert TURN[::-1] == [run(session.pop_item()) for _ in TURN]
        assert None is run(session.pop_item())
        assert [] == run(session.get_items())

    def test_of_an_unknown_session(self, session: EventStoreSession, store: EventStore) -> None:
        """There is nothing to pop, and none is begun."""
        assert None is run(session.pop_item())
        assert None is store.find(key=session.session_id)

    def test_half_an_answer(self, session: EventStoreSession) -> None:
        """What came with the popped item in one answer stays, and goes on."""
        run(session.add_items(TURN[:4]))
        run(session.pop_item())
        run(session.add_items(TURN[3:]))

        assert TURN == run(session.get_items())

    def test_the_log_keeps_it(self, session: EventStoreSession, store: EventStore) -> None:
        """It is withdrawn, not deleted."""
        run(session.add_items([said("hello")]))
        run(session.pop_item())

        kinds = [event.type for event in store.read(session.session_id)]
        assert ["conversation_start", "user_message", "retraction"] == kinds

    def test_erased(self, store: EventStore) -> None:
        """For those who must forget, its words are gone for good."""
        session = EventStoreSession(fresh_id(), store, erase=True)
        run(session.add_items([said("hello"), said("a secret")]))

        assert said("a secret") == run(session.pop_item())
        assert [said("hello")] == run(session.get_items())
        texts = [
            event.data.raw
            for event in store.read(session.session_id)
            if isinstance(event.data, events.UserMessage)
        ]
        assert "a secret" not in str(texts)


@pytest.mark.parametrize("table", ["erasures", "events"])
@pytest.mark.parametrize("clear", [False, True])
def test_erasing_is_all_or_nothing(sqlite_url: str, table: str, clear: bool) -> None:
    """Where erasing or withdrawing fails, neither is done: no item is lost, no text is left."""
    with EventStore.open(sqlite_url) as store:
        session = EventStoreSession("s", store, erase=True)
        run(session.add_items([said("hello"), said("a secret")]))
        with store.writing() as connection:
            connection.exec_driver_sql(
                f"CREATE TRIGGER failing BEFORE INSERT ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'as if the process had died'); END"
            )
        with pytest.raises(StatementRefused):
            run(session._atomic_replace_items(TURN) if clear else session.pop_item())
        with store.writing() as connection:
            connection.exec_driver_sql("DROP TRIGGER failing")

        assert [said("hello"), said("a secret")] == run(session.get_items())
        run(session._atomic_replace_items(TURN) if clear else session.pop_item())
        assert (TURN if clear else [said("hello")]) == run(session.get_items())
        assert "a secret" not in repr([event.data for event in store.read("s")])


class TestClear:
    """All items are taken back."""

    def test_and_begin_again(self, session: EventStoreSession) -> None:
        """The session is empty, and takes new items."""
        run(session.add_items(TURN))
        run(session.clear_session())
        assert [] == run(session.get_items())

        run(session.add_items(TURN[:1]))
        assert TURN[:1] == run(session.get_items())

    def test_twice(self, session: EventStoreSession) -> None:
        """What was popped and cleared before stays away."""
        run(session.add_items(turns(3)))
        run(session.pop_item())
        run(session.clear_session())
        run(session.add_items(turns(2)))
        run(session.clear_session())

        assert [] == run(session.get_items())

    def test_of_an_unknown_session(self, session: EventStoreSession, store: EventStore) -> None:
        """There is nothing to clear, and none is begun."""
        run(session.clear_session())

        assert None is store.find(key=session.session_id)

    def test_erased(self, store: EventStore) -> None:
        """For those who must forget, all words are gone for good."""
        session = EventStoreSession(fresh_id(), store, erase=True)
        run(session.add_items(TURN))
        run(session.clear_session())
        run(session.add_items([said("anew")]))

        assert [said("anew")] == run(session.get_items())
        assert all(
            event.erased
            for event in store.read(session.session_id, limit=len(TURN) - 1)
            if event.type != "conversation_start"
        )


class TestWorkers:
    """Two workers never interleave in silence."""

    def test_adding_to_what_has_changed(
        self, session: EventStoreSession, store: EventStore
    ) -> None:
        """Whoever has read is refused after somebody else has added, until it reads again."""
        run(session.add_items(TURN))
        run(session.get_items())
        run(EventStoreSession(session.session_id, store).add_items([said("in between")]))

        with pytest.raises(WrongExpectedVersion):
            run(session.add_items([said("mine")]))

        run(session.get_items())
        run(session.add_items([said("mine")]))
        assert [*TURN, said("in between"), said("mine")] == run(session.get_items())

    @pytest.mark.parametrize("how", ["cleared", "erased", "purged", "purged and begun again"])
    def test_adding_to_what_is_gone(
        self, session: EventStoreSession, store: EventStore, how: str
    ) -> None:
        """Whoever has read what was cleared for good is refused too, until it reads again."""
        run(session.add_items(TURN))
        run(session.get_items())
        key = session.session_id
        if how == "cleared":
            run(EventStoreSession(key, store, erase=True).clear_session())
        elif how == "erased":
            store.erase(key, reason="asked")
        else:
            store.purge(key, reason="asked")
        left = [said("anew")] if how == "purged and begun again" else []
        run(EventStoreSession(key, store, **session.owner).add_items(left))

        with pytest.raises(WrongExpectedVersion):
            run(session.add_items([said("mine")]))

        assert left == run(session.get_items())
        run(session.add_items([said("mine")]))
        assert [*left, said("mine")] == run(session.get_items())

    def test_what_is_no_item_is_no_change(
        self, session: EventStoreSession, store: EventStore
    ) -> None:
        """A title that was given meanwhile does not disturb."""
        run(session.add_items(TURN))
        run(session.get_items())
        store.append(session.session_id, events.ConversationUpdate(title="Weather"))
        run(session.add_items([said("mine")]))

        assert [*TURN, said("mine")] == run(session.get_items())

    def test_adding_alone(self, session: EventStoreSession, store: EventStore) -> None:
        """Whoever has read nothing adds behind what is there."""
        other = EventStoreSession(session.session_id, store, user_id="ada")

        async def both() -> None:
            for number in range(4):
                await asyncio.gather(
                    session.add_items([said(f"a {number}")]), other.add_items([said(f"b {number}")])
                )

        run(both())
        assert 8 == len(run(session.get_items()))

    def test_tasks_share_an_object(self, session: EventStoreSession) -> None:
        """None of what tasks add at the same time is lost."""

        async def many() -> None:
            await asyncio.gather(*(session.add_items([said(str(n))]) for n in range(20)))

        run(many())
        assert {str(n) for n in range(20)} == {i["content"] for i in run(session.get_items())}

    def test_a_cancelled_task(self, session: EventStoreSession) -> None:
        """What was begun is done before the cancellation goes on."""

        async def cancelled() -> None:
            task = asyncio.create_task(session.add_items(TURN))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(await session.get_items()) in (0, len(TURN))

        run(cancelled())
