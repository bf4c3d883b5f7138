"""Conversations as spans: by the conventions, the same each time, on both databases."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from agent_eventstore import Conversation
from agent_eventstore.transcripts import export_otlp, load, read_transcripts
from eventstore import EventStore
from tests.integration.claude_sessions import example

KNOWN = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
_IDS = re.compile(r"[0-9a-f]{32} [0-9a-f]{16} ([0-9a-f]{16})?")
_TYPES = {"stringValue": str, "intValue": str, "boolValue": bool, "doubleValue": float}


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


@pytest.fixture
def told(store: EventStore) -> Conversation:
    """Give a conversation of two turns: one with two tools, and one whose model call fails."""
    with Conversation.start(store, user_id="ada") as conversation:
        with conversation.turn("How warm is it?") as turn:
            with turn.llm_call(turn.context(model="gpt-4o"), provider="openai") as call:
                function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
                wishes = [
                    {"index": n, "id": f"c{n}", "type": "function", "function": function}
                    for n in (0, 1)
                ]
                choice = {"index": 0, "message": {"role": "assistant", "tool_calls": wishes}}
                usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
                call.response(
                    {
                        "id": "r1",
                        "object": "chat.completion",
                        "model": "gpt-4o-2024",
                        "choices": [{**choice, "finish_reason": "tool_calls"}],
                        "usage": usage,
                    }
                )
            with turn.tool(call.tool_calls[0]) as tool:
                tool.result("18 degrees")
            turn.deny(call.tool_calls[1], "not twice")
            with turn.llm_call() as call:
                call.delta("18 degrees.")
        with pytest.raises(TimeoutError), conversation.turn("And now?") as turn:
            with turn.llm_call():
                raise TimeoutError("secret words")
    return conversation


@dataclass(frozen=True)
class Span:
    """A span as a collector reads it."""

    trace_id: str
    span_id: str
    parent: str
    name: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]


def _spans(document: dict[str, Any]) -> list[Span]:
    """Return the spans of an OTLP request, whose encoding is checked strictly."""
    [resource] = document["resourceSpans"]
    [scope] = resource["scopeSpans"]
    assert {"resource", "scopeSpans"} == resource.keys()
    assert {"scope", "spans"} == scope.keys()
    return [_span(each) for each in scope["spans"]]


def _span(span: dict[str, Any]) -> Span:
    times = "startTimeUnixNano", "endTimeUnixNano"
    always = {"traceId", "spanId", "name", "kind", *times, "attributes", "status"}
    assert always <= span.keys() <= always | {"parentSpanId"}
    assert _IDS.fullmatch(f"{span['traceId']} {span['spanId']} {span.get('parentSpanId', '')}")
    assert all(isinstance(span[time], str) and span[time].isdecimal() for time in times)
    assert span["kind"] in (1, 3)
    assert span["status"].get("code") in (None, 2)
    return Span(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent=span.get("parentSpanId", ""),
        name=span["name"],
        start=int(span["startTimeUnixNano"]),
        end=int(span["endTimeUnixNano"]),
        failed="code" in span["status"],
        attributes={each["key"]: _value(each["value"]) for each in span["attributes"]},
    )


def _value(value: dict[str, Any]) -> Any:
    [(kind, found)] = value.items()
    if kind == "arrayValue":
        return [_value(each) for each in found["values"]]
    # Whole numbers have 64 bits, and are text for that.
    assert isinstance(found, _TYPES[kind])
    return int(str(found)) if kind == "intValue" else found


def test_a_turn_is_a_trace(store: EventStore, told: Conversation) -> None:
    """Model calls and tools stand under the agent's span, which is as long as the turn."""
    spans = _spans(export_otlp(store, told.id))
    names = ["chat gpt-4o", "execute_tool weather", "execute_tool weather", "chat", "invoke_agent"]
    assert [*names, "chat", "invoke_agent"] == [span.name for span in spans]
    first, second = spans[:5], spans[5:]
    for group in (first, second):
        root = group[-1]
        assert "" == root.parent
        assert {root.span_id} == {span.parent for span in group[:-1]}
        assert 1 == len({span.trace_id for span in group})
        assert all(root.start <= span.start <= span.end <= root.end for span in group)
    assert len({span.span_id for span in spans}) == len(spans)
    assert first[0].trace_id != second[0].trace_id


