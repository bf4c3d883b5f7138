"""Group commit: appends of many tasks share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from eventstore import AsyncEventStore, EventStore, NewEvent, new_id
from eventstore.aio import GroupCommit
from eventstore.errors import StoreClosed, WrongExpectedVersion
from eventstore.sql.append_requests import Append
from tests.contract.facade import say, texts


def test_many_tasks_on_many_conversations(shared_url: str) -> None:
    """Every task gets its own result, and every event is there."""
    ids = [new_id() for _ in range(40)]

    async def main() -> list[int]:
        async with await AsyncEventStore.open(shared_url) as store:

            async def hold(conversation_id: UUID) -> int:
                for version in range(5):
                    await store.append(conversation_id, say("x"), expected_version=version)
                return (await store.get(conversation_id)).version

            return await asyncio.gather(*[hold(conversation_id) for conversation_id in ids])

    assert [5] * 40 == asyncio.run(main())


def test_many_tasks_on_one_conversation(shared_url: str, cid: UUID) -> None:
    """Versions are given out once each, whichever tasks share a transaction."""

    async def main() -> list[int]:
        async with await AsyncEventStore.open(shared_url) as store:
            appends = [store.append(cid, say(str(number))) for number in range(300)]
            return [done.version for done in await asyncio.gather(*appends)]

    assert list(range(1, 301)) == sorted(asyncio.run(main()))


def test_one_failing_append_hurts_no_other(shared_url: str) -> None:
    """A conflict in the middle of a group belongs to its own task."""
    ids = [new_id() for _ in range(50)]

    async def main() -> list[object]:
        async with await AsyncEventStore.open(shared_url) as store:
            appends = [
                store.append(conversation_id, say("x"), expected_version=9 if index == 25 else 0)
                for index, conversation_id in enumerate(ids)
            ]
            return list(await asyncio.gather(*appends, return_exceptions=True))

    outcomes = asyncio.run(main())

    failed = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    assert [25] == failed
    assert isinstance(outcomes[25], WrongExpectedVersion)
    with EventStore.open(shared_url) as store:
        assert [int(i != 25) for i in range(50)] == [len(list(store.read(c))) for c in ids]


def test_a_failing_append_leaves_no_trace_in_the_group(shared_url: str) -> None:
    """What is refused after its stream was looked up has not created the stream."""
    refused, kept = new_id(), new_id()

    async def main() -> None:
        async with await AsyncEventStore.open(shared_url) as store:
            await asyncio.gather(
                store.append(refused, say("x"), writer_epoch=4),
                store.append(refused, say("x"), expected_version=3),
                store.append(kept, say("x")),
                return_exceptions=True,
            )

    asyncio.run(main())

    with EventStore.open(shared_url) as store:
        found = {info.conversation_id for info in store.list(limit=100_000)}
    assert {kept} == {refused, kept} & found


def test_a_statement_that_the_database_refuses_hurts_no_other(shared_url: str) -> None:
    """An error of the database undoes the group's transaction; the others are then run alone."""
    ids = [new_id() for _ in range(5)]
    impossible = 2**63

    async def main() -> list[object]:
        async with await AsyncEventStore.open(shared_url) as store:
            parents = [None, None, (new_id(), impossible), None, None]
            appends = [
                store.append(conversation_id, say("x"), parent=parent)
                for conversation_id, parent in zip(ids, parents, strict=True)
            ]
            return list(await asyncio.gather(*appends, return_exceptions=True))

    outcomes = asyncio.run(main())

    assert [False, False, True, False, False] == [isinstance(o, Exception) for o in outcomes]
    with EventStore.open(shared_url) as store:
        assert [1, 1, 0, 1, 1] == [len(list(store.read(conversation))) for conversation in ids]


def test_retries_within_one_group(shared_url: str, cid: UUID) -> None:
    """Two tasks that append the same event ids get the same result."""
    events = [NewEvent(message, new_id()) for message in say("1", "2")]

    async def main() -> list[object]:
        async with await AsyncEventStore.open(shared_url) as store:
            return list(await asyncio.gather(*[store.append(cid, events) for _ in range(10)]))

    outcomes = asyncio.run(main())

    assert [outcomes[0]] * 10 == outcomes


