"""What LangGraph's saver keeps, as its contract says: values, writes, threads, versions."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS

from agent_eventstore import AsyncEventStore, EventStore, Views, events
from agent_eventstore.integrations import conversation_memory
from agent_eventstore.integrations.langgraph.events import LanggraphValues
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from eventstore import DirectoryKeys
from tests.integrations.ciphers import Sealing


def named(thread_id: Any, namespace: str = "", checkpoint_id: str | None = None) -> dict[str, Any]:
    """Return a config that names a thread, and perhaps a checkpoint."""
    asked = {"thread_id": thread_id, "checkpoint_ns": namespace}
    return {"configurable": asked | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def put(
    saver: EventStoreSaver, config: dict[str, Any], values: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    """Put a checkpoint in which all of the channels are new; return its config."""
    checkpoint = empty_checkpoint()
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = versions
    stored: dict[str, Any] = saver.put(config, checkpoint, metadata, versions)
    return stored


def found(saver: EventStoreSaver, config: dict[str, Any]) -> CheckpointTuple:
    """Return the checkpoint that a config names, which is there."""
    one = saver.get_tuple(config)
    assert one is not None
    return one


SAID = [
    HumanMessage("Rome?", id="h1"),
    AIMessage(
        "I look.",
        id="a1",
        tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "c1"}],
        usage_metadata={"input_tokens": 7, "output_tokens": 5, "total_tokens": 12},
        response_metadata={"model_name": "gpt-5", "finish_reason": "tool_calls"},
    ),
    ToolMessage("18 degrees", tool_call_id="c1", name="weather", id="t1"),
    AIMessage("It is 18 degrees.", id="a2"),
]


def said(store: EventStore, thread_id: str) -> list[Any]:
    """Return the messages of a thread that are events."""
    kinds = (events.UserMessage, events.AssistantMessage, events.ToolResult)
    return [each.data for each in store.read(thread_id) if isinstance(each.data, kinds)]


def test_messages_are_events(store: EventStore) -> None:
    """Messages of the channel are what was said, asked of tools and spent, for all views."""
    saver = EventStoreSaver(store)
    put(saver, named("t"), {"messages": SAID})
    views = Views(store)

    assert ["user_message", "assistant_message", "tool_result", "assistant_message"] == [
        each.type for each in said(store, "t")
    ]
    [call] = views.tool_calls(conversation_id="t")
    assert ("weather", {"city": "Rome"}, "success") == (call.name, call.arguments, call.status)
    spent = {each.key: each for each in views.usage(conversation_id="t")}["gpt-5"]
    assert (7, 5) == (spent.prompt_tokens, spent.completion_tokens)
    assert 1 == len(views.search("Rome?"))
    assert ["user", "assistant", "tool", "assistant"] == [
        each["role"] for each in views.context("t").messages
    ]


def test_a_message_is_stored_once(store: EventStore) -> None:
    """Checkpoints of a growing list repeat no message, neither after the process has ended."""
    config = named("t")
    for count in range(1, len(SAID) + 1):
        config = put(EventStoreSaver(store), config, {"messages": SAID[:count]})

    assert len(SAID) == len(said(store, "t"))
    assert found(EventStoreSaver(store), named("t")).checkpoint["channel_values"] == {
        "messages": SAID
    }


def test_a_removed_message_is_retracted(store: EventStore) -> None:
    """What a graph takes out of its messages is sent to no model, and comes back if it does."""
    saver, views = EventStoreSaver(store), Views(store)
    config = put(saver, named("t"), {"messages": SAID})
    config = put(saver, config, {"messages": SAID[3:]})
    without = [each["content"] for each in views.context("t").messages]
    put(saver, config, {"messages": SAID})

    assert ["It is 18 degrees."] == without
    assert 4 == len(views.context("t").messages)
    assert SAID == found(saver, named("t")).checkpoint["channel_values"]["messages"]


def test_a_value_is_stored_once(store: EventStore) -> None:
    """A value that a later checkpoint has too is not written again."""
    saver, document = EventStoreSaver(store), {"text": "long " * 1_000}
    config = put(saver, named("t"), {"document": document, "n": 1})
    put(saver, config, {"document": document, "n": 2})
    kept = [each.data for each in store.read("t") if isinstance(each.data, LanggraphValues)]

    assert [2, 1] == [len(each.values) for each in kept]
    assert {"document": document, "n": 2} == found(saver, named("t")).checkpoint["channel_values"]


@pytest.mark.parametrize("messages", [None, ["messages"]])
def test_an_encrypting_serialiser(store: EventStore, messages: list[str] | None) -> None:
    """It is used for all values, each is stored once, and no message is an event unless asked."""
    serde = EncryptedSerializer(Sealing())
    for _ in range(2):
        saver = EventStoreSaver(store, serde=serde, messages=messages)
        put(saver, named("t"), {"messages": SAID, "n": 1})

    assert (len(SAID) if messages else 0) == len(said(store, "t"))
    assert SAID == found(saver, named("t")).checkpoint["channel_values"]["messages"]
    kept = [each.data for each in store.read("t") if isinstance(each.data, LanggraphValues)]
    assert 1 == len(kept)


def test_another_serialiser(store: EventStore) -> None:
    """A product's own serialiser is used for all that is written."""

    class Reversing:
        def dumps_typed(self, value: Any) -> tuple[str, bytes]:
            kind, raw = JsonPlusSerializer().dumps_typed(value)
            return kind + "-reversed", raw[::-1]

        def loads_typed(self, typed: tuple[str, bytes]) -> Any:
            return JsonPlusSerializer().loads_typed((typed[0].split("-")[0], typed[1][::-1]))

    saver = EventStoreSaver(store, serde=Reversing())
    put(saver, named("t"), {"messages": SAID, "n": {1, 2}})
    again = found(EventStoreSaver(store, serde=Reversing()), named("t"))

    assert {"messages": SAID, "n": {1, 2}} == again.checkpoint["channel_values"]


