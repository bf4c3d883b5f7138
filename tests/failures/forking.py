"""Programs that fork while they have a store open; each prints what it and its children saw.

Run as ``python -m tests.failures.forking NAME URL``: a process of its own, whose children end with
it at the latest.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from agent_eventstore import Conversation
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore.errors import EventStoreError
from tests.contract.facade import say, texts

EACH = 20
"""Appends of each process."""

_LONGER_S = 1.5
"""Longer than a fork waits for other threads."""


def forked(work: Callable[[], object]) -> object:
    """Return what work returns in a forked child, or the name of the error that it raises."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                found = work()
            except Exception as error:
                traceback.print_exc()
                found = type(error).__name__
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        found = json.loads(answers.read() or '"died"')
    os.waitpid(child, 0)
    return found


def talk(store: EventStore, name: str) -> str:
    """Append to a conversation of one's own, and read it back each time."""
    cid, said = new_id(), []
    for number in range(EACH):
        said.append(f"{name} {number}")
        store.append(cid, say(said[-1]))
        if texts(store.read(cid)) != said:
            return "read something else"
    return str(cid)


def side_by_side(url: str) -> object:
    """Have parent and children use one store at the same time."""
    store = EventStore.open(url)
    first = talk(store, "before")
    children = [
        threading.Thread(target=lambda: found.append(forked(lambda: talk(store, "child"))))
        for _ in range(3)
    ]
    found: list[object] = [first]
    for each in children:
        each.start()
    found.extend([talk(store, f"parent {number}") for number in range(5)])
    for each in children:
        each.join()
    return found


def _pooled(url_and_number: tuple[str, int]) -> str:
    return talk(_shared[url_and_number[0]], f"pooled {url_and_number[1]}")


_shared: dict[str, EventStore] = {}


def pool_of_processes(url: str) -> object:
    """Use a store of the module's in the processes of a pool, as `multiprocessing` forks them."""
    _shared[url] = EventStore.open(url)
    talk(_shared[url], "before")
    with get_context("fork").Pool(3) as pool:
        found = pool.map(_pooled, [(url, number) for number in range(6)])
    return [*found, talk(_shared[url], "after")]


def asynchronous(url: str) -> object:
    """Use a store for event loops in the child's own loop, its threads being the parent's."""

    async def talk_on(store: AsyncEventStore) -> str:
        cid = new_id()
        await asyncio.gather(*(store.append(cid, say(str(number))) for number in range(EACH)))
        assert EACH == len([event async for event in store.read(cid)])
        return str(cid)

    store = AsyncEventStore(EventStore.open(url))
    first = asyncio.run(talk_on(store))
    child = forked(lambda: asyncio.run(talk_on(store)))
    return [first, child, asyncio.run(talk_on(store))]


def within_a_transaction(url: str) -> object:
    """Fork within transactions of both kinds; what the child does must not commit the parent's."""
    store, cid = EventStore.open(url), new_id()
    told: list[object] = []
    for on_driver in (False, True):
        parent = os.getpid()
        begun: Any = store._driver_transaction(write=True) if on_driver else store.writing()
        try:
            with begun as connection:
                store.append(cid, say("parent"), connection=connection)
                if child := os.fork():
                    told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        except EventStoreError:
            os._exit(7 if os.getpid() != parent else 8)
        if os.getpid() != parent:
            os._exit(9)
        told.append(talk(store, "parent"))
    return [told, texts(store.read(cid))]


def using(url: str) -> object:
    """Use the store in a child that was forked within a transaction."""
    store = EventStore.open(url)
    with store.reading():
        inherited = forked(lambda: talk(store, "child"))
        anew = forked(lambda: talk(EventStore.open(url), "child"))
    return [inherited, anew, forked(lambda: talk(store, "later"))]


def beside_a_query(url: str) -> object:
    """Fork while another thread is within SQLite for longer than a fork waits."""
    store, begun = EventStore.open(url), threading.Event()

    def rest() -> None:
        begun.set()
        time.sleep(_LONGER_S)

    def ask() -> None:
        with store.reading() as connection:
            driver: Any = connection.connection.driver_connection
            driver.create_function("rest", 0, rest)
            connection.exec_driver_sql("SELECT rest()").all()

    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait()
    found = forked(lambda: talk(store, "child"))
    thread.join()
    return [found, talk(store, "parent")]


def in_memory(_: str) -> object:
    """Use a database in memory in a child, where it would be a copy."""
    store = EventStore.open("sqlite://")
    talk(store, "parent")
    return [forked(lambda: talk(store, "child")), talk(store, "parent")[:0]]


def conversation(url: str) -> object:
    """Use the parent's conversation and open turn in a child; then open it there."""
    store = EventStore.open(url)
    cid = new_id()
    with Conversation.start(store, conversation_id=cid) as talk:
        with talk.turn("Hello") as turn:

            def call() -> object:
                with turn.llm_call(model="m"):
                    return "called"

            told = [forked(call)]
            with turn.llm_call(model="m") as llm:
                llm.message(text="Hi")

        def begin() -> object:
            with talk.turn("More"):
                return "begun"

        told.append(forked(begin))

    def anew() -> object:
        with Conversation.open(store, cid, if_busy="take_over") as own, own.turn("Again"):
            return "opened"

    return [*told, forked(anew), store.verify(cid).ok]


def bound(url: str) -> object:
    """Append through a store that is bound to an owner, before the fork and in both processes."""
    store = EventStore.open(url, migrate=False).for_owner(user_id="ada")
    return [talk(store, "before"), forked(lambda: talk(store, "child")), talk(store, "parent")]


def main() -> None:
    """Run the program of this name."""
    try:
        found = globals()[sys.argv[1]](sys.argv[2])
    except EventStoreError as error:
        traceback.print_exc()
        found = type(error).__name__
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
