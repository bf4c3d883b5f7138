"""Spans of turns while they go on: by the conventions, and found from the log; both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from agent_eventstore import AsyncConversation, AsyncEventStore, Conversation
from agent_eventstore.machines import TurnScript, call_script
from agent_eventstore.transcripts import export_otlp
from eventstore import EventStore
from eventstore.errors import WriterFenced
from eventstore.events import Meta, TurnStart
from eventstore.telemetry import operations
from tests.integration.recording import Recorder, ask_for_tool

KNOWN = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
FUNCTION = {"name": "weather", "arguments": '{"city": "Oslo"}'}
WISHES = [{"index": n, "id": f"c{n}", "type": "function", "function": FUNCTION} for n in (0, 1)]
ANSWER: dict[str, Any] = {
    "object": "chat.completion",
    "model": "gpt-4o-2024",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "tool_calls": WISHES},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
}


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


@pytest.fixture
def tracers() -> Iterator[TracerProvider]:
    """Give a provider that spans are sent to."""
    provider = TracerProvider()
    operations.use(tracer_provider=provider)
    yield provider
    operations.switch_off()


@pytest.fixture
def sent(tracers: TracerProvider) -> InMemorySpanExporter:
    """Give the spans that were sent."""
    exporter = InMemorySpanExporter()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


class _Starts(SpanProcessor):
    """Takes the names of recorders' spans as they begin."""

    def __init__(self, begun: list[str]) -> None:
        self._begun = begun

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Take a span's name, but not that of a database call."""
        if span.name == "invoke_agent":
            self._begun.append(span.name)


def _live(sent: InMemorySpanExporter) -> list[ReadableSpan]:
    begin = ("chat", "execute_tool", "invoke_agent")
    return [span for span in sent.get_finished_spans() if span.name.startswith(begin)]


