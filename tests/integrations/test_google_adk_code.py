"""Code that Gemini runs itself, in sessions of Google's ADK."""

from __future__ import annotations

import asyncio

from google.adk.events import Event
from google.genai import types

from agent_eventstore import EventStore, Views
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService


def test_code_and_its_output_are_in_words_in_later_requests(store: EventStore) -> None:
    """A later request said "[other content]" in their place."""
    code = types.ExecutableCode(code="print(1)", language=types.Language.PYTHON)
    result = types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1")
    parts = [types.Part(executable_code=code), types.Part(code_execution_result=result)]

    async def run() -> None:
        service = EventStoreSessionService(store)
        session = await service.create_session(app_name="app", user_id="u", session_id="s")
        for author, role, spoken in (
            ("user", "user", [types.Part(text="q")]),
            ("agent", "model", [*parts, types.Part(text="one")]),
        ):
            content = types.Content(role=role, parts=spoken)
            event = Event(author=author, invocation_id="i", content=content)
            await service.append_event(session, event)

    asyncio.run(run())
    views = Views(store)
    (entry,) = views.conversations()
    (answer,) = views.context(entry.conversation_id, mode=None).messages[1:]
    assert "[code run: print(1)]" in answer["content"]
    assert "[output: 1]" in answer["content"]
