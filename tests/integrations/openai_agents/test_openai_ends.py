"""How recorded runs end: agents within tools, guardrails, tools that raise, readers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    OutputGuardrailTripwireTriggered,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    input_guardrail,
    output_guardrail,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage

from agent_eventstore.integrations.openai_agents.recording import RecordedModel, RecordedRun
from agent_eventstore.integrations.openai_agents.session import EventStoreSession
from eventstore import EventStore
from projections import Views
from tests.integrations.openai_agents.openai_samples import fresh_id

USAGE = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)


@pytest.fixture(autouse=True)
def no_tracing() -> None:
    """Have the SDK send nothing anywhere."""
    set_tracing_disabled(True)


@pytest.fixture
def session(store: EventStore) -> EventStoreSession:
    """Give a session of its own."""
    return EventStoreSession(fresh_id(), store)


@function_tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"


@function_tool(failure_error_function=None)
async def broken(city: str) -> str:
    """Raise, a little later than others return."""
    await asyncio.sleep(0.01)
    raise RuntimeError(f"no {city}")


def scripted(*answers: Any) -> RecordedModel:
    """Return a model that gives these answers; a text is a message."""
    steps = [[assistant_message(each)] if isinstance(each, str) else each for each in answers]
    return RecordedModel(ScriptedModel(steps, default_usage=USAGE))


def called(name: str, call_id: str, **given: str) -> Any:
    """Return a call of a tool."""
    return function_call(name, given, call_id=call_id)


async def held(agent: Agent[Any], session: Any, *, streamed: bool = False) -> None:
    """Run an agent, recorded where the session is one of this project's."""
    own = isinstance(session, SQLiteSession)
    async with nullcontext() if own else RecordedRun(session) as run:
        if not streamed:
            await Runner.run(agent, "Hello.", session=session, hooks=run)
            return
        result = Runner.run_streamed(agent, "Hello.", session=session, hooks=run)
        async for _ in result.stream_events():
            pass


def items_of(work: Callable[[Any], Any], session: EventStoreSession) -> tuple[list[Any], list[Any]]:
    """Do something with the SDK's own session, and with this one; return the items of both."""
    own = SQLiteSession("own")
    asyncio.run(work(own))
    asyncio.run(work(session))
    found = asyncio.run(own.get_items()), asyncio.run(session.get_items())
    own.close()
    return found


def tokens_of(session: EventStoreSession) -> tuple[int, int | None]:
    """Return how many calls of models there were, and their tokens of input."""
    views = Views(session.store)
    [used] = views.usage(by="conversation", conversation_id=session.id)
    return used.calls, used.prompt_tokens


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_as_a_tool(session: EventStoreSession, streamed: bool) -> None:
    """What it says is the tool's result alone, and what it has used is known."""

    async def asked(session: Any) -> None:
        inner = scripted([called("weather", "c1", city="Rome")], "It says: sun.")
        expert = Agent(name="Expert", model=inner, tools=[weather])
        outer = scripted([called("ask", "c1", input="Sun?")], "Sunny.")
        agent = Agent(name="A", model=outer, tools=[expert.as_tool("ask", "Asks an expert.")])
        await held(agent, session, streamed=streamed)

    own, kept = items_of(asked, session)
    assert own == kept
    assert (4, 40) == tokens_of(session)
    [row] = Views(session.store).tool_calls(conversation_id=session.id)
    assert ("ask", "success") == (row.name, row.status)


@function_tool(needs_approval=True)
async def book(city: str) -> str:
    """Book a hotel."""
    return f"booked in {city}"


