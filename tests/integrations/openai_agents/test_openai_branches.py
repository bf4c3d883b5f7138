"""`BranchingSession` says of branches, turns, usage and tools what the SDK's own session says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage

from agent_eventstore.integrations.openai_agents.branching_session import BranchingSession
from eventstore import EventStore
from eventstore.errors import StatementRefused
from tests.integrations.openai_agents.openai_samples import fresh_id, turns

USAGE = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


async def talk(session: Any) -> None:
    """Have two turns, one of them with a tool, and store their usage."""
    set_tracing_disabled(True)
    call = function_call("weather", {"city": "Rome"}, call_id="c1")
    steps = [[call], [assistant_message("Sun.")], [assistant_message("Bye.")]]
    agent = Agent(name="A", model=ScriptedModel(steps, default_usage=USAGE), tools=[weather])
    for text in ("How is the weather?", "Thanks a lot."):
        await session.store_run_usage(await Runner.run(agent, text, session=session))


def asked(session: Any) -> Any:
    """Return what a session says of what was said in it."""

    async def asking() -> Any:
        assert await session.get_session_usage() is None
        await talk(session)
        one = await session.get_turn_usage(1)
        shown = ("turn", "content", "full_content", "can_branch")
        return (
            [{key: each[key] for key in shown} for each in await session.get_conversation_turns()],
            [each["turn"] for each in await session.find_turns_by_content("THANKS")],
            await session.get_conversation_by_turns(),
            await session.get_tool_usage(),
            await session.get_session_usage(),
            {key: one[key] for key in ("requests", "input_tokens", "output_tokens")},
            len(await session.get_turn_usage()),
        )

    return asyncio.run(asking())


def told_alone(session: Any) -> Any:
    """Return what a session says of usage that its items were added without."""

    async def telling() -> Any:
        set_tracing_disabled(True)
        seen: list[Any] = []
        for requests, apart in ((3, True), (3, False), (5, True)):
            calls = [function_call("weather", {"city": "Rome"}, call_id=f"c{n}") for n in (1, 2)]
            steps = [[calls[0]], [calls[1]], [assistant_message("Sun.")]]
            agent = Agent(
                name="A", model=ScriptedModel(steps, default_usage=USAGE), tools=[weather]
            )
            result = await Runner.run(agent, "How is the weather?")
            await session.add_items(result.to_input_list())
            usage = result.context_wrapper.usage
            entries = usage.request_usage_entries * 2 if apart else []
            usage.request_usage_entries = entries[:requests]
            usage.requests, usage.input_tokens = requests, 10 * requests
            usage.output_tokens, usage.total_tokens = 5 * requests, 15 * requests
            seen.append(await session.get_session_usage())
            for _ in range(2):
                await session.store_run_usage(result)
                seen.append(await session.get_session_usage())
        keys = ("user_turn_number", "requests", "input_tokens", "total_tokens")
        found = await session.get_turn_usage()
        return seen, [{key: each[key] for key in keys} for each in found]

    return asyncio.run(telling())


def branched(session: Any) -> Any:
    """Return what a session says of branches, at each step."""

    async def branching() -> Any:
        seen: list[Any] = []

        async def look(name: str | None = None) -> None:
            keys = ("branch_id", "message_count", "user_turns", "is_current")
            rows = [{key: each[key] for key in keys} for each in await session.list_branches()]
            seen.append((name, sorted(map(str, rows)), await session.get_items()))

        await session.add_items(turns(3))
        await look(await session.create_branch_from_turn(2, "other"))
        await session.add_items(turns(1))
        await look()
        await session.switch_to_branch("main")
        await look()
        await look(await session.create_branch_from_content("user 2", "third"))
        for name in ("main", "other"):
            seen += [await session.get_items(branch_id=name), await session.get_items(2, name)]
            await session.switch_to_branch(name)
        await session.delete_branch("other", force=True)
        await look()
        return seen

    return asyncio.run(branching())


@pytest.mark.parametrize("told", [asked, branched, told_alone])
def test_as_the_sdk_has_it(store: EventStore, told: Any) -> None:
    """Both say the same of the same."""
    own = AdvancedSQLiteSession(session_id="own", create_tables=True)

    assert told(own) == told(BranchingSession(fresh_id(), store))
    own.close()


def both(store: EventStore, **settings: Any) -> tuple[Any, BranchingSession]:
    """Return the SDK's own session, and ours."""
    named = fresh_id()
    own = AdvancedSQLiteSession(session_id=named, create_tables=True)
    return own, BranchingSession(named, store, **settings)