def test_unchanged_channels(store: EventStore) -> None:
    """A channel without a new version has the value that it had in the checkpoint before."""
    saver = EventStoreSaver(store)
    config = put(saver, named("t"), {"a": 1, "b": 2})
    checkpoint = found(saver, config).checkpoint
    version = saver.get_next_version(checkpoint["channel_versions"]["b"], None)
    checkpoint["id"] += "x"
    checkpoint["channel_values"] = {"a": 1, "b": 3}
    checkpoint["channel_versions"] |= {"b": version}
    saver.put(config, checkpoint, {}, {"b": version})

    assert {"a": 1, "b": 3} == found(saver, named("t")).checkpoint["channel_values"]
    assert {"a": 1, "b": 2} == found(saver, config).checkpoint["channel_values"]


def test_writes(store: EventStore) -> None:
    """Writes stand in the order of their application; only special ones replace each other."""
    saver = EventStoreSaver(store)
    config = put(saver, named("t"), {})
    saver.put_writes(config, [("b", 1), ("c", 2)], "task-2", "path-2")
    saver.put_writes(config, [("a", 3)], "task-9", "path-1")
    saver.put_writes(config, [("b", 4)], "task-2", "path-2")
    saver.put_writes(config, [("__error__", "first")], "task-2", "path-2")
    saver.put_writes(config, [("__error__", "second")], "task-2", "path-2")

    assert [
        ("task-9", "a", 3),
        ("task-2", "__error__", "second"),
        ("task-2", "b", 1),
        ("task-2", "c", 2),
    ] == found(saver, config).pending_writes


def test_what_an_older_version_has_sent(store: EventStore) -> None:
    """Before version 4 the writes of the step before hold it; a graph finds it in its channel."""
    saver = EventStoreSaver(store)
    for version in (3, 4):
        parent = put(saver, named(f"t{version}"), {"a": 1})
        saver.put_writes(parent, [(TASKS, "first"), ("a", 2)], "task-1")
        saver.put_writes(parent, [(TASKS, "second")], "task-2")
        checkpoint = {**empty_checkpoint(), "v": version, "channel_versions": {"a": "7.0"}}
        config = saver.put(parent, checkpoint, {}, {})
        for each in (found(saver, config), next(saver.list(config))):
            sent = each.checkpoint["channel_values"].get(TASKS)
            versions = each.checkpoint["channel_versions"]
            if version == 3:
                assert (["first", "second"], {"a": "7.0", TASKS: "7.0"}) == (sent, versions)
            else:
                assert (None, {"a": "7.0"}) == (sent, versions)


