"""The product's own row and the beginning of a turn, or of a conversation, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from agent_eventstore import (
    AsyncConversation,
    AsyncEventStore,
    Conversation,
    EventStore,
    Turn,
    Views,
)
from agent_eventstore.errors import BlockNotOpen, ConversationExists, NotCommitted
from eventstore.events import UserMessage

ORDER = text("INSERT INTO orders VALUES (:number)")


class Refused(Exception):
    """What a product raises to roll back."""


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store beside a table of the product's."""
    with EventStore.open(database_url) as store:
        with store.transaction() as connection:
            connection.execute(text("CREATE TABLE orders (number integer)"))
        Views(store)
        yield store


def orders(store: EventStore) -> list[int]:
    """Return the product's rows."""
    with store.reading() as connection:
        return list(connection.execute(text("SELECT number FROM orders ORDER BY number")).scalars())


def said(store: EventStore, conversation: Any) -> list[str]:
    """Return what the log has of users."""
    events = store.read(conversation.id)
    return [event.data.parts[0].text for event in events if isinstance(event.data, UserMessage)]  # type: ignore[union-attr]


def answer(turn: Any) -> None:
    """Have the model say something."""
    with turn.llm_call(turn.context(), model="m") as call:
        call.text("Well.")


def test_turn_begins_with_the_row(store: EventStore) -> None:
    """Ahead of its block, which goes on after the commit; what others see is whole."""
    with Conversation.start(store) as conversation:
        with store.transaction() as connection:
            connection.execute(ORDER, {"number": 7})
            turn = conversation.turn("Order 7", connection=connection)
            turn.begin()
            assert [] == said(store, conversation)
        with turn:
            answer(turn)
        assert (["Order 7"], [7]) == (said(store, conversation), orders(store))
        with conversation.turn("And?") as turn:
            answer(turn)
    assert store.verify(conversation.id).ok
    kinds = [item.kind for item in Views(store).timeline(conversation.id)]
    assert ["user", "assistant"] * 2 == [each for each in kinds if each in ("user", "assistant")]


def test_rollback_leaves_neither(store: EventStore) -> None:
    """The turn says so, ahead of any call; the conversation stands where it was, and goes on."""
    with Conversation.start(store) as conversation:
        before = conversation.version
        with store.transaction() as connection:
            connection.execute(ORDER, {"number": 7})
            turn = conversation.turn("Order 7", connection=connection)
            turn.begin()
            connection.rollback()
        with pytest.raises(NotCommitted, match=r"turn 1 .* rolled back") as caught, turn:
            pytest.fail("it must not be gone through")
        assert (1, conversation.id) == (caught.value.turn, caught.value.conversation_id)
        assert (before, [], []) == (conversation.version, said(store, conversation), orders(store))
        with conversation.turn("Again") as turn:
            answer(turn)
        assert (2, ["Again"]) == (turn.number, said(store, conversation))
    assert store.verify(conversation.id).ok


def test_dropped_turn_leaves_nothing_behind(store: EventStore) -> None:
    """Rolled back and never entered, it is in nobody's way."""
    with Conversation.start(store) as conversation:
        with store.transaction() as connection:
            conversation.turn("Order 7", connection=connection).begin()
            connection.rollback()
        conversation.rename("Orders")
        with conversation.turn("Again") as turn:
            answer(turn)
        assert ["Again"] == said(store, conversation)


def order(store: EventStore, conversation: Conversation, within: Callable[[Turn], Any]) -> None:
    """Go through a turn before its transaction is committed."""
    with store.transaction() as connection:
        connection.execute(ORDER, {"number": 7})
        with conversation.turn("Order 7", connection=connection) as turn:
            within(turn)


def test_nothing_goes_on_before_the_commit(store: EventStore) -> None:
    """Neither the prompt nor the model call; what the block raises goes on, and rolls back."""
    attempts: list[Callable[[Turn], Any]] = [
        lambda turn: turn.context(),
        lambda turn: turn.llm_call(model="m").__enter__(),
        lambda turn: None,
    ]
    with Conversation.start(store) as conversation:
        for attempt in attempts:
            with pytest.raises(NotCommitted):
                order(store, conversation, attempt)
        assert ([], []) == (said(store, conversation), orders(store))


