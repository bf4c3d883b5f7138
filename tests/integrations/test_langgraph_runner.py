"""LangGraph's real runner over the saver: in processes that are killed, and on event loops."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from agent_eventstore import AsyncEventStore, EventStore, events
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from tests.warm import Programs

ROOT = Path(__file__).parents[2]
USED = [
    "langgraph.graph",
    "langgraph.checkpoint.sqlite",
    "langchain_core.language_models",
    "agent_eventstore.integrations.langgraph",
]


def test_example(framework_programs: Programs, tmp_path: Path) -> None:
    """The example asks, goes on in another graph, and has the tool in the audit."""
    example = ROOT / "examples" / "langgraph_saver.py"
    done = framework_programs.run(str(example), directory=tmp_path)
    done.check_returncode()

    assert "refund {'order': 7} success\n" == done.stdout
    assert len(example.read_text("utf-8").splitlines()) <= 40


@pytest.mark.parametrize(("scene", "kept"), [("interrupt", 3), ("tool", 3), ("stream", 4)])
def test_another_process_goes_on(
    framework_programs: Programs, tmp_path: Path, scene: str, kept: int
) -> None:
    """Killed or interrupted, nothing that had ended is lost or run again, and views know of it."""
    script = str(ROOT / "scripts" / "langgraph_losses.py")
    asked = [script, "EventStoreSaver", scene, str(tmp_path)]
    begun = framework_programs.run(*asked, "begin")
    gone_on = framework_programs.run(*asked, "go_on")
    gone_on.check_returncode()

    assert (0 if scene == "interrupt" else -9) == begun.returncode
    assert (
        f'{{"kept": "{kept}", "twice": "0", "answered": "yes", "audit": "2", "tokens": "49", '
        '"search": "yes"}'
    ) == gone_on.stdout.strip()


def graph_of(saver: EventStoreSaver) -> Any:
    """Return a graph that answers with how much it has been told."""

    def answer(state: MessagesState) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"{count} so far", id=f"a{count}")]}

    return (
        StateGraph(MessagesState)
        .add_node(answer)
        .set_entry_point("answer")
        .compile(checkpointer=saver)
    )


def test_on_an_event_loop(database_url: str) -> None:
    """Several threads of a graph run at a time, and each has its own history."""

    async def run() -> list[str]:
        async with await AsyncEventStore.open(database_url, synchronous="OFF") as store:
            graph = graph_of(EventStoreSaver(store))

            async def talk(thread_id: str) -> str:
                thread = {"configurable": {"thread_id": thread_id}}
                for _ in range(2):
                    said = {"messages": [HumanMessage("hello")]}
                    state = await graph.ainvoke(said, thread)
                return str(state["messages"][-1].content)

            return list(await asyncio.gather(*(talk(f"t{each}") for each in range(4))))

    assert ["3 so far"] * 4 == asyncio.run(run())


def test_time_travel(store: EventStore) -> None:
    """A run from an earlier checkpoint retracts what came after it, and adds its own."""
    graph = graph_of(EventStoreSaver(store))
    thread = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [HumanMessage("one", id="h1")]}, thread)
    [first] = [each for each in graph.get_state_history(thread) if not each.next]
    graph.invoke({"messages": [HumanMessage("two", id="h2")]}, thread)
    forked = graph.update_state(first.config, {"messages": [HumanMessage("three", id="h3")]})
    state = graph.get_state(forked)
    retracted = [e.data for e in store.read("t") if isinstance(e.data, events.Retraction)]

    assert ["h1", "a1", "h3"] == [each.id for each in state.values["messages"]]
    assert 2 == sum(len(each.versions) for each in retracted)


def test_parallel_writes_come_back_in_the_order_of_their_tasks(database_url: str) -> None:
    """A channel of parallel tasks is rebuilt as the run had it, whichever of them wrote first."""
    delta = pytest.importorskip("langgraph.channels.delta")
    kept = delta.DeltaChannel(lambda now, told: [*now, *chain(*told)], list)
    fields: Any = {"log": Annotated[list[str], kept]}
    state: Any = TypedDict("state", fields)  # type: ignore[misc]
    names = [f"task-{number:02}" for number in range(9)]

    async def work(told: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.01 * (len(names) - names.index(told["name"])))
        return {"log": [told["name"]]}

    def each(_: Any) -> list[Send]:
        return [Send("work", {"name": name}) for name in names]

    async def run() -> tuple[list[str], list[str]]:
        async with await AsyncEventStore.open(database_url, synchronous="OFF") as store:
            parts = StateGraph(state).add_node("work", work).add_conditional_edges(START, each)
            graph = parts.compile(checkpointer=EventStoreSaver(store))
            named: Any = {"configurable": {"thread_id": "t"}}
            ended = await graph.ainvoke({"log": []}, named)
            return ended["log"], (await graph.aget_state(named)).values["log"]

    assert (names, names) == asyncio.run(run())
