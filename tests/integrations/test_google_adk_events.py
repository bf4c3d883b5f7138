"""Events of Google's ADK come back byte for byte, whatever their parts, actions and fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import Event, EventActions
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.integrations.google_adk.events import event_in, events_of
from eventstore.events import LlmError, ToolResult
from eventstore.events.codec import encode, loads_json
from eventstore.sql.read import EventText

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, jsons, max_size=3)
media = st.sampled_from(["image/png", "audio/wav", "application/pdf"])
blobs = st.binary(max_size=30)
parts = st.one_of(
    st.builds(types.Part, text=texts),
    st.builds(types.Part, text=texts, thought=st.just(True), thought_signature=st.none() | blobs),
    st.builds(types.Part, inline_data=st.builds(types.Blob, data=blobs, mime_type=media)),
    st.builds(
        types.Part,
        file_data=st.builds(types.FileData, file_uri=st.just("gs://a/b"), mime_type=media),
    ),
    st.builds(
        types.Part,
        function_call=st.builds(types.FunctionCall, id=st.none() | names, name=names, args=objects),
    ),
    st.builds(
        types.Part,
        function_response=st.builds(
            types.FunctionResponse, id=st.none() | names, name=names, response=objects
        ),
    ),
    st.builds(
        types.Part,
        executable_code=st.builds(
            types.ExecutableCode, code=texts, language=st.just(types.Language.PYTHON)
        ),
    ),
    st.builds(
        types.Part,
        code_execution_result=st.builds(
            types.CodeExecutionResult, output=texts, outcome=st.just(types.Outcome.OUTCOME_OK)
        ),
    ),
)
counts = st.none() | st.integers(0, 10**9)
events = st.builds(
    Event,
    author=st.just("user") | names,
    invocation_id=names,
    id=names,
    timestamp=st.floats(0, 2e9),
    branch=st.none() | names,
    content=st.none()
    | st.builds(
        types.Content, role=st.sampled_from(["user", "model"]), parts=st.lists(parts, max_size=4)
    ),
    actions=st.builds(
        EventActions,
        state_delta=objects,
        artifact_delta=st.dictionaries(names, st.integers(0, 9), max_size=2),
        transfer_to_agent=st.none() | names,
        escalate=st.none() | st.booleans(),
        skip_summarization=st.none() | st.booleans(),
    ),
    long_running_tool_ids=st.none() | st.sets(names, max_size=2),
    error_code=st.none() | names,
    error_message=st.none() | texts,
    turn_complete=st.none() | st.booleans(),
    interrupted=st.none() | st.booleans(),
    custom_metadata=st.none() | objects,
    finish_reason=st.none() | st.sampled_from(types.FinishReason),
    model_version=st.none() | names,
    output=jsons,
    usage_metadata=st.none()
    | st.builds(
        types.GenerateContentResponseUsageMetadata,
        prompt_token_count=counts,
        candidates_token_count=counts,
        thoughts_token_count=counts,
        cached_content_token_count=counts,
        total_token_count=counts,
    ),
)


@given(events)
def test_any_event(event: Any) -> None:
    """All of its fields are as they were, to the byte."""
    told = loads_json(event.model_dump_json(exclude_none=True))
    last: Any = events_of(told, Places())[-1].data
    text = EventText(1, last.type, last.schema_version, encode(last), "{}")

    again = Event.model_validate(event_in(text))
    assert again.model_dump_json() == event.model_dump_json()


def test_an_error_of_another_agent() -> None:
    """Ends nobody else's tools: without a call of its own, an error is the model's."""
    places = Places()
    call = {"function_call": {"id": "c1", "name": "look", "args": {}}}
    events_of({"author": "a", "content": {"parts": [call]}}, places)

    [error] = events_of({"author": "b", "error_code": "429", "error_message": "too many"}, places)
    assert "llm_error" == error.data.type


def call_of(agent: str, call_id: str) -> dict[str, Any]:
    """Return an agent's answer with a call."""
    call = {"function_call": {"id": call_id, "name": "look", "args": {}}}
    return {"author": agent, "content": {"parts": [call]}}


@pytest.mark.parametrize("restarted", [False, True])
def test_an_error_of_one_of_two_parallel_agents(restarted: bool) -> None:
    """Ends its own tool, although the newest answer is another agent's."""
    places = Places()
    events = [*events_of(call_of("a", "c1"), places), *events_of(call_of("b", "c2"), places)]
    if restarted:
        texts = [
            EventText(version, each.data.type, each.data.schema_version, encode(each.data), "{}")
            for version, each in enumerate(events, start=1)
        ]
        places = Places.after(texts[::-1])
    error = {"author": "a", "error_code": "ValueError", "error_message": "no Rome"}
    [failed], [again] = events_of(error, places), events_of(error, places)

    assert isinstance(failed.data, ToolResult)
    assert ("1.0", "failed", "no Rome") == (
        failed.data.call_id,
        failed.data.status,
        failed.data.error,
    )
    assert isinstance(again.data, LlmError)
    assert ["2.0"] == places.calls.unanswered("b", 0)


def test_an_aborted_invocation() -> None:
    """The run was cancelled, which is no failure of the provider."""
    told = {"author": "a", "error_code": "INVOCATION_ABORTED", "error_message": "by client"}
    [error] = events_of(told, Places())
    assert isinstance(error.data, LlmError)
    assert "cancelled" == error.data.kind


def test_calls_of_an_earlier_turn() -> None:
    """Are not what an error has ended."""
    places = Places()
    hello = {"author": "user", "content": {"parts": [{"text": "Hello"}]}}
    for each in (call_of("a", "c1"), hello):
        events_of(each, places)
    [error] = events_of({"author": "a", "error_code": "429"}, places)
    assert isinstance(error.data, LlmError)
