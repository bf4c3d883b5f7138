"""Arrays of OpenAI's Responses: items are understood as the recorder understands them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_eventstore import Views
from agent_eventstore.transcripts import export_openai, load
from agent_eventstore.transcripts.response_items import answer_of
from eventstore import EventStore
from projections.context import ContextSettings
from tests.checkers import CHECKERS
from tests.sdk_types import refused_by_sdk
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import only, payloads

PICTURE = "https://example.com/a.png"
ITEMS: tuple[dict[str, Any], ...] = (
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Which is older?"},
            {"type": "input_image", "image_url": PICTURE, "detail": "low"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "call_1", "name": "age", "arguments": '{"of": "a"}'},
    {"type": "function_call", "call_id": "call_2", "name": "age", "arguments": ""},
    {"type": "function_call_output", "call_id": "call_2", "output": "2"},
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_text", "text": "1"}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "The second.", "annotations": []}],
    },
    {"type": "item_reference", "id": "msg_0"},
    {"role": "user", "content": "Thanks."},
)


def _understood(found: list[Any]) -> None:
    instruction, asked, answer, second, first, said, unknown, last = found
    assert "Be brief." == instruction.text
    assert ["text", "image"] == [part.kind for part in asked.parts]
    assert [("age", {"of": "a"}), ("age", {})] == [
        (call.name, call.arguments) for call in answer.tool_calls
    ]
    assert "gAAA" == answer.parts[0].signature
    assert ["4.1", "4.0"] == [second.call_id, first.call_id]
    assert "The second." == said.parts[0].text
    assert "imported_message" == unknown.type
    assert "Thanks." == last.parts[0].text


def test_items_of_an_answer_are_one(write: Write) -> None:
    """Reasoning and parallel calls are one answer, and results find theirs in any order."""
    _understood(payloads(only(write(list(ITEMS)))))


@pytest.mark.parametrize("holder", ["input", "messages"])
def test_a_request_holds_them(write: Write, holder: str) -> None:
    """Its instructions are those of the conversation."""
    request = {"model": "gpt-5", "instructions": "Be kind.", holder: list(ITEMS)}
    transcript = only(write(request))
    _understood(payloads(transcript))
    start: Any = transcript.events[0].data
    assert "Be kind." == start.base_instructions


def test_an_answer_of_the_api_holds_them(write: Write) -> None:
    """The output of a response alone is a conversation without a question."""
    response = {"id": "resp_1", "object": "response", "output": list(ITEMS[2:5])}
    (answer,) = payloads(only(write(response)))
    assert "assistant_message" == answer.type


def test_they_come_back_and_can_be_sent(write: Write, tmp_path: Path) -> None:
    """An export has the items as they were; requests of all budgets are valid for the provider."""
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        report = load(store, [only(write(list(ITEMS)))])
        (cid,) = report.ids
        assert {"message of type item_reference": 1} == report.left_out.uninterpreted
        assert list(ITEMS) == export_openai(store, cid)
        for tokens in (None, 160, 200, 1_000):
            settings = ContextSettings(max_tokens=tokens, reserve_for_response=0)
            for name, field in (
                ("openai_chat", "messages"),
                ("openai_responses", "input"),
                ("anthropic_messages", "messages"),
            ):
                view = Views(store).context(
                    cid, format=name, mode=None, model="gpt-4o", settings=settings
                )
                body = {field: list(view.messages)}
                assert [] == CHECKERS[name](body)
                assert [] == refused_by_sdk(name, body)
                assert view.usage is None or tokens is None or view.usage.used <= tokens


def test_parts_of_items_are_understood_in_messages_too(write_lines: Write) -> None:
    """Lines of a chat, whose roles tell their format, may have contents of Responses."""
    lines = ({"role": "user", "content": "hi"}, ITEMS[1], ITEMS[7])
    _, asked, said = (event.data for event in only(write_lines(*lines)).events[1:])
    assert ["text", "image"] == [part.kind for part in asked.parts]  # type: ignore[union-attr]
    assert "The second." == said.parts[0].text  # type: ignore[union-attr]


_SAID = st.none() | st.text(max_size=8)
_CALLS = st.fixed_dictionaries(
    {
        "type": st.just("function_call"),
        "name": _SAID,
        "arguments": _SAID | st.sampled_from(['{"a":1}', "[1]", " ", '```json\n{"a":1}\n```', "{"]),
    },
    optional={"id": _SAID, "call_id": _SAID, "role": st.just("assistant"), "content": _SAID},
)
_PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["output_text", "refusal", "other"])}, optional={"text": _SAID}
)
_MESSAGES = st.fixed_dictionaries(
    {"type": st.just("message"), "content": _SAID | st.lists(_PARTS, max_size=2)},
    optional={"id": _SAID, "role": st.just("assistant")},
)


@given(items=st.lists(_CALLS | _MESSAGES, min_size=1, max_size=3))
@example(items=[{"type": "function_call", "name": "a", "arguments": {"b": 1}}])
def test_an_answer_of_calls_and_texts_alone(items: list[Any]) -> None:
    """It is understood as beside anything else, though it is read in a shorter way."""
    whole = answer_of([*items, {"type": "reasoning", "summary": []}])
    alone = answer_of(items)

    assert whole.tool_calls == alone.tool_calls
    assert whole.parts[:-1] == alone.parts
