"""Everything that deletes or overwrites, counted by somebody else: a login that sees all rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import make_url

from agent_eventstore import Conversation, DirectoryKeys, EventStore, Views
from eventstore.checks.event_log import orphans
from eventstore.errors import ConversationDamaged, DeletionIncomplete, InvalidEvent, OwnerMismatch
from eventstore.events import ConversationStart, NewEvent, Retraction, UserMessage, VersionRange
from eventstore.ids import keyed_id, new_id
from eventstore.sql.migrate import schema_lock
from eventstore.sql.rights import grant, relations
from eventstore.sql.row_security import secure
from projections.upkeep import rebuild
from tests.contract.plain import PlainClient

CANARY, STAYS = "CANARY7f3e", "STAYS5d1a"
KEPT = {"purges", "retired_keys"}
SETUPS = [
    (database, setup)
    for database in ("sqlite", "postgresql")
    for setup in ("plain", "keys", "forks", "secured", "secured keys", "secured forks")
    if database == "postgresql" or "secured" not in setup
]


@dataclass
class World:
    """A database with a conversation of ada's to delete and one of bob's that stays."""

    url: str
    store: EventStore
    owner: EventStore
    cid: UUID
    other: UUID
    state: Path
    keys: Path | None
    forks: list[UUID] = field(default_factory=list)

    @property
    def ada(self) -> EventStore:
        """The product's store, bound to ada."""
        return self.store.for_owner(tenant_id="acme", user_id="ada")

    def rows(self, *streams: UUID, payloads: bool = False) -> dict[str, int]:
        """Count the rows of conversations in each table, as the owner of all of them."""
        found: dict[str, int] = {}
        with PlainClient(self.url) as client:
            for name in client.tables():
                some = client.execute(f'SELECT * FROM "{name}" LIMIT 1')
                if not some or name in KEPT:
                    continue
                try:
                    query = f'SELECT count(*) FROM "{name}" WHERE conversation_id = ?'
                    if payloads and name == "events":
                        query += " AND data IS NOT NULL AND type NOT IN ('erasure', 'kept_usage')"
                    count = sum(client.execute(query, each)[0][0] for each in streams)
                except Exception:  # noqa: S112 - a table of no conversation
                    continue
                if count:
                    found[name] = count
        return found

    def has(self, words: str) -> bool:
        """Whether any value of a table holds these words, or any byte of a file."""
        with PlainClient(self.url) as client:
            found = words.encode() in client.dump()
        files = [*self.state.rglob("*")]
        if client.dialect == "sqlite":
            files += Path(client.address.database or "").parent.glob("store.db*")
        return found or any(words.encode() in f.read_bytes() for f in files if f.is_file())

    def key_files(self, cid: UUID) -> list[str]:
        """Return the key files of a conversation."""
        return [] if self.keys is None else [f.name for f in self.keys.rglob(f"{cid}.*.key")]


