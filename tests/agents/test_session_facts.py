"""What a session tells of itself: its totals, its start, the status of its context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import AgentSession, EventStore
from agent_eventstore.agents.sinks import JsonlHistorySink


def model(request: Any) -> str:
    """Answer without reporting any usage."""
    return "some answer text here"


def test_totals_of_estimates_are_numbers(store: EventStore) -> None:
    """A turn and its session have the total that SQL and session JSONL have."""
    with AgentSession.create(store, model=model, model_name="gpt-4o") as session:
        turn = session.run_turn("hi").tokens
        total = session.tokens
    assert turn is not None
    assert total is not None
    expected = turn.prompt_tokens + turn.completion_tokens
    assert (expected, expected) == (turn.total_tokens, total.total_tokens)


def test_the_start_in_session_jsonl_has_the_whole_configuration(
    store: EventStore, tmp_path: Path
) -> None:
    """Parameters, protocol, limits, tools and working directory, as in the event."""
    with AgentSession.create(
        store,
        model=model,
        model_name="gpt-4o",
        parameters={"temperature": 0.5},
        max_steps=7,
        max_prompt_tokens=9_000,
        sinks=[JsonlHistorySink(tmp_path)],
    ):
        pass
    start = json.loads(next(tmp_path.rglob("*.jsonl")).read_text().splitlines()[0])["meta"]
    config = start["config"]
    assert ("gpt-4o", "o200k_base") == (start["model"], start["tokenizer"])
    assert {"temperature": 0.5} == config["parameters"]
    assert ("tools", 7, 9_000) == tuple(
        config[name] for name in ("protocol", "max_steps", "max_prompt_tokens")
    )
    assert str(Path.cwd()) == config["cwd"]
    assert "read_output" in config["tools"] or config["tools"] == []


@pytest.mark.parametrize("name", ["gpt4o", "cl100k", "o200k_bas", "gtp-4o"])
def test_a_mistyped_tokenizer_is_refused(store: EventStore, name: str) -> None:
    """A typing error is not a new model whose tokens are estimated."""
    with pytest.raises(ValueError, match="tokenizer"):
        AgentSession.create(store, model=model, tokenizer_model=name)


@pytest.mark.parametrize("name", ["gpt-4o", "cl100k_base", "claude-sonnet-4-5", "deepseek-chat"])
def test_a_known_tokenizer_is_accepted(store: EventStore, name: str) -> None:
    """An encoding, or a model that is listed."""
    AgentSession.create(store, model=model, tokenizer_model=name).close()


def test_the_listener_hears_the_status_of_the_context(store: EventStore) -> None:
    """Before each request: normal, warning or compressing."""
    heard: list[tuple[str, str]] = []
    with AgentSession.create(
        store, model=model, model_name="gpt-4o", listener=lambda *told: heard.append(told)
    ) as session:
        session.run_turn("hi")
    assert ("context", "normal") in heard
