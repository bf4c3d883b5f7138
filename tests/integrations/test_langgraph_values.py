"""Whatever a graph writes comes back as it was, for every kind of value and serialiser."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from inspect import signature
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send

from agent_eventstore import EventStore
from agent_eventstore.integrations.langgraph.checkpoint_codec import Codec, packed_of
from agent_eventstore.integrations.langgraph.events import raw_of, typed_at_end, typed_in
from agent_eventstore.integrations.langgraph.saver import EventStoreSaver
from eventstore.events import OtherPart, TextPart, UserMessage
from eventstore.events.codec import encode, loads_json
from tests.integrations.ciphers import Sealing


@dataclass(frozen=True)
class Point:
    """A value of a class of the product's."""

    x: int
    label: str


class Pickling:
    """A serialiser that is not LangGraph's."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        """Write a value."""
        return "pickle", pickle.dumps(value)

    def loads_typed(self, typed: tuple[str, bytes]) -> Any:
        """Read it."""
        return pickle.loads(typed[1])  # noqa: S301 - what this test has written


def plain(allowed: Any) -> JsonPlusSerializer:
    """Return LangGraph's serialiser, whose older versions ask for no permission."""
    asks = "allowed_msgpack_modules" in signature(JsonPlusSerializer).parameters
    return JsonPlusSerializer(**{"allowed_msgpack_modules": allowed} if asks else {})


