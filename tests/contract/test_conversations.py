"""Conversations: what the store knows of them, whom they belong to, and how they are listed."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import ConversationNotFound, OwnerMismatch
from tests.contract.facade import say


def test_get_tells_version_owner_and_parent(store: EventStore, cid: UUID) -> None:
    """Owner and parent are recorded when the conversation is created."""
    parent = new_id()
    store.append(cid, say("1"), tenant_id="acme", user_id="u1", parent=(parent, 7))
    store.append(cid, say("2"))

    info = store.get(cid)

    assert (cid, 2, 0, "acme", "u1", parent, 7) == (
        info.conversation_id,
        info.version,
        info.writer_epoch,
        info.tenant_id,
        info.user_id,
        info.parent_conversation_id,
        info.parent_version,
    )


def test_times_are_those_of_first_and_last_event(store: EventStore, cid: UUID) -> None:
    """Creation and last activity are in UTC, to the microsecond of the events."""
    first = store.append(cid, say("1")).events[0].recorded_at
    last = store.append(cid, say("2")).events[0].recorded_at

    info = store.get(cid)

    assert (first, last, UTC) == (info.created_at, info.last_active_at, info.created_at.tzinfo)
    assert first <= last <= datetime.now(UTC)


def test_get_of_an_unknown_conversation(store: EventStore, cid: UUID) -> None:
    """The error names the id."""
    with pytest.raises(ConversationNotFound) as caught:
        store.get(cid)
    assert cid == caught.value.conversation_id


def test_list_by_tenant_and_user(fresh: EventStore) -> None:
    """Each filter holds by itself and with the other; without them all are listed."""
    owners = [("a", "u"), ("a", "v"), ("b", "u"), (None, None)]
    ids = [new_id() for _ in owners]
    for conversation_id, (tenant, user) in zip(ids, owners, strict=True):
        fresh.append(conversation_id, say("x"), tenant_id=tenant, user_id=user)

    def listed(tenant: str | None = None, user: str | None = None) -> list[int]:
        return [ids.index(i.conversation_id) for i in fresh.list(tenant_id=tenant, user_id=user)]

    assert ([0, 1, 2, 3], [0, 1], [0, 2], [2], []) == (
        listed(),
        listed(tenant="a"),
        listed(user="u"),
        listed("b", "u"),
        listed("b", "v"),
    )


def test_list_goes_on_after_an_id(fresh: EventStore) -> None:
    """Pages in order of id, which is the order of creation, join without a seam."""
    ids = [new_id() for _ in range(5)]
    for conversation_id in reversed(ids):
        fresh.append(conversation_id, say("x"), user_id="u")

    found: list[UUID] = []
    while page := fresh.list(user_id="u", after=found[-1] if found else None, limit=2):
        found += [info.conversation_id for info in page]

    assert ids == found


@pytest.mark.parametrize(
    "claim", [{"tenant_id": "b"}, {"user_id": "v"}, {"tenant_id": "a", "user_id": "v"}]
)
def test_append_for_another_owner_is_refused(
    store: EventStore, cid: UUID, claim: dict[str, str]
) -> None:
    """A conversation never takes an event that says it belongs to somebody else."""
    store.append(cid, say("1"), tenant_id="a", user_id="u")

    with pytest.raises(OwnerMismatch) as caught:
        store.append(cid, say("2"), **claim)  # type: ignore[arg-type]

    assert (cid, 1) == (caught.value.conversation_id, store.get(cid).version)


def test_append_without_a_claim_or_with_the_right_one(store: EventStore, cid: UUID) -> None:
    """An append need not repeat the owner."""
    store.append(cid, say("1"), tenant_id="a", user_id="u")
    store.append(cid, say("2"))

    assert 3 == store.append(cid, say("3"), tenant_id="a", user_id="u").version


def test_a_conversation_without_owner_is_nobodys(store: EventStore, cid: UUID) -> None:
    """An owner cannot be claimed afterwards."""
    store.append(cid, say("1"))

    with pytest.raises(OwnerMismatch):
        store.append(cid, say("2"), user_id="u")