def test_a_cancelled_task_hurts_no_other(shared_url: str) -> None:
    """Its append may still happen, once; a retry with the same ids tells."""
    ids = [new_id() for _ in range(20)]
    event = NewEvent(say("x")[0], new_id())

    async def main() -> list[int]:
        async with await AsyncEventStore.open(shared_url) as store:
            tasks = [asyncio.create_task(store.append(c, [event])) for c in ids]
            await asyncio.sleep(0)
            tasks[3].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[3], asyncio.CancelledError)
            again = [await store.append(conversation_id, [event]) for conversation_id in ids]
            return [done.version for done in again]

    assert [1] * 20 == asyncio.run(main())
    with EventStore.open(shared_url) as store:
        assert ["x"] * 20 == [t for conversation in ids for t in texts(store.read(conversation))]


def test_a_loop_that_ended_meanwhile_does_not_stop_the_store(shared_url: str, cid: UUID) -> None:
    """A store that outlives the event loop of an abandoned append serves the next loop."""
    with EventStore.open(shared_url) as inner:
        store = AsyncEventStore(inner)
        with inner.writing() as connection:
            # The row lock, or SQLite's write lock, holds the append up until its loop is gone.
            inner.append(cid, say("1"), connection=connection)
            abandoned = asyncio.new_event_loop()
            task = abandoned.create_task(store.append(cid, say("2")))
            abandoned.run_until_complete(asyncio.sleep(0))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                abandoned.run_until_complete(task)
            abandoned.close()

        async def main() -> int:
            done = await asyncio.wait_for(store.append(cid, say("3")), timeout=60)
            await store.close()
            return done.version

        assert 3 == asyncio.run(main())


def test_a_closed_store_refuses_every_append(shared_url: str) -> None:
    """The second append after closing once never answered; it must raise like the first."""

    async def main() -> list[BaseException]:
        store = await AsyncEventStore.open(shared_url)
        await store.close()
        appends = [store.append(new_id(), say("late")) for _ in range(3)]
        outcomes = await asyncio.wait_for(asyncio.gather(*appends, return_exceptions=True), 20)
        return [outcome for outcome in outcomes if isinstance(outcome, BaseException)]

    assert [StoreClosed] * 3 == [type(outcome) for outcome in asyncio.run(main())]


def test_each_stream_has_transactions_of_its_own_if_they_must_be_apart(shared_url: str) -> None:
    """As on several servers, where one that is down would fail the others' appends."""
    ids, together = [new_id() for _ in range(4)], list[set[UUID]]()

    async def main() -> None:
        async with await AsyncEventStore.open(shared_url) as store:
            at_once = store.store._append_group

            def append(requests: Sequence[Append], *, wait: bool = True) -> list[Any]:
                together.append({each.conversation_id for each in requests})
                return at_once(requests, wait=wait)

            store._groups = [GroupCommit(append, 5, by_stream=True)]
            await asyncio.gather(*[store.append(ids[n % 4], say(str(n))) for n in range(40)])

    asyncio.run(main())

    assert {1} == {len(each) for each in together}
    assert 40 > len(together)
    with EventStore.open(shared_url) as store:
        expected = [[str(number) for number in range(first, 40, 4)] for first in range(4)]
        assert expected == [texts(store.read(each)) for each in ids]


def test_groups_in_opposite_order_do_not_wait_for_each_other(shared_url: str) -> None:
    """Two groups over the same streams lock them in one order, so that no deadlock is possible."""
    ids = [new_id() for _ in range(20)]

    async def main() -> None:
        first = await AsyncEventStore.open(shared_url)
        second = await AsyncEventStore.open(shared_url)
        async with first, second:
            for _ in range(5):
                await asyncio.gather(
                    *[first.append(conversation_id, say("a")) for conversation_id in ids],
                    *[second.append(conversation_id, say("b")) for conversation_id in ids[::-1]],
                )

    asyncio.run(main())

    with EventStore.open(shared_url) as store:
        assert {10} == {store.get(conversation_id).version for conversation_id in ids}
