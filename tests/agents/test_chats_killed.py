"""A chat whose process is killed at any event is opened again, and everybody answers once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from agent_eventstore import ChatSession, EventStore
from eventstore.events import AssistantMessage, ModeState, UserMessage
from tests.agents.killable_chat import QUESTION, answer
from tests.killable_processes import KILLED, killable_processes


@pytest.fixture(scope="module")
def live() -> Iterator[Callable[..., int]]:
    """Give a function that holds a chat in a process of its own, and returns how that ended."""
    with killable_processes("tests.agents.killable_chat") as run:
        yield run


@pytest.mark.exhaustive_when("postgresql")
@pytest.mark.parametrize("mode", ["free_chat", "workflow"])
def test_everybody_answers_once(
    store: EventStore, database_url: str, tmp_path: Path, live: Callable[..., int], mode: str
) -> None:
    """Wherever the process was killed; and the workflow comes to its end."""
    after, status = 0, KILLED
    while status == KILLED:
        after += 1
        cid = uuid4()
        status = live(database_url, str(cid), str(tmp_path), mode, after)
        if status == KILLED:
            check_completes(store, cid, mode)
    assert 0 == status
    assert after > 8


def check_completes(store: EventStore, cid: UUID, mode: str) -> None:
    """Open what a killed process left, and see it through."""
    asked = any(each.type == "user_message" for each in store.read(cid))
    taking: dict[str, Any] = {"conversation": {"if_busy": "take_over"}}
    with ChatSession.open(store, cid, model=answer, **taking) as session:
        result = session.go_on() if asked else session.send(QUESTION)
        assert session.go_on() is None
        state = session.mode_state

    assert result is None or "ok" == result.status
    events = [each.data for each in store.read(cid)]
    assert 1 == sum(isinstance(each, UserMessage) for each in events)
    said = [each.name or "" for each in events if isinstance(each, AssistantMessage)]
    if mode == "workflow":
        assert ["ada", "bob", "cy"] == said
        assert ("coder", "done") == (state["current_node"], state["status"])
        assert 3 == sum(isinstance(each, ModeState) for each in events)
    else:
        assert ["ada", "bob", "cy"] == sorted(said)
