"""ADK's real runner over the session service: rewinds, and agents at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from google.adk.agents import LlmAgent, ParallelAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.google_adk.recorded_streams import RecordedStreams
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService
from eventstore.events import AssistantMessage
from tests.integrations.conftest import arrived, chunks_of

ADA: dict[str, Any] = {"user_id": "ada", "session_id": "s"}


class Echo(BaseLlm):
    """A model that says what it was asked."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Answer."""
        part = types.Part(text=f"{len(llm_request.contents)} so far")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def ask(runner: Runner, text: str) -> list[Any]:
    """Return the events of a run."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    return [each async for each in runner.run_async(**ADA, new_message=message)]


@pytest.mark.anyio
async def test_a_rewind(store: EventStore) -> None:
    """messages[] shows what is left, and the next run goes on from there."""
    sessions = EventStoreSessionService(store)
    agent = LlmAgent(name="echo", model=Echo(model="m"), output_key="said")
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    await sessions.create_session(app_name="app", **ADA)
    for text in ("one", "two", "three"):
        await ask(runner, text)
    session = await sessions.get_session(app_name="app", **ADA)
    assert session is not None
    second = session.events[2].invocation_id
    await runner.rewind_async(**ADA, rewind_before_invocation_id=second)
    [answer] = await ask(runner, "four")

    assert answer.content.parts[0].text == "3 so far"
    told = Views(store).context("app/ada/s", mode=None).messages
    assert [each["content"] for each in told] == ["one", "1 so far", "four", "3 so far"]
    again = await EventStoreSessionService(store).get_session(app_name="app", **ADA)
    assert again is not None
    assert again.state["said"] == "3 so far"
    assert len(again.events) == 9


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated")
@pytest.mark.anyio
async def test_parallel_agents(store: EventStore) -> None:
    """Both branches append to one session, and each answer names its agent."""
    sessions = EventStoreSessionService(store)
    both = [LlmAgent(name=name, model=Echo(model="m")) for name in ("a", "b")]
    agent = ParallelAgent(name="both", sub_agents=both)
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    await sessions.create_session(app_name="app", **ADA)
    await ask(runner, "Hello")

    data = [each.data for each in store.read("app/ada/s")]
    answers = [str(each.name) for each in data if isinstance(each, AssistantMessage)]
    assert sorted(answers) == ["a", "b"]


class Scripted(BaseLlm):
    """A model that says what it is told to, one part an answer."""

    parts: list[types.Part]

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Answer."""
        yield LlmResponse(content=types.Content(role="model", parts=[self.parts.pop(0)]))


def call_of(name: str, call_id: str, **given: Any) -> types.Part:
    """Return a call of a tool."""
    return types.Part(function_call=types.FunctionCall(name=name, args=given, id=call_id))


def response_of(name: str, call_id: str, **told: Any) -> types.Content:
    """Return what the user's side has to say of a call."""
    response = types.FunctionResponse(name=name, id=call_id, response=told)
    return types.Content(role="user", parts=[types.Part(function_response=response)])


def book(city: str) -> dict[str, str]:
    """Book a hotel."""
    return {"result": f"booked in {city}"}


def approve(amount: int) -> dict[str, str]:
    """Ask somebody, who takes a day."""
    return {"status": "pending"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("confirmed", "status"), [(True, "success"), (False, "denied")])
@pytest.mark.anyio
async def test_a_tool_that_is_confirmed(store: EventStore, confirmed: bool, status: str) -> None:
    """Until then it has not begun, and what it returns then is its result, in another process."""
    asked = [call_of("book", "c1", city="Rome"), types.Part(text="Done.")]
    tool = FunctionTool(book, require_confirmation=True)
    agent = LlmAgent(name="clerk", model=Scripted(model="m", parts=asked), tools=[tool])
    sessions = EventStoreSessionService(store)
    await sessions.create_session(app_name="app", **ADA)
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    events = await ask(runner, "Book.")
    [row] = Views(store).tool_calls(tool="book")
    assert row.status == "not_started"

    calls = [call for event in events for call in event.get_function_calls()]
    answer = response_of("adk_request_confirmation", calls[-1].id, confirmed=confirmed)
    sessions = EventStoreSessionService(store)
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    async for _ in runner.run_async(**ADA, new_message=answer):
        pass
    [row] = Views(store).tool_calls(tool="book")
    assert row.status == status
    told = str(Views(store).context("app/ada/s", mode=None).messages)
    assert ("booked in Rome" in told) is confirmed


def sink(city: str) -> dict[str, str]:
    """Fail."""
    raise ValueError(f"no {city}")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.anyio
