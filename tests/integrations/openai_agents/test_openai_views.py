"""Whatever is done to a session, messages[], timeline, audit and usage hold its items."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from projections import Views
from projections.upkeep import compare
from tests.integrations.openai_agents.openai_samples import said

KEY = "s"


def run(work: Any) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def call(own_id: str, x: int = 0) -> dict[str, Any]:
    """Return a call of a tool."""
    return {"type": "function_call", "call_id": own_id, "name": "f", "arguments": f'{{"x": {x}}}'}


def output(own_id: str, text: str) -> dict[str, Any]:
    """Return the output of a call."""
    return {"type": "function_call_output", "call_id": own_id, "output": text}


def shown(store: EventStore, key: str = KEY) -> list[tuple[str, str | None]]:
    """Return the items of the timeline that stand."""
    return [
        (item.kind, item.text)
        for item in Views(store).timeline(key)
        if item.kind in ("user", "assistant", "tool") and item.status != "withdrawn"
    ]


def audited(store: EventStore, key: str = KEY) -> list[tuple[Any, ...]]:
    """Return the calls of the audit table, oldest first."""
    rows = Views(store).tool_calls(conversation_id=store.stream(key))
    return [(row.provider_id, row.status, row.result_text, row.withdrawn) for row in rows[::-1]]


def expected(items: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the messages, and the calls with their results, that items stand for.

    A result stands beside its call, as providers require.
    """
    results = {each["call_id"]: each["output"] for each in items if "output" in each}
    told: list[Any] = []
    calls: list[Any] = []
    for item in items:
        if "role" in item:
            told.append((item["role"], item["content"]))
        elif item["type"] == "function_call":
            result = results.get(item["call_id"])
            told.append(("tool", result))
            calls.append((json.loads(item["arguments"]), result))
    return told, calls


def agree(session: EventStoreSession, answered: int) -> None:
    """Check that all views agree with the session's items."""
    items, store = run(session.get_items()), session.store
    told, calls = expected(items)
    assert shown(store) == told
    sent = [
        (m["role"], m["content"])
        for m in Views(store).context(KEY, mode=None).messages
        if m["role"] == "tool" or m["content"]
    ]
    pending = ("tool", None)
    assert len(sent) == len(told)
    assert [s if e != pending else e for s, e in zip(sent, told, strict=True)] == told
    rows = Views(store).tool_calls(conversation_id=store.stream(KEY))
    standing = [(row.arguments, row.result_text) for row in rows[::-1] if not row.withdrawn]
    assert len(standing) == len(calls)
    assert [s if e[1] else (s[0], None) for s, e in zip(standing, calls, strict=True)] == calls
    assert not [row for row in rows if row.withdrawn and row.status == "requested"]
    assert sum(row.calls for row in Views(store).usage(by="conversation")) == answered


