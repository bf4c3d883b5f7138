"""A store and views that are bound to an owner: nothing of another's comes out of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore import Conversation, recover, recover_all
from agent_eventstore.recovery import Recoveries
from eventstore import EventStore
from eventstore.errors import OwnerMismatch
from eventstore.events import UserMessage
from projections import Views
from tests.integration.recording import ask, ask_for_tool

SECRET = "the password is swordfish"
UNGUARDED = {
    "close": "closes the connections that it shares",
    "for_owner": "is how it was made",
    "from_engine": "makes another store",
    "open": "makes another store",
    "reading": "gives a transaction of one's own",
    "transaction": "gives a transaction of one's own",
    "vacuum": "reads and tells nothing",
    "resolve_owner": "asks nothing",
    "writing": "gives a transaction of one's own",
}
"""What is no matter of owners, and why."""
ARGUMENTS: dict[str, Callable[[UUID], dict[str, Any]]] = {
    "archive": lambda cid: {"url": "/nowhere", "inactive_for": timedelta(days=1)},
    "append": lambda cid: {"events": UserMessage.text("x")},
    "blob": lambda cid: {"digest": "0" * 64},
    "calibration": lambda cid: {"model": "gpt-4o"},
    "checkpoint": lambda cid: {"file": BytesIO()},
    "context_of": lambda cid: {"request_version": 1},
    "erase": lambda cid: {"reason": "x"},
    "erase_user": lambda cid: {"user_id": "ada", "reason": "x"},
    "purge": lambda cid: {"reason": "x"},
    "read_batches": lambda cid: {"table": "timeline_items", "use": list},
    "find": lambda cid: {"key": "secret chat"},
    "rows": lambda cid: {"table": "timeline_items"},
    "search": lambda cid: {"text": SECRET},
    "state_at": lambda cid: {"version": 1},
    "verify_against": lambda cid: {"checkpoint": "none"},
    "why": lambda cid: {"request_version": 1, "version": 1},
}


def public(cls: type[Any]) -> list[str]:
    """Return the names of a class's public methods."""
    return [name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_")]


@contextmanager
def unchanged(store: EventStore, cid: UUID) -> Iterator[None]:
    """Hold that a conversation's version and writer stay."""
    before = store.get(cid)
    yield
    assert before == store.get(cid)


@pytest.fixture
def anothers(alone: EventStore) -> UUID:
    """Give a conversation of ada's, with a turn, a tool call and something left open."""
    conversation = Conversation.start(
        alone, key="secret chat", tenant_id="acme", user_id="ada", title=SECRET
    )
    with conversation.turn(SECRET) as turn:
        ask(turn, [SECRET])
        ask_for_tool(turn, query=SECRET)
    conversation.turn(SECRET).__enter__()
    return conversation.id


@pytest.mark.parametrize("owner", [("acme", "bob"), ("other", None), (None, "ada")])
@pytest.mark.parametrize("cls", [EventStore, Views])
def test_every_public_method_refuses_or_tells_nothing(
    alone: EventStore,
    anothers: UUID,
    cls: type[Any],
    owner: tuple[str | None, str | None],
) -> None:
    """With the other's conversation named, and without; the other's stays as it is."""
    bound = alone.for_owner(tenant_id=owner[0], user_id=owner[1])
    views = Views(bound)
    target = bound if cls is EventStore else views
    for name in public(cls):
        if (cls is EventStore and name in UNGUARDED) or name == "for_owner":
            continue
        method: Callable[..., Any] = getattr(target, name)
        given = ARGUMENTS[name](anothers) if name in ARGUMENTS else {}
        takes = inspect.signature(method).parameters
        for named in ({"conversation_id": anothers}, {"source": anothers}, {}):
            if not named.keys() <= takes.keys() or (name == "fork" and "source" not in named):
                continue
            missing = takes.get("source") or takes.get("conversation_id")
            if not named and missing is not None and missing.default is inspect.Parameter.empty:
                continue
            with unchanged(alone, anothers):
                try:
                    found = method(**named, **given)
                    told = list(found) if inspect.isgenerator(found) else found
                except OwnerMismatch:
                    continue
                assert not named, f"{name} lets another owner in"
                assert SECRET not in repr(told)
                assert str(anothers) not in repr(told), name


def test_recovery_is_of_ones_own(alone: EventStore, anothers: UUID) -> None:
    """Neither one by one nor all at once is another's sealed."""
    bound = alone.for_owner(tenant_id="acme", user_id="bob")

    with unchanged(alone, anothers):
        assert Recoveries(recovered=(), in_use=(), failed={}) == recover_all(bound, Views(bound))
        with pytest.raises(OwnerMismatch):
            recover(bound, Views(bound), anothers)
        with pytest.raises(OwnerMismatch):
            recover(alone, Views(alone), anothers, user_id="bob")


def test_conversations_of_a_bound_store(alone: EventStore, anothers: UUID) -> None:
    """They are started as the owner's, opened by their keys, and another's are refused."""
    bound = alone.for_owner(tenant_id="acme", user_id="bob")

    Conversation.start(bound, key="mine").close()
    with Conversation.open(bound, "mine") as conversation, conversation.turn("Hi") as turn:
        ask(turn)

    views = Views(bound)
    assert ["mine"] == [each.key for each in views.conversations()]
    assert [1] == [total.calls for total in views.usage(by="user")]
    for named in (anothers, "secret chat"):
        with pytest.raises(OwnerMismatch):
            Conversation.open(bound, named)
    with pytest.raises(OwnerMismatch):
        Conversation.start(bound, key="secret chat", if_exists="open")


def test_views_are_bound_by_themselves(alone: EventStore, anothers: UUID) -> None:
    """`Views.for_owner` is the same as the views of a bound store."""
    views = Views(alone)

    assert [anothers] == [
        each.conversation_id for each in views.tool_calls(tenant_id="acme", user_id="ada")
    ]
    assert [] == views.for_owner(tenant_id="acme", user_id="bob").tool_calls()
    with pytest.raises(OwnerMismatch):
        views.for_owner(tenant_id="acme", user_id="bob").timeline("secret chat")
    with pytest.raises(OwnerMismatch):
        views.timeline(anothers, user_id="bob")