def test_refusals(store: EventStore) -> None:
    """A branch that cannot be is refused, as the SDK's own session does it and in its words."""

    async def refused(session: Any) -> None:
        await session.add_items(turns(3))
        await session.create_branch_from_turn(2, "third")
        for asked, why in (
            (session.create_branch_from_turn(9), "Turn 9 does not contain a user message"),
            (session.create_branch_from_turn(1, "third"), "already been used"),
            (session.switch_to_branch("nowhere"), "Branch 'nowhere' does not exist"),
            (session.delete_branch("nowhere"), "Branch 'nowhere' does not exist"),
            (session.delete_branch("main"), "Cannot delete the 'main' branch"),
            (session.delete_branch("third"), "Cannot delete current branch 'third'"),
            (session.create_branch_from_content("never said"), "No user turns found containing"),
        ):
            with pytest.raises(ValueError, match=why):
                await asked

    own, ours = both(store)
    for session in (own, ours):
        asyncio.run(refused(session))
        assert [] == asyncio.run(session.get_items(branch_id="nowhere"))
    own.close()
    # The SDK says so since 0.24.
    with pytest.raises(ValueError, match="Branch name cannot be empty"):
        asyncio.run(ours.create_branch_from_turn(1, " "))
    with pytest.raises(ValueError, match="Branch ID cannot be empty"):
        asyncio.run(ours.delete_branch(" "))


@pytest.mark.parametrize("erase", [False, True])
def test_clearing_clears_all_branches(store: EventStore, erase: bool) -> None:
    """Nothing is left of any, ``main`` is the current one, and names are not used again."""

    async def told(session: Any) -> Any:
        await session.add_items(turns(3))
        await session.create_branch_from_turn(2, "b")
        await session.add_items(turns(1))
        await session.clear_session()
        left = await session.get_items(), await session.get_items(branch_id="main")
        await session.add_items(turns(2))
        with pytest.raises(ValueError, match="already been used"):
            await session.create_branch_from_turn(2, "b")
        branches = [(e["branch_id"], e["is_current"]) for e in await session.list_branches()]
        return left, await session.get_items(), branches

    own, ours = both(store, erase=erase)
    assert asyncio.run(told(own)) == asyncio.run(told(ours))
    branch = list(store.read(f"{ours.session_id}#b"))
    assert erase == any(event.data is None for event in branch)
    own.close()


def test_names_are_made_again_where_those_before_were_erased(store: EventStore) -> None:
    """A branch without a name gets one that no conversation has."""
    session = BranchingSession(fresh_id(), store, erase=True)

    async def made() -> list[str]:
        names = []
        for _ in range(2):
            await session.add_items(turns(2))
            names.append(await session.create_branch_from_turn(2))
            await session.clear_session()
        return names

    first, second = asyncio.run(made())
    assert first != second


@pytest.mark.parametrize("erase", [False, True])
def test_who_is_on_a_branch_hears_that_it_was_deleted(store: EventStore, erase: bool) -> None:
    """Neither reads it nor adds to it, and goes on once it has switched."""
    session = BranchingSession(fresh_id(), store, erase=erase)
    other = BranchingSession(session.session_id, store)

    async def told() -> list[Any]:
        await session.add_items(turns(2))
        await session.create_branch_from_turn(2, "b")
        await session.add_items(turns(1))
        await other.switch_to_branch("b")
        before = await other.get_items()
        await other.add_items(turns(1))
        await session.delete_branch("b", force=True)
        for asked in (other.get_items(), other.add_items(turns(1)), other.pop_item()):
            with pytest.raises(ValueError, match="'b' was deleted"):
                await asked
        await other.switch_to_branch("main")
        assert before[:1] == (await other.get_items())[:1]
        return await other.get_items()

    assert asyncio.run(told()) == asyncio.run(session.get_items())


