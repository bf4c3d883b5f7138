"""The agent of a conversation, and its persona, outlive the process that began it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import (
    AsyncConversation,
    AsyncEventStore,
    ContextSettings,
    Conversation,
    EventStore,
)
from agent_eventstore.errors import InvalidEvent

PERSONA = "You are Bmad, the analyst."


@pytest.fixture
def settings(tmp_path: Path) -> ContextSettings:
    """Give settings with the personas of two agents."""
    folder = tmp_path / "prompts" / "personas"
    folder.mkdir(parents=True)
    (folder / "bmad.md").write_text(PERSONA)
    (folder / "other.md").write_text("You are somebody else.")
    where: Any = str(tmp_path / "prompts")
    return ContextSettings(prompts=where)


def sent(conversation: Conversation, settings: ContextSettings, **turn: Any) -> str:
    """Return the request of a new turn, as text."""
    with conversation.turn("hello", **turn) as begun:
        return str(begun.context(settings=settings).messages)


def test_opening_restores_the_agent(database_url: str, settings: ContextSettings) -> None:
    """The next session sends the same persona, and its events name the same agent."""
    with EventStore.open(database_url) as store:
        with Conversation.start(store, mode="agent", agent_id="bmad") as begun:
            assert PERSONA in sent(begun, settings)
        for _ in range(2):
            with Conversation.open(store, begun.id) as again:
                assert PERSONA in sent(again, settings)
        assert {"bmad"} == {event.meta.agent_id for event in store.read(begun.id)}


def test_opening_names_another_agent(database_url: str, settings: ContextSettings) -> None:
    """An agent that is named takes over, from then on."""
    with EventStore.open(database_url) as store:
        Conversation.start(store, mode="agent", agent_id="bmad").close()
        [begun] = {event.conversation_id for event in store.read_all().events}
        Conversation.open(store, begun, agent_id="other").close()
        with Conversation.open(store, begun) as again:
            assert "somebody else" in sent(again, settings)


def test_a_killed_session_is_one_too(database_url: str, settings: ContextSettings) -> None:
    """Recovery ends the session in its agent's name."""
    with EventStore.open(database_url) as store:
        killed = Conversation.start(store, mode="agent", agent_id="bmad", lease_s=0.1)
        with Conversation.open(store, killed.id, if_busy="take_over") as again:
            assert PERSONA in sent(again, settings)


def test_opening_restores_the_agent_in_an_event_loop(
    database_url: str, settings: ContextSettings
) -> None:
    """The twin restores it as well."""

    async def go() -> str:
        async with await AsyncEventStore.open(database_url) as store:
            begun = await AsyncConversation.start(store, mode="agent", agent_id="bmad")
            await begun.close()
            again = await AsyncConversation.open(store, begun.id)
            async with again, again.turn("a") as turn:
                return str((await turn.context(settings=settings)).messages)

    assert PERSONA in asyncio.run(go())


def test_a_turn_has_an_agent_of_its_own(database_url: str, settings: ContextSettings) -> None:
    """Only that turn: its events name the agent, and its request has the persona."""
    with (
        EventStore.open(database_url) as store,
        Conversation.start(store, mode="agent") as conversation,
    ):
        assert PERSONA in sent(conversation, settings, agent_id="bmad")
        assert PERSONA not in sent(conversation, settings)
        turns = {
            event.meta.agent_id for event in store.read(conversation.id) if event.meta.turn == 1
        }
    assert {"bmad"} == turns


@pytest.mark.parametrize("if_busy", ["raise", "take_over"])
def test_waiting_is_asked_for(database_url: str, if_busy: Any) -> None:
    """A time to wait that would be ignored is refused, before anything is written."""
    with EventStore.open(database_url) as store:
        Conversation.start(store, key="k").close()
        with pytest.raises(InvalidEvent, match="if_busy"):
            Conversation.open(store, "k", if_busy=if_busy, wait_s=5.0)
        with pytest.raises(InvalidEvent, match="if_busy"):
            Conversation.open(store, "k", wait_s=5.0)
        Conversation.open(store, "k", if_busy="wait", wait_s=5.0).close()


def test_waiting_in_an_event_loop_is_asked_for(database_url: str) -> None:
    """The twin refuses it as well, and waits when it is asked to."""

    async def go() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            await (await AsyncConversation.start(store, key="k")).close()
            with pytest.raises(InvalidEvent, match="if_busy"):
                await AsyncConversation.open(store, "k", wait_s=5.0)
            await (await AsyncConversation.open(store, "k", if_busy="wait", wait_s=5.0)).close()

    asyncio.run(go())
