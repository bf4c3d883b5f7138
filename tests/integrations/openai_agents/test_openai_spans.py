"""Guardrails and spans of a product's own are events of the run that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    Runner,
    add_trace_processor,
    custom_span,
    function_tool,
    input_guardrail,
    output_guardrail,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from agent_eventstore.integrations.openai_agents.recording import (
    RecordedModel,
    RecordedRun,
    RecordedSpans,
)
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from tests.integrations.openai_agents.openai_samples import fresh_id


@pytest.fixture(autouse=True)
def tracing() -> Iterator[None]:
    """Have the SDK trace into the log, and nowhere else."""
    set_trace_processors([])
    add_trace_processor(RecordedSpans())
    set_tracing_disabled(False)
    yield
    set_tracing_disabled(True)
    set_trace_processors([])


@pytest.fixture
def session(store: EventStore) -> EventStoreSession:
    """Give a session of its own."""
    return EventStoreSession(fresh_id(), store)


@input_guardrail
async def polite(context: Any, agent: Any, said: Any) -> GuardrailFunctionOutput:
    """Stop who is rude."""
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="!!!" in str(said))


@output_guardrail
async def discreet(context: Any, agent: Any, said: Any) -> GuardrailFunctionOutput:
    """Stop who tells a secret."""
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in said)


@function_tool
def look() -> str:
    """Look; a tool that is no coroutine runs in a thread."""
    with custom_span("index", {"rows": 3}):
        return "found"


def talk(session: EventStoreSession, said: str, *steps: Any) -> None:
    """Have a turn with an agent that has guardrails."""

    async def talking() -> None:
        agent = Agent(
            name="A",
            model=RecordedModel(ScriptedModel(list(steps))),
            tools=[look],
            input_guardrails=[polite],
            output_guardrails=[discreet],
        )
        async with RecordedRun(session) as run:
            await Runner.run(agent, said, session=session, hooks=run)

    asyncio.run(talking())


def told(session: EventStoreSession, kind: str) -> list[Any]:
    """Return the events of a type that the session's conversation has."""
    events: list[Any] = [e.data for e in session.store.read(session.id) if e.type == kind]
    return events


def guarded(session: EventStoreSession) -> list[tuple[str, bool]]:
    """Return what guardrails have said in a session."""
    return [(e.name, e.triggered) for e in told(session, "openai_agents.guardrail")]


def test_guardrails(session: EventStoreSession) -> None:
    """Those that have let something pass are told too."""
    talk(session, "Hello.", [assistant_message("Good day.")])

    assert [("polite", False), ("discreet", False)] == guarded(session)


def test_input_is_refused(session: EventStoreSession) -> None:
    """Which guardrail has stopped the run is in the log, and so is what was said."""
    with pytest.raises(InputGuardrailTripwireTriggered):
        talk(session, "Hello!!!", [assistant_message("Good day.")])

    assert [("polite", True)] == guarded(session)
    assert session.store.verify(session.id).ok


def test_output_is_refused(session: EventStoreSession) -> None:
    """An answer that was given stays in the log, beside what was found wrong with it."""
    with pytest.raises(OutputGuardrailTripwireTriggered):
        talk(session, "Hello.", [assistant_message("A secret.")])

    assert ("discreet", True) in guarded(session)
    assert ["A secret."] == [e.parts[0].text for e in told(session, "assistant_message")]


def test_own_spans(session: EventStoreSession) -> None:
    """A span of a tool's, which runs in a thread, is told with its data and times."""
    call = [function_call("look", {}, call_id="c")]
    talk(session, "Look.", call, [assistant_message("Found.")])

    [span] = told(session, "openai_agents.span")
    assert ("index", {"rows": 3}, None) == (span.name, span.data, span.error)
    assert span.started_at <= span.ended_at


def test_without_a_recorded_run(session: EventStoreSession) -> None:
    """What nobody records has no place in the log."""
    agent = Agent(
        name="A", model=ScriptedModel([[assistant_message("Hi.")]]), input_guardrails=[polite]
    )
    asyncio.run(Runner.run(agent, "Hello.", session=session))

    assert [] == guarded(session)
