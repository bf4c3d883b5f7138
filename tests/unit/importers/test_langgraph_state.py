"""Messages as LangChain's ``model_dump`` writes them, and the state of a LangGraph thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import detect, load, read_transcripts
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import only, payloads

_COMMON: dict[str, Any] = {"additional_kwargs": {}, "response_metadata": {}, "name": None}
_CALL = {"name": "sensor", "args": {"pot": 4}, "id": "c1", "type": "tool_call"}
MESSAGES: list[dict[str, Any]] = [
    {**_COMMON, "type": "human", "content": "How dry is it?", "id": "m1", "example": False},
    {**_COMMON, "type": "ai", "content": "", "id": "m2", "tool_calls": [_CALL]},
    {
        **_COMMON,
        "type": "tool",
        "content": "11 percent",
        "id": "m3",
        "tool_call_id": "c1",
        "status": "success",
        "artifact": None,
    },
    {
        **_COMMON,
        "type": "AIMessageChunk",
        "content": "Very dry.",
        "id": "m4",
        "usage_metadata": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    },
]
STATE: dict[str, Any] = {
    "values": {"messages": MESSAGES, "garden": "west"},
    "next": [],
    "tasks": [],
    "metadata": {"step": 3},
    "checkpoint": {"thread_id": "t-1", "checkpoint_ns": "", "checkpoint_id": "1f"},
    "created_at": "2026-02-25T10:00:00Z",
}


@pytest.mark.parametrize("content", [MESSAGES, {"messages": MESSAGES}, STATE])
def test_every_message_comes_in(write: Write, tmp_path: Path, content: Any) -> None:
    """The call has its result, and the answer its tokens."""
    path = write(content)
    assert "langchain" == detect(path)
    kinds = [data.type for data in payloads(only(path))]
    assert ["user_message", "assistant_message", "tool_result", "assistant_message"] == kinds
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(path), strict=True)
        [row] = Views(store).tool_calls()
        assert ("sensor", {"pot": 4}, "success") == (row.name, row.arguments, row.status)
        assert [7] == [each.total_tokens for each in Views(store).usage()]
        assert 0 == load(store, read_transcripts(path), strict=True).events_added


def test_a_thread_that_goes_on(write: Write, tmp_path: Path) -> None:
    """Its id identifies it; other values of the state stay with the conversation."""
    more = {**_COMMON, "type": "human", "content": "Thanks!", "id": "m5"}
    later = {**STATE, "values": {**STATE["values"], "messages": [*MESSAGES, more]}}
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(write(STATE)), strict=True)
        assert 1 == load(store, read_transcripts(write(later)), strict=True).events_added
        assert 1 == len(Views(store).conversations())
    start = only(write(STATE)).events[0].data
    assert "west" in json.dumps(getattr(start, "raw", None))
