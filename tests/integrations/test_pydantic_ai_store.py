"""What the conversation store of Pydantic AI keeps, as its contract says, on both databases."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits

from agent_eventstore import Conversation as Recorded
from agent_eventstore import EventStore, Views
from agent_eventstore.integrations import conversation_memory
from agent_eventstore.integrations.pydantic_ai.conversations import EventStoreConversations

pytestmark = pytest.mark.anyio
TestModel.__test__ = False

agent = Agent(TestModel(), system_prompt="Be brief.", output_type=[str, DeferredToolRequests])


@agent.tool_plain
def weather(city: str) -> str:
    """Tell the weather."""
    return f"18 degrees in {city}"


@agent.tool_plain
def tide(harbour: str) -> dict[str, Any]:
    """Tell the tide."""
    return {"harbour": harbour, "metres": 1.5}


booking = Agent(TestModel(), output_type=[str, DeferredToolRequests])


@booking.tool_plain(requires_approval=True)
def book(city: str) -> str:
    """Book a train."""
    return f"booked to {city}"


@pytest.fixture
def conversations(store: EventStore) -> EventStoreConversations:
    """Give the adapter over a store."""
    return EventStoreConversations(store)


async def talk(kept: Any, conversation: Any = None, said: str = "How warm is it?") -> Any:
    """Have a turn, save it, and return the conversation as it is loaded again."""
    result = await agent.run(said, conversation=conversation or Conversation())
    await kept.save(result)
    return await kept.load(result.conversation_id)


def json_of(messages: Any) -> bytes:
    """Return messages as the framework writes them."""
    return bytes(ModelMessagesTypeAdapter.dump_json(messages))


@pytest.mark.parametrize("place", ["a call", "a result", "both"])
async def test_a_message_may_hold_what_messages_are_kept_by(
    conversations: EventStoreConversations, store: EventStore, place: str
) -> None:
    """The keys under which a message is kept may stand within it, as where an agent reads logs."""
    inner: dict[str, Any] = {"id": "1", "parent": None, "span": 1, "message": {"parts": []}}
    held = {"raw": {"pydantic_ai": inner}}
    call = ToolCallPart("read", held if place != "a result" else {}, tool_call_id="1")
    result = ToolReturnPart("read", held if place != "a call" else "", tool_call_id="1")
    messages = [
        ModelRequest([UserPromptPart("Read it.")]),
        ModelResponse([call]),
        ModelRequest([result]),
        ModelResponse([TextPart("It has \\ud800 no end: }}}")]),
    ]
    await conversations.save(Conversation(conversation_id="logs", messages=messages))

    loaded = await EventStoreConversations(store).load("logs")

    assert loaded is not None
    assert json_of(loaded.messages) == json_of(messages)


async def test_a_saved_result_is_loaded_as_it_was(conversations: EventStoreConversations) -> None:
    """Messages, usage and the id; a second turn adds its own messages alone."""
    first = await agent.run("How warm is it?", conversation=Conversation(conversation_id="ada-1"))
    assert len(await conversations.save(first)) == 4

    loaded = await conversations.load("ada-1")
    assert loaded is not None
    second = await agent.run("And now?", conversation=loaded)
    assert len(await conversations.save(second)) == 2

    again = await conversations.load("ada-1")
    assert again is not None
    assert json_of(again.messages) == json_of(second.all_messages())
    assert again.usage == second.conversation.usage


async def test_a_conversation_that_nobody_saved(conversations: EventStoreConversations) -> None:
    """Loads as none, and is deleted without a word."""
    assert await conversations.load("nobody") is None
    await conversations.delete("nobody")


async def test_a_window_of_the_newest(conversations: EventStoreConversations) -> None:
    """The last messages alone are loaded, and a run on them is appended to all."""
    whole = await talk(conversations)
    window = await conversations.load(whole.conversation_id, limit=1)

    assert window is not None
    assert window.messages == whole.messages[-1:]
    await conversations.save(await agent.run("And?", conversation=window))
    entries = await conversations.load_entries(whole.conversation_id)
    assert entries is not None
    assert len(entries) == 6
    with pytest.raises(UserError):
        await conversations.load(whole.conversation_id, limit=-1)


async def test_entries_are_a_chain(conversations: EventStoreConversations) -> None:
    """Those that a save returns are those that are read, each pointing at the one before."""
    result = await agent.run("Hello", conversation=Conversation())
    saved = await conversations.save(result)
    read = await conversations.load_entries(result.conversation_id)

    assert read == saved
    assert [each.parent_id for each in saved] == [None, *(each.id for each in saved[:-1])]
    assert await conversations.read_entry(saved[1].id) == saved[1]
    with pytest.raises(LookupError):
        await conversations.read_entry("01900000-0000-7000-8000-000000000000")


async def test_who_saves_second_is_told(conversations: EventStoreConversations) -> None:
    """Nothing of theirs is added; neither does a new conversation take another's place."""
    loaded = await talk(conversations)
    one, other = [await agent.run("And?", conversation=loaded) for _ in range(2)]
    await conversations.save(one)

    with pytest.raises(ConversationConflict):
        await conversations.save(other)
    with pytest.raises(ConversationConflict):
        await conversations.save(Conversation(conversation_id=loaded.conversation_id))
    now = await conversations.load(loaded.conversation_id)
    assert now is not None
    assert now.messages == one.all_messages()


