"""Whatever the driver raises, and at whichever statement: a caller of a store meets our errors."""

from __future__ import annotations

import asyncio
import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from eventstore import ANY, AsyncEventStore, EventStore, NewEvent, new_id
from eventstore import events as e
from eventstore.errors import EventStoreError
from eventstore.sql.append_requests import Append
from eventstore.sql.backend import cursor
from tests.connected import disconnect
from tests.contract.facade import say
from tests.exhaustive import partly
from tests.failures.fault_sweep import public, sweep_faults
from tests.failures.injected import ERRORS, Faults

_LARGE = "large " * 10_000


@dataclass
class World:
    """A store, the faults of its drivers, and what is asked of it."""

    store: Any
    own: EventStore
    faults: Faults
    url: str
    checkpoint: Path
    cid: UUID = field(default_factory=new_id)
    doomed: UUID = field(default_factory=new_id)
    user: str = field(default_factory=lambda: f"the doomed {new_id()}")
    new: list[NewEvent] = field(default_factory=list)
    digest: str = ""

    @property
    def archive(self) -> Path:
        """The directory of the archive."""
        return self.checkpoint.with_name("archive")

    @property
    def database(self) -> str:
        """The name of the database's dialect."""
        return self.own.engine.dialect.name

    def begin(self) -> None:
        """Make what the calls ask for."""
        done = self.own.append(self.cid, [*say("1"), e.ToolResult(call_id="1.0", content=_LARGE)])
        data: Any = done.events[-1].data
        self.digest = data.blob.digest
        self.checkpoint.unlink(missing_ok=True)
        self.own.checkpoint(self.checkpoint)

    def renew(self) -> None:
        """Make new what a call uses up."""
        self.bring_back()
        self.new = [NewEvent(each, new_id()) for each in say("a", "b")]
        self.own.append(self.doomed, say("to be erased"), user_id=self.user)

    def bring_back(self) -> None:
        """Empty the archive, whose directory is the test's own."""
        for each in self.own.archived():
            self.own.restore(each.conversation_id)

    def require_once(self) -> None:
        """Raise if what was appended and repeated is not there once, and whole."""
        wanted = [each.event_id for each in self.new]
        last = [event.event_id for event in self.own.read(self.cid)][-len(wanted) :]
        versions = [event.version for event in self.own.read(self.cid)]
        assert (wanted, list(range(1, len(versions) + 1))) == (last, versions)


def _append_within(world: World) -> None:
    with world.store.transaction() as connection:
        world.store.append(world.cid, world.new, connection=connection)


def _request(world: World) -> Append:
    return world.own._request(world.cid, world.new, ANY, None, None, None, None, None)


def _append_group(world: World) -> None:
    for outcome in world.own._append_group([_request(world)]):
        if isinstance(outcome, Exception):
            raise outcome


def _archive(world: World) -> None:
    report = world.store.archive(world.archive, inactive_for=timedelta(microseconds=1), limit=1)
    for _, reason in report.failures:
        raise EventStoreError(reason)


def _restore(world: World) -> None:
    _archive(world)
    for each in world.store.archived():
        world.store.restore(each.conversation_id)


def _ask(begin: Callable[[], Any]) -> None:
    with begin() as connection:
        cursor(connection).execute("SELECT 1").fetchone()


BORROWING = {"from_engine"}
"""Begins with an engine of the product's, and then is a store as any other."""
CALLS: dict[str, Callable[[World], object]] = {
    "append": lambda world: world.store.append(world.cid, world.new),
    "_append_group": _append_group,
    "archive": _archive,
    "archived": lambda world: world.store.archived(),
    "blob": lambda world: world.store.blob(world.cid, world.digest),
    "checkpoint": lambda world: world.store.checkpoint(io.BytesIO()),
    "close": lambda world: world.own.close(),
    "erase_user": lambda world: world.store.erase_user(world.user, reason="asked for"),
    "purge": lambda world: world.store.purge(world.doomed, reason="asked for"),
    "erase": lambda world: world.store.erase(world.doomed, reason="asked for"),
    "find": lambda world: world.store.find(key="there is none"),
    "for_owner": lambda world: world.own.for_owner(user_id="ada"),
    "fork": lambda world: world.store.fork(world.cid),
    "get": lambda world: world.store.get(world.cid),
    "list": lambda world: world.store.list(),
    "_driver_transaction": lambda world: _ask(world.own._driver_transaction),
    "open": lambda world: EventStore.open(world.url).close(),
    "raise_writer_epoch": lambda world: world.store.raise_writer_epoch(world.cid),
    "read": lambda world: list(world.store.read(world.cid)),
    "read_all": lambda world: world.store.read_all(),
    "reading": lambda world: _ask(world.own.reading),
    "_request": _request,
    "_seen_version": lambda world: world.own._seen_version(world.cid),
    "stream": lambda world: world.own.stream(world.cid),
    "transaction": _append_within,
    "unwritten": lambda world: world.store.unwritten(world.cid),
    "restore": _restore,
    "vacuum": lambda world: world.store.vacuum(),
    "verify": lambda world: world.store.verify(world.cid),
    "verify_archive": lambda world: world.store.verify_archive(),
    "verify_against": lambda world: world.store.verify_against(
        world.checkpoint, conversation_id=world.cid
    ),
    "writer": lambda world: world.store.writer(world.cid),
    "writers": lambda world: world.store.writers(),
    "resolve_owner": lambda world: world.own.resolve_owner(user_id="ada"),
    "writing": lambda world: _ask(world.own.writing),
}
APPENDS = {"append", "_append_group", "transaction"}


