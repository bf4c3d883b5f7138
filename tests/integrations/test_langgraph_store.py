"""What LangGraph's `BaseStore` documents, on `EventStoreStore`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from agent_eventstore import AsyncEventStore, EventStore
from agent_eventstore.integrations import conversation_memory
from agent_eventstore.integrations.conversation_events import keys_with
from agent_eventstore.integrations.langgraph.events import LanggraphItem, LanggraphRenewal
from agent_eventstore.integrations.langgraph.store import EventStoreStore
from eventstore.errors import InvalidEvent, StatementRefused
from projections.errors import EmbeddingFailed

ADA, BOB = ("users", "ada"), ("users", "bob")
STREAM = "langgraph.store:users.ada"


@pytest.fixture
def items(store: EventStore) -> EventStoreStore:
    """Give a store of items, with a few."""
    found = EventStoreStore(store)
    found.put(ADA, "tea", {"kind": "drink", "cups": 2, "of": {"leaf": "green", "tags": ["a", 1]}})
    found.put(ADA, "rye", {"kind": "bread", "cups": None})
    found.put(BOB, "tea", {"kind": "drink", "cups": 5})
    found.put(("shops", "rome", "users"), "x", {"kind": "shop"})
    return found


def keys(found: Any) -> list[tuple[str, str]]:
    """Return of items the last label of the namespace, and the key."""
    return [(each.namespace[-1], each.key) for each in found]


def test_items_come_back(items: EventStoreStore, store: EventStore) -> None:
    """An item is what was put, for whoever reads it; a reader's changes are the reader's own."""
    for asked in (items, EventStoreStore(store)):
        item: Any = asked.get(ADA, "tea")
        item.value["of"]["tags"].clear()
        assert ("tea", ADA, 2) == (item.key, item.namespace, item.value["cups"])
        again: Any = asked.get(ADA, "tea")
        assert ["a", 1] == again.value["of"]["tags"]
        assert [None, None] == [asked.get(ADA, "none"), asked.get(("none",), "tea")]


def test_an_item_is_replaced(items: EventStoreStore, store: EventStore) -> None:
    """All of it, also by another process; when it was created stays known."""
    before: Any = items.get(ADA, "tea")
    EventStoreStore(store).put(ADA, "tea", {"cups": 3})
    after: Any = items.get(ADA, "tea")

    assert {"cups": 3} == after.value
    assert before.created_at == after.created_at
    assert timedelta() <= after.updated_at - before.updated_at


def test_an_item_is_deleted(items: EventStoreStore) -> None:
    """Of a namespace without items none is listed, and it may be deleted twice."""
    items.delete(BOB, "tea")
    items.delete(BOB, "tea")

    assert items.get(BOB, "tea") is None
    assert BOB not in items.list_namespaces()
    items.put(BOB, "tea", {})
    assert {} == getattr(items.get(BOB, "tea"), "value", None)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kind": "drink"}, ["ada", "bob"]),
        ({"kind": "drink", "cups": 2}, ["ada"]),
        ({"cups": {"$gt": 2}}, ["bob"]),
        ({"cups": {"$gte": 2, "$lt": 5}}, ["ada"]),
        ({"cups": {"$lte": 2}}, ["ada"]),
        ({"cups": {"$ne": 2}, "kind": {"$eq": "drink"}}, ["bob"]),
        ({"of": {"leaf": "green"}}, ["ada"]),
        ({"of.leaf": "green"}, ["ada"]),
        ({"of": {"tags": ["a", 1]}}, ["ada"]),
        ({"of": {"tags": ["a"]}}, []),
        ({"cups": None, "kind": "bread"}, ["ada"]),
    ],
)
def test_filters(items: EventStoreStore, wanted: dict[str, Any], found: list[str]) -> None:
    """A filter compares fields, by operators too; an object in parts, a list as a whole."""
    assert found == sorted(name for name, _ in keys(items.search(("users",), filter=wanted)))


def test_search(items: EventStoreStore) -> None:
    """Below a prefix of labels, what was put last first, in pages."""
    assert [("bob", "tea"), ("ada", "rye"), ("ada", "tea")] == keys(items.search(("users",)))
    assert [("ada", "rye")] == keys(items.search(("users",), limit=1, offset=1))
    assert 4 == len(items.search(()))
    assert [] == items.search(("user",))
    with pytest.raises(ValueError, match=r"\$like"):
        items.search((), filter={"kind": {"$like": "d"}})


def test_namespaces(items: EventStoreStore) -> None:
    """By how they begin and end, with any label for a star, cut and in pages."""
    rome = ("shops", "rome", "users")

    assert [rome, ADA, BOB] == items.list_namespaces()
    assert [ADA, BOB] == items.list_namespaces(prefix=("users", "*"))
    assert [ADA] == items.list_namespaces(suffix=("ada",))
    assert [rome] == items.list_namespaces(prefix=("*", "rome"), suffix=("users",))
    assert [("shops",), ("users",)] == items.list_namespaces(max_depth=1)
    assert [ADA] == items.list_namespaces(limit=1, offset=1)
    assert [] == items.list_namespaces(prefix=("users", "ada", "*"))


@pytest.mark.parametrize("end", ["prefix", "suffix"])
def test_an_empty_path_matches_every_namespace(items: EventStoreStore, end: Any) -> None:
    """Every namespace begins and ends with it."""
    asked = ListNamespacesOp(match_conditions=(MatchCondition(end, ()),))

    assert [items.list_namespaces()] == items.batch([asked])


def test_a_fork_is_a_namespace(items: EventStoreStore, store: EventStore) -> None:
    """A fork of a namespace has its items, before anything is put to the fork too."""
    store.fork(STREAM, conversation_id="langgraph.store:users.eve")

    assert ("users", "eve") in items.list_namespaces()
    assert {("eve", "tea"), ("eve", "rye")} == {*keys(items.search(("users", "eve")))}


def test_a_prefix_of_keys_is_exact(items: EventStoreStore, store: EventStore) -> None:
    """A key that differs in case does not have it, on SQLite either."""
    items.put(("Users", "ada"), "tea", {})

    assert {STREAM, "langgraph.store:users.bob"} == {
        *keys_with(store, LanggraphItem.type, begins="langgraph.store:users.")
    }


def test_what_is_cached_is_bounded(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size of the items that are left, not only by the number of namespaces."""
    monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 1_000)
    items = EventStoreStore(store)
    for size in (900, 10):  # the second value replaces the first
        items.put(ADA, "k", {"said": "x" * size})
    items.put(BOB, "k", {"said": "x" * 900})
    for namespace in (ADA, BOB):
        items.get(namespace, "k")
    assert 2 == len(items._known._known)

    items.put(ADA, "l", {"said": "x" * 900})
    items.get(ADA, "l")
    assert [STREAM] == [*items._known._known]


