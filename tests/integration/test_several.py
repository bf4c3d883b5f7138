"""One text where several ids or names are expected is refused, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import SearchOp

from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from agent_eventstore.integrations.langgraph.store import EventStoreStore
from agent_eventstore.participants import Participant
from agent_eventstore.transcripts.project import export_project
from eventstore import EventStore, new_id
from eventstore.events import UserMessage
from projections.upkeep import compare, rebuild

Use = Callable[[EventStore, Any], object]

USES: dict[str, Use] = {
    "erase": lambda store, text: store.erase(new_id(), reason="r", versions=text),
    "compare": lambda store, text: compare(store, conversations=text),
    "export_project": lambda store, text: export_project(store, Path("nowhere"), text),
    "prune": lambda store, text: EventStoreSaver(store).prune(text, strategy="delete"),
    "delete_for_runs": lambda store, text: EventStoreSaver(store).delete_for_runs(text),
    "messages": lambda store, text: EventStoreSaver(store, messages=text),
    "channels": lambda store, text: EventStoreSaver(store).get_delta_channel_history(
        config={"configurable": {"thread_id": "1"}}, channels=text
    ),
    "search": lambda store, text: EventStoreStore(store).batch([SearchOp(text)]),
    "nicknames": lambda _, text: Participant("a", nicknames=text),
    "aliases": lambda _, text: Participant("a", aliases=text),
}


@pytest.mark.parametrize("text", ["12", b"\x01\x02", bytearray(b"12")])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_text_is_refused(sqlite_url: str, use: Use, text: object) -> None:
    """Its characters were taken for ids."""
    with EventStore.open(sqlite_url) as store, pytest.raises(TypeError, match="several"):
        use(store, text)


def test_nothing_is_erased(sqlite_url: str) -> None:
    """Pruning "12" erased the threads 1 and 2."""
    with EventStore.open(sqlite_url) as store:
        for thread in ("1", "2"):
            store.append(thread, [UserMessage.text("kept")])
        with pytest.raises(TypeError):
            EventStoreSaver(store).prune("12", strategy="delete")
        assert not any(event.erased for thread in ("1", "2") for event in store.read(thread))


def test_bytes_are_not_the_name_of_a_projection(sqlite_url: str) -> None:
    """A text is one name there, and bytes are none."""
    with EventStore.open(sqlite_url) as store, pytest.raises(TypeError, match="several"):
        rebuild(store, b"timeline")  # type: ignore[arg-type]
