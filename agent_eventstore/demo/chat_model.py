"""A model for chats that needs no key: it streams one of a few answers, with the message quoted."""

from __future__ import annotations

from collections.abc import Iterator

from agent_eventstore.agents.model_calls import ModelRequest
from agent_eventstore.demo.scripted_model import Reply, ScriptedModel
from eventstore.events import JsonObject

__all__ = ["DemoChatModel"]

_PIECE_S = 0.02
_QUOTED = 200
_ANSWERS = (
    "You wrote: “{text}”. I am a scripted model, so that is all that I know of it.",
    (
        "Noted: “{text}”.\n\n- Every piece of this answer was in the log before you saw it.\n"
        "- Kill the server now, start it again, and nothing of it is lost."
    ),
    "“{text}” is message {number} of what I was sent. `eventstore context` shows all of them.",
)


class DemoChatModel:
    """Answers each request in pieces, as OpenAI's chat endpoint does.

    Args:
        delay_s: The seconds before each piece.
    """

    def __init__(self, delay_s: float = _PIECE_S) -> None:
        self._delay_s = delay_s

    def __call__(self, request: ModelRequest) -> Iterator[JsonObject]:
        """Return the chunks of an answer."""
        number = len(request.messages)
        last = str(request.messages[-1].get("content") or "").rpartition("User: ")[2]
        text = last if len(last) <= _QUOTED else f"{last[:_QUOTED]}…"
        answer = _ANSWERS[number % len(_ANSWERS)].format(text=text, number=number)
        return ScriptedModel([Reply(answer)], delay_s=self._delay_s).stream(request.messages)