def say(words: str) -> list[UserMessage]:
    """Return a short message and one that goes to a blob."""
    return [UserMessage.text(f"{words} short"), UserMessage.text(f"{words} long " * 9_000)]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Give a database in one of the setups, with everything projected."""
    database, setup = request.param
    with ExitStack() as stack:
        if database == "sqlite":
            url = login = request.getfixturevalue("sqlite_url")
        else:
            url = login = request.getfixturevalue("installed_url")
        keys = tmp_path / "keys" if "keys" in setup else None
        options: Any = {"keys": DirectoryKeys(keys)} if keys else {}
        owner = stack.enter_context(EventStore.open(url, **options))
        if "secured" in setup:
            name = f"deleting-{uuid4().hex[:8]}"
            client = stack.enter_context(PlainClient(url))
            client.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'secret'")
            stack.callback(client.execute, f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')
            with schema_lock(owner.engine) as connection:
                grant(connection, name)
                secure(connection, [each for names in relations(connection) for each in names])
            told = make_url(url).set(username=name, password="secret")
            login = told.render_as_string(hide_password=False)
        store = stack.enter_context(EventStore.open(login, migrate=False, **options))
        made = World(url, store, owner, uuid4(), uuid4(), tmp_path / "state", keys)
        made.state.mkdir()
        bob = store.for_owner(tenant_id="acme", user_id="bob")
        for each, cid, words in ((made.ada, made.cid, CANARY), (bob, made.other, STAYS)):
            start = ConversationStart(title=words)
            each.append(cid, [start, *say(words)])
            if "forks" in setup:
                fork = each.fork(cid, events=[NewEvent(e) for e in say(words)]).conversation_id
                made.forks += [fork] if each is not bob else []
            for stream in (cid, *(made.forks if each is not bob else ())):
                Views(each).timeline(stream)
            Views(each).search(words)
            Views(each).conversations()
        yield made


def whole(world: World) -> None:
    """Erase all payloads of the conversation, and of its forks."""
    for each in (world.cid, *world.forks):
        world.ada.erase(each, reason="asked", state_directory=world.state)


def versions(world: World) -> None:
    """Erase the versions that have content."""
    world.ada.erase(world.cid, reason="asked", versions=[1, 2, 3])
    for each in world.forks:
        world.ada.erase(each, reason="asked", versions=[4, 5, 6])


def user(world: World) -> None:
    """Erase a user, with the product's login and no owner bound."""
    done = world.store.erase_user("ada", tenant_id="acme", reason="asked")
    assert {world.cid, *world.forks} == {*done.conversations}


def vacuumed(world: World) -> None:
    """Erase, and rewrite the tables as their owner."""
    whole(world)
    world.owner.vacuum()


ERASING: list[Callable[[World], None]] = [whole, versions, user, vacuumed]


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
@pytest.mark.parametrize("erasing", ERASING)
def test_nothing_is_left_of_what_was_erased(world: World, erasing: Callable[[World], None]) -> None:
    """No payload, blob or projected row; what is another's stays as it was."""
    theirs, before = (world.cid, *world.forks), world.rows(world.other)
    assert world.keys or world.has(CANARY)

    erasing(world)

    assert {*world.rows(*theirs, payloads=True)} <= {
        *("conversations", "erasures", "erased_versions")
    }
    assert not world.has(CANARY)
    assert before == world.rows(world.other)
    assert world.owner.verify().ok
    if erasing is not versions:
        assert [] == [name for each in theirs for name in world.key_files(each)]


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
def test_nothing_is_left_of_what_was_purged(world: World) -> None:
    """No row in any table, and the receipt counts what the database deleted."""
    theirs, before = (world.cid, *world.forks), world.rows(world.other)
    planned = world.rows(*theirs)

    receipt = world.ada.purge(world.cid, reason="asked", forks=True, state_directory=world.state)

    assert {} == world.rows(*theirs)
    assert (planned["events"], planned["blobs"]) == (receipt.event_count, receipt.blob_count)
    assert not world.has(CANARY)
    assert before == world.rows(world.other)
    assert [] == [name for each in theirs for name in world.key_files(each)]
    with PlainClient(world.url) as client:
        assert [(0,)] == client.execute("SELECT count(*) FROM retired_keys")
    assert world.ada.append(world.cid, say("again")).version == 2


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
def test_upkeep_deletes_no_fact(world: World) -> None:
    """Rebuilding, rewriting the tables, ending a lease: each table of the log stays as it was."""
    log = ("conversations", "events", "blobs")
    theirs = (world.cid, world.other, *world.forks)
    before = world.rows(*theirs)

    rebuild(world.owner)
    world.owner.vacuum()
    with Conversation.open(world.ada, world.cid):
        pass

    after = world.rows(*theirs)
    assert [before.get(name) for name in log[:1]] == [after.get(name) for name in log[:1]]
    assert before.get("blobs") == after.get("blobs")
    assert before["events"] <= after["events"]
    assert "writer_leases" not in after
    assert world.owner.verify().ok


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
def test_deletions_of_adapters(world: World) -> None:
    """What frameworks delete is gone as well: a thread, and a session's items."""
    from langgraph.checkpoint.base import empty_checkpoint

    from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
    from agent_eventstore.integrations.openai_agents.session import EventStoreSession

    whole(world)
    saver = EventStoreSaver(world.ada)
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"x": f"{CANARY} thread"}
    checkpoint["channel_versions"] = {"x": "1"}
    config: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    saver.put(config, checkpoint, {}, {"x": "1"})
    session = EventStoreSession("session", world.ada, erase=True)

    async def talk() -> None:
        await session.add_items([{"role": "user", "content": f"{CANARY} item"}])

    asyncio.run(talk())
    assert world.keys or world.has(CANARY)

    saver.delete_thread("thread")
    asyncio.run(session.clear_session())

    assert not world.has(CANARY)
    named = [keyed_id(key, "acme") for key in ("thread", "session")]
    assert not {"blobs", "projection_heads"} & {*world.rows(*named)}
    assert world.owner.verify().ok