async def test_a_tool_that_raises(store: EventStore, restarted: bool) -> None:
    """It is the tool that has failed, not the model; also where another process records it."""
    sessions = EventStoreSessionService(store)

    async def before(**_: Any) -> None:
        if restarted:
            sessions._log.forget(("app", "ada", "s"))

    asked = [call_of("sink", "c1", city="Rome"), types.Part(text="Hello.")]
    agent = LlmAgent(
        name="clerk",
        model=Scripted(model="m", parts=asked),
        tools=[sink],
        before_tool_callback=before,
    )
    await sessions.create_session(app_name="app", **ADA)
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    with pytest.raises(ValueError, match="no Rome"):
        await ask(runner, "Go.")
    await ask(runner, "And now?")

    views = Views(store)
    [row] = views.tool_calls(conversation_id="app/ada/s")
    assert ("sink", "failed", "no Rome") == (row.name, row.status, row.error)
    items = [(item.kind, item.status) for item in views.timeline("app/ada/s")]
    assert ("tool", "failed") in items
    assert "error" not in {kind for kind, _ in items}
    again = await EventStoreSessionService(store).get_session(app_name="app", **ADA)
    assert again is not None
    assert [None, None, "ValueError", None, None] == [each.error_code for each in again.events]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.anyio
async def test_a_confirmed_tool_that_raises(store: EventStore) -> None:
    """It has failed, although the agent has asked for consent since."""
    asked = [call_of("sink", "c1", city="Rome")]
    tool = FunctionTool(sink, require_confirmation=True)
    agent = LlmAgent(name="clerk", model=Scripted(model="m", parts=asked), tools=[tool])
    sessions = EventStoreSessionService(store)
    await sessions.create_session(app_name="app", **ADA)
    runner = Runner(app_name="app", agent=agent, session_service=sessions)
    calls = [call for event in await ask(runner, "Go.") for call in event.get_function_calls()]
    answer = response_of("adk_request_confirmation", calls[-1].id, confirmed=True)
    with pytest.raises(ValueError, match="no Rome"):
        async for _ in runner.run_async(**ADA, new_message=answer):
            pass

    [row] = Views(store).tool_calls(tool="sink")
    assert ("failed", "no Rome") == (row.status, row.error)
    assert "error" not in {item.kind for item in Views(store).timeline("app/ada/s")}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.anyio
async def test_a_tool_that_runs_for_long(store: EventStore) -> None:
    """What it became is the result of its call, though another process gets it."""
    asked = [call_of("approve", "c1", amount=3), types.Part(text="Wait."), types.Part(text="Yes.")]
    tool = LongRunningFunctionTool(approve)
    agent = LlmAgent(name="clerk", model=Scripted(model="m", parts=asked), tools=[tool])
    sessions = EventStoreSessionService(store)
    await sessions.create_session(app_name="app", **ADA)
    await ask(Runner(app_name="app", agent=agent, session_service=sessions), "Approve.")
    runner = Runner(app_name="app", agent=agent, session_service=EventStoreSessionService(store))
    answer = response_of("approve", "c1", status="approved")
    async for _ in runner.run_async(**ADA, new_message=answer):
        pass

    told = Views(store).context("app/ada/s", mode=None).messages
    assert [each["role"] for each in told] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
    ]
    assert told[2]["content"] == '{"status":"approved"}'
    [row] = Views(store).tool_calls(tool="approve")
    assert (row.status, row.result_text) == ("success", '{"status": "approved"}')


def content_of(*given: types.Part, role: str = "user") -> types.Content:
    """Return content of parts."""
    return types.Content(role=role, parts=[*given])


@pytest.mark.anyio
async def test_several_responses_of_parallel_calls(store: EventStore) -> None:
    """Each response replaces the one before, beside its own call, though 100 events lie between."""
    name = {"app_name": "app", **ADA}
    await EventStoreSessionService(store).create_session(**name)
    calls = [call_of("approve", own_id, amount=3) for own_id in ("c1", "c2")]

    async def add(author: str, content: types.Content, **fields: Any) -> None:
        sessions = EventStoreSessionService(store)  # as another process would
        session = await sessions.get_session(**name)
        assert session is not None
        event = Event(author=author, invocation_id="i", content=content, **fields)
        await sessions.append_event(session, event)

    async def answer(author: str, own_id: str, status: str) -> None:
        response = {"status": status}
        part = types.FunctionResponse(id=own_id, name="approve", response=response)
        await add(author, content_of(types.Part(function_response=part)))

    def audited() -> dict[str | None, Any]:
        rows = Views(store).tool_calls(tool="approve")
        return {row.provider_id: (row.status, row.result_text) for row in rows}

    await add("user", content_of(types.Part(text="q")))
    await add("clerk", content_of(*calls, role="model"), long_running_tool_ids={"c1", "c2"})
    await answer("clerk", "c1", "pending")
    await answer("clerk", "c2", "pending")
    pending = ("running", '{"status": "pending"}')
    assert audited() == {"c1": pending, "c2": pending}
    for index in range(101):
        await add("clerk", content_of(types.Part(text=f"waiting {index}"), role="model"))
    await answer("user", "c2", "half done")
    await answer("user", "c2", "done")
    await answer("user", "c1", "denied")

    told = [m["content"] for m in Views(store).context("app/ada/s", mode=None).messages]
    assert told[2:4] == ['{"status":"denied"}', '{"status":"done"}']
    assert audited() == {
        "c1": ("success", '{"status": "denied"}'),
        "c2": ("success", '{"status": "done"}'),
    }
    items = [item.text for item in Views(store).timeline("app/ada/s") if item.kind == "tool"]
    assert items == ['{"status": "denied"}', '{"status": "done"}']


