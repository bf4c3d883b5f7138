"""The edges of the contract of Pydantic AI's conversation stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.messages import ModelRequest, UserPromptPart

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations

pytestmark = pytest.mark.anyio


@pytest.fixture
def conversations(store: EventStore) -> EventStoreConversations:
    """Give the adapter over a store."""
    return EventStoreConversations(store)


def asked(*texts: str) -> list[Any]:
    """Return messages in which a user says something."""
    return [ModelRequest([UserPromptPart(text)]) for text in texts]


async def saved(kept: Any, key: str, *texts: str) -> list[ConversationEntry]:
    """Save a conversation, and return its messages as they are stored."""
    entries = await kept.save(Conversation(conversation_id=key, messages=asked(*texts)))
    return list(entries)


async def words(kept: Any, key: str) -> list[str] | None:
    """Return what the messages of a stored conversation say."""
    found = await kept.load(key)
    return found and [each.parts[0].content for each in found.messages]


async def test_messages_behind_those_of_another(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """A record that begins behind another conversation's message, with messages, is a fork."""
    [entry] = asked("own")
    for kept in (InMemoryConversationStore(), conversations):
        first, _ = await saved(kept, "c", "a", "b")
        own = ConversationEntry(parent_id=first.id, message=entry)
        record = ConversationRecord(conversation_id="n", head_id=own.id)
        await kept.write_record(record, new_entries=[own], expected_revision=None)
        assert await words(kept, "n") == ["a", "own"]
        assert await words(kept, "c") == ["a", "b"]
    told = Views(store).context("n", mode=None).messages
    assert [each["content"] for each in told] == ["a", "own"]


async def test_a_fork_of_what_was_deleted_meanwhile(conversations: EventStoreConversations) -> None:
    """Where it was deleted since it was read, that is a conflict, and nothing is stored."""
    for kept in (InMemoryConversationStore(), conversations):
        _, last = await saved(kept, "c", "a", "b")
        await kept.delete("c")
        fork = ConversationRecord(conversation_id="f", head_id=last.id)
        with pytest.raises(ConversationConflict):
            await kept.write_record(fork, expected_revision=None)
        assert await kept.load("f") is None
        assert await kept.list_conversations() == []


async def test_a_conversation_does_not_move_to_another(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """Its history is its own: to end with a message of another is a conflict, not kept."""
    _, foreign = await saved(conversations, "c", "a", "b")
    await saved(conversations, "d", "d")
    record = await conversations.read_record("d")
    assert record is not None
    moved = replace(record, head_id=foreign.id, revision="moved")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(moved, expected_revision=record.revision)
    assert await words(conversations, "d") == ["d"]

    await conversations.delete("d")
    with pytest.raises(ConversationConflict):
        await conversations.fork("c", new_conversation_id="d")
    assert await conversations.load("d") is None
    await saved(conversations, "d", "anew")
    assert await words(conversations, "d") == ["anew"]
    told = Views(store).context("d", mode=None).messages
    assert [each["content"] for each in told] == ["anew"]


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("begun_anew", [False, True])
async def test_a_conversation_that_somebody_else_deleted(
    store: EventStore, begun_anew: bool, compared: bool
) -> None:
    """Whoever saves it on is told of a conflict, also where all messages are compared."""
    ours, theirs = EventStoreConversations(store), EventStoreConversations(store)
    held = Conversation(conversation_id="c", messages=asked("a", "b"))
    await ours.save(held)
    await theirs.delete("c")
    if begun_anew:
        await saved(theirs, "c", "anew")

    if compared:
        held.new_message_index = None
    held.messages += asked("more")
    with pytest.raises(ConversationConflict):
        await ours.save(held)
    assert await words(ours, "c") == (["anew"] if begun_anew else None)


@pytest.mark.parametrize("step", ["fork", "erase"])
async def test_a_fork_while_somebody_deletes(
    database_url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It is a conflict, and what was deleted is erased; no fork is left that nobody can read."""
    with EventStore.open(database_url) as one, EventStore.open(database_url) as other:
        ours, theirs = EventStoreConversations(one), EventStoreConversations(other)
        [first] = await saved(theirs, "c", "a secret")
        owned_by, real = (one, one.fork) if step == "fork" else (other, other.erase)
        told: list[BaseException] = []

        def meanwhile(*args: Any, **named: Any) -> Any:
            monkeypatch.undo()
            if step == "fork":
                asyncio.run(theirs.delete("c"))
            else:
                try:
                    fork = ConversationRecord(conversation_id="f", head_id=first.id)
                    asyncio.run(ours.write_record(fork, expected_revision=None))
                except ConversationConflict as error:
                    told.append(error)
            return real(*args, **named)

        monkeypatch.setattr(owned_by, step, meanwhile)
        if step == "fork":
            with pytest.raises(ConversationConflict):
                await ours.fork("c", new_conversation_id="f")
        else:
            await theirs.delete("c")
            assert len(told) == 1
        assert await ours.load("f") is None
        assert await theirs.load("c") is None
        assert await ours.list_conversations() == []
        assert all("secret" not in repr(each.data) for each in one.read("c"))
        with pytest.raises(LookupError):
            await ours.read_entry(first.id)