def saved(world: World) -> tuple[Any, Any]:
    """Return LangGraph's saver with a checkpoint of a run, and the configuration of its thread."""
    from langgraph.checkpoint.base import empty_checkpoint

    from agent_eventstore.integrations.langgraph.saver import EventStoreSaver

    saver = EventStoreSaver(world.ada)
    config: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"x": f"{CANARY} thread"}
    checkpoint["channel_versions"] = {"x": "1"}
    saver.put(config, checkpoint, {"run_id": "run"}, {"x": "1"})
    return saver, config


def thread_pruned(world: World) -> Callable[[], object]:
    """Delete a thread by pruning."""
    saver, _ = saved(world)
    return lambda: saver.prune(["thread"], strategy="delete")


def run_deleted(world: World) -> Callable[[], object]:
    """Delete what only a run needs."""
    saver, _ = saved(world)
    return lambda: saver.delete_for_runs(["run"])


def session_deleted(world: World) -> Callable[[], object]:
    """Delete a session of Google ADK with a state of its own."""
    from agent_eventstore.integrations.google_adk.service import EventStoreSessionService

    service = EventStoreSessionService(world.store.for_owner(tenant_id="acme"))
    named: Any = {"app_name": "app", "user_id": "ada", "session_id": "s"}
    asyncio.run(service.create_session(**named, state={"x": f"{CANARY} state"}))
    return lambda: asyncio.run(service.delete_session(**named))


def item_popped(world: World) -> Callable[[], object]:
    """Pop the newest item of an OpenAI session that erases."""
    from agent_eventstore.integrations.openai_agents.session import EventStoreSession

    session = EventStoreSession("session", world.ada, erase=True)
    asyncio.run(session.add_items([{"role": "user", "content": f"{CANARY} item"}]))
    return lambda: asyncio.run(session.pop_item())


def put_over(world: World) -> Callable[[], object]:
    """Put another item over one of LangGraph's store that erases."""
    from agent_eventstore.integrations.langgraph.store import EventStoreStore

    items = EventStoreStore(world.ada, erase=True)
    items.put(("users", "ada"), "tea", {"kind": f"{CANARY} item"})
    return lambda: items.put(("users", "ada"), "tea", {"kind": "green"})


def conversation_deleted(world: World) -> Callable[[], object]:
    """Delete a conversation of Pydantic AI."""
    from pydantic_ai.conversation import Conversation as Talk
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    from agent_eventstore.integrations.pydantic_ai import EventStoreConversations

    conversations = EventStoreConversations(world.ada)
    messages = [ModelRequest([UserPromptPart(f"{CANARY} prompt")])]
    asyncio.run(conversations.save(Talk(conversation_id="talk", messages=messages)))
    return lambda: asyncio.run(conversations.delete("talk"))