class Script:
    """Operations of the SDK's session, on new items and on those that it has."""

    def __init__(self, store: EventStore) -> None:
        self.session, self.ids, self.answers = EventStoreSession(KEY, store), count(1), 0

    def add(self, *items: Any) -> None:
        """Add items; those of a model that stand together are one answer of it."""
        before = run(self.session.get_items())
        run(self.session.add_items([*items]))
        for last, item in zip([None, *items], items, strict=False):
            self.answers += is_model(item) and not is_model(last)
        assert run(self.session.get_items()) == [*before, *items]

    def apply(self, name: str, choice: int) -> None:
        """Apply one operation, on what the choice says."""
        items = run(self.session.get_items())
        number = next(self.ids)
        match name:
            case "ask":
                self.add(said(f"question {number}"))
            case "answer":
                self.add(said(f"answer {number}", "assistant"))
            case "call":
                text = [said(f"plan {number}", "assistant")] if choice % 2 else []
                self.add(*text, *(call(f"c{number}.{n}", number) for n in range(1 + choice % 3)))
            case "call first":
                self.add(call(f"c{number}", number), said(f"plan {number}", "assistant"))
            case "outputs":
                given = {each["call_id"] for each in items if "output" in each}
                asked = [each["call_id"] for each in items if "arguments" in each]
                pending = [each for each in asked if each not in given][: 1 + choice % 3]
                if pending:
                    self.add(*(output(each, f"result {number} {each}") for each in pending))
            case "pop":
                popped = run(self.session.pop_item())
                assert [*run(self.session.get_items()), *([popped] if popped else [])] == items
            case "clear":
                run(self.session.clear_session())
            case "replace":
                self.replace([said(f"summary {number}"), *items[choice % (len(items) + 1) :]])
            case "leave out":
                self.replace([each for n, each in enumerate(items) if n % 4 != choice % 4])
            case "compact":
                self.compact(choice, number)
            case "restart":
                self.session = EventStoreSession(KEY, self.session.store)

    def replace(self, items: list[Any]) -> None:
        """Replace all items, as the SDK's compaction does."""
        run(self.session._atomic_replace_items(items))
        assert run(self.session.get_items()) == items

    def compact(self, choice: int, number: int) -> None:
        """Replace the newest items by some of them and a new one."""

        async def compacted() -> None:
            snapshot = await self.session._get_compaction_snapshot(1 + choice)
            start = choice % (len(snapshot.items) or 1)
            rest = snapshot.items[start:]
            kept = rest[len(rest) // 2 :]
            await snapshot.replace_suffix(start, [said(f"summary {number}"), *kept])

        run(compacted())


def is_model(item: Any) -> bool:
    """Whether an item is the model's."""
    return item is not None and (item.get("role") == "assistant" or "arguments" in item)


OPERATIONS = (
    "ask",
    "answer",
    "call",
    "call",
    "call first",
    "outputs",
    "outputs",
    "pop",
    "pop",
    "clear",
    "replace",
    "leave out",
    "compact",
    "restart",
)


def test_kept_calls_are_there_once(store: EventStore) -> None:
    """After a compaction, the audit has each call once, and usage each answer once."""
    session = EventStoreSession("once", store)
    items = [said("q"), call("c1"), output("c1", "res"), said("done", "assistant"), said("q2")]
    run(session.add_items(items))
    run(session._atomic_replace_items([said("summary"), *items[1:]]))

    assert audited(store, "once") == [("c1", "success", "res", False)]
    [used] = Views(store).usage(conversation_id=store.stream("once"), by="conversation")
    assert used.calls == 2
    assert [text for _, text in shown(store, "once")] == ["summary", "res", "done", "q2"]


def test_a_popped_call_that_ran_stays_in_the_audit(store: EventStore) -> None:
    """What stays of its answer is recorded again; the call and its result are not hidden."""
    session = EventStoreSession("ran", store)
    both = [call("a"), call("b"), output("a", "res a"), output("b", "res b")]
    run(session.add_items([said("q"), *both]))
    for _ in range(3):
        run(session.pop_item())

    found = audited(store, "ran")
    assert ("b", "success", "res b", True) in found
    assert [each[0] for each in found if not each[3]] == ["a"]


def test_a_popped_output(store: EventStore) -> None:
    """The timeline has the call without a result, until it gets another one."""
    session = EventStoreSession("popped", store)
    run(session.add_items([said("q"), call("c1"), output("c1", "old")]))
    run(session.pop_item())

    assert shown(store, "popped") == [("user", "q"), ("tool", None)]
    [item] = [each for each in Views(store).timeline("popped") if each.kind == "tool"]
    assert item.status == "pending"
    run(session.add_items([output("c1", "new")]))
    assert shown(store, "popped") == [("user", "q"), ("tool", "new")]
    assert audited(store, "popped") == [("c1", "success", "new", False)]


def test_a_message_after_a_call(store: EventStore) -> None:
    """A call and a message behind it stand in the framework's order, also after a replacement."""
    session = EventStoreSession("order", store)
    items = [said("q"), call("c1"), said("I look.", "assistant"), output("c1", "res")]
    run(session.add_items(items))
    told = [("user", "q"), ("tool", "res"), ("assistant", "I look.")]
    assert shown(store, "order") == told
    run(session._atomic_replace_items([said("s"), *items]))

    assert shown(store, "order") == [("user", "s"), *told]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, to copy for each example."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    EventStore.open(f"sqlite:///{path}", synchronous="OFF").close()
    return path


@given(operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 11)), max_size=10))
def test_any_operations_of_the_session(
    operations: list[tuple[str, int]], template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any operations, the views hold what the session returns."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    shutil.copy(template, path)
    with EventStore.open(f"sqlite:///{path}", synchronous="OFF") as store:
        script = Script(store)
        script.apply("ask", 0)
        for name, choice in operations:
            script.apply(name, choice)
            if choice % 3 == 0:
                agree(script.session, script.answers)
        agree(script.session, script.answers)
        assert not compare(store).differences