class Streaming(BaseLlm):
    """A model whose stream breaks off after its second piece, or stalls there."""

    broken: bool = True
    stalled: EventStore | None = None
    model_config: ClassVar[Any] = {"arbitrary_types_allowed": True}

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Say it in pieces, then as a whole."""
        yield self._said("It is ", partial=True)
        yield self._said("18 ", partial=True)
        if self.broken:
            raise ConnectionError("the line is dead")
        if self.stalled is not None:
            await arrived(self.stalled, "app/ada/s", "It is 18 ")
        yield self._said("degrees.", partial=True)
        yield self._said("It is 18 degrees.")

    def _said(self, text: str, **fields: Any) -> LlmResponse:
        content = types.Content(role="model", parts=[types.Part(text=text)])
        return LlmResponse(content=content, **fields)


async def run_streaming(store: EventStore, *models: Streaming) -> None:
    """Run a model once each on one session, in streams that are recorded."""
    sessions = EventStoreSessionService(store)
    await sessions.create_session(app_name="app", **ADA)
    message = types.Content(role="user", parts=[types.Part(text="How warm is it?")])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    for model in models:
        agent = LlmAgent(name="clerk", model=model)
        app = App(name="app", root_agent=agent, plugins=[RecordedStreams(sessions)])
        runner = Runner(app=app, session_service=sessions)
        going = runner.run_async(**ADA, new_message=message, run_config=config)
        with suppress(ConnectionError):
            async for _ in going:
                pass


@pytest.mark.anyio
async def test_what_streams_is_recorded(store: EventStore) -> None:
    """Also what was held of a stream that broke off."""
    await run_streaming(store, Streaming(model="m"))
    assert chunks_of(store, "app/ada/s") == ["It is ", "18 "]
    assert len(Views(store).open_work("app/ada/s").model_calls) == 1


@pytest.mark.anyio
async def test_a_stream_that_broke_off_is_interrupted(store: EventStore) -> None:
    """The next run says so; an answer that ends is one item."""
    await run_streaming(store, Streaming(model="m"), Streaming(model="m", broken=False))

    assert Views(store).open_work("app/ada/s").model_calls == ()
    timeline = Views(store).timeline("app/ada/s")
    said = [(each.status, each.text) for each in timeline if each.kind == "assistant"]
    assert said == [("interrupted", "It is 18 "), ("complete", "It is 18 degrees.")]


@pytest.mark.anyio
async def test_a_stream_that_stalls(store: EventStore) -> None:
    """What it holds is durable though no further piece comes; each piece is recorded once."""
    await run_streaming(store, Streaming(model="m", broken=False, stalled=store))

    assert "".join(chunks_of(store, "app/ada/s")) == "It is 18 degrees."


@pytest.mark.anyio
async def test_a_run_that_is_cancelled(store: EventStore) -> None:
    """The next run of its session seals its stream, of which nothing stays in memory."""
    sessions = EventStoreSessionService(store)
    await sessions.create_session(app_name="app", **ADA)
    plugin, agents = RecordedStreams(sessions), (Hanging(model="m"), Echo(model="m"))
    message = types.Content(role="user", parts=[types.Part(text="How warm is it?")])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    for model in agents:
        app = App(name="app", root_agent=LlmAgent(name="a", model=model), plugins=[plugin])
        going = Runner(app=app, session_service=sessions).run_async(
            **ADA, new_message=message, run_config=config
        )
        run = asyncio.create_task(_all_of(going))
        if isinstance(model, Hanging):
            await arrived(store, "app/ada/s", "It is ")
            run.cancel()
        with suppress(asyncio.CancelledError):
            await run

    timeline = Views(store).timeline("app/ada/s")
    said = [(each.status, each.text) for each in timeline if each.kind == "assistant"]
    assert said == [("interrupted", "It is "), ("complete", "2 so far")]
    assert not plugin._arriving
    assert not sessions.answering


async def _all_of(going: AsyncIterator[Any]) -> None:
    async for _ in going:
        pass


class Hanging(BaseLlm):
    """A model whose stream never ends."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Say a piece."""
        content = types.Content(role="model", parts=[types.Part(text="It is ")])
        yield LlmResponse(content=content, partial=True)
        await asyncio.Event().wait()
