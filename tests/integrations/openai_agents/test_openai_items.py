"""Items of every kind that the SDK has come out of events byte for byte: by Hypothesis."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from agent_eventstore.integrations.openai_agents.items import ItemWriter, items_in
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from eventstore.events import NewEvent
from eventstore.events.codec import encode
from eventstore.sql.read import EventText
from tests.integrations.openai_agents.openai_samples import TURN, fresh_id, said

KINDS = get_args(ResponseInputItemParam)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(st.sampled_from(("type", "role", "content", "id", "call_id")), JSON)


def kept(items: list[Any]) -> list[Any]:
    """Return items as they come out of the events that are written of them."""
    texts = [text_of(place, event) for place, event in enumerate(ItemWriter().events(items), 1)]
    return [item for text in texts for item in items_in(text)]


def text_of(version: int, event: NewEvent) -> EventText:
    """Return an event as it is read."""
    data: Any = event.data
    return EventText(version, data.type, data.schema_version, encode(data), "{}")


def of_kind(kind: Any) -> st.SearchStrategy[Any]:
    """Return items of a type of the SDK's: its fields, with any JSON in them."""
    fields = dict.fromkeys(kind.__annotations__, JSON)
    for name in ("type", "role"):
        if name in fields:
            told = get_args(get_type_hints(kind)[name])
            words = [word for each in told for word in (each, *get_args(each))]
            fields[name] = st.sampled_from([w for w in words if isinstance(w, str)] or ["message"])
    required = {name: fields.pop(name) for name in kind.__required_keys__ if name in fields}
    return st.fixed_dictionaries(required, optional=fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_every_kind(kind: Any, data: st.DataObject) -> None:
    """Each type of the SDK's, with any values in its fields, beside others."""
    items = [said("first"), data.draw(of_kind(kind)), *TURN[1:3]]

    assert json.dumps(items) == json.dumps(kept(items))


@given(st.lists(UNKNOWN | st.sampled_from(TURN)))
def test_anything_else(items: list[Any]) -> None:
    """Objects of no known type, in any order."""
    assert json.dumps(items) == json.dumps(kept(items))


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.lists(st.sampled_from(TURN) | UNKNOWN, max_size=8),
            st.sampled_from(("pop", "pop", "clear")),
            st.integers(0, 9),
        ),
        max_size=12,
    )
)
def test_whatever_is_done(sqlite_store: EventStore, steps: list[Any]) -> None:
    """A session is a list: adding, popping, clearing and limits do what they do to one."""
    session, model = EventStoreSession(fresh_id(), sqlite_store), list[Any]()

    async def done() -> None:
        for step in steps:
            if isinstance(step, list):
                await session.add_items(step)
                model.extend(step)
            elif step == "pop":
                assert (model.pop() if model else None) == await session.pop_item()
            elif step == "clear":
                await session.clear_session()
                model.clear()
            else:
                assert (model[-step:] if step else []) == await session.get_items(step)
            assert json.dumps(model) == json.dumps(await session.get_items())

    asyncio.run(done())
