"""What a read has folded waits in memory to be saved, and no answer depends on it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventStore, new_id
from eventstore import events as e
from eventstore.events import NewEvent
from eventstore.events.values import VersionRange
from projections import Views
from projections.context import CONTEXT
from projections.engine import heads
from projections.engine.follower import catch_up_behind
from projections.engine.head_cache import CachedHead, current_head_and_events, snapshot_later
from projections.errors import BudgetInfeasible
from projections.reading import MOST_UNSAVED
from projections.tokens.counts import TABLE as COUNTS
from projections.upkeep import compare, rebuild
from tests.projections.processes import kill, start
from tests.projections.support import expected, live_of, statements, stored
from tests.properties.dense import dense_histories
from tests.scaled_settings import scaled_settings

pytestmark = pytest.mark.exhaustive_when("postgresql")

SECRET = "the account is 4711-0815"


@pytest.fixture
def cold(store: EventStore) -> Views:
    """Views of the same store that remember nothing, as those of another process at first."""
    return Views(store, memory_bytes=0)


def saved_to(store: EventStore, cid: UUID) -> int:
    """Return the version up to which the tables of messages[] have a conversation."""
    with store.reading() as connection:
        return heads.reached(connection, live_of(store, CONTEXT), cid)


def told(views: Views, cid: UUID, **limits: Any) -> str:
    """Return all that is said of a request, as bytes would say it, or why there is none."""
    try:
        return json.dumps(views.context(cid, **limits).document, default=str)
    except BudgetInfeasible as error:
        return repr(error)


def say(store: EventStore, cid: UUID, *texts: str) -> None:
    """Append a user's messages, one by one."""
    for text in texts:
        store.append(cid, [e.UserMessage.text(text)])


@pytest.fixture
def waiting(store: EventStore, views: Views, cid: UUID) -> UUID:
    """Give a conversation of three messages, the last of which is in memory alone."""
    say(store, cid, "one", "two")
    views.context(cid)
    say(store, cid, SECRET)
    assert SECRET == views.context(cid).messages[-1]["content"]
    assert 2 == saved_to(store, cid)
    return cid


