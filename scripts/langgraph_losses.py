"""Kill a LangGraph agent with SIGKILL, and print what its checkpointer has kept: a Markdown table.

``python scripts/langgraph_losses.py`` runs the same graph over LangGraph's own SQLite checkpointer
and over `EventStoreSaver`, each in its own process, with ``durability="sync"``; then another
process continues.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver

STORES = ("SqliteSaver", "EventStoreSaver")
SCENES = {
    "interrupt": "interrupted, resumed elsewhere",
    "tool": "kill -9 in one of two parallel tools",
    "stream": "kill -9 in the stream of the answer",
}
HEADINGS = (
    "scenario", "checkpointer", "messages kept", "tools run twice", "answered in the end",
    "tool calls in the audit", "tokens known", "found by search",
)  # fmt: skip
THREAD: Any = {"configurable": {"thread_id": "ada/trip"}}
SPENT = {"input_tokens": 40, "output_tokens": 9, "total_tokens": 49}
WORDS = "It is 18 degrees in Rome and 12 in Oslo."


class State(TypedDict):
    """The graph's state."""

    messages: Annotated[list[AnyMessage], add_messages]


def saver_of(store: str, folder: Path) -> Any:
    """Open a checkpointer on a file of the folder."""
    if store == "SqliteSaver":
        return SqliteSaver(sqlite3.connect(folder / "peer.db", check_same_thread=False))
    return EventStoreSaver(EventStore.open(f"sqlite:///{folder / 'store.db'}"))


def graph_of(saver: Any, scene: str, folder: Path, dies: bool) -> Any:
    """Return the graph: a model asks for two tools, both run, and a model answers in a stream."""

    def model(state: State) -> dict[str, Any]:
        calls = [
            {"name": "weather", "args": {"city": city}, "id": city} for city in ("Rome", "Oslo")
        ]
        return {"messages": [AIMessage("", id="a1", tool_calls=calls, usage_metadata=SPENT)]}

    def tool(call: dict[str, Any]) -> dict[str, Any]:
        city = call["id"]
        if scene == "interrupt" and city == "Oslo":
            interrupt("May I look?")
        if scene == "tool" and city == "Oslo" and dies:
            while not saver.get_tuple(THREAD).pending_writes:  # Rome's result is not durable yet.
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        with (folder / "runs").open("a") as runs:
            runs.write(f"{city}\n")
        told = ToolMessage("18" if city == "Rome" else "12", tool_call_id=city, name="weather")
        return {"messages": [told]}

    def answer(state: State) -> dict[str, Any]:
        said = None
        for place, chunk in enumerate(GenericFakeChatModel(messages=words()).stream("?")):
            if scene == "stream" and dies and place == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            said = chunk if said is None else said + chunk
        return {"messages": [AIMessage(str(said.content), id="a2")]}

    def words() -> Iterator[AIMessage]:
        yield AIMessage(WORDS)

    def fan_out(state: State) -> list[Send]:
        return [Send("tool", call) for call in state["messages"][-1].tool_calls]

    builder = StateGraph(State)
    for node in (model, tool, answer):
        builder.add_node(node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", fan_out, ["tool"])
    builder.add_edge("tool", "answer")
    return builder.compile(checkpointer=saver)


def begin(store: str, scene: str, folder: Path) -> None:
    """Run the graph until it dies, or is interrupted."""
    graph = graph_of(saver_of(store, folder), scene, folder, dies=True)
    graph.invoke(
        {"messages": [HumanMessage("How warm is it?", id="h1")]}, THREAD, durability="sync"
    )


def go_on(store: str, scene: str, folder: Path) -> dict[str, Any]:
    """Return what another process finds before and after it continues."""
    saver = saver_of(store, folder)
    graph = graph_of(saver, scene, folder, dies=False)
    kept = len(graph.get_state(THREAD).values["messages"])
    seen = {"audit": "-", "tokens": "-", "search": "-"}
    if store == "EventStoreSaver":
        views = Views(saver.store)
        spent = views.usage(conversation_id="ada/trip")
        seen = {
            "audit": str(len(views.tool_calls(conversation_id="ada/trip"))),
            "tokens": str(sum(each.total_tokens or 0 for each in spent)),
            "search": "yes" if views.search("warm") else "no",
        }
    done = graph.invoke(Command(resume=True) if scene == "interrupt" else None, THREAD)
    runs = (folder / "runs").read_text().split()
    answered = done["messages"][-1].content == WORDS
    return {
        "kept": str(kept),
        "twice": str(len(runs) - len(set(runs))),
        "answered": "yes" if answered else "no",
        **seen,
    }


def row(store: str, scene: str) -> list[str]:
    """Return a line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        asked = [sys.executable, __file__, store, scene, folder]
        subprocess.run([*asked, "begin"], check=False)
        told = subprocess.run([*asked, "go_on"], check=True, capture_output=True, text=True)
    found = json.loads(told.stdout.splitlines()[-1])
    cells = ("kept", "twice", "answered", "audit", "tokens", "search")
    return [SCENES[scene], store, *(found[each] for each in cells)]


def main() -> None:
    """Print the table, or play one part of it."""
    if len(sys.argv) > 1:
        store, scene, folder, part = sys.argv[1:]
        if part == "begin":
            begin(store, scene, Path(folder))
        else:
            print(json.dumps(go_on(store, scene, Path(folder))))  # noqa: T201
        return
    lines = [list(HEADINGS), ["---"] * len(HEADINGS)]
    lines += [row(store, scene) for scene in SCENES for store in STORES]
    for line in lines:
        print(f"| {' | '.join(line)} |")  # noqa: T201


if __name__ == "__main__":
    main()
