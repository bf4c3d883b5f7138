"""What a process keeps of a session's items in memory never says anything but the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.integrations import conversation_memory
from agent_eventstore.integrations.openai_agents import history
from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import DirectoryKeys, EventStore
from eventstore.errors import KeyUnavailable
from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    OtherPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from tests.integrations.openai_agents.openai_samples import TURN, fresh_id, said, turns


def run(work: Any) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


@pytest.fixture
def elsewhere(store: EventStore) -> Iterator[EventStore]:
    """Give the store as another process has it, which keeps nothing of what this one has read."""
    with EventStore.open(store.engine.url, synchronous="OFF") as opened:
        yield opened


@pytest.fixture
def session(store: EventStore) -> EventStoreSession:
    """Give a session that has a turn, and was read."""
    session = EventStoreSession(fresh_id(), store)
    run(session.add_items(TURN))
    run(session.get_items())
    return session


class TestOthers:
    """What others do to a session is seen by the next read."""

    def test_added(self, session: EventStoreSession, elsewhere: EventStore) -> None:
        """What another process adds follows."""
        run(EventStoreSession(session.session_id, elsewhere).add_items(turns(2)))

        assert [*TURN, *turns(2)] == run(session.get_items())

    def test_popped(self, session: EventStoreSession, elsewhere: EventStore) -> None:
        """What another process pops is gone, and so is half of an answer."""
        other = EventStoreSession(session.session_id, elsewhere)
        for left in range(len(TURN) - 1, -1, -1):
            run(other.pop_item())
            assert TURN[:left] == run(session.get_items())

    @pytest.mark.parametrize("erase", [False, True])
    def test_cleared(self, session: EventStoreSession, elsewhere: EventStore, erase: bool) -> None:
        """What another process clears is gone, whether it is erased or withdrawn."""
        other = EventStoreSession(session.session_id, elsewhere, erase=erase)
        run(other.clear_session())
        run(other.add_items(turns(1)))

        assert turns(1) == run(session.get_items())

    def test_erased(self, session: EventStoreSession, elsewhere: EventStore) -> None:
        """What is erased is given to nobody."""
        elsewhere.erase(session.session_id, reason="asked for", versions={2})

        assert TURN[1:] == run(session.get_items())

    def test_begun_anew(self, session: EventStoreSession, elsewhere: EventStore) -> None:
        """Another conversation of the same key and length is another one."""
        elsewhere.purge(session.session_id, reason="asked for")
        other = EventStoreSession(session.session_id, elsewhere)
        anew = [{**item, "more": 1} for item in TURN]
        run(other.add_items(anew))

        assert anew == run(session.get_items())

    def test_erased_in_the_parent(self, store: EventStore, elsewhere: EventStore) -> None:
        """A branch has nothing that was erased where it comes from."""
        session = BranchingSession(fresh_id(), store)
        run(session.add_items(turns(2)))
        run(session.create_branch_from_turn(2))
        assert turns(2)[:2] == run(session.get_items())
        elsewhere.erase(session.session_id, reason="asked for", versions={2})

        assert turns(2)[1:2] == run(session.get_items())

    def test_given_after_all(self, store: EventStore, elsewhere: EventStore) -> None:
        """A result takes the place of what recovery had said in its stead."""
        session = EventStoreSession(fresh_id(), store)
        run(session.add_items(TURN[:3]))
        unknown = ToolResult(call_id="3.0", status="outcome_unknown", provider_id="call_1")
        store.append(session.session_id, unknown)
        before = run(session.get_items())
        done = ToolResult(call_id="3.0", status="success", provider_id="call_1", content="sunny")
        elsewhere.append(session.session_id, done)

        assert ["outcome_unknown"] == [item["output"] for item in before[3:]]
        assert ["sunny"] == [item["output"] for item in run(session.get_items())[3:]]

    def test_another_answer_chosen(self, session: EventStoreSession, elsewhere: EventStore) -> None:
        """What a switch of branches brings back is there again."""
        [*_, last] = elsewhere.read(session.session_id)
        answer = (VersionRange(first=last.version, last=last.version),)
        elsewhere.append(
            session.session_id, BranchSwitch(kind="answer", reason="switch", withdrawn=answer)
        )
        assert TURN[:-1] == run(session.get_items())
        elsewhere.append(
            session.session_id, BranchSwitch(kind="answer", reason="switch", restored=answer)
        )

        assert TURN == run(session.get_items())


class TestReaders:
    """Each reader gets what it asks for, as values of its own."""

    def test_what_readers_change(self, session: EventStoreSession) -> None:
        """What a reader makes of its items, no other one gets."""
        for item in run(session.get_items()):
            item.clear()

        assert TURN == run(session.get_items())

    def test_first_few_then_more(self, store: EventStore, elsewhere: EventStore) -> None:
        """Whoever has read the newest few is given all, and more of the newest."""
        session, items = EventStoreSession(fresh_id(), store), turns(20)
        run(EventStoreSession(session.session_id, elsewhere).add_items(items))
        for limit in (3, 2, 0, 12, 39, 40, 41):
            assert (items[-limit:] if limit else []) == run(session.get_items(limit))

        assert items == run(session.get_items())

    def test_bound(self, session: EventStoreSession, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where more is read than may be kept, what was read first is read again."""
        monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 2_000)
        other = EventStoreSession(fresh_id(), session.store)
        run(other.add_items(long := [said("x" * 1_500)]))
        for _ in range(2):
            assert TURN == run(session.get_items())
            assert long == run(other.get_items())
        run(other.add_items(long))

        assert long * 2 == run(other.get_items())
        assert not history._cache_of(session.store)._known


