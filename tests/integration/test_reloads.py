"""A browser that reloads: whatever interrupts a session, its user's next post is answered."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from queue import Queue
from threading import Event
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from agent_eventstore import AsyncConversation, Conversation
from agent_eventstore.agents import AgentSession, AsyncAgentSession
from agent_eventstore.errors import BlockNotOpen, BranchRefused, FactsNotWritten
from agent_eventstore.journal import Journal
from eventstore import AsyncEventStore, EventStore
from eventstore.errors import CannotConnect, EventStoreError
from eventstore.leases import KEEPER, leases_of
from eventstore.outbox import OUTBOX, Unwritten
from projections import Views
from tests.integration.recording import events_of

CALL = {"id": "c", "name": "look", "arguments": "{}"}
Work = Callable[[AsyncEventStore], Coroutine[Any, Any, None]]


async def chat(store: AsyncEventStore) -> None:
    """Answer a post: a tool, then pieces of text."""
    async with await AsyncConversation.start(store, key="k", if_exists="open") as conversation:
        async with conversation.turn("hello") as turn:
            async with turn.llm_call(provider="acme", model="m") as call:
                await call.message("", tool_calls=[CALL])
            for wanted in call.tool_calls:
                async with turn.tool(wanted) as tool:
                    await asyncio.sleep(0)
                    await tool.result("found")
            async with turn.llm_call(provider="acme", model="m") as call:
                for number in range(3):
                    await call.delta(f"w{number} ")


async def assert_answered(store: AsyncEventStore) -> None:
    """Check that the next post is answered at once, and that nothing streams or leases."""
    await chat(store)
    cid = store.store.stream("k")
    assert await store.writer(cid) is None
    items = await asyncio.to_thread(Views(store.store).timeline, cid)
    assert "streaming" not in [item.status for item in items]


class Interrupting:
    """Passes on what work awaits, and calls ``strike`` when it awaits for the n-th time."""

    def __init__(
        self, work: Coroutine[Any, Any, None], at: int, strike: Callable[[], object]
    ) -> None:
        self.work, self.left, self.strike = work, at, strike

    def __await__(self) -> Generator[Any, Any, None]:
        """Strike just before the n-th await."""
        steps, thrown = self.work.__await__(), None
        while True:
            try:
                waited = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration:
                return
            self.left -= 1
            if self.left == 0:
                self.strike()
            thrown = None
            try:
                yield waited
            except BaseException as error:
                thrown = error


async def cancelled(work: Work, store: AsyncEventStore, at: int) -> bool:
    """Cancel a task at its n-th await; return whether it awaited that often."""
    interrupting: Interrupting | None = None

    async def run() -> None:
        nonlocal interrupting
        task = asyncio.current_task()
        assert task is not None
        interrupting = Interrupting(work(store), at, task.cancel)
        await interrupting

    task = asyncio.create_task(run())
    await asyncio.wait({task})
    with suppress(asyncio.CancelledError):
        task.result()
    assert interrupting is not None
    return interrupting.left <= 0


async def scoped(work: Work, store: AsyncEventStore, at: int) -> bool:
    """The same with a scope of anyio, which cancels again at every further await."""
    with anyio.CancelScope() as scope:
        interrupting = Interrupting(work(store), at, scope.cancel)
        await interrupting
    return interrupting.left <= 0


@pytest.mark.parametrize("interrupted", [cancelled, scoped])
def test_post_after_a_cancellation_at_each_await(database_url: str, interrupted: Any) -> None:
    """Opening, beginning, in tools, in answers, in each exit and in `close`: all let go."""

    async def go() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            at = 1
            while await interrupted(chat, store, at):
                await assert_answered(store)
                at += 1
            assert at > 10

    asyncio.run(go())


@pytest.mark.parametrize("interrupted", [cancelled, scoped])
def test_agent_session_after_a_cancellation_at_each_await(
    database_url: str, interrupted: Any
) -> None:
    """The session in a thread is stopped, and closed, whenever its task is cancelled."""

    async def answer(_: Any) -> str:
        await asyncio.sleep(0)
        return "Hello."

    async def work(store: AsyncEventStore) -> None:
        options = {"key": "k", "if_exists": "open"}
        async with await AsyncAgentSession.create(
            store, model=answer, conversation=options
        ) as session:
            await session.run_turn("hello")

    async def go() -> None:
        async with await AsyncEventStore.open(database_url) as store:
            at = 1
            while await interrupted(work, store, at):
                await assert_answered(store)
                at += 1

    asyncio.run(go())


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
@pytest.mark.parametrize("method", ["record", "close"])
def test_close_that_is_interrupted(
    common: EventStore,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    method: str,
) -> None:
    """The lease goes, although the session's end is not written."""
    conversation = Conversation.start(common)

    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(conversation._journal, method, interrupted)
    with pytest.raises(error):
        conversation.close()
    Conversation.open(common, conversation.id).close()


