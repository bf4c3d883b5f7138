"""LangChain's history of messages as a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from agent_eventstore import Conversation, EventStore, Views, errors
from agent_eventstore.integrations.langchain import EventStoreChatMessageHistory
from eventstore.events import BranchSwitch, Retraction, VersionRange

SAID: list[BaseMessage] = [
    SystemMessage("Be brief.", id="s1"),
    HumanMessage([{"type": "text", "text": "Rome?"}], id="h1", name="ada"),
    AIMessage("", id="a1", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "c1"}]),
    ToolMessage("no such city", tool_call_id="c1", name="weather", status="error", id="t1"),
    AIMessage("I cannot tell.", id="a2"),
]


def history(store: EventStore, session_id: str = "s") -> Any:
    """Return a history that has read nothing yet."""
    return EventStoreChatMessageHistory(store, session_id)


def test_messages_come_back(store: EventStore) -> None:
    """They are what was added, in order, whoever added them."""
    for each in SAID:
        history(store).add_message(each)

    assert SAID == history(store).messages
    assert [] == history(store, "another").messages


def test_views_know_them(store: EventStore) -> None:
    """A tool call that failed stands in the audit, and messages[] pair call and result."""
    history(store).add_messages(SAID)
    [call] = Views(store).tool_calls(conversation_id="s")
    sent = Views(store).context("s").messages

    assert ("weather", "failed") == (call.name, call.status)
    assert ["system", "user", "assistant", "tool", "assistant"] == [each["role"] for each in sent]


@pytest.mark.parametrize("erase", [False, True])
def test_clear(store: EventStore, erase: bool) -> None:
    """Nothing is left of the history, and it can be begun again."""
    said = history(store)
    said.clear(erase=erase)
    said.add_messages(SAID)
    said.clear(erase=erase)
    cleared = said.messages
    said.add_messages(SAID[:2])

    assert [] == cleared
    assert SAID[:2] == said.messages
    assert erase == any(each.data is None for each in store.read("s"))


def test_an_erased_history_leaves_memory(store: EventStore) -> None:
    """The object that erases the messages does not hold them any longer."""
    said = history(store)
    said.add_messages(SAID)
    said.clear(erase=True)

    assert {} == said._session.messages


def test_branches(store: EventStore) -> None:
    """A rewind takes messages away, and going back to the branch returns them, in order."""
    said = history(store)
    said.add_messages(SAID)
    conversation = Conversation.open(store, "s")
    conversation.rewind(3)
    rewound = said.messages
    said.add_messages([HumanMessage("Oslo?", id="h2")])
    anew = said.messages
    conversation.switch_branch(3)
    conversation.close()

    assert SAID[:1] == rewound == anew[:1]
    assert ["Oslo?"] == [each.content for each in anew[1:]]
    assert SAID == said.messages == history(store).messages


def test_a_cleared_branch_does_not_come_back(store: EventStore) -> None:
    """A message that was retracted is not restored by a switch of branches."""
    said = history(store)
    said.add_messages(SAID[:1])
    versions = (VersionRange(first=2, last=2),)
    store.append("s", BranchSwitch(reason="rewind", kind="message", withdrawn=versions))
    store.append("s", Retraction(versions=versions))
    store.append("s", BranchSwitch(reason="switch", kind="message", restored=versions))

    assert [] == said.messages


def test_all_or_none(store: EventStore) -> None:
    """A message that cannot be kept keeps the others of the call from it."""
    with pytest.raises(errors.InvalidEvent, match="remove"):
        history(store).add_messages([*SAID, RemoveMessage(id="s1")])

    assert [] == history(store).messages


def test_what_others_did_is_seen(store: EventStore) -> None:
    """A history that was read before sees what another process adds, clears and erases."""
    one, other = history(store), history(store)
    one.add_messages(SAID[:2])
    other.add_messages(SAID[2:])
    together = one.messages
    other.clear()
    cleared = one.messages
    one.add_messages(SAID[:1])
    other.clear(erase=True)
    erased = one.messages
    one.add_messages(SAID[:1])

    assert SAID == together
    assert [] == cleared == erased
    assert SAID[:1] == other.messages


def test_what_a_fork_shares_may_be_erased(store: EventStore) -> None:
    """A history that goes on from another one has nothing that was erased there."""
    EventStoreChatMessageHistory(store, "parent").add_messages(
        [HumanMessage("secret"), AIMessage("Hello.")]
    )
    store.fork("parent", conversation_id="fork")
    history = EventStoreChatMessageHistory(store, "fork")
    assert ["secret", "Hello."] == [each.content for each in history.messages]
    store.erase("parent", reason="asked for", versions={2})

    assert ["Hello."] == [each.content for each in history.messages]
