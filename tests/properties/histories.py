"""Hypothesis strategies for conversations in any order, as no well-behaved writer makes them.

Ids come from small pools, so that calls and runs meet their results and ends about as often as
they miss them; call ids name assistant messages that exist, that do not, and that come later.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from eventstore import events as e
from tests.unit.projections.history import START, Entry, apply, history

__all__ = ["apply", "entries", "histories", "metas", "payloads"]

_texts = st.text(max_size=12) | st.sampled_from(["", "a\x00b", "\ud800", "line\nline", "x" * 300])
_llm_ids = st.sampled_from(["a", "b", "c"])
_run_ids = st.sampled_from(["r1", "r2"])
_node_ids = st.sampled_from(["n1", "n2", "n3"])
_task_ids = st.sampled_from(["t1", "t2"])
_call_ids = st.builds("{}.{}".format, st.integers(1, 12), st.integers(0, 2)) | st.sampled_from(
    ["", "x", "call_1", "99999999999999999999.0"]
)
_tools = st.sampled_from(["search", "write"])
_jsons = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)
_ranges = st.builds(e.VersionRange, first=st.integers(1, 20), last=st.integers(1, 20))
_milliseconds = st.none() | st.integers(0, 10**6)

_parts = st.lists(
    st.one_of(
        st.builds(e.TextPart, text=_texts),
        st.builds(e.ReasoningPart, text=_texts),
        st.builds(e.RefusalPart, text=_texts),
        st.builds(e.ImagePart, url=st.just("https://example.org/i.png")),
        st.builds(e.FilePart, path=st.none() | st.just("a/b.txt")),
        st.builds(e.OtherPart, raw=_jsons),
    ),
    max_size=3,
).map(tuple)
_usages = st.none() | st.builds(
    e.TokenUsage,
    prompt_tokens=st.integers(0, 1000),
    completion_tokens=st.integers(0, 1000),
    cached_prompt_tokens=st.none() | st.integers(0, 1000),
    reported=st.booleans(),
)
_invocations = st.builds(
    e.Invocation,
    provider=st.sampled_from([None, "openai", "nobody"]),
    model=st.sampled_from([None, "gpt-4o", "text-davinci-003", "house-model"]),
)
_requests = st.lists(
    st.builds(
        e.ToolCallRequest,
        name=_tools,
        arguments_text=_texts,
        arguments=st.none() | _jsons,
        provider_id=st.sampled_from([None, "call_1"]),
    ),
    max_size=2,
).map(tuple)
_deltas = st.lists(
    st.builds(e.ToolCallDelta, index=st.integers(0, 2), name=st.none() | _tools, arguments=_texts),
    max_size=2,
).map(tuple)
_partial_calls = st.lists(
    st.builds(e.PartialToolCall, index=st.integers(0, 2), name=st.none() | _tools), max_size=2
).map(tuple)
_sections = st.none() | st.builds(
    e.Sections, live=st.lists(st.builds(e.Section, text=_texts), max_size=2).map(tuple)
)
_artifacts = st.lists(
    st.builds(e.Artifact, name=st.sampled_from(["report", "log"]), content=_jsons), max_size=2
).map(tuple)
_blobs = st.none() | st.builds(e.BlobRef, digest=st.just("ab" * 32), size_bytes=st.just(70_000))
_statuses = st.sampled_from(
    ["success", "failed", "skipped", "denied", "not_started", "outcome_unknown"]
)
_kinds = st.sampled_from(["timeout", "network", "provider", "cancelled", "interrupted"])
_modes = st.sampled_from(["chat", "agent", "run", "free_chat"])

_models: tuple[st.SearchStrategy[e.Payload], ...] = (
    st.builds(e.UserMessage, parts=_parts, sections=_sections),
    st.builds(
        e.LlmRequest,
        llm_call_id=_llm_ids,
        invocation=_invocations,
        counted_tokens=st.none() | st.integers(0, 1000),
    ),
    st.builds(
        e.AssistantChunk,
        llm_call_id=_llm_ids,
        index=st.integers(0, 5),
        text=_texts,
        reasoning=_texts,
        tool_calls=_deltas,
    ),
    st.builds(
        e.AssistantMessage,
        llm_call_id=st.none() | _llm_ids,
        parts=_parts,
        tool_calls=_requests,
        usage=_usages,
        invocation=st.none() | _invocations,
        duration_ms=_milliseconds,
    ),
    st.builds(
        e.LlmError,
        llm_call_id=st.none() | _llm_ids,
        kind=_kinds,
        message=_texts,
        partial_text=_texts,
        partial_tool_calls=_partial_calls,
        usage=_usages,
    ),
    st.builds(
        e.ToolCall, call_id=_call_ids, name=_tools, idempotency_key=st.none() | st.just("key")
    ),
    st.builds(
        e.ToolResult,
        call_id=_call_ids,
        status=_statuses,
        content=st.none() | _texts | _parts,
        blob=_blobs,
        sections=_sections,
        duration_ms=_milliseconds,
    ),
)
_frames: tuple[st.SearchStrategy[e.Payload], ...] = (
    st.builds(
        e.ConversationStart,
        title=st.none() | _texts,
        mode=st.none() | _modes,
        metadata=st.none() | _jsons,
    ),
    st.builds(
        e.ConversationUpdate,
        title=st.none() | _texts,
        archived=st.none() | st.booleans(),
        metadata=st.none() | _jsons,
    ),
    st.builds(e.ConversationEnd, reason=st.sampled_from(["archived", "destroyed"])),
    st.builds(e.SessionStart),
    st.builds(e.SessionEnd, duration_ms=_milliseconds),
    st.builds(e.ModeSwitch, mode=_modes),
    st.builds(e.ModeState, mode=_modes, state=st.just({"current_node": "coder"})),
    st.builds(e.TurnStart),
    st.builds(e.TurnEnd, status=st.sampled_from(["ok", "error", "aborted"])),
    st.builds(
        e.RunStart,
        run_id=_run_ids,
        workflow_id=st.just("w"),
        nodes=st.lists(st.builds(e.RunNode, node_id=_node_ids), max_size=3).map(tuple),
    ),
    st.builds(e.RunEnd, run_id=_run_ids, status=st.sampled_from(["completed", "failed"])),
    st.builds(e.RunStepStart, run_id=_run_ids, node_id=_node_ids, brief=st.none() | _texts),
    st.builds(
        e.RunStepEnd,
        run_id=_run_ids,
        node_id=_node_ids,
        status=st.sampled_from(["completed", "failed", "skipped"]),
        artifacts=_artifacts,
    ),
    st.builds(e.TaskEnqueue, task_id=_task_ids, items=_parts),
    st.builds(e.TaskStart, task_id=_task_ids),
    st.builds(e.TaskEnd, task_id=_task_ids, status=st.sampled_from(["complete", "aborted"])),
    st.builds(e.Summary, text=_texts, versions=st.lists(_ranges, max_size=2).map(tuple)),
    st.builds(e.SystemInstruction, text=_texts),
    st.builds(e.Notebook, text=_texts),
    st.builds(e.Retraction, versions=st.lists(_ranges, max_size=2).map(tuple)),
    st.builds(
        e.BranchSwitch,
        reason=st.sampled_from(["edit", "regenerate", "rewind", "switch"]),
        kind=st.sampled_from(["message", "answer"]),
        after=st.integers(0, 20),
        left=st.none() | st.integers(1, 20),
        turn=st.none() | st.integers(1, 5),
        withdrawn=st.lists(_ranges, max_size=2).map(tuple),
        taken=st.none() | st.integers(1, 20),
        restored=st.lists(_ranges, max_size=2).map(tuple),
    ),
)
_receipts = st.builds(
    e.Erasure,
    erasure_id=st.just("e1"),
    reason=_texts,
    versions=st.just((1,)),
    event_count=st.just(1),
)


def payloads() -> st.SearchStrategy[e.Payload]:
    """Return a strategy for payloads that can be appended, half of them of models and tools."""
    return st.one_of(*_models) | st.one_of(*_frames)


def metas() -> st.SearchStrategy[e.Meta]:
    """Return a strategy for metadata, with clocks that may run backwards."""
    return st.builds(
        e.Meta,
        session_id=st.sampled_from([None, "s1", "s2"]),
        turn=st.sampled_from([None, 1, 2]),
        mode=st.none() | _modes,
        occurred_at=st.none()
        | st.integers(-100, 100).map(lambda seconds: START + timedelta(seconds=seconds)),
        extra=st.none() | _jsons,
    )


def entries() -> st.SearchStrategy[Entry]:
    """Return a strategy for what an event may hold: a payload, nothing any more, or a riddle."""
    erased: st.SearchStrategy[Any] = st.sampled_from([cls.type for cls in e.EVENT_TYPES])
    unknown: st.SearchStrategy[Any] = st.builds(
        e.UnknownEvent,
        type=st.sampled_from(["user_message", "from_the_future"]),
        schema_version=st.just(9),
        raw=_jsons,
    )
    data: st.SearchStrategy[Any] = st.one_of(
        payloads(), payloads(), payloads(), _receipts, erased, unknown
    )
    return st.tuples(data, metas())


def histories(max_size: int = 25) -> st.SearchStrategy[list[e.RecordedEvent]]:
    """Return a strategy for the events of one conversation, in any order, from version 1."""
    return st.lists(entries(), max_size=max_size).map(lambda items: history(*items))
