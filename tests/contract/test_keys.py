"""Keys: a product names a conversation by a text of its own, within a tenant."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from uuid import UUID

import pytest

from eventstore import NO_STREAM, EventStore, new_id
from eventstore.errors import (
    ConversationNotFound,
    InvalidEvent,
    OwnerMismatch,
    WrongExpectedVersion,
)
from eventstore.ids import keyed_id
from tests.contract.facade import say, texts
from tests.contract.plain import PlainClient


@pytest.fixture
def key() -> str:
    """Give a key that no other test uses, with what texts of products have in them."""
    return f"user-42:chat/{new_id()} ü\x00\ud800"


def test_key_names_the_same_conversation_every_time(store: EventStore, key: str) -> None:
    """Appending by a key begins its conversation, and goes on with it."""
    first = store.append(key, say("one"))
    store.append(key, say("two"))

    assert ["one", "two"] == texts(store.read(key)) == texts(store.read(first.conversation_id))
    assert (key, 2) == (store.get(key).key, store.get(first.conversation_id).version)


def test_key_is_listed(fresh: EventStore, key: str) -> None:
    """A conversation that has none is listed without."""
    fresh.append(key, say("one"))
    fresh.append(new_id(), say("two"))

    assert {key, None} == {info.key for info in fresh.list()}


def test_key_is_looked_up_within_the_tenant(store: EventStore, key: str) -> None:
    """The same key of another tenant, or of none, is another conversation."""
    for tenant in ("acme", "other", None):
        store.append(key, say(str(tenant)), tenant_id=tenant, expected_version=NO_STREAM)

    assert ["acme"] == texts(store.read(key, tenant_id="acme"))
    assert ["other"] == texts(store.read(key, tenant_id="other"))
    assert ["None"] == texts(store.read(key))


def test_texts_of_tenant_and_key_do_not_run_together(store: EventStore) -> None:
    """What looks alike once it is joined names two conversations."""
    mark = str(new_id())
    one = store.append(f"b{mark}", say("1"), tenant_id="a")
    two = store.append(mark, say("2"), tenant_id="ab")

    assert one.conversation_id != two.conversation_id


def test_beginning_a_key_twice_is_refused(store: EventStore, key: str) -> None:
    """Whoever expects no stream is told that there is one."""
    store.append(key, say("one"), expected_version=NO_STREAM)

    with pytest.raises(WrongExpectedVersion):
        store.append(key, say("two"), expected_version=NO_STREAM)


def test_find_returns_what_is_known_or_nothing(store: EventStore, key: str) -> None:
    """Within the tenant that is named; another user's is refused."""
    made = store.append(key, say("one"), tenant_id="acme", user_id="ada")

    found = store.find(key=key, tenant_id="acme")
    assert found is not None
    assert (made.conversation_id, key) == (found.conversation_id, found.key)
    assert store.find(key=key) is None
    with pytest.raises(OwnerMismatch):
        store.find(key=key, tenant_id="acme", user_id="bob")


def test_unknown_key_is_not_found(store: EventStore, key: str) -> None:
    """Reading yields nothing, as of an unknown id; what needs a conversation says so."""
    assert [] == list(store.read(key))
    with pytest.raises(ConversationNotFound):
        store.get(key)


@pytest.mark.parametrize("key", ["k" * 1_025, "ü" * 600])
def test_key_has_a_bound(store: EventStore, key: str) -> None:
    """Of 1,024 bytes."""
    with pytest.raises(InvalidEvent, match="key has"):
        store.append(key, say("one"))


def test_key_is_part_of_what_the_chain_covers(fresh: EventStore, plain: PlainClient) -> None:
    """A key that is taken away or put in another's place shows."""
    keyed = fresh.append("chat-7", say("one")).conversation_id
    assert fresh.verify().ok

    for altered in ("NULL", "'chat-8'"):
        plain.execute(f"UPDATE conversations SET key = {altered}")
        assert ["start_altered"] == [each.kind for each in fresh.verify(keyed).problems]


def test_every_call_takes_a_key(store: EventStore, key: str) -> None:
    """Epoch, verification and erasure by key are those of the conversation."""
    made = store.append(key, say("one"))
    assert isinstance(made.conversation_id, UUID)

    assert store.raise_writer_epoch(key)
    assert store.verify(key).ok
    assert made.conversation_id == store.erase(key, reason="asked for").conversation_id
    assert key == store.get(key).key


@pytest.mark.parametrize("name", ["tenant_id", "user_id"])
@pytest.mark.parametrize("value", ["", 42, b"ada"])
def test_owners_are_texts(store: EventStore, name: str, value: object) -> None:
    """Numbers, bytes and nothing at all are refused in words that name the argument."""
    with pytest.raises(InvalidEvent, match=name):
        store.append(new_id(), say("one"), **{name: value})  # type: ignore[arg-type]


def test_fork_may_have_a_key(store: EventStore, key: str) -> None:
    """Within the tenant of its source."""
    made = store.append(f"{key} source", say("one"), tenant_id="acme")

    forked = store.fork(made.conversation_id, conversation_id=key)

    found = store.find(key=key, tenant_id="acme")
    assert found is not None
    assert forked.conversation_id == found.conversation_id
    assert store.verify(forked.conversation_id).ok


@pytest.mark.parametrize(
    "asked",
    [
        lambda store: store.get("ada/weather"),
        lambda store: store.erase("ada/weather", reason="asked for"),
        lambda store: store.fork("ada/weather"),
        lambda store: store.raise_writer_epoch("ada/weather"),
    ],
)
def test_error_says_the_key(store: EventStore, asked: Callable[[EventStore], object]) -> None:
    """Nobody knows a conversation by the id that its key stands for."""
    with pytest.raises(ConversationNotFound, match="with the key 'ada/weather'") as caught:
        asked(store)

    assert "ada/weather" == caught.value.key
    assert keyed_id("ada/weather") == caught.value.conversation_id


def test_id_of_a_key_is_any_uuid() -> None:
    """It is equal to it, reads like it, and is copied and sent to other processes as one."""
    stream = keyed_id("ada/weather")
    plain = UUID(str(stream))

    assert (plain, repr(plain), hash(plain)) == (stream, repr(stream), hash(stream))
    sent = pickle.loads(pickle.dumps(stream))  # noqa: S301 - written here
    for copied in (sent, copy.deepcopy(stream)):
        assert (plain, UUID) == (copied, type(copied))
