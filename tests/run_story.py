"""A conversation in Run mode, event by event: two runs, four nodes, calls, artifacts, modes.

Every prefix of it is a crash. `Truth` says what is open after one, told by a plain look at the
events that shares nothing with the folds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eventstore import Meta, NewEvent, new_id
from eventstore import events as e

__all__ = ["STORY", "Truth", "story", "truth"]

_SEARCH = e.ToolCallRequest(name="search", arguments_text='{"q": 1}', arguments={"q": 1})
_FIRST = e.RunStart(
    run_id="first",
    workflow_id="report",
    directive="Write a report.",
    nodes=(
        e.RunNode(node_id="plan", title="Plan", brief="Plan the report."),
        e.RunNode(node_id="write", depends_on=("plan",)),
        e.RunNode(node_id="check", depends_on=("write",)),
    ),
    post_run_protocol="Answer questions about it.",
)
_SECOND = e.RunStart(run_id="second", workflow_id="ask", nodes=(e.RunNode(node_id="ask"),))


def _at(turn: int | None = None, run: str | None = None, mode: str = "run") -> Meta:
    return Meta.model_validate({"session_id": "s", "turn": turn, "run_id": run, "mode": mode})


def _planning() -> list[tuple[e.Payload, Meta]]:
    where = _at(1, "first")
    return [
        (e.ConversationStart(mode="agent", base_instructions="Be brief."), _at(mode="agent")),
        (e.SessionStart(), _at(mode="agent")),
        (e.ModeSwitch(mode="run", previous="agent"), _at()),
        (_FIRST, _at(run="first")),
        (e.RunStepStart(run_id="first", node_id="plan", context="Monday"), _at(run="first")),
        (e.TurnStart(), where),
        (e.UserMessage.text("plan it"), where),
        (e.LlmRequest(llm_call_id="a"), where),
        (e.AssistantChunk(llm_call_id="a", index=0, text="I "), where),
        (e.AssistantMessage.of("I look", llm_call_id="a", tool_calls=(_SEARCH, _SEARCH)), where),
        (e.ToolCall(call_id="10.0", name="search", idempotent=True, idempotency_key="k0"), where),
        (e.ToolCall(call_id="10.1", name="search", idempotency_key="k1"), where),
        (e.ToolResult(call_id="10.1", name="search", content="late"), where),
        (e.ToolResult(call_id="10.0", name="search", content="found"), where),
        (e.AssistantMessage.of("planned", final=True), where),
        (e.TurnEnd(status="ok"), where),
        (e.Notebook(text="on Monday"), _at(run="first")),
        (_ended("first", "plan", "completed", "outline"), _at(run="first")),
    ]


def _aside() -> list[tuple[e.Payload, Meta]]:
    chat, where = _at(2, mode="chat"), _at(3, "second")
    return [
        (e.ModeSwitch(mode="chat", previous="run"), _at(mode="chat")),
        (e.TurnStart(), chat),
        (e.UserMessage.text("how is it going?"), chat),
        (e.AssistantMessage.of("well", final=True), chat),
        (e.TurnEnd(status="ok"), chat),
        (e.ModeSwitch(mode="run", previous="chat"), _at()),
        (_SECOND, _at(run="second")),
        (e.RunStepStart(run_id="second", node_id="ask", brief="Ask."), _at(run="second")),
        (e.TurnStart(), where),
        (e.UserMessage.text("ask"), where),
        (e.AssistantMessage.of(None, tool_calls=(_SEARCH,)), where),
        (e.ToolCall(call_id="29.0", name="search"), where),
        (e.ToolResult(call_id="29.0", name="search", status="failed", content="no"), where),
        (e.TurnEnd(status="error", error="no"), where),
        (_ended("second", "ask", "failed"), _at(run="second")),
        (e.RunEnd(run_id="second", status="failed", error="no"), _at(run="second")),
    ]


def _writing() -> list[tuple[e.Payload, Meta]]:
    where = _at(4, "first")
    return [
        (e.RunStepStart(run_id="first", node_id="write"), _at(run="first")),
        (e.TurnStart(), where),
        (e.UserMessage.text("write it"), where),
        (e.LlmRequest(llm_call_id="b"), where),
        (e.AssistantChunk(llm_call_id="b", index=0, text="Dear"), where),
        (e.LlmError(llm_call_id="b", kind="timeout", message="60 s", partial_text="Dear"), where),
        (e.TurnEnd(status="error"), where),
        (_ended("first", "write", "completed", "report"), _at(run="first")),
        (_ended("first", "check", "skipped"), _at(run="first")),
        (e.RunEnd(run_id="first", status="completed"), _at(run="first")),
        (e.ModeSwitch(mode="agent", previous="run"), _at(mode="agent")),
        (e.SessionEnd(), _at(mode="agent")),
    ]


def _ended(run_id: str, node_id: str, status: str, *artifacts: str) -> e.RunStepEnd:
    made = tuple(e.Artifact(name=name, path=f"{name}.md") for name in artifacts)
    return e.RunStepEnd.model_validate(
        {"run_id": run_id, "node_id": node_id, "status": status, "artifacts": made}
    )


STORY = (*_planning(), *_aside(), *_writing())
"""Payloads and where they belong; the version is the place, from 1."""


def story(length: int = len(STORY)) -> list[NewEvent]:
    """Return the first events of the story, with ids of their own."""
    return [NewEvent(data, new_id(), meta) for data, meta in STORY[:length]]


@dataclass
class Truth:
    """What is open: runs in the order in which they were last touched, active nodes, calls."""

    runs: list[str] = field(default_factory=list)
    done: dict[str, set[str]] = field(default_factory=dict)
    active: dict[str, str | None] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)


def truth(payloads: Iterable[e.Payload]) -> Truth:
    """Return what is open after events."""
    found = Truth()
    for version, data in enumerate(payloads, start=1):
        match data:
            case e.RunStart():
                found.runs.append(data.run_id)
                found.active[data.run_id], found.done[data.run_id] = None, set()
            case e.RunStepStart():
                found.runs.remove(data.run_id)
                found.runs.append(data.run_id)
                found.active[data.run_id] = data.node_id
            case e.RunStepEnd():
                found.active[data.run_id] = None
                if data.status in ("completed", "skipped"):
                    found.done[data.run_id].add(data.node_id)
            case e.RunEnd():
                found.runs.remove(data.run_id)
            case e.AssistantMessage():
                asked = [f"{version}.{index}" for index in range(len(data.tool_calls))]
                found.calls |= dict.fromkeys(asked, "make")
            case e.ToolCall():
                found.calls[data.call_id] = "repeat" if data.idempotent else "check"
            case e.ToolResult():
                del found.calls[data.call_id]
            case _:
                pass
    return found