def test_the_serialiser_is_first_used_by_a_put(store: EventStore) -> None:
    """A graph may give it to a saver that stands already."""

    class Late(JsonPlusSerializer):
        uses = 0

        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            Late.uses += 1
            return super().dumps_typed(obj)  # type: ignore[no-any-return]

    saver = EventStoreSaver(store, serde=Late())
    assert saver.get_tuple(named("t")) is None
    assert 0 == Late.uses
    put(saver, named("t"), {"a": 1})
    assert Late.uses


def test_writes_at_a_time(store: EventStore) -> None:
    """What tasks write in several threads of a process, by two savers, is all there."""
    savers = [EventStoreSaver(store), EventStoreSaver(store)]
    config = put(savers[0], named("t"), {})
    with ThreadPoolExecutor(4) as pool:
        tasks = [
            pool.submit(savers[each % 2].put_writes, config, [("a", each)], f"task-{each}")
            for each in range(12)
        ]
        for task in tasks:
            task.result()

    found_there = found(savers[0], config).pending_writes or []
    assert set(range(12)) == {value for _, _, value in found_there}


def test_two_savers_of_a_thread(store: EventStore) -> None:
    """What another process has written is seen, and appended behind."""
    one, other = EventStoreSaver(store), EventStoreSaver(store)
    config = put(one, named("t"), {"messages": SAID[:1]})
    config = put(other, config, {"messages": SAID[:2]})
    config = put(one, config, {"messages": SAID[:3]})

    assert SAID[:3] == found(other, named("t")).checkpoint["channel_values"]["messages"]
    assert 3 == len(said(store, "t"))


def test_list(store: EventStore) -> None:
    """Newest first, of a thread or of all, by metadata, before one, and no more than asked for."""
    saver = EventStoreSaver(store)
    first = put(saver, named("t"), {}, source="input", step=-1)
    second = put(saver, first, {}, source="loop", step=0)
    inner = put(saver, named("t", "child:1"), {}, source="loop", step=7)
    other = put(saver, named("u"), {}, source="loop", step=0)

    def ids(*args: Any, **options: Any) -> list[str]:
        return [
            each.config["configurable"]["checkpoint_id"] for each in saver.list(*args, **options)
        ]

    def of(*configs: dict[str, Any]) -> list[str]:
        return [each["configurable"]["checkpoint_id"] for each in configs]

    assert of(second, first) == ids(named("t"))
    assert of(inner, second, first) == ids({"configurable": {"thread_id": "t"}})
    assert of(other, inner, second, first) == ids(None)
    assert of(other, second) == ids(None, filter={"step": 0})
    assert of(first) == ids(named("t"), before=second)
    assert of(second) == ids(named("t"), limit=1)
    assert [] == ids(named("t"), limit=0)