def test_an_approval_within_an_agent_as_a_tool(session: EventStoreSession) -> None:
    """The tool has no result until somebody has approved, in another run."""

    def agent_of(outer: RecordedModel, inner: RecordedModel) -> Agent[Any]:
        expert = Agent(name="Expert", model=inner, tools=[book])
        return Agent(name="A", model=outer, tools=[expert.as_tool("ask", "Asks an expert.")])

    async def approved(session: Any) -> None:
        own = isinstance(session, SQLiteSession)
        first = scripted([called("ask", "c1", input="Rome?")])
        agent = agent_of(first, scripted([called("book", "c2", city="Rome")]))
        async with nullcontext() if own else RecordedRun(session) as run:
            waits = await Runner.run(agent, "Book.", session=session, hooks=run)
        agent = agent_of(scripted("Done."), scripted("It is booked."))
        state = await RunState.from_string(agent, waits.to_state().to_string())
        state.approve(state.get_interruptions()[0])
        async with nullcontext() if own else RecordedRun(session) as run:
            await Runner.run(agent, state, session=session, hooks=run)

    own, kept = items_of(approved, session)
    assert own == kept
    [row] = Views(session.store).tool_calls(conversation_id=session.id)
    assert ("ask", "success") == (row.name, row.status)
    assert (4, 40) == tokens_of(session)


def test_an_agent_in_a_guardrail(session: EventStoreSession) -> None:
    """It is asked while the run's own model is, and no part of the conversation."""

    async def guarded(session: Any) -> None:
        judge = Agent(name="Judge", model=scripted("Harmless."))

        @input_guardrail
        async def judged(_: Any, __: Any, said: Any) -> GuardrailFunctionOutput:
            result = await Runner.run(judge, said)
            return GuardrailFunctionOutput(result.final_output, tripwire_triggered=False)

        await held(Agent(name="A", model=scripted("Hi."), input_guardrails=[judged]), session)

    own, kept = items_of(guarded, session)
    assert own == kept
    assert (2, 20) == tokens_of(session)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_a_guardrail_blocks(session: EventStoreSession, streamed: bool) -> None:
    """The next request does not have it; the log does, and what it has used."""

    async def guarded(session: Any) -> None:
        @output_guardrail
        async def never(*_: Any) -> GuardrailFunctionOutput:
            return GuardrailFunctionOutput(None, tripwire_triggered=True)

        agent = Agent(name="A", model=scripted("Secret."), output_guardrails=[never])
        with pytest.raises(OutputGuardrailTripwireTriggered):
            await held(agent, session, streamed=streamed)

    own, kept = items_of(guarded, session)
    assert own == kept
    views = Views(session.store)
    assert "Secret" not in str(views.context(session.id, mode=None).messages)
    assert ["withdrawn"] == [i.status for i in views.timeline(session.id) if i.kind == "assistant"]
    assert (1, 10) == tokens_of(session)


def test_a_tool_that_ends_the_run(session: EventStoreSession) -> None:
    """Each result among the items has its call, so that a provider takes them."""
    calls = [called("weather", "c1", city="Rome"), called("broken", "c2", city="Oslo")]
    agent = Agent(name="A", model=scripted(calls), tools=[weather, broken])
    with pytest.raises(Exception, match="no Oslo"):
        asyncio.run(held(agent, session))
    items = asyncio.run(session.get_items())

    told = [(i["call_id"], i["type"]) for i in items if "call_id" in i]
    both = ["function_call", "function_call_output"]
    kinds = {name: [kind for call_id, kind in told if call_id == name] for name in ("c1", "c2")}
    assert {"c1": both, "c2": both} == kinds
    assert "no Oslo" in items[-1]["output"]


def test_a_run_without_hooks(session: EventStoreSession, caplog: Any) -> None:
    """Its items and tokens are there all the same, once, and somebody is told."""

    async def unhooked() -> None:
        async with RecordedRun(session):
            await Runner.run(Agent(name="A", model=scripted("Hi.")), "Hello.", session=session)

    asyncio.run(unhooked())
    assert ["user", "assistant"] == [each["role"] for each in asyncio.run(session.get_items())]
    assert (1, 10) == tokens_of(session)
    assert "hooks=run" in caplog.text


class Slow(ScriptedModel):
    """A model that takes its time."""

    async def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        """Stream an answer."""
        async for event in super().stream_response(*given, **named):
            await asyncio.sleep(0.01)
            yield event


