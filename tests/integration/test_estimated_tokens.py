"""Tokens of answers whose provider tells none: estimated, marked, and added up everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore import events as e
from tests.integration.recording import Recorder
from tests.integration.replay_server import Spoken

SAID = "It is 18 degrees and sunny."
TOKENS = 8  # as tiktoken counts them
PROMPT = [{"role": "user", "content": "How is the weather in San Francisco, please?"}]


def stream(turn: Any, *, usage: bool = False, **options: Any) -> None:
    """Read a stream of the server's form, with or without its counts."""
    with turn.llm_call(**{"model": "gpt-4o", "prompt": PROMPT, **options}) as call:
        for chunk in Spoken(SAID).chunks(usage=usage):
            call.feed(chunk)


def payload(recording: Recorder, conversation: Any, kind: type[e.Payload]) -> Any:
    """Return the last payload of a type."""
    found = [r.data for r in recording.store.read(conversation.id) if isinstance(r.data, kind)]
    return found[-1]


def test_turn_session_and_views(recording: Recorder) -> None:
    """Before, turn and session knew of no tokens at all, and the views of none of the prompt's."""
    conversation: Any = recording.start()
    with conversation.turn("hello") as turn:
        stream(turn)
    usage = conversation.usage
    conversation.close()
    ended = payload(recording, conversation, e.TurnEnd).tokens

    assert ended == usage == payload(recording, conversation, e.SessionEnd).tokens
    assert not ended.reported
    assert TOKENS == ended.completion_tokens
    assert 10 <= ended.prompt_tokens <= 20
    for by in ("turn", "session", "conversation"):
        [total] = conversation.views.usage(by=by, conversation_id=conversation.id)
        assert (TOKENS, ended.prompt_tokens) == (
            total.estimated_completion_tokens,
            total.estimated_prompt_tokens,
        )
        assert (None, None) == (total.completion_tokens, total.cost_usd)


def test_reported_tokens_are_not_estimated(recording: Recorder) -> None:
    """A stream that was asked for its counts has them; together with an estimate it is marked."""
    conversation: Any = recording.start()
    with conversation.turn("hello") as turn:
        stream(turn, usage=True)
        assert (True, 9, 6) == (
            turn.usage.reported,
            turn.usage.prompt_tokens,
            turn.usage.completion_tokens,
        )
        stream(turn)

    assert not turn.usage.reported
    assert 6 + TOKENS == turn.usage.completion_tokens


def test_count_of_the_context(recording: Recorder) -> None:
    """Messages that were counted when they were composed are not counted again."""
    conversation: Any = recording.start()
    with conversation.turn("hello") as turn:
        request = turn.context()
        stream(turn, prompt=request.messages)

    assert request.tokens.tokens == turn.usage.prompt_tokens


def test_whole_answer_without_counts(recording: Recorder) -> None:
    """Not streamed, and told by hand, likewise."""
    conversation: Any = recording.start()
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": SAID}}
    with conversation.turn("hello") as turn:
        with turn.llm_call(model="gpt-4o", prompt=PROMPT) as call:
            call.response({"choices": [choice]})
        with turn.llm_call(model="somebody's own", prompt="How is the weather?") as other:
            other.message(SAID)

    usages: list[Any] = [each.answer and each.answer.usage for each in (call, other)]

    assert [TOKENS, TOKENS] == [usage.completion_tokens for usage in usages]
    assert [False, False] == [usage.reported for usage in usages]
    assert all(usage.prompt_tokens > 0 for usage in usages)


@pytest.mark.parametrize(
    "prompt", [None, 5, [[{}]], {"a": float("nan")}, "x" * 1_000_000, object()]
)
def test_any_prompt(recording: Recorder, prompt: Any) -> None:
    """Whatever was sent, an estimate costs little and breaks nothing."""
    conversation: Any = recording.start()
    with conversation.turn("hello") as turn:
        stream(turn, prompt=prompt)

    assert TOKENS == turn.usage.completion_tokens


def test_turn_that_recovery_ends(recording: Recorder) -> None:
    """A turn that a process left open is ended with the tokens that were known by then."""
    conversation: Any = recording.start()
    turn = conversation.turn("hello").__enter__()
    stream(turn)
    again = recording.open(conversation.id, if_busy="take_over")
    ended = payload(recording, again, e.TurnEnd).tokens

    assert (False, TOKENS) == (ended.reported, ended.completion_tokens)
