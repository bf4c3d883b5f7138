"""Whatever is added to a LangChain history or cleared, messages[] and the audit say the same."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from agent_eventstore.integrations.langchain import EventStoreChatMessageHistory
from eventstore import EventStore
from projections import Views

KEY = "h"
OPERATIONS = ("ask", "answer", "call", "result", "again", "clear", "restart")


def expected(messages: list[Any]) -> list[tuple[str, str | None]]:
    """Return the messages that the history stands for, each result beside its call."""
    asked: dict[str, int] = {}
    results: dict[tuple[int, str], str] = {}
    for index, message in enumerate(messages):
        if message.type == "ai":
            asked |= {call["id"]: index for call in message.tool_calls}
        elif message.type == "tool" and message.tool_call_id in asked:
            key = asked[message.tool_call_id], message.tool_call_id
            results.setdefault(key, message.content)
    said: list[tuple[str, str | None]] = []
    for index, message in enumerate(messages):
        if message.type == "human":
            said.append(("user", message.content))
        elif message.type == "ai":
            said.append(("assistant", message.content))
            said += [("tool", results.get((index, each["id"]))) for each in message.tool_calls]
    return said


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, to copy for each example."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    EventStore.open(f"sqlite:///{path}").close()
    return path


@given(operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5)), max_size=12))
def test_any_operations_of_the_history(
    operations: list[tuple[str, int]], template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After every operation, the views hold what the framework's own reader returns."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    shutil.copy(template, path)
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        run(store, operations)


def run(store: EventStore, operations: list[tuple[str, int]]) -> None:
    """Apply the operations to a history, and compare."""
    history, ids = EventStoreChatMessageHistory(store, KEY), count(1)
    asked: list[str] = []
    history.add_messages([HumanMessage("first")])
    for name, choice in operations:
        match name:
            case "ask":
                history.add_messages([HumanMessage(f"question {next(ids)}")])
            case "answer":
                history.add_messages([AIMessage(f"answer {next(ids)}")])
            case "call":
                # Providers use an id twice.
                new = [f"c{choice}"] if choice < 2 else [f"d{next(ids)}" for _ in range(choice)]
                calls = [{"name": "f", "args": {"x": next(ids)}, "id": each} for each in new]
                history.add_messages([AIMessage(f"call {next(ids)}", tool_calls=calls)])
                asked = new
            case "result" if asked:
                named = asked.pop(choice % len(asked))
                history.add_messages([ToolMessage(f"result {next(ids)}", tool_call_id=named)])
            case "again":
                history.add_messages([ToolMessage(f"result {next(ids)}", tool_call_id="c0")])
            case "clear":
                history.clear()
                asked = []
            case "restart":
                history = EventStoreChatMessageHistory(store, KEY)
    views, said = Views(store), expected(history.messages)
    sent = [(m["role"], m["content"]) for m in views.context(KEY, mode=None).messages]
    assert [role for role, _ in sent] == [role for role, _ in said]
    assert all(text in (None, found) for (_, text), (_, found) in zip(said, sent, strict=True))
    items = [
        (item.kind, item.text)
        for item in views.timeline(KEY)
        if item.kind in ("user", "assistant", "tool")
        and item.status != "withdrawn"
        and not (item.call_id or "").startswith("0.")  # a result without a call is not sent
    ]
    assert items == said
    rows = views.tool_calls(conversation_id=store.stream(KEY))[::-1]
    results = [text for role, text in said if role == "tool"]
    requested = [row for row in rows if row.call_version is not None and not row.withdrawn]
    assert [row.result_text for row in requested] == results
    assert not [row for row in rows if row.withdrawn and row.status == "requested"]