def _told(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def _converse(store: EventStore) -> Conversation:
    """Have a turn with two tools, one of them denied, and one whose model call fails."""
    with Conversation.start(store) as conversation:
        with conversation.turn("How warm is it?") as turn:
            with turn.llm_call(provider="openai", model="gpt-4o") as call:
                call.response(ANSWER)
            with turn.tool(call.tool_calls[0]) as tool:
                tool.result("18 degrees")
            turn.deny(call.tool_calls[1], "not twice")
        with pytest.raises(TimeoutError), conversation.turn("And now?") as turn, turn.llm_call():
            raise TimeoutError("secret words")
    return conversation


def test_spans_stand_in_each_other(
    store: EventStore, tracers: TracerProvider, sent: InMemorySpanExporter
) -> None:
    """The agent's within what is current, its model calls and tools within the agent's."""
    with tracers.get_tracer("product").start_as_current_span("request") as request:
        _converse(store)
    spans = _live(sent)
    tools = ["execute_tool weather", "execute_tool weather"]
    assert ["chat gpt-4o", *tools, "invoke_agent", "chat", "invoke_agent"] == [
        span.name for span in spans
    ]
    agents = [span for span in spans if span.name == "invoke_agent"]
    assert [request.get_span_context().span_id] * 2 == [
        span.parent.span_id for span in agents if span.parent is not None
    ]
    assert {agents[0].context.span_id} == {
        span.parent.span_id for span in spans[:3] if span.parent is not None
    }
    assert 1 == len({_told(span)[0] for span in spans})


@pytest.mark.parametrize("block", ["turn", "chat", "execute_tool"])
def test_a_block_that_is_not_entered_ends_its_span(
    recording: Recorder, sent: InMemorySpanExporter, block: str
) -> None:
    """Whatever the failed write raises; before, such a span was never ended nor sent."""
    old = recording.start()
    turn = old.turn("Hi")
    if block != "turn":
        turn.__enter__()
    asked: Any = ask_for_tool(turn) if block == "execute_tool" else None
    sent.clear()
    recording.open(old.id, if_busy="take_over")
    made: dict[str, Any] = {
        "turn": lambda: turn,
        "chat": turn.llm_call,
        "execute_tool": lambda: turn.tool(asked),
    }

    with pytest.raises(WriterFenced):
        made[block]().__enter__()

    [span] = [each for each in _live(sent) if each.name != "invoke_agent" or block == "turn"]
    assert span.attributes is not None
    assert "WriterFenced" == span.attributes["error.type"]


def test_a_block_that_is_entered_again_has_another_span(sent: InMemorySpanExporter) -> None:
    """Its parent is that of the first; what the block then does belongs to the second."""
    script = TurnScript(Meta(turn=1), started_at=0.0)
    first = [event.event_id for event in script.begin(None)]
    script.tracing.fail(ConnectionError("away"))
    assert first == [event.event_id for event in script.begin(None)]
    [end] = script.end(1.0)

    failed, second = _live(sent)
    assert failed.attributes is not None
    assert "ConnectionError" == failed.attributes["error.type"]
    assert (None, None, True) == (failed.parent, second.parent, second.status.is_ok)
    assert _told(second) == (end.meta.trace_id, end.meta.span_id)


def test_they_tell_what_the_conventions_name(store: EventStore, sent: InMemorySpanExporter) -> None:
    """Model, tokens and errors are told, and nothing that was said."""
    conversation = _converse(store)
    spans = _live(sent)
    about = [dict(span.attributes or {}) for span in spans]
    assert {key for each in about for key in each if key.startswith("gen_ai.")} <= KNOWN
    assert (9, 5, "openai") == (
        about[0]["gen_ai.usage.input_tokens"],
        about[0]["gen_ai.usage.output_tokens"],
        about[0]["gen_ai.provider.name"],
    )
    assert {str(conversation.id)} == {each["gen_ai.conversation.id"] for each in about}
    errors = [each.get("error.type") for each in about]
    assert [None, None, "denied", None, "timeout", "error"] == errors
    said = str([*about, *(span.status.description for span in spans)])
    assert not any(word in said for word in ("degrees", "Oslo", "secret", "warm"))


def test_log_and_trace_meet(store: EventStore, sent: InMemorySpanExporter) -> None:
    """Events have the ids of trace and span, and spans from the log are those that were sent."""
    conversation = _converse(store)
    live = {_told(span) for span in _live(sent)}
    [request] = export_otlp(store, conversation.id)["resourceSpans"]
    exported = request["scopeSpans"][0]["spans"]
    assert live == {(span["traceId"], span["spanId"]) for span in exported}
    events = [event for event in store.read(conversation.id) if event.meta.turn is not None]
    assert live == {(event.meta.trace_id, event.meta.span_id) for event in events}
    assert store.verify(conversation.id).ok


def test_the_same_for_an_event_loop(store: EventStore, sent: InMemorySpanExporter) -> None:
    """Tasks that have turns at the same time have spans of their own."""

    async def converse(opened: AsyncEventStore) -> None:
        async with await AsyncConversation.start(opened) as conversation:
            async with conversation.turn("hi") as turn, turn.llm_call() as call:
                await call.delta("hello")

    async def both() -> None:
        url = store.engine.url.render_as_string(hide_password=False)
        async with await AsyncEventStore.open(url) as opened:
            await asyncio.gather(converse(opened), converse(opened))

    asyncio.run(both())
    spans = _live(sent)
    agents = {_told(span) for span in spans if span.name == "invoke_agent"}
    within = {
        (_told(span)[0], f"{span.parent.span_id:016x}") for span in spans if span.parent is not None
    }
    assert (2, agents) == (len(agents), within)


def test_repeated_message_begins_no_span(store: EventStore, tracers: TracerProvider) -> None:
    """A turn that begins ahead of its block, and was recorded before, has nothing to trace."""
    with Conversation.start(store) as conversation:
        with conversation.turn("hi", message_id="m1"):
            pass
        begun: list[str] = []
        tracers.add_span_processor(_Starts(begun))
        with store.transaction() as connection:
            turn = conversation.turn("hi", message_id="m1", connection=connection)
            turn.begin()
        assert (1, []) == (turn.outcome and turn.outcome.turn, begun)


def test_nothing_is_told_of_a_call_where_nobody_traces(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attributes of a span are made for a span alone."""

    def refuse(*_: object) -> None:
        raise AssertionError("nobody wants to know")

    monkeypatch.setattr(call_script, "of_call", refuse)
    _converse(store)


def test_nobody_traces(store: EventStore) -> None:
    """Without a provider, and of what is not sampled, events have no ids."""
    conversations = [_converse(store)]
    operations.use(tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    try:
        conversations.append(_converse(store))
    finally:
        operations.switch_off()
    for conversation in conversations:
        assert {(None, None)} == {
            (event.meta.trace_id, event.meta.span_id) for event in store.read(conversation.id)
        }
        starts = [e for e in store.read(conversation.id) if isinstance(e.data, TurnStart)]
        assert 2 == len(starts)