def test_names_are_those_of_the_conventions(store: EventStore, told: Conversation) -> None:
    """Every attribute in their name space is one of theirs, with and without content."""
    for content in (False, True):
        spans = _spans(export_otlp(store, told.id, content=content))
        used = {key for span in spans for key in span.attributes if key.startswith("gen_ai.")}
        assert used <= KNOWN
    about = spans[0].attributes
    assert ("chat", "openai", "gpt-4o", "gpt-4o-2024", "r1", 9, 5) == (
        about["gen_ai.operation.name"],
        about["gen_ai.provider.name"],
        about["gen_ai.request.model"],
        about["gen_ai.response.model"],
        about["gen_ai.response.id"],
        about["gen_ai.usage.input_tokens"],
        about["gen_ai.usage.output_tokens"],
    )
    assert str(told.id) == about["gen_ai.conversation.id"]


def test_errors_are_errors(store: EventStore, told: Conversation) -> None:
    """A failed call, a tool that was refused and a failed turn have a status and a type."""
    spans = _spans(export_otlp(store, told.id))
    failed = [(span.name, span.attributes["error.type"]) for span in spans if span.failed]
    assert [
        ("execute_tool weather", "denied"),
        ("chat", "timeout"),
        ("invoke_agent", "error"),
    ] == failed


def test_nothing_that_was_said_is_told_unasked(
    store: EventStore, told: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages, arguments, results and what errors say are there only if asked for."""
    without = json.dumps(export_otlp(store, told.id))
    assert not any(word in without for word in ("degrees", "Oslo", "secret", "warm"))
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    with_it = json.dumps(export_otlp(store, told.id))
    assert all(word in with_it for word in ("degrees", "Oslo", "secret", "warm"))
    assert without == json.dumps(export_otlp(store, told.id, content=False))


def test_who_exports_twice_sends_the_same(store: EventStore, told: Conversation) -> None:
    """Ids and times are those of the log."""
    assert export_otlp(store, told.id) == export_otlp(store, told.id)


def test_what_goes_on_is_left_out(store: EventStore) -> None:
    """A turn without an end has no span yet; what ended in it has."""
    with Conversation.start(store) as conversation:
        with conversation.turn("hi") as turn:
            with turn.llm_call() as call:
                call.delta("hello")
            before = _spans(export_otlp(store, conversation.id))
        after = _spans(export_otlp(store, conversation.id))
    assert ["chat"] == [span.name for span in before]
    assert ["chat", "invoke_agent"] == [span.name for span in after]
    assert before == after[:1]


def test_an_imported_session_has_spans(store: EventStore, tmp_path: Path) -> None:
    """Turns that no event frames end with their last event; retries have ids of their own."""
    report = load(store, read_transcripts(example().write(tmp_path / "a")))
    spans = _spans(export_otlp(store, report.ids[0]))
    assert 4 == sum(span.name == "invoke_agent" for span in spans)
    assert 5 == sum(span.name.startswith("chat claude") for span in spans)
    assert len({span.span_id for span in spans}) == len(spans)


def test_a_number_that_otlp_does_not_have_is_left_out(store: EventStore) -> None:
    """A temperature of 400 digits raised OverflowError; a collector refuses numbers of 65 bits."""
    with Conversation.start(store) as conversation, conversation.turn("hi") as turn:
        given = {"temperature": 10**400, "seed": 2**63, "max_tokens": 2**63 - 1}
        with turn.llm_call(turn.context(model="gpt-4o"), parameters=given) as call:
            call.delta("hello")
    [found] = [each for each in _spans(export_otlp(store, conversation.id)) if "chat" in each.name]
    assert "9223372036854775807" == str(found.attributes["gen_ai.request.max_tokens"])
    assert not {"gen_ai.request.temperature", "gen_ai.request.seed"} & found.attributes.keys()
