"""A stream that broke and was repeated: the log has both, later requests the answer alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from agent_eventstore.turn import Turn
from tests.integration.recording import Recorder, data_of
from tests.unit.streams.recorded import chunks_of

TEXTS = ["openai-chat-text", "openai-responses-phase", "anthropic-text"]


def broken(turn: Turn, name: str, **how: Any) -> None:
    """Have a stream of a provider's break in its middle."""
    chunks = chunks_of(name)
    with suppress(ConnectionError), turn.llm_call(**how) as call:
        for chunk in chunks[: len(chunks) // 2]:
            call.feed(chunk)
        raise ConnectionError("connection reset")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("way", ["request", "prompt", "retry_of"])
def test_the_first_attempt_is_not_told(recording: Recorder, name: str, way: str) -> None:
    """However the product repeats a request, what had come of it is not said twice."""
    conversation = recording.start()
    with conversation.turn("hello") as turn:
        request = turn.context()
        sent: dict[str, Any] = (
            {"request": request} if way != "prompt" else {"prompt": request.messages}
        )
        broken(turn, name, **sent)
        if way == "retry_of":
            sent["retry_of"] = turn.last_call
        with turn.llm_call(**sent) as call:
            for chunk in chunks_of(name):
                call.feed(chunk)
    [failed] = data_of(recording.store, conversation, "llm_error")
    assert failed.partial_text
    kinds = [item.kind for item in conversation.views.timeline(conversation.id)]
    assert ["assistant", "assistant"] == [kind for kind in kinds if kind == "assistant"]
    told = conversation.views.context(conversation.id, mode=None).messages
    assert ["user", "assistant"] == [each["role"] for each in told]
    assert failed.partial_text != str(told[1]["content"])
