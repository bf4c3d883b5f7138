"""Options that do not exist are refused, with the one that was perhaps meant; never ignored.

A misspelt ``tenant_id`` that is ignored reads another tenant's conversation.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore import AsyncConversation, AsyncEventStore, Conversation, EventStore, Views
from eventstore.errors import OwnerMismatch
from eventstore.events import UserMessage

Asked = Callable[[EventStore, UUID], Any]

# Where a call is checked, its names are misspelt on purpose: hence a mapping.
OWNER: dict[str, Any] = {"tenat_id": "acme"}
OWNED: dict[str, Asked] = {
    "get": lambda store, cid: store.get(cid, **OWNER),
    "read": lambda store, cid: list(store.read(cid, **OWNER)),
    "find": lambda store, _: store.find(key="a-key", **OWNER),
    "verify": lambda store, cid: store.verify(cid, **OWNER),
    "writer": lambda store, cid: store.writer(cid, **OWNER),
    "erase": lambda store, cid: store.erase(cid, reason="asked", **OWNER),
    "timeline": lambda store, cid: Views(store).timeline(cid, **OWNER),
    "context": lambda store, cid: Views(store).context(cid, **OWNER),
    "run_state": lambda store, cid: Views(store).run_state(cid, **OWNER),
    "open": lambda store, cid: Conversation.open(store, cid, **OWNER),
    "fork": lambda store, cid: Conversation.fork(store, cid, **OWNER),
    "asynchronous get": lambda store, cid: AsyncEventStore(store).get(cid, **OWNER),
    "asynchronous open": lambda store, cid: AsyncConversation.open(
        AsyncEventStore(store), cid, **OWNER
    ),
}
SYNCHRONOUS: dict[str, Any] = {"synchronos": "NORMAL"}
TITLE: dict[str, Any] = {"titel": "A talk"}
BUSY: dict[str, Any] = {"if_busi": "wait"}
BUDGET: dict[str, Any] = {"max_token": 100}
OTHERS: dict[str, tuple[Asked, str]] = {
    "opening": (lambda store, _: EventStore.open(store.url, **SYNCHRONOUS), "synchronous"),
    "sharing": (lambda store, _: EventStore.from_engine(store.engine, **SYNCHRONOUS), "synchron"),
    "starting": (lambda store, _: Conversation.start(store, **TITLE), "title"),
    "going on": (lambda store, cid: Conversation.open(store, cid, **BUSY), "if_busy"),
    "forking": (lambda store, cid: Conversation.fork(store, cid, **TITLE), "title"),
    "asking": (lambda store, cid: Views(store).context(cid, **BUDGET), "max_tokens"),
}


@pytest.fixture
def store(sqlite_url: str) -> Iterator[EventStore]:
    """A store."""
    with EventStore.open(sqlite_url) as store:
        yield store


@pytest.fixture
def cid(store: EventStore) -> UUID:
    """A conversation of another tenant."""
    with Conversation.start(store, tenant_id="other") as conversation:
        conversation.append(UserMessage.text("hello"))
    return conversation.id


def _call(asked: Asked, store: EventStore, cid: UUID) -> None:
    """Call, and wait for what is to be awaited."""

    async def awaited() -> None:
        answer = asked(store, cid)
        if inspect.isawaitable(answer):
            await answer

    asyncio.run(awaited())


@pytest.mark.parametrize("asked", OWNED.values(), ids=OWNED.keys())
def test_a_misspelt_owner(store: EventStore, cid: UUID, asked: Asked) -> None:
    """Nobody is given another's conversation for it."""
    with pytest.raises(TypeError, match="'tenat_id': did you mean 'tenant_id'"):
        _call(asked, store, cid)


@pytest.mark.parametrize(("asked", "meant"), OTHERS.values(), ids=OTHERS.keys())
def test_a_misspelt_option(store: EventStore, cid: UUID, asked: Asked, meant: str) -> None:
    """The function that was called names what it has."""
    with pytest.raises(TypeError, match=f"unknown option .*: did you mean '{meant}"):
        _call(asked, store, cid)


def test_a_fork_does_not_wait_for_writers(store: EventStore, cid: UUID) -> None:
    """An option of another function is none of this one."""
    other: dict[str, Any] = {"if_busy": "wait"}
    with pytest.raises(TypeError, match="unknown option 'if_busy': choose from"):
        Conversation.fork(store, cid, **other)


def test_a_turn_refuses_what_it_would_ignore(store: EventStore) -> None:
    """Before its request is made."""
    with Conversation.start(store) as conversation, conversation.turn("hello") as turn:
        with pytest.raises(TypeError, match="'max_token': did you mean 'max_tokens'"):
            turn.context(**BUDGET)
        turn.context(max_tokens=1_000)


def test_one_owners_log_is_not_verified_by_naming_nobody(store: EventStore, cid: UUID) -> None:
    """Everybody's would be, as if the tenant had not been named."""
    with pytest.raises(OwnerMismatch, match="concerns all owners unless it names a conversation"):
        store.verify(tenant_id="acme")
    assert store.verify(cid, tenant_id="other").ok