@pytest.mark.parametrize("erasing", ["user", "session"])
def test_who_is_on_a_branch_that_was_erased(store: EventStore, erasing: str) -> None:
    """Goes on with ``main``, as after clearing: nothing is added to a branch that is not listed."""
    session = BranchingSession(fresh_id(), store, user_id="ada")

    async def told() -> tuple[list[Any], list[tuple[str, int]]]:
        await session.add_items(turns(2))
        await session.create_branch_from_turn(2, "b")
        await session.add_items(turns(1))
        if erasing == "user":
            store.erase_user("ada", reason="asked for")
        else:
            store.erase(session.session_id, reason="asked for")
        await session.add_items(turns(1))
        found = await session.list_branches()
        return await session.get_items(), [(e["branch_id"], e["message_count"]) for e in found]

    assert (turns(1), [("main", len(turns(1)))]) == asyncio.run(told())


@pytest.mark.parametrize("erase", [False, True])
def test_deleting_a_branch_again(sqlite_url: str, erase: bool) -> None:
    """What was half deleted when the process died is listed, and is deleted by another call."""

    async def deleted(store: EventStore) -> None:
        session = BranchingSession("s", store, erase=erase)
        await session.add_items(turns(2))
        await session.create_branch_from_turn(2, "b")
        await session.add_items([{"role": "user", "content": "a secret"}])
        await session.switch_to_branch("main")
        with store.writing() as connection:
            connection.exec_driver_sql(
                "CREATE TRIGGER failing BEFORE INSERT ON events "
                f"WHEN NEW.conversation_id = '{store.stream('s')}' "
                "BEGIN SELECT RAISE(ABORT, 'as if the process had died'); END"
            )
        with pytest.raises(StatementRefused):
            await session.delete_branch("b")
        with store.writing() as connection:
            connection.exec_driver_sql("DROP TRIGGER failing")
        assert ["main", "b"] == [each["branch_id"] for each in await session.list_branches()]
        assert erase != ("a secret" in repr([each.data for each in store.read("s#b")]))

        await session.delete_branch("b")
        assert ["main"] == [each["branch_id"] for each in await session.list_branches()]

    with EventStore.open(sqlite_url) as opened:
        asyncio.run(deleted(opened))


def test_usage_of_a_turn_without_an_answer(store: EventStore) -> None:
    """It is the turn's, once; and nobody's before the first turn."""
    usage = Usage(requests=2, input_tokens=20, output_tokens=10, total_tokens=30)
    result = SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))

    async def told(session: Any) -> Any:
        await session.add_items(turns(1))
        await session.add_items([{"role": "user", "content": "And now?"}])
        for _ in range(2):
            await session.store_run_usage(result)
        await session.add_items([{"role": "assistant", "content": "This."}])
        await session.store_run_usage(result)
        turn = await session.get_turn_usage(2)
        keys = ("input_tokens", "output_tokens", "total_tokens")
        return [turn["output_tokens_details"]] + [
            {key: each[key] for key in keys} for each in (turn, await session.get_session_usage())
        ]

    own, ours = both(store)
    assert asyncio.run(told(own)) == asyncio.run(told(ours))
    own.close()
    empty = BranchingSession(fresh_id(), store)
    asyncio.run(empty.store_run_usage(result))
    assert None is asyncio.run(empty.get_session_usage())


def test_usage_of_which_the_total_alone_is_told(store: EventStore) -> None:
    """Requests are counted; details are there that were told, and None where nobody told any."""
    usage = Usage(requests=3, input_tokens=10, output_tokens=5, total_tokens=15)
    usage.output_tokens_details.reasoning_tokens = 4
    object.__setattr__(usage, "input_tokens_details", None)
    result = SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))

    async def told(session: Any) -> Any:
        await session.add_items(turns(1))
        await session.store_run_usage(result)
        return await session.get_turn_usage(1)

    own, ours = both(store)
    theirs, found = asyncio.run(told(own)), asyncio.run(told(ours))
    own.close()
    assert found == {key: value for key, value in theirs.items() if key in found}
    assert (3, None, {"reasoning_tokens": 4}) == (
        found["requests"],
        found["input_tokens_details"],
        found["output_tokens_details"],
    )


