"""Whatever a graph does to its messages, messages[], timeline, audit and usage say the same."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages

from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from eventstore import EventStore
from projections import Views
from projections.upkeep import compare


class State(TypedDict):
    """A state with one channel."""

    messages: Annotated[list[AnyMessage], add_messages]


THREAD = "t"
USED = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}


class Graph:
    """A graph with one channel of messages, whose state is changed from outside."""

    def __init__(self, store: EventStore, *messages: Any) -> None:
        made = StateGraph(State)
        made.add_node("node", lambda _: {})
        made.add_edge(START, "node")
        made.add_edge("node", END)
        self.store, self.ids, self.answered = store, count(1), set[str]()
        self.app = made.compile(checkpointer=EventStoreSaver(store))
        self.config: Any = {"configurable": {"thread_id": THREAD}}
        self.update(*messages or [self.human()])

    @property
    def channel(self) -> list[Any]:
        """The channel's messages, as the framework returns them."""
        return list(self.app.get_state(self.config).values.get("messages", ()))

    def update(self, *messages: Any) -> None:
        """Apply an update of the messages to the state."""
        self.answered.update(m.id for m in messages if m.type == "ai")
        self.app.update_state(self.config, {"messages": [*messages]}, as_node="node")

    def travel(self, steps: int, *messages: Any) -> None:
        """Apply an update to an earlier state."""
        earlier = [*self.app.get_state_history(self.config)]
        self.answered.update(m.id for m in messages if m.type == "ai")
        at = earlier[min(steps, len(earlier) - 1)].config
        self.app.update_state(at, {"messages": [*messages]}, as_node="node")

    def restart(self) -> None:
        """Continue as another process would."""
        self.app.checkpointer = EventStoreSaver(self.store)

    def human(self, own_id: str | None = None) -> HumanMessage:
        """Return a new message of a person."""
        return HumanMessage(f"question {next(self.ids)}", id=own_id or f"h{next(self.ids)}")

    def ai(self, calls: int, own_id: str | None = None, ids: Any = ()) -> AIMessage:
        """Return a new answer with calls, or an edited one."""
        named = [*ids, *(f"c{next(self.ids)}" for _ in range(calls))][:calls]
        told = [{"name": "f", "args": {"x": next(self.ids)}, "id": each} for each in named]
        text = f"answer {next(self.ids)}"
        return AIMessage(
            text, id=own_id or f"a{next(self.ids)}", tool_calls=told, usage_metadata=USED
        )

    def tool(self, call: str, own_id: str | None = None) -> ToolMessage:
        """Return a new result, or an edited one."""
        text = f"result {next(self.ids)}"
        return ToolMessage(text, tool_call_id=call, id=own_id or f"t{next(self.ids)}")

    def edited(self, message: Any) -> Any:
        """Return a message with another text under its id."""
        if message.type == "human":
            return self.human(message.id)
        if message.type == "ai":
            ids = [each["id"] for each in message.tool_calls]
            return self.ai(len(ids), message.id, ids)
        if message.type == "system":
            return SystemMessage(f"rule {next(self.ids)}", id=message.id)
        return self.tool(message.tool_call_id, message.id)

    @property
    def pending(self) -> list[str]:
        """The calls of the channel that have no result."""
        channel = self.channel
        answered = {each.tool_call_id for each in channel if each.type == "tool"}
        asked = (call["id"] for m in channel if m.type == "ai" for call in m.tool_calls)
        return [each for each in asked if each not in answered]