def test_few_wait_and_many_are_saved(store: EventStore, views: Views, cid: UUID) -> None:
    """A read saves once so many events wait; all before keep to reading."""
    say(store, cid, "begin")
    views.context(cid)
    found = []
    for number in range(2 * MOST_UNSAVED):
        say(store, cid, str(number))
        assert str(number) == views.context(cid).messages[-1]["content"]
        found.append(saved_to(store, cid))
    assert found == [
        1 + (number + 1) // MOST_UNSAVED * MOST_UNSAVED for number in range(len(found))
    ]
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_waiting_events_are_folded_and_counted_once(
    store: EventStore, views: Views, waiting: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next read goes on after them; what is saved in the end has what was counted at first."""
    folded: list[int] = []
    fold = type(CONTEXT).fold

    def counted(self: Any, state: Any, event: Any) -> Any:
        folded.append(event.version)
        return fold(self, state, event)

    monkeypatch.setattr(type(CONTEXT), "fold", counted)
    say(store, waiting, "four")
    views.context(waiting)
    views.context(waiting)
    assert [4] == folded
    say(store, waiting, *map(str, range(MOST_UNSAVED)))
    views.context(waiting)
    assert folded == list(range(4, 5 + MOST_UNSAVED))
    with store.reading() as connection:
        assert 4 + MOST_UNSAVED == len(connection.execute(COUNTS.select()).all())


@given(
    entries=dense_histories,
    max_tokens=st.sampled_from([None, 60, 250]),
    sizes=st.lists(st.integers(1, 6), min_size=1),
)
@scaled_settings(15)
def test_any_history_is_told_the_same(
    store: EventStore,
    views: Views,
    entries: list[NewEvent],
    max_tokens: int | None,
    sizes: list[int],
) -> None:
    """Read every few events, where they wait, where none do, and once all are saved."""
    cid, cold, rest = new_id(), Views(store, memory_bytes=0), iter(entries)
    store.append(cid, [e.UserMessage.text("begin")])
    for turn, size in enumerate(cycle(sizes)):
        if not (some := list(islice(rest, size))):
            break
        store.append(cid, some, allow_empty=True)
        warm = told(views, cid, max_tokens=max_tokens)
        if turn % 3 == 2:
            assert warm == told(cold, cid, max_tokens=max_tokens)
    assert told(views, cid, max_tokens=max_tokens) == told(cold, cid, max_tokens=max_tokens)
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


def test_others_tell_the_same(store: EventStore, views: Views, cold: Views, waiting: UUID) -> None:
    """A process that knows nothing of them folds them again, and saves them."""
    assert told(views, waiting) == told(cold, waiting)
    assert 3 == saved_to(store, waiting)
    say(store, waiting, "four")
    assert told(views, waiting) == told(cold, waiting)


def read_and_die(url: str, cid: UUID) -> None:
    """Read what waits then, and die with it."""
    with EventStore.open(url) as store:
        views = Views(store)
        views.context(cid)
        say(store, cid, SECRET)
        views.context(cid)
        assert 2 == saved_to(store, cid)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("fork_server")
def test_a_kill_loses_nothing(store: EventStore, views: Views, cid: UUID) -> None:
    """What a killed process had in memory is folded from the log."""
    say(store, cid, "one", "two")
    url = store.engine.url.render_as_string(hide_password=False)
    child = start(read_and_die, url, cid)
    try:
        child.join(60)
        assert -signal.SIGKILL == child.exitcode
    finally:
        kill(child)
    assert 2 == saved_to(store, cid)
    assert ["one", "two", SECRET] == [each["content"] for each in views.context(cid).messages]
    assert expected(store.read(cid), [CONTEXT]) == stored(store, cid, [CONTEXT])


@pytest.mark.parametrize("versions", [None, [3]])
def test_what_is_erased_is_not_saved(
    store: EventStore, views: Views, cold: Views, waiting: UUID, versions: list[int] | None
) -> None:
    """Neither its rows nor its counts come from memory; nor does a request after it."""
    store.erase(waiting, reason="asked to", versions=versions)
    say(store, waiting, *map(str, range(MOST_UNSAVED)))
    assert SECRET not in told(views, waiting)
    assert told(views, waiting) == told(cold, waiting)
    assert SECRET not in json.dumps(stored(store, waiting, [CONTEXT]))
    assert expected(store.read(waiting), [CONTEXT]) == stored(store, waiting, [CONTEXT])
    held = views._memory.head(waiting)
    assert held is not None
    assert SECRET not in repr(held)


def test_a_withdrawal_of_what_waits(
    store: EventStore, views: Views, cold: Views, waiting: UUID
) -> None:
    """A change of rows in memory is not only new rows: all is saved."""
    store.append(waiting, [e.Retraction(versions=(VersionRange(first=3, last=3),))])
    assert ["one", "two"] == [each["content"] for each in views.context(waiting).messages]
    assert 4 == saved_to(store, waiting)
    assert told(views, waiting) == told(cold, waiting)


def test_a_worker_saves_what_waits(store: EventStore, views: Views, waiting: UUID) -> None:
    """It finds the conversation behind, as any other; the next read takes up what it saved."""
    catch_up_behind(store, [CONTEXT])
    assert 3 == saved_to(store, waiting)
    say(store, waiting, "four")
    assert "four" == views.context(waiting).messages[-1]["content"]
    assert 3 == saved_to(store, waiting)


def test_what_waits_is_no_difference(store: EventStore, views: Views, waiting: UUID) -> None:
    """A comparison does not take it for a fault, and a rebuild folds it as it does all else."""
    before = told(views, waiting)
    assert compare(store, [CONTEXT.name]).ok
    rebuild(store, [CONTEXT.name])
    assert before == told(views, waiting)
    say(store, waiting, "four")
    assert "four" == views.context(waiting).messages[-1]["content"]


def test_a_read_with_news_costs_one_statement(
    store: EventStore, views: Views, waiting: UUID
) -> None:
    """It writes nothing, and does not read the state that it has in memory."""
    with statements(store) as seen:
        views.context(waiting)
        say(store, waiting, "four")
        seen.clear()
        views.context(waiting)
    asked = [sql for sql in seen if not sql.startswith(("BEGIN", "COMMIT"))]
    assert 1 == len(asked)
    assert not [sql for sql in asked if "INSERT" in sql or "state" in sql]


@pytest.fixture
def partly(store: EventStore, views: Views, cid: UUID) -> UUID:
    """Give a conversation of which the newest messages are in memory, and the last there alone.

    A search would have read all of them.
    """
    say(store, cid, "begin")
    store.append(cid, [e.UserMessage.text(f"{n} {SECRET}") for n in range(2, 500)])
    views.context(cid, max_tokens=500, strategy="key_messages")
    say(store, cid, "one")
    views.context(cid, max_tokens=500, strategy="key_messages")
    say(store, cid, "two")
    return cid


def _nothing(store: EventStore, cid: UUID) -> None:
    """Leave all as it is."""


def _erase(store: EventStore, cid: UUID) -> None:
    store.erase(cid, reason="asked to", versions=range(2, store.get(cid).version + 1))


def _save(store: EventStore, cid: UUID) -> None:
    catch_up_behind(store, [CONTEXT])


def _withdraw(store: EventStore, cid: UUID) -> None:
    store.append(cid, [e.Retraction(versions=(VersionRange(first=2, last=400),))])
    catch_up_behind(store, [CONTEXT])


def _cut_over(store: EventStore, cid: UUID) -> None:
    rebuild(store, [CONTEXT.name])


@pytest.mark.parametrize("meanwhile", [_nothing, _erase, _save, _withdraw, _cut_over])
def test_what_others_do_within_a_read_is_in_all_of_it_or_in_nothing(
    store: EventStore,
    views: Views,
    cold: Views,
    partly: UUID,
    meanwhile: Callable[[EventStore, UUID], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read that comes to ask for more than news does so of the state that it has begun with."""
    asked: list[CachedHead] = []

    def and_then(connection: Any, head: heads.FoldHead, *where: Any) -> CachedHead | None:
        found = current_head_and_events(connection, head, *where)
        assert found is not None
        asked.append(found)
        return found

    def begin(*given: Any) -> Any:
        meanwhile(store, partly)
        return snapshot_later(*given)

    monkeypatch.setattr("projections.reading.current_head_and_events", and_then)
    monkeypatch.setattr("projections.reading.snapshot_later", begin)
    with statements(store) as seen:
        answer = told(views, partly, max_tokens=100_000)
    assert 1 == len(asked)
    assert [sql for sql in seen if "context_messages" in sql], "it asked for nothing more"
    assert told(cold, partly, max_tokens=100_000) == answer
    assert (meanwhile is _erase or meanwhile is _withdraw) != (f'"22 {SECRET}' in answer)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Give four threads."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_threads_share_what_waits(
    store: EventStore, views: Views, cold: Views, waiting: UUID, threads: ThreadPoolExecutor
) -> None:
    """Each of them goes on from what is there, and changes nothing that another one has."""
    for number in range(MOST_UNSAVED):
        say(store, waiting, str(number))
        answers = {*threads.map(lambda _: told(views, waiting), range(4))}
        assert 1 == len(answers)
    assert {told(cold, waiting)} == answers
    assert expected(store.read(waiting), [CONTEXT]) == stored(store, waiting, [CONTEXT])


def test_what_waits_weighs_what_it_takes(store: EventStore, cid: UUID) -> None:
    """A conversation whose unsaved rows are too large for the memory is saved, and not kept."""
    views = Views(store, memory_bytes=1 << 17)
    say(store, cid, "one")
    views.context(cid)
    say(store, cid, "x" * (1 << 17))
    views.context(cid)
    assert views._memory.head(cid) is None
    say(store, cid, "two")
    assert "two" == views.context(cid).messages[-1]["content"]
    assert 3 == saved_to(store, cid)