def test_a_batch(items: EventStoreStore, store: EventStore) -> None:
    """Reads see what was there before; of puts of a key the last counts, in one transaction."""
    last = PutOp(ADA, "tea", {"cups": 9})
    asked = [GetOp(ADA, "tea"), PutOp(ADA, "tea", {}), last, PutOp(ADA, "rye", None)]
    before = [*store.read(STREAM)][-1].version
    found = items.batch([*asked, SearchOp(ADA)])

    assert [2, None, None, None] == [each and each.value["cups"] for each in found[:4]]
    assert [("ada", "rye"), ("ada", "tea")] == keys(found[4])
    assert [("ada", "tea")] == keys(items.search(ADA))
    assert 2 == len([*store.read(STREAM, after=before)])


@pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), (1,), ("a\0",)])
def test_labels(items: EventStoreStore, namespace: Any) -> None:
    """A label that another namespace could be meant by is refused, in a batch too."""
    for asked in (GetOp(namespace, "k"), PutOp(namespace, "k", {})):
        with pytest.raises(InvalidNamespaceError):
            items.batch([asked])


class Letters:
    """An embedding that counts the letters a to h of a text, and is asked for each text once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return how often each letter is in each text."""
        self.texts += texts
        return [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in texts]

    async def later(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the same in an event loop."""
        await asyncio.sleep(0)
        return self(texts)


def found_by(found: Any) -> list[tuple[str, float | None]]:
    """Return of items the key and the score."""
    return [(each.key, each.score and round(each.score, 3)) for each in found]


def test_a_search_by_meaning(store: EventStore) -> None:
    """The nearest first, then what has no vector; another process need not embed items again."""
    letters = Letters()
    items = EventStoreStore(store, index={"dims": 8, "embed": letters, "fields": ["text"]})
    items.put(ADA, "bad", {"text": "baad"})
    items.put(ADA, "egg", {"text": "egg"})
    items.put(ADA, "cab", {"text": "cab", "more": ["bee", "dad"]}, index=["text", "more[*]"])
    items.put(ADA, "not", {"text": "abc"}, index=False)
    items.put(ADA, "none", {"kind": "without"})
    assert ["baad", "egg", "cab", "bee", "dad"] == letters.texts
    nearest = [("bad", 1.0), ("cab", 0.73), ("egg", 0.0), ("none", None), ("not", None)]
    again = Letters()
    other = EventStoreStore(store, index={"dims": 8, "embed": again})
    for asked in (items, other):
        assert nearest[:2] == found_by(asked.search(ADA, query="dbaa", limit=2))
        assert [("egg", None)] == [
            (each.key, each.score) for each in asked.search(ADA, filter={"text": "egg"})
        ]
    assert nearest == found_by(other.search(ADA, query="dbaa"))
    assert nearest[1:3] == found_by(other.search(ADA, query="dbaa", offset=1, limit=2))
    assert {"dbaa"} == {*again.texts}
    items.put(ADA, "bad", {"text": "egg"})
    assert "cab" == other.search(ADA, query="dbaa")[0].key
    items.delete(ADA, "cab")
    assert {("bad", 0.0), ("egg", 0.0)} == {*found_by(other.search(ADA, query="dbaa", limit=2))}
    assert store.verify(store.stream(STREAM)).ok


def test_a_search_by_meaning_in_an_event_loop(store: EventStore) -> None:
    """An asynchronous embedding is awaited in the loop."""
    items = EventStoreStore(store, index={"dims": 8, "embed": Letters().later})

    async def use() -> list[tuple[str, float | None]]:
        await items.aput(ADA, "bad", {"text": "baad"})
        await items.aput(ADA, "egg", {"text": "egg"})
        return found_by(await items.asearch(ADA, query='{"text": "egg"}', limit=1))

    assert [("egg", 1.0)] == asyncio.run(use())


def test_an_embedding_that_fails_writes_nothing(store: EventStore) -> None:
    """Nor does one that returns something else."""
    failing: list[Any] = [lambda _: [], lambda _: 1 / 0]
    for broken in failing:
        items = EventStoreStore(store, index={"dims": 8, "embed": broken})
        with pytest.raises(EmbeddingFailed):
            items.put(ADA, "k", {"text": "a"})
    assert [] == EventStoreStore(store).search(ADA)


def test_a_vector_of_another_model_has_no_score(store: EventStore) -> None:
    """It is of another length: the item is found, after those that can be compared."""
    EventStoreStore(store, index={"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]}).put(
        ADA, "old", {"text": "a"}
    )
    items = EventStoreStore(store, index={"dims": 8, "embed": Letters()})
    items.put(ADA, "new", {"text": "egg"})
    assert [("new", 0.0), ("old", None)] == found_by(items.search(ADA, query="b"))
    store.append(STREAM, LanggraphItem(key="odd", value={}, vectors=("no base64!", "AAA=")))
    assert ["new", "odd", "old"] == [key for key, _ in found_by(items.search(ADA, query="b"))]


def test_a_store_at_a_url(sqlite_url: str) -> None:
    """As LangGraph's own stores are opened; there is nothing to set up."""
    with EventStoreStore.from_conn_string(sqlite_url, erase=True) as items:
        items.setup()
        items.put(ADA, "tea", {"cups": 2})
        assert items.erase
    with EventStoreStore.from_conn_string(sqlite_url) as items:
        assert [("ada", "tea")] == keys(items.search(ADA))


def test_what_it_cannot_do(items: EventStoreStore, sqlite_url: str) -> None:
    """Nothing that is asked for is passed over in silence."""
    for asked in (
        PutOp(ADA, "k", {}, index=["text"]),
        SearchOp(ADA, query="green"),
    ):
        with pytest.raises(NotImplementedError, match="this store"):
            items.batch([asked])
    with pytest.raises(InvalidEvent):
        items.put(ADA, "k", {}, ttl=math.nan)
    with EventStore.open(sqlite_url, redact=lambda _, value: value) as redacting:
        with pytest.raises(ValueError, match="redact"):
            EventStoreStore(redacting)


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def pass_minutes(self, minutes: float) -> None:
        """Let time pass."""
        self.now += timedelta(minutes=minutes)


@pytest.fixture
def clock() -> Clock:
    """Give a clock that stands still."""
    return Clock()


@pytest.fixture
def timed(database_url: str, clock: Clock) -> Iterator[EventStore]:
    """Give a store by that clock."""
    with EventStore.open(database_url, clock=clock) as opened:
        yield opened


def test_an_item_with_a_time_to_live(timed: EventStore, clock: Clock) -> None:
    """When it is over the item is in no answer; a put begins it anew, and the item is a new one."""
    items = EventStoreStore(timed, ttl={"default_ttl": 10, "refresh_on_read": False})
    items.put(ADA, "code", {"n": 1})
    items.put(ADA, "name", {"n": 2}, ttl=None)
    items.put(BOB, "code", {"n": 3}, ttl=30)
    first: Any = items.get(ADA, "code")
    clock.pass_minutes(9)
    items.put(ADA, "code", {"n": 4})
    clock.pass_minutes(9)
    again: Any = items.get(ADA, "code")
    assert (first.created_at, {"n": 4}) == (again.created_at, again.value)
    clock.pass_minutes(1)
    for asked in (items, EventStoreStore(timed, ttl=items.ttl_config)):
        assert asked.get(ADA, "code") is None
        assert [("ada", "name"), ("bob", "code")] == sorted(keys(asked.search(("users",))))
    clock.pass_minutes(20)
    assert [ADA] == items.list_namespaces()
    items.put(ADA, "code", {})
    renewed: Any = items.get(ADA, "code")
    assert clock.now == renewed.created_at


def test_a_read_renews(timed: EventStore, clock: Clock) -> None:
    """A get and a search do, at most ten times in the time to live, and not if they shall not."""
    items = EventStoreStore(timed, ttl={"default_ttl": 10})
    items.put(ADA, "k", {})
    items.put(ADA, "left", {})
    for minutes in (0.5, 5, 0.5, 9):
        clock.pass_minutes(minutes)
        assert items.get(ADA, "k") is not None
    payloads = [each.data for each in timed.read(STREAM)]
    renewals = [each.keys for each in payloads if isinstance(each, LanggraphRenewal)]
    assert [("k",), ("k",)] == renewals
    assert [("ada", "k")] == keys(items.search(ADA))
    clock.pass_minutes(9)
    assert [("ada", "k")] == keys(items.search(ADA))
    clock.pass_minutes(9)
    assert [("ada", "k")] == keys(items.search(ADA, refresh_ttl=False))
    clock.pass_minutes(1)
    assert items.get(ADA, "k") is None


@pytest.mark.parametrize("erase", [False, True])
def test_what_is_over_is_swept(timed: EventStore, clock: Clock, erase: bool) -> None:
    """Deleted as by hand, once; with ``erase`` the values leave the log."""
    items = EventStoreStore(timed, erase=erase)
    items.put(ADA, "short", {"said": "secret"}, ttl=1)
    items.put(ADA, "long", {"said": "other"}, ttl=100)
    items.put(BOB, "short", {"said": "secret"}, ttl=1)
    assert 0 == items.sweep_ttl()
    clock.pass_minutes(1)
    assert 2 == items.sweep_ttl()
    assert 0 == EventStoreStore(timed).sweep_ttl()
    kept = [each.data for each in timed.read(STREAM) if isinstance(each.data, LanggraphItem)]
    assert (not erase) == any(each.value == {"said": "secret"} for each in kept)
    clock.pass_minutes(-1)
    assert [("ada", "long")] == keys(items.search(("users",)))


def test_items_are_swept_in_a_thread(timed: EventStore, clock: Clock) -> None:
    """Until it is stopped; without a configuration there is none."""
    EventStoreStore(timed).start_ttl_sweeper()
    items = EventStoreStore(timed, ttl={"default_ttl": 1})
    items.put(ADA, "k", {})
    clock.pass_minutes(1)
    items.start_ttl_sweeper(0.0001)
    items.start_ttl_sweeper(0.0001)
    until = time.monotonic() + 30
    while time.monotonic() < until and 3 > len([*timed.read(STREAM)]):
        time.sleep(0.01)
    assert items.stop_ttl_sweeper(30)
    assert (3, True) == (len([*timed.read(STREAM)]), items.stop_ttl_sweeper())


@pytest.mark.parametrize("erase", [False, True])
def test_what_is_gone(store: EventStore, erase: bool) -> None:
    """What was replaced or deleted stays in the log, unless it is to be erased."""
    items = EventStoreStore(store, erase=erase)
    for value in ({"said": "first"}, {"said": "second"}):
        items.put(ADA, "k", value)
    items.delete(ADA, "k")
    items.put(ADA, "other", {})
    kept = [each.data.value for each in store.read(STREAM) if isinstance(each.data, LanggraphItem)]

    assert [None, {}] == [each for each in kept if not each]
    assert 2 * (not erase) == len([each for each in kept if each])
    assert [("ada", "other")] == keys(items.search(ADA))
    assert [("ada", "other")] == keys(EventStoreStore(store).search(ADA))
    assert store.verify(STREAM).ok


@pytest.mark.parametrize("table", ["erasures", "events"])
def test_replacing_erases_or_fails(sqlite_url: str, table: str) -> None:
    """Where erasing or putting fails, neither is done: no value that was replaced stays."""
    with EventStore.open(sqlite_url) as store:
        items = EventStoreStore(store, erase=True)
        items.put(ADA, "k", {"said": "first"})
        with store.writing() as connection:
            connection.exec_driver_sql(
                f"CREATE TRIGGER failing BEFORE INSERT ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'as if the process had died'); END"
            )
        with pytest.raises(StatementRefused):
            items.put(ADA, "k", {"said": "second"})

        item: Any = items.get(ADA, "k")
        assert {"said": "first"} == item.value


def test_an_erased_value_leaves_memory(store: EventStore) -> None:
    """Not only the log: the process that erased it does not cache it either."""
    items = EventStoreStore(store, erase=True)
    items.put(ADA, "tea", {"kind": "drink"})
    items.delete(ADA, "tea")

    assert items._known.get(STREAM) is None


def test_a_namespace_is_erased(items: EventStoreStore, store: EventStore) -> None:
    """It is a conversation: erasing that erases all its items, for those who had read them too."""
    store.erase(STREAM, reason="asked for")

    assert [] == items.search(ADA)
    items.put(ADA, "k", {"cups": 1})
    assert [("ada", "k")] == keys(items.search(ADA))


def test_owners(store: EventStore) -> None:
    """A store of one tenant sees the items of that tenant alone."""
    one, two = (EventStoreStore(store.for_owner(tenant_id=name)) for name in ("one", "two"))
    one.put(ADA, "k", {"of": 1})
    two.put(ADA, "k", {"of": 2})

    assert [{"of": 1}] == [each.value for each in one.search(())]
    assert [{"of": 2}] == [each.value for each in two.search(())]
    assert [] == EventStoreStore(store.for_owner(tenant_id="three")).list_namespaces()


def test_in_an_event_loop(database_url: str) -> None:
    """Tasks that put at once lose nothing; an asynchronous store will do."""

    async def put() -> list[str]:
        async with await AsyncEventStore.open(database_url, synchronous="OFF") as store:
            one, two = EventStoreStore(store), EventStoreStore(store)
            await asyncio.gather(
                *(each.aput(ADA, f"{n}{id(each)}", {}) for n in range(4) for each in (one, two))
            )
            await one.adelete(ADA, f"0{id(one)}")
            assert [ADA] == await two.alist_namespaces()
            return [each.key for each in await two.asearch(ADA)]

    assert 7 == len(asyncio.run(put()))