def test_who_is_on_a_branch_when_another_object_clears_the_session(
    store: EventStore, tmp_path: Path
) -> None:
    """Goes to ``main``, whatever is asked first, and never brings back the branch."""
    named = fresh_id()

    def ours() -> Any:
        return BranchingSession(named, store)

    def own() -> Any:
        database = tmp_path / "own.db"
        made = AdvancedSQLiteSession(session_id=named, db_path=database, create_tables=True)
        opened.callback(made.close)
        return made

    async def told(made: Callable[[], Any], first: str) -> Any:
        session, other = made(), made()
        await session.clear_session()
        await session.add_items(turns(2))
        branch = await session.create_branch_from_turn(2)
        await session.add_items([{"role": "user", "content": "On the branch."}])
        await other.clear_session()
        await other.add_items([{"role": "user", "content": "After."}])
        asked = getattr(session, first)
        await (asked([{"role": "assistant", "content": "Yes."}]) if "add" in first else asked())
        listed = [(each["branch_id"], each["is_current"]) for each in await session.list_branches()]
        said = [each["content"] for each in await session.get_items()]
        return said, said and listed, await session.get_items(branch_id=branch)

    for first in ("add_items", "pop_item", "get_items", "get_tool_usage", "list_branches"):
        with ExitStack() as opened:
            theirs = asyncio.run(told(own, first))
        assert theirs == asyncio.run(told(ours, first)), first


def test_items_that_are_no_objects(store: EventStore) -> None:
    """They are kept, count as items, and belong to the turn that they are in."""

    async def told(session: BranchingSession) -> Any:
        await session.add_items(["loose", *turns(1), 7, ["list"]])
        [branch] = await session.list_branches()
        by_turn = await session.get_conversation_by_turns()
        counts = {turn: len(items) for turn, items in by_turn.items()}
        return branch["message_count"], branch["user_turns"], counts, await session.get_tool_usage()

    assert (5, 1, {0: 1, 1: 4}, []) == asyncio.run(told(BranchingSession(fresh_id(), store)))


def test_texts_are_found_by_their_letters(store: EventStore) -> None:
    """Small letters and capitals of English are the same, as in the SDK's search since 0.24."""

    async def told(session: BranchingSession) -> list[list[int]]:
        for said in ("CAFÉ one", "café two", "100% done", "a_b", "ax b"):
            await session.add_items([{"role": "user", "content": said}])
        found = []
        for wanted in ("é", "caf", "DONE", "0%", "a_b", "É"):
            turns = await session.find_turns_by_content(wanted)
            found.append([each["turn"] for each in turns])
        return found

    found = asyncio.run(told(BranchingSession(fresh_id(), store)))
    assert [[2], [1, 2], [3], [3], [4], [1]] == found


def test_searches_for_tools_are_counted(store: EventStore) -> None:
    """By their calls, or else by their outputs."""
    call = {"type": "tool_search_call", "id": "c", "arguments": {}, "status": "completed"}
    output = {"type": "tool_search_output", "id": "o", "tools": [], "status": "completed"}

    async def told(session: Any) -> Any:
        await session.add_items([{"role": "user", "content": "1"}, call, output])
        await session.add_items([{"role": "user", "content": "2"}, output, output])
        return sorted(await session.get_tool_usage())

    own, ours = both(store)
    assert asyncio.run(told(own)) == asyncio.run(told(ours))
    own.close()


def test_a_branch_copies_nothing(store: EventStore) -> None:
    """It shares its parent's events, and its usage is the parent's."""
    session = BranchingSession(fresh_id(), store)

    async def shared() -> Any:
        await talk(session)
        await session.create_branch_from_turn(2, "b")
        return await session.get_items(), await session.get_session_usage("b")

    items, usage = asyncio.run(shared())
    assert 4 == len(items)
    assert None is usage
    own = [e.type for e in store.read(f"{session.session_id}#b") if not e.inherited]
    assert ["conversation_fork"] == own
    assert store.verify(session.id).ok


def test_tools_of_a_namespace(store: EventStore) -> None:
    """A tool is told with its namespace, unless that is what the SDK made up for it."""
    session = BranchingSession("s", store)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    items = [{"role": "user", "content": "Go."}, call]
    items += [call | {"call_id": name, "namespace": name} for name in ("crm", "look")]
    asyncio.run(session.add_items(items))

    assert [("look", 2, 1), ("crm.look", 1, 1)] == asyncio.run(session.get_tool_usage())
