"""A fork's views are those of a conversation into which its parent's events were copied."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventStore, NewEvent, new_id
from eventstore import events as e
from eventstore.events import Meta, Payload, UserMessage
from projections import PROJECTIONS, Views
from projections.engine.quoting import PLACE
from projections.upkeep import compare, rebuild
from projections.worker import run
from tests.projections.support import converse, expected, read_all_views, stored, turn
from tests.properties.histories import metas, payloads
from tests.scaled_settings import scaled_settings

pytestmark = pytest.mark.exhaustive_when("postgresql")

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SHARED = [each for each in PROJECTIONS if each.name != "usage"]
HISTORY = st.lists(st.tuples(payloads(), metas()), min_size=1, max_size=12)
TURNS = [(payload, Meta(turn=1 + n)) for n in range(2) for payload in turn(7 * n, "x" * 900)]


@pytest.fixture
def still(installed: None, database_url: str) -> Iterator[EventStore]:
    """Give a store whose clock stands still, with the tables of all projections."""
    with EventStore.open(database_url, clock=lambda: NOW, blob_threshold=2_500) as store:
        yield store


def new(history: list[tuple[Payload, Meta]]) -> list[NewEvent]:
    """Return a history as events to append."""
    return [NewEvent(data, meta=meta) for data, meta in history]


def rows(store: EventStore, conversation_id: UUID) -> Any:
    """Return what the tables hold of a conversation, but for its id and where texts are kept."""
    kept, own = {column.name for column in PLACE}, str(conversation_id)
    return {
        table: {
            key: {
                name: "itself" if value == own else value
                for name, value in row.items()
                if name not in kept
            }
            for key, row in found.items()
        }
        for table, found in stored(store, conversation_id, SHARED).items()
    }


def assert_as_copied(store: EventStore, fork: UUID) -> None:
    """Compare a fork with a conversation that was given the same events."""
    views, copy = Views(store), new_id()
    store.append(
        copy, [NewEvent(x.data, meta=x.meta) for x in store.read(fork) if x.data], allow_empty=True
    )
    for each in (fork, copy):
        read_all_views(views, each)
    theirs, own = rows(store, copy), rows(store, fork)
    assert [] == [name for name in own if own[name] != theirs[name]]
    assert views.context(copy).messages == views.context(fork).messages
    for format in ("anthropic_messages", "openai_responses"):
        assert (
            views.context(copy, format=format).messages
            == views.context(fork, format=format).messages
        )


@scaled_settings(8)
@given(before=HISTORY | st.just(TURNS), after=HISTORY, data=st.data())
def test_a_fork_is_as_a_copy(
    still: EventStore,
    before: list[tuple[Payload, Meta]],
    after: list[tuple[Payload, Meta]],
    data: st.DataObject,
) -> None:
    """At whatever version it was made, of whatever events, and of a fork's fork too."""
    source = new_id()
    still.append(source, new(before), allow_empty=True)
    cut = data.draw(st.integers(2, len(before) + 1))
    fork = still.fork(source, before=cut, title="t").conversation_id
    still.append(fork, new(after), allow_empty=True)
    still.append(source, new(after), allow_empty=True)

    assert_as_copied(still, fork)
    assert_as_copied(still, still.fork(fork, before=cut + 1).conversation_id)


def test_each_call_is_counted_once(store: EventStore, views: Views) -> None:
    """By model, by day and in all; one that is open at the fork is its parent's to the end."""
    source = converse(store, 2)
    store.append(source, e.LlmRequest(llm_call_id="open"))
    fork = store.fork(source).conversation_id
    answered = e.AssistantMessage.of(
        "late", llm_call_id="open", usage=e.TokenUsage(prompt_tokens=7, completion_tokens=7)
    )
    store.append(fork, [answered, *turn(17, "own")])

    assert 7 == sum(total.calls for total in views.usage(by="model"))
    assert [2] == [total.calls for total in views.usage(by="conversation", conversation_id=fork)]


def test_a_new_fork_is_seen_by_all_who_follow(store: EventStore, views: Views) -> None:
    """A worker and a list of conversations find it by its one event of its own."""
    source = converse(store, 1)
    run(store, once=True)
    fork = store.fork(source, title="another").conversation_id

    assert {source, fork} == {each.conversation_id for each in views.conversations()}
    run(store, once=True)
    assert expected(store.read(fork)) == stored(store, fork)


def test_a_rebuild_folds_forks(store: EventStore, views: Views) -> None:
    """New tables hold of them what a fresh fold gives, and comparing finds no difference."""
    source = converse(store, 3)
    middle = store.fork(source, before=15).conversation_id
    store.append(middle, turn(15, "middle"))
    fork = store.fork(middle).conversation_id
    rebuild(store)

    for each in (source, middle, fork):
        assert expected(store.read(each)) == stored(store, each)
    assert () == tuple(compare(store).differences)


def test_erasing_in_the_parent_reaches_the_rows_of_forks(store: EventStore, views: Views) -> None:
    """What views and tables of any fork had of it is gone at once, and does not come back."""
    secret = "the PIN is 1234, and nobody is to know it"
    source = converse(store, 1)
    version = store.append(source, UserMessage.text(secret)).version
    forks = [store.fork(source).conversation_id]
    forks.append(store.fork(forks[0]).conversation_id)
    for each in (source, *forks):
        assert secret in str(read_all_views(views, each))

    store.erase(source, reason="asked for", versions=[version])

    for each in (source, *forks):
        assert secret not in str(stored(store, each))
        assert secret not in str(read_all_views(views, each))
        assert expected(store.read(each)) == stored(store, each)


def test_search_finds_what_is_shared(store: EventStore, views: Views) -> None:
    """Retrieval in a fork looks through the shared part as well."""
    source = new_id()
    store.append(source, UserMessage.text("the invoice number is 4711"))
    store.append(source, [UserMessage.text(f"filler {n} " * 40) for n in range(30)])
    fork = store.fork(source).conversation_id
    store.append(fork, UserMessage.text("what is the invoice number?"))

    found = views.context(fork, max_tokens=600, model="gpt-4o", strategy="retrieval")
    assert "4711" in str(found.messages)
