"""`RecordedStreams`: a Google ADK plugin that records what models stream as it arrives."""

from __future__ import annotations

from typing import Any

from google.adk.plugins.base_plugin import BasePlugin

from agent_eventstore.integrations.conversation_events import Streamed, seal_streams
from agent_eventstore.integrations.google_adk.service import EventStoreSessionService, key_of
from eventstore.threads import in_thread
from projections.providers import Delta

__all__ = ["RecordedStreams"]


class RecordedStreams(BasePlugin):
    """Records partial answers, which ADK does not pass to a session service.

    Once the next run begins, an answer cut off by a kill is an interrupted item of the timeline
    with the text that had arrived. ADK does not read it.

    Args:
        sessions: The session service of the runner.
    """

    def __init__(self, sessions: EventStoreSessionService) -> None:
        super().__init__("eventstore_streams")
        self.sessions = sessions
        self._arriving: dict[tuple[Any, ...], Streamed] = {}
        self._keys: dict[tuple[Any, ...], str] = {}  # the session of each stream of a run

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """Seal the streams that earlier runs left open, and forget those of cancelled runs."""
        key = _key(invocation_context)
        await self._forget([place for place, of in self._keys.items() if of == key])
        await in_thread(seal_streams, self.sessions.store, key)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record a piece of a stream before ADK passes it on."""
        place = (callback_context.invocation_id, callback_context.agent_name)
        streamed = self._arriving.get(place)
        if llm_response.partial:
            piece = _piece(llm_response)
            if streamed is None and piece:
                streamed = Streamed(self.sessions.store, _key(callback_context))
                self._arriving[place] = streamed
                self._keys[place] = _key(callback_context)
                self.sessions.answering[place] = streamed.call_id
            if streamed is not None:
                await streamed.feed(piece)
        elif streamed is not None:
            await self._end(place)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        """Record what had arrived of a stream that failed."""
        await self._end((callback_context.invocation_id, callback_context.agent_name))

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Write the rest of the run's streams, and forget their calls."""
        own = invocation_context.invocation_id
        await self._forget([place for place in self._keys if place[0] == own])

    async def _forget(self, places: list[tuple[Any, ...]]) -> None:
        for place in places:
            await self._end(place)
            self._keys.pop(place, None)
            self.sessions.answering.pop(place, None)

    async def _end(self, place: tuple[Any, ...]) -> None:
        if (streamed := self._arriving.pop(place, None)) is not None:
            await streamed.end()


def _key(context: Any) -> str:
    session = context.session
    return key_of(session.app_name, session.user_id, session.id)


def _piece(response: Any) -> Delta:
    parts = (response.content.parts if response.content else None) or []
    words = [(bool(part.thought), part.text) for part in parts if part.text]
    return Delta(
        text="".join(text for thought, text in words if not thought),
        reasoning="".join(text for thought, text in words if thought),
    )