class Blocking:
    """An `AsyncEventStore` whose methods block, on an event loop of its own."""

    def __init__(self, runner: asyncio.Runner, store: AsyncEventStore) -> None:
        self._runner = runner
        self._store = store

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            found = getattr(self._store, name)(*args, **kwargs)
            if inspect.isasyncgen(found):
                return self._runner.run(_collected(found))
            if inspect.isawaitable(found):
                return self._runner.run(_awaited(found))
            return self._entered(found)

        return call

    @contextmanager
    def _entered(self, block: Any) -> Iterator[Any]:
        connection = self._runner.run(block.__aenter__())
        try:
            yield connection
        except BaseException as error:
            self._runner.run(block.__aexit__(type(error), error, None))
            raise
        self._runner.run(block.__aexit__(None, None, None))


async def _awaited(found: Any) -> Any:
    return await found


async def _collected(found: Any) -> list[Any]:
    return [each async for each in found]


@pytest.fixture
def world(
    module_store: EventStore, faults: Faults, module_url: str, tmp_path: Path
) -> Iterator[World]:
    """Give a store and a conversation of this test's own."""
    world = World(module_store, module_store, faults, module_url, tmp_path / "checkpoint")
    disconnect(module_store)  # as the test before may have left it closed
    world.begin()
    yield world
    disconnect(module_store)
    world.bring_back()


def test_no_method_is_forgotten() -> None:
    """A new one needs a call here."""
    assert public(EventStore) == {name for name in CALLS if name[0] != "_"} | BORROWING
    assert public(AsyncEventStore) <= CALLS.keys() | BORROWING


@pytest.mark.parametrize("most", partly([3, 25]))
@pytest.mark.parametrize("name", sorted(CALLS))
def test_of_a_store(name: str, most: int, world: World) -> None:
    """Each kind of error, at each statement of the call; at first and last ones in `make test`.

    A closed store connects for each transaction, and an error may be met at that, too.
    """
    place = sorted(CALLS).index(name) * 3
    if most > 3:
        world.own.close()
        sweep(world, name, place, 60 if name in APPENDS else most)
        return
    sweep(world, name, place, len(ERRORS[world.database]) if name in APPENDS else most)
    world.own.close()
    sweep(world, name, place, 1)


def sweep(world: World, name: str, first: int, most: int) -> None:
    """Have a call meet errors, and whatever it appends be there once."""
    after = world.require_once if name in APPENDS else lambda: None
    sweep_faults(
        world.faults,
        world.database,
        lambda: CALLS[name](world),
        before=world.renew,
        after=after,
        first=first,
        most=most,
    )


@pytest.mark.parametrize("closed", partly([False, True]))
def test_an_erasure_that_fails_leaves_its_place_in_the_pool(world: World, closed: bool) -> None:
    """What it asks for outside of transactions included; else ten of them used up the store."""
    pool: Any = world.own.engine.pool
    if closed:
        world.own.close()
    world.renew()
    with world.faults.armed(None):
        CALLS["erase"](world)
    steps, taken = world.faults.count, pool.checkedout()
    for at in (*range(1, steps + 3), *range(1, steps + 3)):
        world.renew()
        with suppress(EventStoreError), world.faults.armed(ERRORS[world.database][0], at):
            CALLS["erase"](world)
        assert pool.checkedout() <= taken, f"at statement {at} of {steps}"


@pytest.mark.parametrize("closed", partly([False, True]))
@pytest.mark.parametrize(
    "name", sorted(public(AsyncEventStore) - {"close", "for_owner", "open"} - BORROWING)
)
def test_of_an_asynchronous_store(name: str, closed: bool, world: World) -> None:
    """The twin is the same code by way of threads: a look at each method."""
    with asyncio.Runner() as runner:
        twin = AsyncEventStore(world.own)
        world.store = Blocking(runner, twin)
        if closed:
            world.own.close()
        sweep(world, name, 0, len(ERRORS[world.database]) if closed and name in APPENDS else 4)
        runner.run(twin.close())
