"""The store that the questions of ``docs/sql-audit.md`` are asked of.

It holds the hundred real transcripts, and three conversations in the first week of March 2026 that
have what transcripts lack: failed and retried model calls, reported tokens, tool calls that failed,
were denied, got no answer or left their outcome unknown, and a run with artifacts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import load, read_transcripts
from agent_eventstore.transcripts.transcript import Transcript, canonical
from eventstore import EventStore, Meta, NewEvent, events
from eventstore.events import (
    Artifact,
    AssistantMessage,
    ConversationStart,
    Invocation,
    LlmError,
    LlmRequest,
    Notebook,
    Payload,
    RunEnd,
    RunNode,
    RunStart,
    RunStepEnd,
    RunStepStart,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from eventstore.ids import derived_id
from projections import worker

__all__ = ["TRANSCRIPTS", "fill"]

TRANSCRIPTS = (
    Path(__file__).parents[2].parent / "shared" / "data" / "tau-bench" / "airline-even-tasks.json"
)

_GPT = Invocation(provider="openai", specification="chat", model="gpt-4o")
_CLAUDE = Invocation(provider="anthropic", specification="messages", model="claude-sonnet-4-5")

Story = list[tuple[str, Payload]]
"""Events with the moments at which they happened, as ISO text without the offset."""


def fill(store: EventStore) -> None:
    """Import the transcripts, append the conversations of the week, and catch up every view."""
    report = load(store, _transcripts())
    assert (100, []) == (report.conversations, report.failures)
    _append(store, "refund", "ada", _refund(), turn=1)
    _append(store, "account", "bert", _account(), agent_id="helper", actor="bert")
    _append(store, "report", "ada", _report(), run_id="run-7", mode="run")
    _append_talk(store)
    worker.run(store, once=True)


def _transcripts() -> Iterator[Transcript | ImportFailed]:
    """Return the transcripts with ids that are the same in every run, for the pages to name."""
    for found in read_transcripts(TRANSCRIPTS):
        if isinstance(found, ImportFailed):
            yield found
        else:
            said = "\n".join(map(canonical, found.origin.content))
            digest = hashlib.sha256(said.encode()).hexdigest()
            known = derived_id("conversation", "openai", "content", digest)
            yield replace(found, conversation_id=known)


def _append(store: EventStore, name: str, user_id: str, story: Story, **where: Any) -> None:
    conversation = derived_id("audit", name)
    moments = [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment, _ in story]
    new = [
        NewEvent(data, derived_id(conversation, number), Meta(occurred_at=moment, **where))
        for number, (moment, (_, data)) in enumerate(zip(moments, story, strict=True))
    ]
    store.append(conversation, new, tenant_id="acme", user_id=user_id)


def _append_talk(store: EventStore) -> None:
    """Append a session of two turns: one that is answered, one that takes too many steps."""
    look = _wish("read", {"path": "README.md"}, '{"path": "README.md"}')
    told: list[tuple[Payload, int | None, int | None]] = [
        (SessionStart(config={"model": "gpt-4o"}), None, None),
        (TurnStart(input="What does it say?"), 1, None),
        (UserMessage.text("What does it say?"), 1, None),
        (AssistantMessage(tool_calls=(look,), usage=_tokens(120, 35)), 1, 0),
        (_result("4.0", "read", "# How to begin"), 1, 0),
        (
            AssistantMessage.of("The README says how to begin.", final=True, usage=_tokens(30, 10)),
            1,
            1,
        ),
        (TurnEnd(status="ok", step_count=2, duration_ms=4_000, tokens=_tokens(150, 45)), 1, None),
        (TurnStart(input="Go on."), 2, None),
        (UserMessage.text("Go on."), 2, None),
        (AssistantMessage(tool_calls=(look,), usage=_tokens(100, 40)), 2, 0),
        (_result("10.0", "read", "# How to begin"), 2, 0),
        (
            TurnEnd(status="max_steps", step_count=1, duration_ms=2_000, tokens=_tokens(100, 40)),
            2,
            None,
        ),
        (SessionEnd(turn_count=2, duration_ms=9_000, tokens=_tokens(250, 85)), None, None),
    ]
    conversation = derived_id("audit", "talk")
    began = datetime(2026, 3, 5, 10, tzinfo=UTC)
    new = [
        NewEvent(
            data,
            derived_id(conversation, number),
            Meta(
                session_id="talk-1",
                turn=turn,
                step=step,
                occurred_at=began + timedelta(seconds=number),
            ),
        )
        for number, (data, turn, step) in enumerate(told)
    ]
    store.append(conversation, new, tenant_id="acme", user_id="cleo")


def _tokens(prompt: int, completion: int) -> TokenUsage:
    return TokenUsage(prompt_tokens=prompt, completion_tokens=completion)


def _refund() -> Story:
    order = _wish("find_order", {"order_id": "W-1001"}, '{"order_id": "W-1001"}')
    refund = _wish(
        "refund_order",
        {"order_id": "W-1001", "amount": 49.5},
        '{"order_id": "W-1001", "amount": 49.5}',
    )
    return [
        ("2026-03-02T09:00:00", ConversationStart(title="A refund", mode="agent")),
        ("2026-03-02T09:00:00", UserMessage.text("Refund order W-1001, please.")),
        ("2026-03-02T09:00:01", LlmRequest(llm_call_id="a1", invocation=_GPT)),
        (
            "2026-03-02T09:00:02",
            LlmError(llm_call_id="a1", kind="rate_limit", message="slow down", retryable=True),
        ),
        (
            "2026-03-02T09:00:05",
            LlmRequest(llm_call_id="a2", invocation=_GPT, attempt=2, retry_of="a1"),
        ),
        ("2026-03-02T09:00:07", _answer("a2", None, (1200, 60), order, refund)),
        ("2026-03-02T09:00:07.100", ToolCall(call_id="6.0", name="find_order")),
        ("2026-03-02T09:00:07.350", _result("6.0", "find_order", "W-1001: delivered, 49.50 EUR")),
        ("2026-03-02T09:00:08", ToolCall(call_id="6.1", name="refund_order")),
        (
            "2026-03-02T09:01:00",
            ToolResult(call_id="6.1", status="outcome_unknown", error="the process was killed"),
        ),
        ("2026-03-02T09:01:01", LlmRequest(llm_call_id="a3", invocation=_GPT)),
        ("2026-03-02T09:01:03", _answer("a3", "I try again.", (1350, 40), refund)),
        ("2026-03-02T09:01:04", ToolCall(call_id="12.0", name="refund_order")),
        (
            "2026-03-02T09:01:05.250",
            ToolResult(call_id="12.0", status="failed", error="already refunded"),
        ),
        ("2026-03-02T09:01:06", LlmRequest(llm_call_id="a4", invocation=_GPT)),
        ("2026-03-02T09:01:08", _answer("a4", "It was refunded.", (1420, 12))),
    ]


def _account() -> Story:
    delete = _wish("delete_account", {"user": "bert"}, '{"user": "bert"}')
    export = _wish("export_data", {"user": "bert"}, '{"user": "bert"}')
    return [
        ("2026-03-03T14:30:00", ConversationStart(title="Close my account", mode="agent")),
        ("2026-03-03T14:30:00", UserMessage.text("Export my data, then delete my account.")),
        ("2026-03-03T14:30:01", LlmRequest(llm_call_id="b1", invocation=_CLAUDE)),
        ("2026-03-03T14:31:01", LlmError(llm_call_id="b1", kind="timeout", message="60 s")),
        ("2026-03-03T15:02:00", LlmRequest(llm_call_id="b2", invocation=_CLAUDE, retry_of="b1")),
        ("2026-03-03T15:02:04", _answer("b2", None, (900, 80), export, delete)),
        ("2026-03-03T15:02:05", ToolCall(call_id="6.0", name="export_data")),
        (
            "2026-03-03T15:02:20",
            ToolResult(call_id="6.1", status="denied", name="delete_account", error="not allowed"),
        ),
    ]


def _report() -> Story:
    nodes = (RunNode(node_id="collect", title="Collect"), RunNode(node_id="write", title="Write"))
    artifact = Artifact(name="figures.csv", path="out/figures.csv", media_type="text/csv")
    run = RunStart(run_id="run-7", workflow_id="weekly-report", directive="Report.", nodes=nodes)
    return [
        ("2026-03-05T06:00:00", run),
        ("2026-03-05T06:00:01", RunStepStart(run_id="run-7", node_id="collect")),
        ("2026-03-05T06:00:30", Notebook(text="figures are in out/figures.csv")),
        (
            "2026-03-05T06:00:31",
            RunStepEnd(
                run_id="run-7", node_id="collect", status="completed", artifacts=(artifact,)
            ),
        ),
        ("2026-03-05T06:00:32", RunStepStart(run_id="run-7", node_id="write")),
        ("2026-03-05T06:00:33", LlmRequest(llm_call_id="c1", invocation=_CLAUDE)),
        (
            "2026-03-05T06:00:40",
            _answer("c1", "The week in figures", (4000, 700), invocation=_CLAUDE),
        ),
        (
            "2026-03-05T06:00:41",
            RunStepEnd(run_id="run-7", node_id="write", status="failed", error="no template"),
        ),
        ("2026-03-05T06:00:42", RunEnd(run_id="run-7", status="failed", error="no template")),
    ]


def _wish(name: str, arguments: dict[str, Any], text: str) -> ToolCallRequest:
    return ToolCallRequest(name=name, arguments=arguments, arguments_text=text)


def _answer(
    llm_call_id: str,
    text: str | None,
    tokens: tuple[int, int],
    *wishes: ToolCallRequest,
    invocation: Invocation | None = None,
) -> AssistantMessage:
    usage = TokenUsage(prompt_tokens=tokens[0], completion_tokens=tokens[1])
    return events.AssistantMessage.of(
        text, llm_call_id=llm_call_id, tool_calls=wishes, usage=usage, invocation=invocation
    )


def _result(call_id: str, name: str, content: str) -> ToolResult:
    return ToolResult(call_id=call_id, name=name, content=content)
