"""Messages of Pydantic AI come back byte for byte, whatever their kinds, parts and fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import messages as said
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.usage import RequestUsage

from agent_eventstore.integrations.conversation_events import Places
from agent_eventstore.integrations.pydantic_ai.events import events_of, message_in
from eventstore.events.codec import encode

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
jsons = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, jsons, max_size=3)
times = st.datetimes(timezones=st.just(UTC), min_value=datetime(1990, 1, 1))  # noqa: DTZ001 - naive is asked for
media = st.sampled_from(["image/png", "audio/wav", "application/pdf", "text/plain"])
files = st.builds(said.BinaryContent, data=st.binary(max_size=30), media_type=media)
contents = (
    texts
    | st.builds(said.TextContent, content=texts, metadata=jsons)
    | st.builds(said.ImageUrl, url=st.just("https://example.com/a.png"), vendor_metadata=objects)
    | st.builds(said.AudioUrl, url=st.just("https://example.com/a.mp3"))
    | st.builds(said.VideoUrl, url=st.just("https://example.com/a.mp4"))
    | st.builds(said.DocumentUrl, url=st.just("https://example.com/a.pdf"))
    | st.builds(said.UploadedFile, file_id=names, provider_name=st.just("openai"), media_type=media)
    | st.builds(said.CachePoint)
    | files
)
outcomes = st.sampled_from(["success", "failed", "denied", "interrupted", "retried"])
arguments = st.none() | texts | objects
speech = st.builds(
    said.SpeechPart, speaker=st.sampled_from(["user", "assistant"]), transcript=st.none() | texts
)
compaction = st.builds(
    said.CompactionPart, content=st.none() | texts, provider_name=st.just("anthropic")
)
REQUEST_PARTS = {
    said.SystemPromptPart: st.builds(said.SystemPromptPart, content=texts, timestamp=times),
    said.UserPromptPart: st.builds(
        said.UserPromptPart, content=texts | st.lists(contents, max_size=3), timestamp=times
    ),
    said.ToolReturnPart: st.builds(
        said.ToolReturnPart,
        tool_name=names,
        content=jsons | files,
        tool_call_id=names,
        metadata=jsons,
        timestamp=times,
        outcome=outcomes,
    ),
    said.RetryFeedbackPart: st.builds(
        said.RetryFeedbackPart,
        content=texts,
        retry=st.builds(said.RetryInfo, st.sampled_from(["no_output", "model_retry"])),
        timestamp=times,
    ),
    said.SpeechPart: st.builds(
        said.SpeechPart, speaker=st.just("user"), transcript=st.none() | texts
    ),
    said.ToolAvailabilityDeltaPart: st.builds(
        said.ToolAvailabilityDeltaPart, tools_added=st.lists(names), tool_call_id=names
    ),
    said.CapabilityLoadDeltaPart: st.builds(
        said.CapabilityLoadDeltaPart, loaded=st.lists(names), tool_call_id=names
    ),
    said.ModelSettingsDeltaPart: st.builds(
        said.ModelSettingsDeltaPart,
        settings=st.fixed_dictionaries({"thinking": st.sampled_from(["low", "high"])}),
    ),
    said.InstructionDeltaPart: st.builds(
        said.InstructionDeltaPart,
        id=st.builds(said.InstructionId, st.builds(said.AgentInstructionSource)),
        content=st.none() | texts,
    ),
    said.InstructionBaselinePart: st.builds(
        said.InstructionBaselinePart,
        instructions=st.lists(st.builds(said.InstructionPart, content=texts), max_size=2),
    ),
    # Without a provider: what one has made stands in its response.
    said.CompactionPart: st.builds(said.CompactionPart, content=st.none() | texts),
}
RESPONSE_PARTS = {
    said.TextPart: st.builds(
        said.TextPart, content=texts, id=st.none() | names, provider_details=objects
    ),
    said.ThinkingPart: st.builds(said.ThinkingPart, content=texts, signature=st.none() | texts),
    said.ToolCallPart: st.builds(
        said.ToolCallPart, tool_name=names, args=arguments, tool_call_id=names
    ),
    said.NativeToolCallPart: st.builds(
        said.NativeToolCallPart, tool_name=names, args=arguments, tool_call_id=names
    ),
    said.NativeToolReturnPart: st.builds(
        said.NativeToolReturnPart, tool_name=names, content=jsons, tool_call_id=names
    ),
    said.CompactionPart: compaction,
    said.FilePart: st.builds(said.FilePart, content=files),
    said.SpeechPart: st.builds(
        said.SpeechPart, speaker=st.just("assistant"), transcript=st.none() | texts
    ),
}
counts = st.integers(0, 10**9)
messages = st.one_of(
    st.builds(
        said.ModelRequest,
        parts=st.lists(st.one_of(*REQUEST_PARTS.values()), max_size=4),
        instructions=st.none() | texts,
        timestamp=st.none() | times,
        run_id=st.none() | names,
        metadata=st.none() | objects,
    ),
    st.builds(
        said.ModelResponse,
        parts=st.lists(st.one_of(*RESPONSE_PARTS.values()), max_size=4),
        usage=st.builds(
            RequestUsage,
            input_tokens=counts,
            output_tokens=counts,
            cache_read_tokens=counts,
            details=st.dictionaries(names, counts, max_size=2),
        ),
        model_name=st.none() | names,
        timestamp=times,
        provider_details=st.none() | objects,
        finish_reason=st.sampled_from([None, "stop", "tool_call", "length"]),
        state=st.sampled_from(["complete", "incomplete", "interrupted"]),
        metadata=st.none() | objects,
    ),
)


def dumped(message: Any) -> bytes:
    """Return a message as the framework writes it."""
    return bytes(ModelMessagesTypeAdapter.dump_json([message]))


def as_stored(message: Any) -> Any:
    """Return a message as it is read from the JSON of the last of its events."""
    events = events_of(message, "01900000-0000-7000-8000-000000000000", None, Places())
    kept = message_in(encode(events[-1].data))
    assert kept is not None
    assert kept["span"] == len(events)
    return kept["message"]


@given(messages)
def test_any_message(message: Any) -> None:
    """It is what the framework reads of its own JSON, to the byte."""
    [reread] = ModelMessagesTypeAdapter.validate_json(dumped(message))

    assert dumped(as_stored(message)) == dumped(reread)


def test_every_part_that_the_framework_has() -> None:
    """None is left out above; parts with a type of their own are calls and results of tools."""
    for union, known in (
        (said.ModelRequestPart, REQUEST_PARTS),
        (said.ModelResponsePart, RESPONSE_PARTS),
    ):
        kinds = [get_args(each)[0] for each in get_args(get_args(union)[0])]
        typed = [each for each in kinds if each not in known and each.__module__ != said.__name__]
        rest = {each.__name__ for each in kinds if each not in known} - {
            each.__name__ for each in typed
        }
        assert rest <= {"RetryPromptPart"}
        assert all(issubclass(each, tuple(known)) for each in typed)
