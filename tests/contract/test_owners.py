"""Owners: what is another's is refused where an owner is named, or a store is bound to one."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from eventstore import EventStore, new_id
from eventstore.errors import InvalidEvent, OwnerMismatch
from tests.contract.facade import say, texts

NAMED: dict[str, Callable[[EventStore, UUID, Any], object]] = {
    "append": lambda store, cid, owner: store.append(cid, say("x"), **owner),
    "blob": lambda store, cid, owner: store.blob(cid, "0" * 64, **owner),
    "erase": lambda store, cid, owner: store.erase(cid, reason="x", **owner),
    "get": lambda store, cid, owner: store.get(cid, **owner),
    "raise_writer_epoch": lambda store, cid, owner: store.raise_writer_epoch(cid, **owner),
    "read": lambda store, cid, owner: list(store.read(cid, **owner)),
    "verify": lambda store, cid, owner: store.verify(cid, **owner),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("owner", [{"user_id": "bob"}, {"tenant_id": "other"}])
def test_another_owner_is_refused(
    store: EventStore, cid: UUID, name: str, owner: dict[str, Any]
) -> None:
    """By every call that names a conversation, and nothing is changed."""
    store.append(cid, say("secret"), tenant_id="acme", user_id="ada")

    with pytest.raises(OwnerMismatch):
        NAMED[name](store, cid, owner)

    assert (1, 0) == (store.get(cid).version, store.get(cid).writer_epoch)


@pytest.mark.parametrize("name", sorted(NAMED.keys() - {"blob"}))
def test_the_owner_is_let_through(store: EventStore, cid: UUID, name: str) -> None:
    """Whoever names the owner, or part of it, gets what those get who name none."""
    store.append(cid, say("mine"), tenant_id="acme", user_id="ada")

    NAMED[name](store, cid, {"user_id": "ada"})
    NAMED[name](store, cid, {"tenant_id": "acme", "user_id": "ada"})


def test_list_is_of_the_owner(fresh: EventStore) -> None:
    """Without a tenant it is of those who have none."""
    owners = [("acme", "ada"), ("acme", "bob"), ("other", "ada"), (None, "ada"), (None, None)]
    for tenant, user in owners:
        fresh.append(new_id(), say("x"), tenant_id=tenant, user_id=user)

    def listed(**owner: str) -> set[tuple[str | None, str | None]]:
        return {(info.tenant_id, info.user_id) for info in fresh.for_owner(**owner).list()}

    assert {("acme", "ada")} == listed(tenant_id="acme", user_id="ada")
    assert {("acme", "ada"), ("acme", "bob")} == listed(tenant_id="acme")
    assert {(None, "ada")} == listed(user_id="ada")


WHOLE: dict[str, Callable[[EventStore], object]] = {
    "checkpoint": lambda store: store.checkpoint(BytesIO()),
    "read_all": lambda store: store.read_all(),
    "verify": lambda store: store.verify(),
}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("owner", [("acme", "bob"), ("other", "ada"), (None, "ada")])
def test_bound_store_refuses_what_is_anothers(
    store: EventStore, cid: UUID, name: str, owner: tuple[str | None, str | None]
) -> None:
    """Without anybody naming the owner once more; also one of the same name with no tenant."""
    store.append(cid, say("secret"), tenant_id="acme", user_id="ada")
    bound = store.for_owner(tenant_id=owner[0], user_id=owner[1])

    with pytest.raises(OwnerMismatch):
        NAMED[name](bound, cid, {})

    assert (1, 0) == (store.get(cid).version, store.get(cid).writer_epoch)


def test_what_a_bound_store_begins_is_theirs(store: EventStore) -> None:
    """Owner and key's tenant come from the binding."""
    bound, key = store.for_owner(tenant_id="acme", user_id="ada"), f"chat-{new_id()}"

    made = bound.append(key, say("mine"))

    info = store.get(made.conversation_id)
    assert ("acme", "ada", key) == (info.tenant_id, info.user_id, info.key)
    assert ["mine"] == texts(bound.read(key)) == texts(store.read(key, tenant_id="acme"))


def test_users_of_a_tenant_share_its_keys(store: EventStore) -> None:
    """So a user who names another one's key is refused, and begins nothing beside it."""
    key = f"chat-{new_id()}"
    store.append(key, say("secret"), tenant_id="acme", user_id="ada")

    with pytest.raises(OwnerMismatch):
        store.for_owner(tenant_id="acme", user_id="bob").append(key, say("x"))


@pytest.mark.parametrize("name", WHOLE)
def test_bound_store_refuses_what_concerns_all(store: EventStore, name: str) -> None:
    """The feed, checkpoints and the verification of everything."""
    with pytest.raises(OwnerMismatch, match=name):
        WHOLE[name](store.for_owner(user_id="ada"))


def test_binding_can_only_be_narrowed(store: EventStore) -> None:
    """From a tenant to a user of it, and to no other."""
    tenant = store.for_owner(tenant_id="acme")

    assert [] == [each for each in tenant.for_owner(user_id="ada").list() if each.user_id != "ada"]
    with pytest.raises(OwnerMismatch):
        tenant.for_owner(tenant_id="other")
    with pytest.raises(OwnerMismatch):
        tenant.for_owner(user_id="ada").list(user_id="bob")


def test_binding_needs_an_owner(store: EventStore) -> None:
    """Nobody is refused, rather than taken for everybody."""
    with pytest.raises(InvalidEvent, match="name one"):
        store.for_owner()


def test_an_id_that_was_purged_may_get_another_owner(database_url: str) -> None:
    """In every process at once: one that remembered the old owner showed them the new one's."""
    with EventStore.open(database_url) as one, EventStore.open(database_url) as other:
        key = f"chat-{new_id()}"
        ada = one.for_owner(tenant_id="acme", user_id="ada")
        bob = one.for_owner(tenant_id="acme", user_id="bob")
        ada.append(key, say("ada's"))
        assert ["ada's"] == texts(ada.read(key))

        other.purge(key, reason="x", tenant_id="acme")
        other.append(key, say("bob's"), tenant_id="acme", user_id="bob")

        assert ["bob's"] == texts(bob.read(key))
        for name in NAMED:
            with pytest.raises(OwnerMismatch):
                NAMED[name](ada, key, {})  # type: ignore[arg-type]