def test_agent_that_cannot_be_made(common: EventStore) -> None:
    """Its conversation does not stay open."""

    class Broken:
        name, tools = "broken", ()

        def open(self, _: Conversation) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        AgentSession.create(
            common,
            model=len,
            conversation={"key": "made"},
            widgets=[Broken()],  # type: ignore[list-item]
        )
    assert caught.value
    assert common.writer("made") is None


def test_generator_in_a_reference_cycle(common: EventStore) -> None:
    """As a server leaves it with the exception of a cancellation: the next post collects it."""

    def answer() -> Iterator[str]:
        with Conversation.start(common, key="cycle") as conversation, conversation.turn("hello"):
            yield "piece"

    gc.disable()
    try:
        pieces = answer()
        next(pieces)
        cycle: list[object] = [pieces]
        cycle.append(cycle)
        del pieces, cycle
        KEEPER._collected = -10.0
        Conversation.open(common, common.stream("cycle")).close()
    finally:
        gc.enable()


@pytest.mark.parametrize("begun", [True, False])
def test_cycle_is_found_for_other_processes(common: EventStore, begun: bool) -> None:
    """A generator that waits to be collected is: another process cannot have this one do it."""
    key = f"found {begun}"

    def answer() -> Iterator[str]:
        with Conversation.start(common, key=key) as conversation:
            with conversation.turn("hello") if begun else nullcontext():
                yield "piece"

    def dropped() -> None:
        pieces = answer()
        next(pieces)
        cycle: list[object] = [pieces]
        cycle.append(cycle)

    threshold = gc.get_threshold()
    gc.set_threshold(0)
    try:
        dropped()
        while common.writer(key) is not None:
            Event().wait(0.05)
    finally:
        gc.set_threshold(*threshold)


def test_session_that_is_ending_is_waited_for(common: EventStore) -> None:
    """A client that leaves and posts again at once does not find its own last session."""

    async def go() -> None:
        store = AsyncEventStore(common)
        first = await AsyncConversation.start(store, key="ending")
        turn = await first.turn("hello").__aenter__()
        left = asyncio.CancelledError()
        first._session.leaving(left)
        opening = asyncio.create_task(AsyncConversation.open(store, "ending"))
        await asyncio.sleep(0)
        await turn.__aexit__(type(left), left, None)
        await first.close()
        await (await opening).close()

    asyncio.run(go())


class TestWrongArguments:
    """They fail at the call, or in `begin`: before a response has begun."""

    @pytest.mark.parametrize("version", [999, 0, -1])
    def test_edit_of_what_is_not_there(self, common: EventStore, version: int) -> None:
        """Also where the event loop must not wait for the database."""
        with Conversation.start(common) as conversation:
            with pytest.raises(BranchRefused):
                conversation.edit(version, "hello")
            twin = AsyncConversation(AsyncEventStore(common), conversation._session)
            with pytest.raises(BranchRefused):
                twin.edit(version, "hello")
            with pytest.raises(TypeError):
                conversation.edit("1", "hello")  # type: ignore[arg-type]

    def test_edit_of_what_this_session_has_written_as_something_else(
        self, common: EventStore
    ) -> None:
        """It is refused at the call, also where the event loop must not wait for the database."""

        async def go() -> None:
            store = AsyncEventStore(common)
            async with await AsyncConversation.start(store) as conversation:
                async with conversation.turn("hello"):
                    pass
                for version in (3, 5):
                    with pytest.raises(BranchRefused, match=f"version {version} is not a user"):
                        conversation.edit(version, "hello")
                async with conversation.edit(4, "better"):
                    pass

        asyncio.run(go())

    def test_regenerating_nothing(self, common: EventStore) -> None:
        """Nothing was said yet."""
        with Conversation.start(common) as conversation, pytest.raises(BranchRefused):
            conversation.regenerate()

    def test_edit_of_another_event_fails_in_begin(self, common: EventStore) -> None:
        """Which works without a connection, and then the turn is entered."""

        async def go() -> None:
            store = AsyncEventStore(common)
            async with await AsyncConversation.start(store) as conversation:
                with pytest.raises(BranchRefused):
                    await conversation.edit(1, "hello").begin()
                turn = conversation.turn("hello")
                await turn.begin()
                with pytest.raises(BlockNotOpen):
                    await turn.begin()
                async with turn, turn.llm_call(provider="acme", model="m") as call:
                    await call.text("Hi.")
            ends = events_of(common, conversation, "turn_end")  # type: ignore[arg-type]
            assert ["ok"] == [each.data.status for each in ends]  # type: ignore[union-attr]

        asyncio.run(go())

    @pytest.mark.parametrize(
        "wrong", [{"run_id": 5}, {"workflow_id": 5}, {"tool_policy": "all"}, {"connection": "c"}]
    )
    def test_options_of_a_turn(self, common: EventStore, wrong: dict[str, Any]) -> None:
        """They were refused, or not, when the turn was entered."""
        with (
            Conversation.start(common) as conversation,
            pytest.raises((TypeError, ValueError, RuntimeError)),
        ):
            conversation.turn("hello", **wrong)


