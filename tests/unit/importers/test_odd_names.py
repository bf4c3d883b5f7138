"""Calls whose name or id is no text, in sessions of coding agents."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.transcripts import load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from tests.integration.codex_sessions import Rollout
from tests.unit.importers import test_gemini_cli
from tests.unit.importers.conftest import Write

AT = "2026-05-01T10:00:00Z"


def _pi(name: Any, named: Any) -> list[Any]:
    call = {"type": "toolCall", "id": named, "name": name, "arguments": {"path": "/a"}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]}
    line = {"type": "message", "id": "m1", "timestamp": AT, "message": message}
    return [{"type": "session", "id": "s1", "timestamp": AT, "cwd": "/"}, line]


def _opencode(name: Any, named: Any) -> list[Any]:
    state = {"status": "completed", "input": {"path": "/a"}, "output": "x"}
    parts = [{"type": "tool", "callID": named, "tool": name, "state": state}]
    info = {"role": "assistant", "id": "m1"}
    return [{"info": {"id": "s1"}, "messages": [{"info": info, "parts": parts}]}]


def _atif(name: Any, named: Any) -> list[Any]:
    call = {"function_name": name, "tool_call_id": named, "arguments": {"path": "/a"}}
    step = {"step_id": 1, "source": "agent", "message": "I look.", "tool_calls": [call]}
    return [{"schema_version": "ATIF-v1.4", "session_id": "s1", "steps": [step]}]


def _codex(name: Any, named: Any) -> list[Any]:
    session = Rollout()
    session.item("function_call", name=name, call_id=named, arguments='{"path": "/a"}')
    return session.lines


def _copilot(name: Any, named: Any) -> list[Any]:
    call = {"name": name, "toolCallId": named, "arguments": {"path": "/a"}}
    data = {"content": "I look.", "toolRequests": [call]}
    return [{"type": "assistant.message", "id": "e1", "timestamp": AT, "data": data}]


def _gemini(name: Any, named: Any) -> list[Any]:
    call = {"name": name, "id": named, "args": {"path": "/a"}}
    said = test_gemini_cli.said("m1", "gemini", "I look.", toolCalls=[call])
    return [{**test_gemini_cli.HEAD, "kind": "main"}, said]


@pytest.mark.parametrize("lines", [_pi, _opencode, _atif, _codex, _copilot, _gemini])
@pytest.mark.parametrize(("name", "named"), [(5, "c1"), ("read", ["c1"]), (None, None)])
def test_a_call_that_is_not_understood_is_kept(
    write_lines: Write, lines: Any, name: Any, named: Any
) -> None:
    """It became a call of the tool with the empty name, what was there was lost, nobody told."""
    with EventStore.open("sqlite://") as store:
        report = load(store, read_transcripts(write_lines(*lines(name, named))))
        assert ([], 1) == (report.failures, report.left_out.uninterpreted.total())
        events = list(store.read(report.ids[0]))
    answer = next(each.data for each in events if isinstance(each.data, e.AssistantMessage))
    assert () == answer.tool_calls
    kept = [part.raw for part in answer.parts if isinstance(part, e.OtherPart)]
    assert [True] == [name in each.values() and named in each.values() for each in kept]
