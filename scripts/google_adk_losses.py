"""Kill runs of Google's ADK with ``kill -9``, and print what each session service still has.

``python scripts/google_adk_losses.py`` prints the table of docs/integrations.md. Each run is its
own process, forked from this one, with ADK's runner and tools; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")  # about ADK's experimental features

from google.adk.agents import LlmAgent, RunConfig  # noqa: E402 - after the filter
from google.adk.agents.run_config import StreamingMode  # noqa: E402
from google.adk.apps import App  # noqa: E402
from google.adk.models import BaseLlm, LlmResponse  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: E402
from google.adk.tools import FunctionTool  # noqa: E402
from google.genai import types  # noqa: E402
from killed import chosen, die, until_killed, where  # noqa: E402

from agent_eventstore import EventStore, Views  # noqa: E402
from agent_eventstore.integrations.conversation_events import seal_streams  # noqa: E402
from agent_eventstore.integrations.google_adk.recorded_streams import RecordedStreams  # noqa: E402
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService  # noqa: E402

PLACES = {
    "tool": "kill -9 in one of two parallel tools",
    "second": "kill -9 in the second step's tool",
    "stream": "kill -9 in the stream of the answer",
    "approval": "kill -9 while a tool waits for approval",
}
SERVICES = ("SqliteSessionService", "EventStoreSessionService", "with RecordedStreams")
NAMED = {"app_name": "app", "user_id": "ada", "session_id": "s"}
COUNTED = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=20, candidates_token_count=5
)


class Scripted(BaseLlm):
    """A model that asks for two tools at once, then for one more, then answers."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """Answer by how many results there are."""
        parts = [part for each in llm_request.contents for part in each.parts]
        results = sum(part.function_response is not None for part in parts)
        names = {0: ["warm", "cold"], 2: ["last"]}.get(results, [])
        if not names and stream:
            yield self._said("It is ", partial=True)
            die("stream")
        calls = [types.Part.from_function_call(name=name, args={}) for name in names]
        yield self._said(*(calls or ["It is 18 degrees."]), usage_metadata=COUNTED)

    def _said(self, *parts: Any, **fields: Any) -> LlmResponse:
        made = [types.Part(text=each) if isinstance(each, str) else each for each in parts]
        return LlmResponse(content=types.Content(role="model", parts=made), **fields)


def warm() -> str:
    """Say how warm it is."""
    return "18 degrees"


def cold() -> str:
    """Say how cold it is."""
    die("tool")
    return "-3 degrees"


def last() -> str:
    """Do the last thing."""
    die("second")
    return "done"


def _service(name: str, folder: str) -> Any:
    if name == SERVICES[0]:
        return SqliteSessionService(str(Path(folder) / "adk.db"))
    return EventStoreSessionService(EventStore.open(f"sqlite:///{Path(folder) / 'agent.db'}"))


async def _run(name: str, folder: str) -> None:
    asked = FunctionTool(last, require_confirmation=where() == "approval")
    agent = LlmAgent(name="clerk", model=Scripted(model="m"), tools=[warm, cold, asked])
    sessions = _service(name, folder)
    plugins = [RecordedStreams(sessions)] if name == SERVICES[2] else []
    app = App(name="app", root_agent=agent, plugins=plugins)
    runner = Runner(app=app, session_service=sessions)
    await sessions.create_session(**NAMED, state={"user:likes": "brevity"})
    message = types.Content(role="user", parts=[types.Part(text="How warm is it?")])
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    async for _ in runner.run_async(
        user_id="ada", session_id="s", new_message=message, run_config=config
    ):
        pass
    die("approval")


def _found(name: str, folder: str) -> list[object]:
    """Return what the next process has."""
    sessions = _service(name, folder)
    session = asyncio.run(sessions.get_session(**NAMED))
    calls = sum(len(event.get_function_calls()) for event in session.events)
    results = sum(len(event.get_function_responses()) for event in session.events)
    told: list[object] = [len(session.events), calls, results]
    if name == SERVICES[0]:
        return [*told, "-", "-", "-", "-"]
    seal_streams(sessions.store, "app/ada/s")
    views = Views(sessions.store)
    audited = views.tool_calls(conversation_id="app/ada/s")
    [row] = views.usage(by="conversation")
    answered = sum(each.status == "success" for each in audited)
    timeline = views.timeline("app/ada/s")
    cut = [each for each in timeline if each.status == "interrupted"]
    arrived = next((f'"{each.text}"' for each in cut if each.kind == "assistant"), "-")
    known = f"{len(audited)} ({answered} with a result)"
    return [
        *told,
        arrived,
        known,
        row.total_tokens or (row.prompt_tokens or 0) + (row.completion_tokens or 0),
        "yes" if views.search("warm") else "no",
    ]


def main() -> None:
    """Print the table."""
    columns = ["scenario", "session service", "events kept", "calls", "results"]
    columns += ["text of the answer", "tool calls in the audit", "tokens known", "found by search"]
    print(f"| {' | '.join(columns)} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            (place, name, f"{folder}/{place}-{name}")
            for place in chosen(PLACES)
            for name in SERVICES
        ]
        for place, *run in runs:
            Path(run[-1]).mkdir()
            until_killed(place, _run, *run)
        for place, name, left in runs:
            print(f"| {PLACES[place]} | {name} | {' | '.join(map(str, _found(name, left)))} |")


if __name__ == "__main__":
    main()

# ruff: noqa: T201