SERDES = {
    "LangGraph's": plain([(Point.__module__, Point.__qualname__)]),
    "pickle": Pickling(),
    "encrypting": EncryptedSerializer(Sealing(), plain(True)),
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ids = st.none() | st.sampled_from(["a", "b", "c", "d"])
blocks = st.lists(
    st.one_of(
        texts,
        st.builds(lambda text: {"type": "text", "text": text}, texts),
        st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, texts),
        st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
        st.builds(lambda number: {"type": "x", "n": number}, st.floats()),
    ),
    max_size=3,
)
said = texts | blocks
arguments = st.dictionaries(
    texts, st.integers(-9, 2**63 - 1) | st.floats(allow_nan=False) | texts, max_size=2
)
calls = st.lists(
    st.builds(
        lambda name, args, id: {"name": name, "args": args, "id": id, "type": "tool_call"},
        texts,
        arguments,
        ids,
    ),
    max_size=2,
)
counts = st.integers(0, 2**33)
messages = st.one_of(
    st.builds(HumanMessage, said, id=ids, name=st.none() | texts),
    st.builds(SystemMessage, said, id=ids),
    st.builds(
        AIMessage,
        said,
        id=ids,
        tool_calls=calls,
        usage_metadata=st.none()
        | st.builds(
            lambda a, b: {"input_tokens": a, "output_tokens": b, "total_tokens": a + b},
            counts,
            counts,
        ),
        response_metadata=st.sampled_from([{}, {"model_name": "m" * 600}, {"model_name": 7}]),
    ),
    st.builds(AIMessageChunk, texts, id=ids),
    st.builds(
        ToolMessage,
        said,
        tool_call_id=texts,
        id=ids,
        status=st.sampled_from(["success", "error"]),
        artifact=st.none() | st.binary(max_size=4),
    ),
    st.builds(ChatMessage, texts, role=texts),
    st.builds(FunctionMessage, texts, name=texts),
    st.builds(lambda id: RemoveMessage(id=id), texts),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=20),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(Point, st.integers(-9, 9), texts),
    st.builds(Document, page_content=texts),
    st.builds(Send, texts, texts),
    st.builds(Interrupt, value=texts, id=texts),
)
values = st.recursive(
    scalars | messages,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
states = st.lists(
    st.dictionaries(st.sampled_from(["a", "b"]), values, max_size=2).flatmap(
        lambda state: st.lists(messages, max_size=5).map(lambda held: state | {"messages": held})
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """Give a store that all examples share."""
    url = f"sqlite:///{tmp_path_factory.mktemp('values') / 'store.db'}"
    with EventStore.open(url, synchronous="OFF") as opened:
        yield opened


@pytest.mark.parametrize("serde", list(SERDES))
@given(history=states, written=st.lists(st.tuples(texts, values), min_size=1, max_size=3))
def test_round_trip(
    kept: EventStore, serde: str, history: list[dict[str, Any]], written: list[tuple[str, Any]]
) -> None:
    """Every checkpoint and every write is read back, by who wrote it and by another process."""
    thread, config = str(uuid4()), dict[str, Any]()
    stored = list[tuple[dict[str, Any], dict[str, Any]]]()
    saver = EventStoreSaver(kept, serde=SERDES[serde])
    version = None
    for number, state in enumerate(history):
        version = saver.get_next_version(version, None)
        checkpoint = empty_checkpoint() | {
            "id": f"{number}",
            "channel_values": state,
            "channel_versions": dict.fromkeys(state, version),
        }
        asked = config or {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        config = saver.put(asked, checkpoint, {"step": number}, dict.fromkeys(state, version))
        stored.append((config, state))
    saver.put_writes(config, written, "task")

    def plain(value: Any) -> Any:
        """Return what tells a value from others, once the serialiser has written and read it."""
        told = SERDES[serde].loads_typed(SERDES[serde].dumps_typed(value))
        return SERDES["LangGraph's"].dumps_typed(told)

    for reader in (saver, EventStoreSaver(kept, serde=SERDES[serde])):
        for named, state in stored:
            found: Any = reader.get_tuple(named)
            assert state.keys() == found.checkpoint["channel_values"].keys()
            for name, value in state.items():
                assert plain(value) == plain(found.checkpoint["channel_values"][name])
        found = reader.get_tuple(config)
        assert [plain(value) for _, value in written] == [
            plain(value) for _, _, value in found.pending_writes
        ]
    assert kept.verify(thread).ok


RAW = raw_of(("msgpack", b"what was said"))
QUOTED = '"raw":{"langgraph":{"form":"msgpack","data":"AAAA"}}}'


@pytest.mark.parametrize(
    ("parts", "raw", "at_end"),
    [
        pytest.param((TextPart(text="hi"),), RAW, True, id="of-a-message"),
        pytest.param((TextPart(text=QUOTED),), RAW, True, id="quoted-in-the-text"),
        pytest.param((TextPart(text=QUOTED),), None, False, id="quoted-alone"),
        pytest.param((OtherPart(raw=RAW),), None, False, id="deeper-down"),
        pytest.param((), RAW | {"more": {"data": "AAAA"}}, False, id="not-last"),
        pytest.param((), raw_of(('a"b', b"x")), False, id="form-escaped"),
    ],
)
def test_cut_is_what_is_read(parts: Any, raw: Any, at_end: bool) -> None:
    """A message is cut out of its event's JSON only where reading all of it finds the same."""
    text = encode(UserMessage(parts=parts, raw=raw))
    cut = typed_at_end(text)
    assert cut == (typed_in(loads_json(text).get("raw")) if at_end else None)


def test_values_that_differ_are_told_apart() -> None:
    """Also those that are equal to Python; what JSON has no form for is told by other bytes."""
    named = uuid4()
    values: list[Any] = [0, False, 0.0, -0.0, "0", None, [0], (0,), {"0": 0}, {0: 0}, {0}, 10**30]
    values += ["\ud800", {"\ud800": 0}, str(named)]
    told = [packed_of([HumanMessage("Hi", additional_kwargs={"it": each})]) for each in values]

    assert None not in told
    assert len(values) == len({*told})
    assert packed_of([HumanMessage("Hi", additional_kwargs={"it": named})]) is None


@pytest.mark.parametrize("length", [0, 1, 15, 16, 65_535, 65_536])
def test_a_list_is_told_by_its_beginning(length: int) -> None:
    """What a longer list is told by begins with what the shorter one is told by."""
    said = [HumanMessage("Hi")] * length
    before = packed_of(said)

    assert before is not None
    assert (packed_of([*said, AIMessage("Hello")]) or b"").startswith(before)


@given(st.lists(messages | st.none() | texts, max_size=4))
def test_together_as_one_by_one(values: list[Any]) -> None:
    """What is loaded together is what the serialiser makes of each, of older classes too."""
    codec = Codec(SERDES["LangGraph's"])
    older = AIMessage.model_construct(content="Hi", type="ai")
    odd = HumanMessage("Hi", more=uuid4(), additional_kwargs={"at": Point(1, "p")})
    written = [codec.dumps(each) for each in (*values, older, odd, Point(1, "p"), b"", [0])]
    loaded, apart = codec.loads_all(written), [codec.loads(each) for each in written]
    assert loaded == apart
    for one, other in zip(loaded, apart, strict=True):
        assert type(one) is type(other)
        if isinstance(one, BaseMessage):
            assert one.__getstate__() == other.__getstate__()