def expected(channel: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the messages, and the calls with their results, that the channel stands for.

    A result stands beside its call, as providers require; one without a call is not sent.
    """
    results: dict[tuple[int, str], str] = {}
    asked: dict[str, int] = {}
    for index, message in enumerate(channel):
        if message.type == "ai":
            asked |= {call["id"]: index for call in message.tool_calls}
        elif message.type == "tool" and message.tool_call_id in asked:
            key = asked[message.tool_call_id], message.tool_call_id
            results.setdefault(key, message.content)
    said: list[Any] = []
    calls: list[Any] = []
    for index, message in enumerate(channel):
        if message.type == "human":
            said.append(("user", message.content))
        elif message.type == "ai":
            said.append(("assistant", message.content))
            for call in message.tool_calls:
                result = results.get((index, call["id"]))
                said.append(("tool", result))
                calls.append((call["args"], result))
    return said, calls


def agree(graph: Graph) -> None:
    """Check that all views agree with the framework's state."""
    channel, views = graph.channel, Views(graph.store)
    said, calls = expected(channel)
    pending = {("tool", None)}
    found = [each for each in sent(graph.store) if each[0] != "system"]
    assert len(found) == len(said)
    assert [s if e not in pending else e for s, e in zip(found, said, strict=True)] == said
    items = [
        (item.kind, item.text)
        for item in views.timeline(THREAD)
        if item.kind in ("user", "assistant", "tool") and item.status != "withdrawn"
    ]
    assert [i if e not in pending else e for i, e in zip(items, said, strict=True)] == said
    rows = views.tool_calls(conversation_id=graph.store.stream(THREAD))
    standing = [(row.arguments, row.result_text) for row in rows[::-1] if not row.withdrawn]
    assert len(standing) == len(calls)
    # The result of a call stays in the audit, though the channel has it no longer.
    assert [s if e[1] else (s[0], None) for s, e in zip(standing, calls, strict=True)] == calls
    assert not [row for row in rows if row.withdrawn and row.status == "requested"]
    usage = views.usage(by="conversation")
    assert sum(row.calls for row in usage) == len(graph.answered)
    assert sum(row.completion_tokens or 0 for row in usage) == len(graph.answered)


OPERATIONS = (
    "ask",
    "answer",
    "call",
    "results",
    "edit",
    "edit",
    "remove",
    "summarise",
    "clear",
    "rules",
    "travel",
    "restart",
)


def apply(graph: Graph, name: str, choice: int) -> None:
    """Apply one of the framework's operations, on what the choice says."""
    channel = graph.channel
    chosen = channel[choice % len(channel)] if channel else None
    match name:
        case "ask":
            graph.update(graph.human())
        case "answer":
            graph.update(graph.ai(0), *([graph.human()] if choice % 2 else []))
        case "call":
            graph.update(graph.ai(1 + choice % 3))
        case "results":
            wanted = graph.pending[: 1 + choice % 3]
            graph.update(*map(graph.tool, wanted))
        case "edit" if chosen is not None:
            graph.update(graph.edited(chosen), *([graph.human()] if choice % 2 else []))
        case "remove" if chosen is not None:
            graph.update(RemoveMessage(id=chosen.id))
        case "summarise":
            rest = channel[choice % (len(channel) + 1) :]
            graph.update(RemoveMessage(id=REMOVE_ALL_MESSAGES), graph.human(), *rest)
        case "clear":
            graph.update(RemoveMessage(id=REMOVE_ALL_MESSAGES))
        case "rules":
            graph.update(SystemMessage(f"rule {choice}", id=f"s{choice % 2}"))
        case "travel":
            graph.travel(1 + choice % 4, graph.human())
        case "restart":
            graph.restart()


Q1, A2, Q3 = HumanMessage("q1", id="1"), AIMessage("a2", id="2"), HumanMessage("q3", id="3")
CALL = {"name": "f", "args": {"x": 0}, "id": "c1"}
CALLED = AIMessage("", id="4", tool_calls=[CALL])
RESULT = ToolMessage("res", tool_call_id="c1", id="5")


def sent(store: EventStore) -> list[tuple[str, str]]:
    """Return the messages of a request."""
    return [
        (m["role"], m["content"] or "") for m in Views(store).context(THREAD, mode=None).messages
    ]


def audited(store: EventStore) -> list[tuple[Any, ...]]:
    """Return every call of the audit table."""
    rows = Views(store).tool_calls(conversation_id=store.stream(THREAD))
    return [(row.status, row.arguments, row.result_text) for row in rows]


def test_an_edited_message_stays_in_its_place(store: EventStore) -> None:
    """A message that is edited under its id keeps its place, its turn and its time."""
    graph = Graph(store, Q1, A2, Q3)
    before = [item for item in Views(store).timeline(THREAD) if item.text == "q3"]
    graph.update(HumanMessage("q1 edited", id="1"))

    assert sent(store) == [("user", "q1 edited"), ("assistant", "a2"), ("user", "q3")]
    [after] = [item for item in Views(store).timeline(THREAD) if item.text == "q3"]
    assert (after.turn, after.started_at) == (before[0].turn, before[0].started_at)
    [listed] = Views(store).conversations()
    assert (listed.message_count, listed.turn_count, listed.title) == (3, 2, "q1 edited")


def test_a_result_replaced_under_its_id(store: EventStore) -> None:
    """The new text of a tool message is in every view, and its call is there once."""
    graph = Graph(store, Q1, CALLED, RESULT, Q3)
    graph.update(ToolMessage("res edited", tool_call_id="c1", id="5"))

    assert sent(store) == [
        ("user", "q1"),
        ("assistant", ""),
        ("tool", "res edited"),
        ("user", "q3"),
    ]
    assert audited(store) == [("success", {"x": 0}, "res edited")]
    items = [item.text for item in Views(store).timeline(THREAD) if item.kind == "tool"]
    assert items == ["res edited"]
    assert sum(row.calls for row in Views(store).usage(by="model")) == 1


def test_a_summary_before_the_messages_that_stay(store: EventStore) -> None:
    """After all messages were removed, a summary and those that stay are in the channel's order."""
    graph = Graph(store, Q1, A2, Q3, CALLED, RESULT)
    summary = HumanMessage("summary", id="s")
    graph.update(RemoveMessage(id=REMOVE_ALL_MESSAGES), summary, Q3, CALLED, RESULT)

    roles = ["user", "user", "assistant", "tool"]
    assert sent(store) == list(zip(roles, ["summary", "q3", "", "res"], strict=True))
    assert audited(store) == [("success", {"x": 0}, "res")]


def test_a_pending_call_that_a_person_edits(store: EventStore) -> None:
    """The audit has one call, with the edited arguments and its result."""
    graph = Graph(store, Q1, CALLED)
    graph.update(AIMessage("", id="4", tool_calls=[{**CALL, "args": {"x": 1}}]))
    graph.update(RESULT)

    assert audited(store) == [("success", {"x": 1}, "res")]


def test_a_pending_call_that_is_removed(store: EventStore) -> None:
    """A call that is withdrawn before it has run is not pending any more."""
    Graph(store, Q1, CALLED).update(RemoveMessage(id="4"))

    assert audited(store) == [("not_started", {"x": 0}, None)]


def test_a_copy_of_a_thread_with_edited_messages(store: EventStore) -> None:
    """What was recorded again counts once in a copy of the thread too."""
    graph = Graph(store, Q1, CALLED, RESULT, Q3)
    graph.update(HumanMessage("q1 edited", id="1"))
    EventStoreSaver(store).copy_thread(THREAD, "copy")

    views = Views(store)
    told, copied = (views.context(key, mode=None).messages for key in (THREAD, "copy"))
    assert [*copied] == [*told]
    rows = views.tool_calls(conversation_id=store.stream("copy"))
    assert [(row.status, row.result_text) for row in rows] == [("success", "res")]
    assert [row.calls for row in views.usage(by="conversation")] == [1, 1]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, to copy for each example."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    EventStore.open(f"sqlite:///{path}", synchronous="OFF").close()
    return path


@given(operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 11)), max_size=8))
def test_any_operations_of_the_graph(
    operations: list[tuple[str, int]],
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """After every operation, the views hold what the framework's own state holds."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    shutil.copy(template, path)
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        graph = Graph(store)
        for name, choice in operations:
            apply(graph, name, choice)
            if choice % 3 == 0:
                agree(graph)
        agree(graph)
        assert not compare(store).differences
