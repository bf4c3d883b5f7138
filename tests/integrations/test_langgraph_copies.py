"""Copies of LangGraph's threads: whole or not at all, also next to another writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from agent_eventstore import EventStore
from agent_eventstore.integrations.langgraph import saver as saver_module
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from eventstore.errors import InvalidEvent
from tests.integrations.test_langgraph_saver import SAID, found, named, put


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each copy take several appends."""
    monkeypatch.setattr(saver_module, "_BATCH", 2)


@pytest.fixture
def strict(store: EventStore) -> Iterator[EventStore]:
    """Give a second store of the same database, which refuses large events."""
    url = store.engine.url
    with EventStore.open(url, max_event_bytes=4_000, synchronous="OFF") as opened:
        yield opened


@pytest.mark.parametrize("begun", [False, True])
def test_a_copy_that_fails_leaves_nothing(
    store: EventStore, strict: EventStore, begun: bool
) -> None:
    """An event that cannot be copied, after others that can, keeps all of them out."""
    put(EventStoreSaver(store), named("t"), {"messages": [*SAID, HumanMessage("x" * 8_000)]})
    if begun:
        put(EventStoreSaver(store), named("u"), {"messages": SAID[:1]})
    before = [*store.read("u")]

    with pytest.raises(InvalidEvent):
        EventStoreSaver(strict).copy_thread("t", "u")

    assert before == [*store.read("u")]


def test_a_copy_next_to_another_writer(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another writer appends meanwhile stays, and the copy follows it."""
    saver, other = EventStoreSaver(store), EventStoreSaver(store)
    put(saver, named("t"), {"messages": SAID, "n": 1})
    first = put(other, named("u"), {"messages": SAID[:1]})
    later: list[Any] = []
    copied = saver_module.copied

    def overtaken(*given: Any) -> Any:
        if not later:
            later.append(put(other, first, {"messages": SAID[:2]}))
        return copied(*given)

    monkeypatch.setattr(saver_module, "copied", overtaken)
    saver.copy_thread("t", "u")

    copy = found(saver, named("t"))
    config = named("u", "", copy.config["configurable"]["checkpoint_id"])
    assert copy.checkpoint == found(saver, config).checkpoint
    assert SAID[:2] == found(saver, later[0]).checkpoint["channel_values"]["messages"]
    assert 3 == len([*saver.list(named("u"))])