def test_a_turn_begins_once(store: EventStore) -> None:
    """With a connection or without."""
    with Conversation.start(store) as conversation:
        with store.transaction() as connection:
            turn = conversation.turn("hi", connection=connection)
            turn.begin()
            with pytest.raises(BlockNotOpen, match="has already begun"):
                turn.begin()
        with turn:
            pass


def test_message_that_was_posted_before_is_not_begun_again(store: EventStore) -> None:
    """The turn has the first one's outcome, and its block does nothing."""
    with Conversation.start(store) as conversation:
        for _ in range(2):
            with store.transaction() as connection:
                turn = conversation.turn("hi", message_id="m-1", connection=connection)
                turn.begin()
            with turn:
                if turn.outcome is None:
                    answer(turn)
        assert turn.outcome is not None
        assert ("Well.", ["hi"]) == (turn.outcome.text, said(store, conversation))


def test_conversation_begins_with_the_row(store: EventStore) -> None:
    """After the commit it is as any other: with a lease, turns and an end."""
    with store.transaction() as connection:
        connection.execute(ORDER, {"number": 7})
        conversation = Conversation.start(store, key="order-7", connection=connection)
        assert store.find(key="order-7") is None
    with conversation:
        with conversation.turn("hi") as turn:
            answer(turn)
        writer = store.writer("order-7")
        assert writer is not None
        assert writer.session_id == conversation.session_id
    assert (["hi"], [7]) == (said(store, conversation), orders(store))
    with pytest.raises(ConversationExists), store.transaction() as connection:
        Conversation.start(store, key="order-7", if_exists="open", connection=connection)


def rolled_back(store: EventStore) -> Conversation:
    """Begin a conversation in a transaction that is rolled back."""
    with store.transaction() as connection:
        conversation = Conversation.start(store, key="order-7", connection=connection)
        connection.rollback()
    return conversation


def test_conversation_that_was_rolled_back_is_none(store: EventStore) -> None:
    """Nothing may be done with it; another one of the key may begin."""
    conversation = rolled_back(store)
    with pytest.raises(NotCommitted, match=r"^conversation "):
        conversation.turn("hi").__enter__()
    with pytest.raises(NotCommitted):
        conversation.close()
    with pytest.raises(Refused), rolled_back(store):
        raise Refused
    assert store.find(key="order-7") is None
    with Conversation.start(store, key="order-7") as conversation:
        assert 2 == conversation.version


async def _talk(store: AsyncEventStore, begin: Any) -> list[str]:
    """Begin conversation and turn in transactions, one of which is rolled back; return the log."""
    async with begin() as connection:
        conversation = await AsyncConversation.start(store, connection=connection)
    async with conversation:
        async with begin() as connection:
            lost = conversation.turn("lost", connection=connection)
            await lost.begin()
            if isinstance(connection, Connection):
                connection.rollback()
            else:
                await connection.rollback()
        with pytest.raises(NotCommitted):
            async with lost:
                pytest.fail("it must not be gone through")
        async with begin() as connection:
            turn = conversation.turn("hi", connection=connection)
            await turn.begin()
        async with turn, turn.llm_call(await turn.context(), model="m") as call:
            await call.text("Well.")
    return [event.type async for event in store.read(conversation.id)]


TYPES = [
    *("conversation_start", "session_start", "turn_start", "user_message", "llm_request"),
    *("assistant_message", "turn_end", "session_end"),
]


def test_on_an_event_loop_too(store: EventStore, database_url: str) -> None:
    """With the store's own transaction, on both databases."""

    async def talk() -> list[str]:
        async with await AsyncEventStore.open(database_url) as mine:
            return await _talk(mine, mine.transaction)

    assert TYPES == asyncio.run(talk())


def test_with_an_asynchronous_connection(postgres_url: str) -> None:
    """Of the product's engine, on PostgreSQL."""
    EventStore.open(postgres_url).close()

    async def talk() -> list[str]:
        engine = create_async_engine(postgres_url)
        try:
            async with await AsyncEventStore.open(postgres_url) as store:
                return await _talk(store, engine.begin)
        finally:
            await engine.dispose()

    assert TYPES == asyncio.run(talk())