class Outage:
    """A database that goes away, with all its connections, and comes back."""

    def __init__(self, url: str) -> None:
        found = make_url(url)
        self.name = sql.Identifier(found.database or "")
        self.address = found.set(drivername="postgresql", database="postgres")

    def _run(self, *statements: sql.Composed) -> None:
        address = self.address.render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            for each in statements:
                connection.execute(each)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Be away for the block."""
        end = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}")
        allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        name = sql.Literal(self.name.as_string(None).strip('"'))
        self._run(allow.format(self.name, sql.SQL("false")), end.format(name))
        try:
            yield
        finally:
            self._run(allow.format(self.name, sql.SQL("true")))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody retry for long."""
    monkeypatch.setattr("agent_eventstore.journal.PATIENCE_S", 0.2)


@pytest.mark.usefixtures("impatient")
class TestOutage:
    """The database is away when a session ends."""

    def test_what_was_not_written_is_written_before_the_next_session(
        self, postgres_url: str
    ) -> None:
        """Nothing is sealed: the outbox writes the answer's end first, and the hook is called."""
        seen: list[Unwritten] = []
        with EventStore.open(postgres_url, on_unwritten=seen.append) as store:
            away = Outage(postgres_url)
            with away():
                pass
            conversation = Conversation.start(store, key="k")
            turn = conversation.turn("hello").__enter__()
            call = turn.llm_call(provider="acme", model="m").__enter__()
            call.delta("one ")
            with away():
                call.delta("two")
                for block in (call, turn):
                    with suppress(Exception):
                        block.__exit__(None, None, None)
                with pytest.raises(FactsNotWritten):
                    conversation.close()
                assert "pending" == seen[0].status
                assert seen[0].events == store.unwritten("k")[0].events
            with Conversation.open(store, "k") as again:
                assert again.recovery is not None
                assert not again.recovery.sealed
            assert ["pending", "written"] == [each.status for each in seen]
            (answer,) = events_of(store, conversation, "assistant_message")
            assert "one two" == answer.data.parts[0].text  # type: ignore[union-attr]
            assert not store.unwritten()
            assert store.writer("k") is None

    def test_nobody_sees_what_others_could_not_write(self, postgres_url: str) -> None:
        """A store of one owner once returned the unwritten events of all."""
        with EventStore.open(postgres_url) as store:
            bound = store.for_owner(user_id="ada")
            away = Outage(postgres_url)
            with away():
                pass
            conversation = Conversation.start(bound, key="k")
            turn = conversation.turn("hello").__enter__()
            with away():
                with suppress(Exception):
                    turn.__exit__(None, None, None)
                with pytest.raises(FactsNotWritten):
                    conversation.close()
                assert bound.unwritten()
                assert store.unwritten()
                assert not store.for_owner(user_id="eve").unwritten()

    @pytest.mark.parametrize("within", [False, True])
    def test_request_that_cannot_be_read(self, postgres_url: str, within: bool) -> None:
        """`context` says that the server is unreachable; the turn ends, and the lease goes."""
        with EventStore.open(postgres_url) as store:
            conversation = Conversation.start(store, key="k")
            away = Outage(postgres_url)
            with suppress(CannotConnect), conversation, conversation.turn("hello") as turn:
                with away():
                    with pytest.raises(CannotConnect):
                        turn.context()
                    if within:
                        turn.context()
                assert turn.context().messages
            with Conversation.open(store, "k", if_busy="raise") as again:
                assert again.recovery is not None
                assert not again.recovery.sealed
            ends = events_of(store, conversation, "turn_end")
            expected = "error" if within else "ok"
            assert [expected] == [each.data.status for each in ends]  # type: ignore[union-attr]

    @pytest.mark.parametrize("within", [False, True])
    def test_async_request_that_cannot_be_read(self, postgres_url: str, within: bool) -> None:
        """As above."""

        async def go() -> None:
            async with await AsyncEventStore.open(postgres_url) as store:
                away = Outage(postgres_url)
                with suppress(EventStoreError):
                    async with await AsyncConversation.start(store, key="k") as conversation:
                        async with conversation.turn("hello") as turn:
                            with away():
                                with pytest.raises(CannotConnect):
                                    await turn.context()
                                if within:
                                    await turn.context()
                            assert (await turn.context()).messages
                await assert_answered(store)

        asyncio.run(go())

    def test_other_processes_wait_for_what_is_not_written(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They would fence it; so the lease is renewed until it is written, and goes then."""
        with EventStore.open(postgres_url) as store:
            conversation = Conversation.start(store, key="k")
            turn = conversation.turn("hello").__enter__()

            def unable(journal: Journal) -> None:
                raise CannotConnect(store.url, "away")

            with monkeypatch.context() as patched:
                patched.setattr(Journal, "write_unwritten", unable)
                with Outage(postgres_url)():
                    with pytest.raises(CannotConnect):
                        turn.__exit__(None, None, None)
                    with pytest.raises(FactsNotWritten):
                        conversation.close()
                cid = conversation.id
                del conversation, turn
                gc.collect()
                KEEPER.renew()
                with store.reading() as connection:
                    (lease,) = leases_of(connection, (cid,))
                assert lease.live
            OUTBOX.write(store)
            with store.reading() as connection:
                assert not leases_of(connection, (cid,))

    def test_closing_the_store_raises_what_is_left(self, postgres_url: str) -> None:
        """Of a generator that is gone too; the next opening in this process still writes it."""
        store = EventStore.open(postgres_url)

        def answer() -> Generator[str, None, None]:
            with Conversation.start(store, key="k") as conversation, conversation.turn("hello"):
                yield "piece"

        pieces = answer()
        next(pieces)
        with Outage(postgres_url)():
            with suppress(FactsNotWritten):
                pieces.close()
            with pytest.raises(FactsNotWritten):
                store.close()
        with EventStore.open(postgres_url) as later:
            with Conversation.open(later, "k") as again:
                assert again.recovery is not None
                assert not again.recovery.sealed
            assert not OUTBOX.of(later)

    def test_session_that_is_dropped_with_unwritten_events(self, postgres_url: str) -> None:
        """Nobody closes it; what it has not written is not lost with it."""
        with EventStore.open(postgres_url) as store:

            async def go() -> AsyncIterator[None]:
                conversation = await AsyncConversation.start(AsyncEventStore(store), key="k")
                turn = await conversation.turn("hello").__aenter__()
                with Outage(postgres_url)(), suppress(Exception):
                    await turn.__aexit__(None, None, None)
                yield

            async def run() -> None:
                async for _ in go():
                    pass

            asyncio.run(run())
            gc.collect()
            with Conversation.open(store, "k") as again:
                assert again.recovery is not None
                assert ["session_end"] == [each.data.type for each in again.recovery.sealed]

    def test_outcome_is_reported(self, postgres_url: str) -> None:
        """What becomes of each session's events is reported once it is known."""
        seen: Queue[Unwritten] = Queue()
        with EventStore.open(postgres_url, on_unwritten=seen.put) as store:
            conversation = Conversation.start(store)
            conversation.turn("hello").__enter__()
            with Outage(postgres_url)(), pytest.raises(FactsNotWritten):
                conversation.close()
            reports = [seen.get(timeout=30), seen.get(timeout=30)]
            assert "pending" == reports[0].status
            assert reports[1].status in ("dropped", "written")