def test_what_is_cached_is_bounded(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its size, not only by the number of threads; the newest thread stays, however large."""
    monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 1_000)
    saver = EventStoreSaver(store)
    for thread_id in ("t", "u"):
        put(saver, named(thread_id), {"messages": [HumanMessage("x" * 900, id="h1")]})
        put(saver, named(thread_id), {"messages": SAID})

    assert ["u"] == [*saver._threads._known._known]
    assert [SAID] * 2 == [
        found(saver, named(each)).checkpoint["channel_values"]["messages"] for each in ("t", "u")
    ]


def test_list_of_all_threads(store: EventStore) -> None:
    """All threads are listed as each by itself is: forks too, and those that nobody has read."""
    saver = EventStoreSaver(store)
    for thread_id in ("t", "u"):
        put(saver, put(saver, named(thread_id), {"messages": SAID[:1]}), {"messages": SAID})
    store.fork("t", conversation_id="fork")
    put(saver, named("fork"), {"messages": [*SAID, HumanMessage("Paris?", id="h2")]})

    alone = [one for each in ("t", "u", "fork") for one in saver.list(named(each))]

    assert 7 == len(alone)
    listed = [*EventStoreSaver(store).list(None)]
    ids = [one.checkpoint["id"] for one in listed]
    assert sorted(ids, reverse=True) == ids
    assert {str(one): one for one in alone} == {str(one): one for one in listed}


def test_list_of_forks(store: EventStore) -> None:
    """A fork that nothing was put to yet has the checkpoints that it shares; others have none."""
    saver = EventStoreSaver(store)
    put(saver, named("t"), {"messages": SAID})
    store.append("u", events.UserMessage.text("hello"))
    for source, key in (("t", "fork"), ("fork", "fork of it"), ("u", "another")):
        store.fork(source, conversation_id=key)
    store.fork("t", before=2, conversation_id="nothing shared")

    listed = {one.config["configurable"]["thread_id"] for one in saver.list(None)}

    assert {"t", "fork", "fork of it"} == listed


def test_runs_and_old_checkpoints_of_forks(store: EventStore) -> None:
    """A run is deleted in forks of forks too; a pruned fork keeps what it shares."""
    saver = EventStoreSaver(store)
    # The fork of the fork is read first: threads are read in the order of their ids.
    root, fork, of_fork = "t", str(UUID(int=1)), str(UUID(int=0))
    for source, thread_id in ((None, root), (root, fork), (fork, of_fork)):
        if source is not None:
            store.fork(source, conversation_id=thread_id)
        put(saver, named(thread_id), {"messages": SAID}, run_id=thread_id)

    def runs(thread_id: str) -> set[str]:
        return {one.metadata["run_id"] for one in saver.list(named(thread_id))}

    saver.prune([of_fork])
    assert {root, fork, of_fork} == runs(of_fork)
    saver.delete_for_runs([fork])
    assert [{root}, {root}, {root, of_fork}] == [*map(runs, (root, fork, of_fork))]


def test_list_of_sealed_threads(database_url: str, tmp_path: Path) -> None:
    """What is sealed is opened for it."""
    with EventStore.open(database_url, keys=DirectoryKeys(tmp_path / "keys")) as store:
        put(EventStoreSaver(store), named("t"), {"messages": SAID})
        [one] = EventStoreSaver(store).list(None)
    assert SAID == one.checkpoint["channel_values"]["messages"]


def test_readers_have_objects_of_their_own(store: EventStore) -> None:
    """What one does to what it got, no other sees, however often a list was read before."""
    saver = EventStoreSaver(store)
    config = put(saver, named("t"), {"messages": SAID[:2]})
    for _ in range(4):
        read = found(saver, named("t")).checkpoint["channel_values"]["messages"]
        assert SAID[:2] == read
        read[0].content = "Paris?"
        read.pop()

    put(saver, config, {"messages": SAID})

    for _ in range(2):
        assert SAID == found(saver, named("t")).checkpoint["channel_values"]["messages"]
        assert SAID[:2] == found(saver, config).checkpoint["channel_values"]["messages"]


@pytest.mark.parametrize("change", [{"content": "Paris?"}, {"additional_kwargs": {"n": 1}}])
def test_a_message_that_is_changed_in_place(store: EventStore, change: dict[str, Any]) -> None:
    """The next checkpoint has it as it is then, and the one before as it was."""
    saver = EventStoreSaver(store)
    messages = [HumanMessage("Rome?", id="h1", additional_kwargs={"n": True}), *SAID[1:]]
    first = put(saver, named("t"), {"messages": messages})
    for name, value in change.items():
        setattr(messages[0], name, value)

    second = put(saver, first, {"messages": messages})

    assert messages == found(saver, second).checkpoint["channel_values"]["messages"]
    before, after = (
        found(EventStoreSaver(store), each).checkpoint["channel_values"]["messages"][0]
        for each in (first, second)
    )
    assert repr(before) != repr(after) == repr(messages[0])


def test_list_by_a_path(store: EventStore) -> None:
    """A filter finds what stands deeper by its path, as LangGraph's own checkpointers do."""
    saver = EventStoreSaver(store)
    put(saver, named("t"), {}, user={"id": "ada"}, **{"a.b": 1})

    def by(**wanted: Any) -> int:
        return len([*saver.list(None, filter=wanted)])

    assert [1, 0, 0] == [by(**{"user.id": each}) for each in ("ada", "bob", None)]
    assert [1, 0] == [by(**{"a.b": 1}), by(**{"user.id.first": "ada"})]


def test_what_a_channel_is_rebuilt_from(store: EventStore) -> None:
    """What was written to a channel since its last value is given in order, and without a loop."""
    saver = EventStoreSaver(store)
    config = put(saver, named("t"), {"log": "seed"})
    for index in range(3):
        saver.put_writes(config, [("log", f"w{index}"), ("other", 0)], "task")
        config = put(saver, config, {})
    asked: Any = {"config": config, "channels": ["log", "none"]}
    told = {"log": {"seed": "seed", "writes": [("task", "log", f"w{n}") for n in range(3)]}}

    assert told | {"none": {"writes": []}} == saver.get_delta_channel_history(**asked)
    assert told["log"] == asyncio.run(saver.aget_delta_channel_history(**asked))["log"]

    first = empty_checkpoint()
    last = saver.put(saver.put(named("u"), first, {}, {}), empty_checkpoint(), {}, {})
    saver.put(last, first, {}, {})
    rebuilt = saver.get_delta_channel_history(config=last, channels=["log"])
    assert {"log": {"writes": []}} == rebuilt


def test_delete_thread_erases(store: EventStore) -> None:
    """Nothing of a thread is left in the log, its cost apart, and its id can be used again."""
    saver, views = EventStoreSaver(store), Views(store)
    put(saver, named("t"), {"messages": SAID, "secret": "s" * 100_000})
    saver.delete_thread("t")
    left = [each.type for each in store.read("t") if each.data is not None]
    spent = {each.key: each for each in views.usage(conversation_id="t")}["gpt-5"]
    again = EventStoreSaver(store).get_tuple(named("t"))
    put(saver, named("t"), {"messages": SAID[:1]})

    assert ["kept_usage", "erasure"] == left
    assert 7 == spent.prompt_tokens
    assert again is None
    assert 1 == len([*saver.list(named("t"))])
    assert store.verify("t").ok


def test_prune_keeps_what_was_said(store: EventStore) -> None:
    """Pruning takes earlier checkpoints and their values, and no message."""
    saver, config = EventStoreSaver(store), named("t")
    for count in range(1, 5):
        config = put(saver, config, {"messages": SAID[:count], "n": count})
    saver.prune(["t"])
    one = found(EventStoreSaver(store), named("t"))

    assert {"messages": SAID, "n": 4} == one.checkpoint["channel_values"]
    assert 4 == len(said(store, "t"))
    assert [one.config] == [each.config for each in saver.list(named("t"))]


def test_a_copy_is_its_own(store: EventStore) -> None:
    """A copied thread stays when the one that it was copied from is deleted."""
    saver, config = EventStoreSaver(store), named("t")
    for count in range(1, 5):
        config = put(saver, config, {"messages": SAID[:count]})
    put(saver, named("u"), {"messages": SAID[:1]})
    for target in ("new", "u", "t"):
        saver.copy_thread("t", target)
    saver.delete_thread("t")

    for target in ("new", "u"):
        config["configurable"]["thread_id"] = target
        one = found(EventStoreSaver(store), config)
        assert SAID == one.checkpoint["channel_values"]["messages"]
    [call] = Views(store).tool_calls(conversation_id="new")
    assert "success" == call.status


def test_an_erased_message_is_left_out(store: EventStore) -> None:
    """A message that was erased is in no checkpoint any more; the rest stays."""
    saver = EventStoreSaver(store)
    put(saver, named("t"), {"messages": SAID})
    [version] = [
        each.version for each in store.read("t") if isinstance(each.data, events.UserMessage)
    ]
    store.erase("t", reason="asked for", versions=[version], derived=False)

    assert SAID[1:] == found(saver, named("t")).checkpoint["channel_values"]["messages"]


def test_what_is_erased_leaves_memory(store: EventStore) -> None:
    """The process that deletes a thread, or prunes it, does not cache what it erased."""
    saver = EventStoreSaver(store)
    for thread_id, strategy in (("t", "delete"), ("u", "keep_latest")):
        for _ in range(2):
            put(saver, named(thread_id), {"messages": SAID})
        found(saver, named(thread_id))
        saver.prune([thread_id], strategy=strategy)

        assert saver._threads._known.get(thread_id) is None


def test_what_a_fork_shares_may_be_erased(store: EventStore) -> None:
    """A thread that goes on from another one has nothing that was erased there."""
    saver = EventStoreSaver(store)
    put(saver, named("t"), {"messages": SAID})
    store.fork("t", conversation_id="fork")
    assert SAID == found(saver, named("fork")).checkpoint["channel_values"]["messages"]
    [version] = [
        each.version for each in store.read("t") if isinstance(each.data, events.UserMessage)
    ]
    store.erase("t", reason="asked for", versions=[version], derived=False)

    assert SAID[1:] == found(saver, named("fork")).checkpoint["channel_values"]["messages"]


def test_an_asynchronous_store(database_url: str) -> None:
    """A saver on an asynchronous store does the same."""

    async def run() -> list[CheckpointTuple]:
        async with await AsyncEventStore.open(database_url, synchronous="OFF") as opened:
            saver = EventStoreSaver(opened)
            config = await saver.aput(named("t"), empty_checkpoint(), {"step": 1}, {})
            await saver.aput_writes(config, [("a", 1)], "task")
            await saver.acopy_thread("t", "u")
            await saver.adelete_thread("t")
            return [each async for each in saver.alist(None)]

    [one] = asyncio.run(run())

    assert "u" == one.config["configurable"]["thread_id"]
    assert [("task", "a", 1)] == one.pending_writes


def test_ids_of_threads(store: EventStore) -> None:
    """A thread's id is a key of the product's, a UUID or a number."""
    saver = EventStoreSaver(store)
    ids = ["ada/1", "7b1f7c52-52c4-5d0e-8f0c-3c4f8a9b6e21", 17]
    for thread_id in ids:
        put(saver, named(thread_id), {"n": 1})

    assert sorted(map(str, ids)) == sorted(
        each.config["configurable"]["thread_id"] for each in saver.list(None)
    )


def test_owners(store: EventStore) -> None:
    """A saver on one owner's store sees the threads of no other."""
    ada, bob = (store.for_owner(tenant_id="acme", user_id=each) for each in ("ada", "bob"))
    put(EventStoreSaver(ada), named("t"), {"n": 1})

    assert [] == [*EventStoreSaver(bob).list(None)]
    assert ["t"] == [
        each.config["configurable"]["thread_id"] for each in EventStoreSaver(ada).list(None)
    ]


def test_a_store_that_redacts(sqlite_url: str) -> None:
    """It is refused, since a graph would not get back what it has written."""
    with (
        EventStore.open(sqlite_url, redact=lambda value, **_: value) as store,
        pytest.raises(ValueError, match="redacts"),
    ):
        EventStoreSaver(store)


def test_other_messages(store: EventStore) -> None:
    """A message that the log has no event for is kept as it is."""
    saver, messages = EventStoreSaver(store), [SAID[0], RemoveMessage(id="h1")]
    put(saver, named("t"), {"messages": messages})

    assert messages == found(saver, named("t")).checkpoint["channel_values"]["messages"]
    assert 1 == len(said(store, "t"))


def test_asynchronous_methods_have_the_signatures_of_the_others() -> None:
    """LangGraph passes a task's path only where the signature of ``aput_writes`` has it."""
    methods = dir(EventStoreSaver)
    twins = {name for name in methods if name[0] == "a" and name[1:] in methods}

    def told(name: str) -> list[str]:
        return [*inspect.signature(getattr(EventStoreSaver, name)).parameters]

    assert twins >= {"aput", "aput_writes", "aget_tuple", "alist", "adelete_thread"}
    assert {name: told(name[1:]) for name in twins} == {name: told(name) for name in twins}


def test_a_saver_at_a_url(sqlite_url: str) -> None:
    """As LangGraph's own savers are opened; there is nothing to set up."""
    with EventStoreSaver.from_conn_string(sqlite_url) as saver:
        saver.setup()
        put(saver, named("1"), {"count": 2})
    with EventStoreSaver.from_conn_string(sqlite_url) as saver:
        assert {"count": 2} == found(saver, named("1")).checkpoint["channel_values"]
