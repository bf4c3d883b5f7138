"""Messages of the AI SDK: whatever they hold, they are given back as they came."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.transcripts import export_ui_messages, load, read_transcripts
from eventstore import EventStore
from tests.scaled_settings import scaled_settings

_TEXT = st.text(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_STATES: dict[str, dict[str, Any]] = {
    "input-streaming": {"input": _JSON},
    "input-available": {"input": _JSON},
    "approval-requested": {"input": _JSON, "approval": st.fixed_dictionaries({"id": _TEXT})},
    "approval-responded": {
        "input": _JSON,
        "approval": st.fixed_dictionaries({"id": _TEXT, "approved": st.booleans()}),
    },
    "output-available": {"input": _JSON, "output": _JSON},
    "output-error": {"input": _JSON, "errorText": _TEXT},
    "output-denied": {"input": _JSON, "approval": st.fixed_dictionaries({"id": _TEXT})},
}


def _tool(state: str) -> st.SearchStrategy[dict[str, Any]]:
    named = st.sampled_from(["tool-weather", "tool-search", "dynamic-tool"])
    fields = {"type": named, "toolCallId": _TEXT, "state": st.just(state), **_STATES[state]}
    more = {"providerExecuted": st.booleans(), "title": _TEXT, "preliminary": st.booleans()}
    found = st.fixed_dictionaries(fields, optional=more)
    return found.map(
        lambda part: part | ({"toolName": "any"} if "dyn" in str(part["type"]) else {})
    )


def _part(kind: str, fields: dict[str, Any], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    about = {"providerMetadata": st.just({"anthropic": {"signature": "EqQB"}})}
    return st.fixed_dictionaries({"type": st.just(kind), **fields}, optional={**about, **more})


_STATE = st.sampled_from(["streaming", "done"])
_MEDIA = st.sampled_from(["image/png", "application/pdf"])
PARTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "text": _part("text", {"text": _TEXT}, state=_STATE),
    "reasoning": _part("reasoning", {"text": _TEXT}, state=_STATE),
    "file": _part("file", {"mediaType": _MEDIA, "url": _TEXT}, filename=_TEXT),
    "source-url": _part("source-url", {"sourceId": _TEXT, "url": _TEXT}, title=_TEXT),
    "source-document": _part(
        "source-document", {"sourceId": _TEXT, "mediaType": _MEDIA, "title": _TEXT}, filename=_TEXT
    ),
    "data": st.fixed_dictionaries(
        {"type": st.just("data-weather"), "data": _JSON}, optional={"id": _TEXT}
    ),
    "step-start": st.just({"type": "step-start"}),
    "unknown": st.fixed_dictionaries({"type": st.just("hologram"), "beam": _JSON}),
    **{f"tool {state}": _tool(state) for state in _STATES},
}
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text(min_size=1, max_size=3) | st.sampled_from(["m1", "m2"]),
            "role": st.sampled_from(["system", "user", "assistant"]),
            "parts": st.lists(st.one_of(*PARTS.values()), max_size=5),
        },
        optional={"metadata": _JSON},
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def store() -> Iterator[EventStore]:
    """Give a store that all examples share."""
    with tempfile.TemporaryDirectory() as directory:
        with EventStore.open(f"sqlite:///{directory}/store.db", synchronous="OFF") as opened:
            yield opened


def _back(store: EventStore, messages: list[Any]) -> list[Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file.json")
        path.write_text(json.dumps(messages), "utf-8")
        report = load(store, read_transcripts(path, "ui-messages"), strict=True)
    found = export_ui_messages(store, report.ids[0])
    store.erase(report.ids[0], reason="the next example may say the same")
    return found


@scaled_settings(60)
@given(messages=_MESSAGES)
def test_messages_come_back_as_they_went_in(store: EventStore, messages: list[Any]) -> None:
    """Roles, ids, metadata, parts of every kind, and tools in every state."""
    assert messages == _back(store, messages)


@pytest.mark.parametrize("kind", PARTS)
@scaled_settings(8)
@given(data=st.data())
def test_every_kind_of_part_comes_back(store: EventStore, kind: str, data: st.DataObject) -> None:
    """In the messages of each role."""
    parts = data.draw(st.lists(PARTS[kind], min_size=1, max_size=2))
    messages = [
        {"id": role, "role": role, "parts": parts} for role in ("system", "user", "assistant")
    ]
    assert messages == _back(store, messages)