def withdrawn_first(world: World) -> Callable[[], object]:
    """Erase a message that was withdrawn before."""
    cid = world.ada.append(new_id(), [ConversationStart(), *say(CANARY)]).conversation_id
    Views(world.ada).search(CANARY)
    world.ada.append(cid, Retraction(versions=(VersionRange(first=2, last=3),)))
    return lambda: world.ada.erase(cid, reason="asked", versions=[2, 3])


def output_written(world: World) -> Callable[[], object]:
    """Erase a conversation whose tool wrote more than is stored in the log."""
    with Conversation.start(world.ada, state_directory=world.state) as conversation:
        with conversation.turn("run it") as turn:
            with turn.llm_call(turn.context(max_tokens=1_000, model="gpt-4o")) as call:
                call.message(tool_calls=[{"name": "run", "arguments": "{}", "id": "1"}])
            [requested] = call.tool_calls
            with turn.tool(requested) as tool:
                tool.result(f"{CANARY} output\n" * 40_000)
        Views(world.ada).timeline(conversation.id)
    assert [f for f in world.state.rglob("*") if f.is_file()]
    return lambda: world.ada.erase(conversation.id, reason="asked", state_directory=world.state)


DELETIONS = [
    *(thread_pruned, run_deleted, session_deleted, item_popped),
    *(put_over, conversation_deleted, withdrawn_first, output_written),
]


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
@pytest.mark.parametrize("prepare", DELETIONS)
def test_nothing_is_left_of_what_a_framework_deleted(
    world: World, prepare: Callable[[World], Callable[[], object]]
) -> None:
    """Each framework's own way of deleting leaves no text, and another's conversation as it was."""
    whole(world)
    before, delete = world.rows(world.other), prepare(world)
    stored = [keyed_id(key, "acme") for key in ("thread", "session")]
    payloads = world.rows(*stored, payloads=True).get("events")
    assert payloads or world.keys or world.has(CANARY)

    delete()

    assert not world.has(CANARY)
    assert not payloads or "erased_versions" in world.rows(*stored)
    assert "blobs" not in world.rows(*stored)
    assert before == world.rows(world.other)
    assert world.owner.verify().ok


@pytest.mark.parametrize("world", [("sqlite", "keys")], indirect=True, ids=" ".join)
def test_rewrapped_keys_read_everything_and_are_destroyed(world: World) -> None:
    """Every file is overwritten, no row changes, and an erasure leaves none of the files."""
    assert world.keys is not None
    before, read = world.rows(world.cid, world.other), len([*world.ada.read(world.cid)])
    keys = DirectoryKeys(world.keys, [b"k" * 32])
    with pytest.raises(LookupError):
        DirectoryKeys(world.keys).rewrap() if keys.rewrap() else None

    assert before == world.rows(world.cid, world.other)
    with EventStore.open(world.url, keys=keys) as store:
        assert read == len([*store.read(world.cid)])
        store.erase(world.cid, reason="asked")
    assert not world.has(CANARY)
    assert [] == world.key_files(world.cid)


@pytest.mark.parametrize("world", [("postgresql", "secured")], indirect=True, ids=" ".join)
def test_a_fork_of_another_owner_is_not_forgotten(world: World) -> None:
    """Row-level security hid it: its copies stayed, or a purge took the events it shares away."""
    tenant = world.store.for_owner(tenant_id="acme")
    tenant.fork(world.cid, new_user_id="bob")
    before = world.rows(world.cid)

    for attempt in (world.ada.erase, world.ada.purge):
        with pytest.raises(OwnerMismatch, match="1 of its forks"):
            attempt(world.cid, reason="asked")

    assert before == world.rows(world.cid)
    tenant.erase(world.cid, reason="asked")
    assert not world.has(CANARY)


@pytest.mark.parametrize("world", [("postgresql", "secured")], indirect=True, ids=" ".join)
def test_what_concerns_all_owners_is_refused_to_a_login_that_sees_one(world: World) -> None:
    """It found nothing, and said that all was well."""
    for attempt in (
        world.store.verify,
        world.store.read_all,
        lambda: world.store.checkpoint(world.state / "checkpoint"),
    ):
        with pytest.raises(OwnerMismatch, match="row-level security"):
            attempt()