def test_a_reader_that_leaves_the_stream(session: EventStoreSession) -> None:
    """The runner goes on in the background: its tools run, and its items are kept once."""

    async def left(session: Any) -> None:
        steps = [[called("weather", "c1", city="Rome")], [assistant_message("Sunny.")]]
        model = RecordedModel(Slow(steps, default_usage=USAGE))
        agent = Agent(name="A", model=model, tools=[weather])
        own = isinstance(session, SQLiteSession)
        async with nullcontext() if own else RecordedRun(session) as run:
            result = Runner.run_streamed(agent, "Hello.", session=session, hooks=run)
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    break
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    own, kept = items_of(left, session)
    assert own == kept
    assert (2, 20) == tokens_of(session)
    [row] = Views(session.store).tool_calls(conversation_id=session.id)
    assert "success" == row.status


def test_a_reader_that_leaves_while_a_tool_runs(session: EventStoreSession) -> None:
    """What the tool returns afterwards is its result."""

    async def left(session: Any) -> None:
        begun, going = asyncio.Event(), asyncio.Event()

        @function_tool
        async def slow(city: str) -> str:
            begun.set()
            await going.wait()
            return f"sun in {city}"

        model = scripted([called("slow", "c1", city="Rome")], "Sunny.")
        own = isinstance(session, SQLiteSession)
        async with nullcontext() if own else RecordedRun(session) as run:
            agent = Agent(name="A", model=model, tools=[slow])
            result = Runner.run_streamed(agent, "Hello.", session=session, hooks=run)
            async for _ in result.stream_events():
                break
            await begun.wait()
        going.set()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    own, kept = items_of(left, session)
    assert own == kept
    [row] = Views(session.store).tool_calls(conversation_id=session.id)
    assert ("slow", "success") == (row.name, row.status)
    assert "sun in Rome" == kept[2]["output"]


def test_a_model_that_is_not_recorded(session: EventStoreSession) -> None:
    """Its answers come with the items, and so do their tokens."""
    model = ScriptedModel([[assistant_message("Hi.")]], default_usage=USAGE)
    asyncio.run(held(Agent(name="A", model=model), session))

    assert (1, 10) == tokens_of(session)


@pytest.mark.parametrize("streamed", [False, True])
def test_popping_erases_what_the_run_recorded(store: EventStore, streamed: bool) -> None:
    """With ``erase``, no event of the log has the text of a popped item any longer."""
    session = EventStoreSession(fresh_id(), store, erase=True)
    answers = scripted([called("weather", "c1", city="Rome")], "It is sunny.")
    asyncio.run(held(Agent(name="A", model=answers, tools=[weather]), session, streamed=streamed))

    def logged(text: str) -> bool:
        return any(text in repr(event.data) for event in store.read(session.id))

    found = []
    for text in ("It is sunny.", "sun in Rome", "Rome"):
        before = logged(text)
        asyncio.run(session.pop_item())
        found.append((before, logged(text)))
    assert [(True, False)] * 3 == found
    assert [{"role": "user", "content": "Hello."}] == asyncio.run(session.get_items())
    assert 20 == tokens_of(session)[1]


@pytest.mark.parametrize("erase", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_popping_a_part_of_an_answer(store: EventStore, recorded: bool, erase: bool) -> None:
    """The rest of the answer is written again, but is no other call of a model; views show it."""
    session = EventStoreSession(fresh_id(), store, erase=erase)
    answer = [assistant_message("I look at both."), *(called("weather", c, city=c) for c in "ab")]
    agent = Agent(name="A", model=scripted(answer, "It is sunny."), tools=[weather])
    if recorded:
        asyncio.run(held(agent, session))
    else:
        asyncio.run(Runner.run(agent, "Hello.", session=session))
    items, used = asyncio.run(session.get_items()), tokens_of(session)

    while items[-1].get("call_id") != "a":
        assert items.pop() == asyncio.run(session.pop_item())
    while items[-1].get("type") != "function_call":
        assert items.pop() == asyncio.run(session.pop_item())
    assert items.pop() == asyncio.run(session.pop_item())
    assert items == asyncio.run(session.get_items())

    assert (2, 20) == used == tokens_of(session)
    request = Views(store).context(session.id, max_tokens=8_000, model="gpt-4o")
    assert "I look at both." in str(request.messages)
    assert store.verify(session.id).ok