@pytest.mark.parametrize("character", ["x", "鳥", "🐦"])
def test_the_bound_is_in_bytes(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    """A text is kept if its bytes in memory fit, not if its characters do."""
    monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 1_500)
    session = EventStoreSession(fresh_id(), store)
    run(session.add_items([said(character * 1_000)]))
    run(session.get_items())

    kept = history._cache_of(store).get(session.id) is not None
    assert kept == (character == "x")


NESTED = {"raw": {"openai_item": {"role": "user"}, "output": [[1], {"a": []}]}}


@pytest.mark.parametrize("raw", [None, NESTED["raw"], {"openai_item": said("b")}, {"output": []}])
def test_items_within_items(store: EventStore, raw: Any) -> None:
    """What looks like an item deep within an event that somebody else recorded is none."""
    call = ToolCallRequest(name="f", arguments=NESTED, arguments_text="{}", provider_id="c")
    recorded = [
        UserMessage(parts=(), raw=raw),
        AssistantMessage(parts=(), tool_calls=(call,), raw=raw),
        ToolResult(call_id="2.0", status="success", content=(OtherPart(raw=NESTED),), raw=raw),
    ]
    session = EventStoreSession(fresh_id(), store)
    store.append(session.session_id, recorded, allow_empty=True)
    cached = run(session.get_items())

    assert cached == [each.item for each in _one_by_one(session)]


STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.one_of(
            st.integers(1, 5).map(turns),
            st.just(TURN),
            st.sampled_from(["pop", "clear", "erase"]),
            st.integers(0, 9),
        ),
    ),
    max_size=14,
)


@given(STEPS)
def test_two_processes(sqlite_store: EventStore, steps: list[tuple[bool, Any]]) -> None:
    """Whoever of two does what: both read the same as somebody who has kept nothing."""
    key = fresh_id()
    with EventStore.open(sqlite_store.engine.url, synchronous="OFF") as second:
        workers = [EventStoreSession(key, each) for each in (sqlite_store, second)]

        async def done() -> None:
            for is_second, step in steps:
                worker = workers[is_second]
                if isinstance(step, int):
                    await worker.get_items(step)
                    continue
                await worker.get_items()
                worker.erase = step == "erase"
                if isinstance(step, list):
                    await worker.add_items(step)
                elif step == "pop":
                    await worker.pop_item()
                else:
                    await worker.clear_session()
                told = [json.dumps(await each.get_items()) for each in workers]
                kept = json.dumps([each.item for each in _one_by_one(worker)])
                assert told == [kept, kept]

        asyncio.run(done())


def _one_by_one(session: EventStoreSession) -> Any:
    """Return the live items as they are read where each is withdrawn by itself."""
    return history.live_items(session.store, session.id)


def test_sealed(store: EventStore, tmp_path: Path) -> None:
    """Items that are sealed, or lie in blobs, are read as they came; those of a parent too."""
    keys, items = DirectoryKeys(tmp_path / "keys"), [*turns(2), said("user", "long " * 200)]
    name, opened = fresh_id(), partial(EventStore.open, store.engine.url, keys=keys)
    with opened(blob_threshold=500, synchronous="OFF") as first:
        run(EventStoreSession(name, first).add_items(items))
        first.fork(name, conversation_id=f"{name}-fork")
        run(EventStoreSession(f"{name}-fork", first).add_items(TURN))
    with opened() as second:
        assert run(EventStoreSession(name, second).get_items()) == items
        assert run(EventStoreSession(f"{name}-fork", second).get_items()) == [*items, *TURN]
    with pytest.raises(KeyUnavailable):
        run(EventStoreSession(name, store).get_items())