@pytest.mark.parametrize("world", [("postgresql", "secured")], indirect=True, ids=" ".join)
def test_fewer_rows_than_planned_are_an_error(world: World) -> None:
    """A rule of somebody's that swallows deletes: the purge says so, and nothing is committed."""
    before = world.rows(world.cid)
    with PlainClient(world.url) as client:
        client.execute("CREATE RULE swallow AS ON DELETE TO blobs DO INSTEAD NOTHING")

        with pytest.raises(DeletionIncomplete) as caught:
            world.ada.purge(world.cid, reason="asked")
        with pytest.raises(DeletionIncomplete):
            world.ada.erase(world.cid, reason="asked")
        client.execute("DROP RULE swallow ON blobs")

    assert ("blobs", 1, 0) == (caught.value.table, caught.value.planned, caught.value.done)
    assert before == world.rows(world.cid)


@pytest.mark.parametrize("world", [("postgresql", "secured")], indirect=True, ids=" ".join)
def test_events_without_a_conversation_belong_to_nobody(world: World) -> None:
    """An older purge left them: whoever began a conversation with the id read them."""
    with PlainClient(world.url) as client:
        client.execute("DELETE FROM conversations WHERE conversation_id = ?", world.cid)
    bob = world.store.for_owner(tenant_id="acme", user_id="bob")

    attempts: list[Callable[[], object]] = [
        lambda: bob.append(world.cid, say("x")),
        lambda: bob.fork(world.other, conversation_id=world.cid),
    ]
    for attempt in attempts:
        with pytest.raises(ConversationDamaged, match="is missing"):
            attempt()
    with bob.transaction() as connection:
        with pytest.raises(ConversationDamaged, match="is missing"):
            bob.append(world.cid, say("x"), connection=connection)

    found = orphans(world.owner)
    assert ("problem", 3) == (found.status, found.details["rows"]["events"])
    assert [] == list(bob.read(world.cid))
    assert 3 == world.owner.purge(world.cid, reason="left behind").event_count
    assert ("ok", {}) == (orphans(world.owner).status, world.rows(world.cid))


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
def test_an_id_of_a_key_is_not_taken_without_the_key(world: World) -> None:
    """Anyone can compute it, and could keep its owner from ever using the key."""
    eve, stream = world.store.for_owner(tenant_id="evil", user_id="eve"), keyed_id("order", "acme")
    mine = eve.append(new_id(), say("x")).conversation_id
    for attempt in (
        lambda: eve.append(UUID(int=stream.int), say("x")),
        lambda: eve.append(str(stream), say("x")),
        lambda: eve.fork(mine, conversation_id=UUID(int=stream.int)),
        lambda: Conversation.start(eve, conversation_id=UUID(int=stream.int)),
    ):
        with pytest.raises(InvalidEvent, match="version 5"):
            attempt()

    assert stream == world.ada.append("order", say("y")).conversation_id
    assert 3 == world.ada.append(UUID(int=stream.int), say("z")[:1]).version


@pytest.mark.parametrize("world", SETUPS, indirect=True, ids=" ".join)
def test_a_parent_belongs_to_the_same_owner(world: World) -> None:
    """Otherwise anyone could name another's conversation as the one that theirs came from."""
    fork = world.ada.append(new_id(), say("x"), parent=(world.cid, 1))
    assert world.cid == world.ada.get(fork.conversation_id).parent_conversation_id
    if "deleting" in world.store.url:
        return  # Row-level security hides the other conversation.
    attempts: list[Callable[[], object]] = [
        lambda: world.ada.append(new_id(), say("x"), parent=(world.other, 1)),
        lambda: world.store.append(new_id(), say("x"), user_id="ada", parent=(world.other, 1)),
    ]
    for attempt in attempts:
        with pytest.raises(OwnerMismatch, match=str(world.other)):
            attempt()