async def test_saves_at_once(store: EventStore) -> None:
    """Of two that save the same conversation, by stores of their own, one is refused."""
    loaded = await talk(EventStoreConversations(store))
    results = [await agent.run("And?", conversation=loaded) for _ in range(2)]
    done = await asyncio.gather(
        *(EventStoreConversations(store).save(each) for each in results), return_exceptions=True
    )

    assert sorted(type(each).__name__ for each in done) == ["ConversationConflict", "list"]


async def test_saves_in_turns(store: EventStore) -> None:
    """Of two stores each goes on where the other has left off, whatever it remembers itself."""
    both = [EventStoreConversations(store) for _ in range(2)]
    conversation = await talk(both[0], Conversation(conversation_id="c"))
    for place in range(6):
        conversation = await talk(both[(place // 2) % 2], conversation, f"{place}: how warm?")
        seen = [await each.load("c") for each in both]
        assert seen == [conversation, conversation]

    await both[1].delete("c")
    assert await both[0].load("c") is None
    with pytest.raises(ConversationConflict):
        await both[0].save(conversation)
    again = await talk(both[0], Conversation(conversation_id="c"), "Hello again")
    assert await both[1].load("c") == again
    assert store.verify("c").ok


async def test_results_of_calls_before_a_restart(store: EventStore) -> None:
    """A result answers the call of an earlier save, by a store that remembers it and one anew."""
    remembering = EventStoreConversations(store)
    for key, second in (("a", remembering), ("b", EventStoreConversations(store))):
        asked = await booking.run("Go", conversation=Conversation(conversation_id=key))
        await remembering.save(asked)
        waiting = await second.load(key)
        assert waiting is not None
        assert waiting.deferred_tool_requests is not None
        call = waiting.deferred_tool_requests.approvals[0]
        approved = DeferredToolResults(approvals={call.tool_call_id: True})
        await second.save(await booking.run(conversation=waiting, deferred_tool_results=approved))
        [told] = Views(store).tool_calls(conversation_id=key)
        assert (told.name, told.status) == ("book", "success")


async def test_what_others_append_is_no_conflict(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """A title that a product gives is not a message."""
    loaded = await talk(conversations)
    with Recorded.open(store, loaded.conversation_id) as recorded:
        recorded.rename("Weather")

    assert await conversations.save(await agent.run("And?", conversation=loaded))


async def test_a_rewritten_history_branches_off(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """What it leaves is a branch that can be gone back to; messages[] follows."""
    loaded = await talk(conversations)
    await talk(conversations, loaded, "What is the tide?")
    loaded = await conversations.load(loaded.conversation_id)
    rewritten = Conversation(
        messages=loaded.messages[:4],
        conversation_id=loaded.conversation_id,
        revision=loaded.revision,
    )
    await conversations.save(rewritten)
    record = await conversations.read_record(loaded.conversation_id)

    assert record is not None
    assert len(record.branches) == 1
    views = Views(store)
    short = views.context(loaded.conversation_id, mode=None).messages
    back = await conversations.branch(
        loaded.conversation_id, from_entry=record.branches[0], expected_revision=record.revision
    )
    assert back.messages == loaded.messages
    whole = views.context(loaded.conversation_id, mode=None).messages
    assert len(whole) == len(short) + 2
    assert whole[: len(short)] == short


async def test_branching_at_a_message(conversations: EventStoreConversations) -> None:
    """The conversation goes on from there; who has an older copy is refused."""
    loaded = await talk(conversations)
    longer = await talk(conversations, loaded, "And?")
    with pytest.raises(ConversationConflict):
        await conversations.branch(loaded.conversation_id, at=4, expected_revision=loaded.revision)
    branched = await conversations.branch(
        loaded.conversation_id, at=4, expected_revision=longer.revision
    )
    again = await talk(conversations, branched, "What else?")

    assert again.messages[:4] == loaded.messages
    assert len(again.messages) == 6


async def test_a_fork_shares_events(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """Both go on by themselves, and usage is counted once."""
    loaded = await talk(conversations)
    fork = await conversations.fork(loaded.conversation_id, new_conversation_id="ada-fork")
    await talk(conversations, fork, "And the tide?")
    source = await conversations.load(loaded.conversation_id)
    other = await conversations.load("ada-fork")

    assert source is not None
    assert other is not None
    assert source.messages == loaded.messages == other.messages[:4]
    assert len(other.messages) == 6
    record = await conversations.read_record("ada-fork")
    assert record is not None
    assert record.forked_from == loaded.conversation_id
    assert sum(row.calls for row in Views(store).usage(by="conversation")) == 3
    roles = [each["role"] for each in Views(store).context("ada-fork", mode=None).messages]
    assert " ".join(roles) == "system user assistant tool tool assistant user assistant"


async def test_a_fork_before_the_end(conversations: EventStoreConversations) -> None:
    """Also one that keeps nothing; its name must be free."""
    loaded = await talk(conversations)
    some = await conversations.fork(loaded.conversation_id, at=2)
    none = await conversations.fork(loaded.conversation_id, at=0)

    assert some.messages == loaded.messages[:2]
    assert none.messages == []
    for fork in (some, none):
        kept = await conversations.load(fork.conversation_id)
        assert kept is not None
        assert kept.messages == fork.messages
    with pytest.raises(ConversationConflict):
        await conversations.fork(loaded.conversation_id, new_conversation_id=some.conversation_id)


async def test_scopes(conversations: EventStoreConversations) -> None:
    """A conversation of another scope is as good as none."""
    mine = await agent.run("Hello", conversation=Conversation())
    await conversations.save(mine, scope="ada")
    key = mine.conversation_id

    assert await conversations.load(key, scope="bob") is None
    assert await conversations.load(key, scope="ada") is not None
    with pytest.raises(ConversationConflict):
        await conversations.save(mine, scope="bob")
    await conversations.delete(key, scope="bob")
    assert [each.scope for each in await conversations.list_conversations()] == ["ada"]
    assert await conversations.list_conversations(scope="bob") == []


async def test_conversations_in_order_of_saving(conversations: EventStoreConversations) -> None:
    """The one that was saved last comes first, as far as a limit allows."""
    one, two, three = [await talk(conversations) for _ in range(3)]
    await talk(conversations, one, "And?")
    listed = await conversations.list_conversations()

    wanted = [each.conversation_id for each in (one, three, two)]
    assert [each.conversation_id for each in listed] == wanted
    assert len(await conversations.list_conversations(limit=2)) == 2
    assert await conversations.list_conversations(limit=0) == []


async def test_what_is_cached_is_bounded(
    conversations: EventStoreConversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is larger than the cache is not kept; saves go on without it."""
    monkeypatch.setattr(conversation_memory, "_MOST_BYTES", 100)
    first = await talk(conversations)
    second = await talk(conversations, first)

    assert not conversations._records._written._known
    assert second.messages[: len(first.messages)] == first.messages != second.messages


async def test_deleting_erases(store: EventStore, conversations: EventStoreConversations) -> None:
    """Nothing of it is read again; the id may be used anew, by none who had loaded it."""
    loaded = await talk(conversations, said="a secret word")
    await conversations.delete(loaded.conversation_id)

    assert await conversations.load(loaded.conversation_id) is None
    assert await conversations.list_conversations() == []
    events = [*store.read(loaded.conversation_id)]
    assert all(each.erased or "secret" not in repr(each.data) for each in events)
    with pytest.raises(ConversationConflict):
        await conversations.save(await agent.run("And?", conversation=loaded))
    anew = await talk(conversations, Conversation(conversation_id=loaded.conversation_id))
    assert len(anew.messages) == 4


async def test_what_is_deleted_leaves_memory(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """The process that deletes a conversation does not cache its messages either."""
    key = (await talk(conversations)).conversation_id
    for _ in range(2):
        assert await conversations.load(key) is not None
    stream = store.stream(key)
    cached = conversations._histories._memory.get(stream)
    await conversations.delete(key)

    assert cached is not None
    assert conversations._histories._memory.get(stream) is None
    assert conversations._records._written.get(key) is None


async def test_deleting_what_forks_share(conversations: EventStoreConversations) -> None:
    """The fork keeps its history, and the conversation is not listed any more."""
    loaded = await talk(conversations)
    fork = await conversations.fork(loaded.conversation_id)
    await conversations.delete(loaded.conversation_id)

    assert await conversations.load(loaded.conversation_id) is None
    kept = await conversations.load(fork.conversation_id)
    assert kept is not None
    assert kept.messages == loaded.messages
    listed = await conversations.list_conversations()
    assert [each.conversation_id for each in listed] == [fork.conversation_id]


async def test_deleting_an_older_revision(conversations: EventStoreConversations) -> None:
    """Is refused, as the contract of the primitive says."""
    loaded = await talk(conversations)
    await talk(conversations, loaded, "And?")
    with pytest.raises(ConversationConflict):
        await conversations.delete_record(
            loaded.conversation_id, expected_revision=str(loaded.revision)
        )


async def test_a_head_that_is_nowhere(conversations: EventStoreConversations) -> None:
    """A record that names an entry which nobody has is refused."""
    record = ConversationRecord(conversation_id="c", head_id="01900000-0000-7000-8000-000000000000")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, expected_revision=None)


async def test_an_approval_waits_in_the_record(conversations: EventStoreConversations) -> None:
    """A run that pauses is answered by another process, from what was stored."""
    paused = await booking.run("Book it", conversation=Conversation())
    await conversations.save(paused)
    loaded = await conversations.load(paused.conversation_id)

    assert loaded is not None
    waiting = loaded.deferred_tool_requests
    assert waiting is not None
    answers = waiting.build_results(approve_all=True)
    done = await booking.run(conversation=loaded, deferred_tool_results=answers)
    await conversations.save(done)
    assert "booked to" in str(done.output)
    assert len(await conversations.load_entries(paused.conversation_id) or ()) == 4


async def test_usage_limits_go_on(conversations: EventStoreConversations) -> None:
    """What was spent before counts in the next process."""
    loaded = await talk(conversations)
    with pytest.raises(Exception, match="request_limit"):
        await agent.run("And?", conversation=loaded, usage_limits=UsageLimits(request_limit=2))


async def test_tenants(store: EventStore) -> None:
    """The same id of two tenants is two conversations, and no entry is read across."""
    ours = EventStoreConversations(store.for_owner(tenant_id="ours"))
    theirs = EventStoreConversations(store.for_owner(tenant_id="theirs"))
    result = await agent.run("Hello", conversation=Conversation(conversation_id="c"))
    [first, *_] = await ours.save(result)

    assert await theirs.load("c") is None
    assert await theirs.list_conversations() == []
    with pytest.raises(LookupError):
        await theirs.read_entry(first.id)


async def test_the_same_as_in_memory(conversations: EventStoreConversations) -> None:
    """A story of saves, windows, branches and forks ends as with the framework's own store."""
    told = []
    for kept in (InMemoryConversationStore(), conversations):
        loaded = await talk(kept, Conversation(conversation_id="s"))
        loaded = await talk(kept, loaded, "second")
        loaded = await kept.branch("s", at=4, expected_revision=loaded.revision)
        loaded = await talk(kept, loaded, "third")
        await kept.fork("s", at=5, new_conversation_id="f")
        record = await kept.read_record("s")
        assert record is not None
        await kept.fork("s", from_entry=record.branches[0], new_conversation_id="g")
        await talk(kept, await kept.load("g"), "fourth")
        loaded = await kept.branch(
            "s", from_entry=record.branches[0], expected_revision=record.revision
        )
        await kept.delete("f")
        told.append(
            {
                each.conversation_id: [
                    [getattr(part, "content", None) for part in entry.message.parts]
                    for entry in await kept.read_history(each.head_id)
                ]
                for each in await kept.list_conversations()
            }
        )
        assert (await kept.load("f")) is None
    without_time = [repr(each) for each in told]
    assert without_time[0] == without_time[1]


async def test_it_reads_as_a_recorded_conversation(
    store: EventStore, conversations: EventStoreConversations
) -> None:
    """Timeline, tool audit, usage, search and verification work on it."""
    loaded = await talk(conversations)
    views = Views(store)
    key = loaded.conversation_id

    kinds = [each.kind for each in views.timeline(key) if each.kind != "own"]
    assert kinds == ["conversation", "system", "user", "tool", "tool", "assistant"]
    calls = {(each.name, each.status) for each in views.tool_calls(conversation_id=key)}
    assert calls == {("weather", "success"), ("tide", "success")}
    [row] = views.usage(by="conversation", conversation_id=store.stream(key))
    assert (row.calls, row.prompt_tokens) == (2, loaded.usage.input_tokens)
    assert views.search("warm")
    assert store.verify(key).ok


async def test_two_processes(tmp_path: Path) -> None:
    """What one store has saved another reads, from the file."""
    url = f"sqlite:///{tmp_path}/store.db"
    with EventStore.open(url) as one:
        loaded = await talk(EventStoreConversations(one))
    with EventStore.open(url) as other:
        again = await EventStoreConversations(other).load(loaded.conversation_id)
    assert again == loaded


async def test_a_history_in_memory(store: EventStore) -> None:
    """Read again, it is as fresh as a first read, whoever wrote, branched or erased meanwhile."""
    ours, theirs = EventStoreConversations(store), EventStoreConversations(store)
    conversation = await talk(theirs, Conversation(conversation_id="c"))
    entries = await ours.load_entries("c")
    assert entries is not None
    for _ in range(40):
        conversation = await talk(theirs, conversation)
        loaded = await ours.load("c")
        assert json_of(loaded and loaded.messages) == json_of(conversation.messages)
    assert loaded is not None
    loaded.messages[0].parts[0].content = "changed by a reader"
    window = await ours.load("c", limit=3)
    assert window is not None
    assert window.messages == conversation.messages[-3:]
    whole = await ours.load("c")
    assert whole is not None
    assert whole.messages == conversation.messages

    branched = await theirs.branch("c", at=70, expected_revision=str(conversation.revision))
    conversation = await talk(theirs, branched, "And now?")
    again = await ours.load_entries("c")
    assert again == await theirs.load_entries("c")
    assert again is not None
    assert again[: len(entries)] == entries

    store.erase("c", reason="asked for")
    with pytest.raises(LookupError):
        await ours.read_history(again[-1].id)
