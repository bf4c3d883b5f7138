"""Hypothesis strategies for conversations in which everything that matters to a request happens.

Short, so that orphans, duplicate ids, late and contradicting results, failures, retractions,
summaries and excluded messages meet each other; texts hold facts, and some are long.
"""

from __future__ import annotations

import json

from hypothesis import strategies as st

from eventstore import events as e

__all__ = ["dense_histories", "entries"]

_versions = st.integers(1, 25)
_ranges = st.lists(st.builds(e.VersionRange, first=_versions, last=_versions), max_size=2)
_rows = [{"order_id": f"#W23781{n}", "status": "delivered", "price": n * 7} for n in range(8)]
words = st.sampled_from(
    [
        *("", "a", "什么", "\ud83d", "longer words " * 20, "Order #W2378156 must arrive. Thanks."),
        "I am mia_li_3668. " + "It is cold today. " * 20 + "Send it to /srv/depot/a.txt!",
        json.dumps(_rows),
        json.dumps({"rows": _rows[:3], "note": "It is so. " * 30}, ensure_ascii=False),
    ]
)
_llm_ids = st.sampled_from(["a", "b", "c"])
_requests = st.builds(
    e.ToolCallRequest,
    name=st.sampled_from(["f", "", "two words", "工具", "find_order"]),
    arguments_text=st.sampled_from(["", "{}", "{broken", '{"order_id": "#W2378156"}']),
    provider_id=st.sampled_from([None, "", "x", "call_3_0", "y" * 50]),
)
_call_ids = st.builds("{}.{}".format, _versions, st.integers(0, 2))
_statuses = st.sampled_from(["success", "failed", "not_started", "outcome_unknown", "denied"])
_sections = st.none() | st.builds(
    e.Sections,
    live=st.just((e.Section(text="in full"),)),
    summary=st.none() | st.just((e.Section(text="in short"),)),
    gist=st.none() | st.just((e.Section(text="mia_li_3668 said so"),)),
)
_makers = st.sampled_from(
    [
        None,
        e.Invocation(provider="openai", model="gpt-4o", specification="openai_chat"),
        e.Invocation(provider="openai", model="o3", specification="openai_responses"),
        e.Invocation(provider="anthropic", model="claude", specification="anthropic_messages"),
    ]
)


@st.composite
def _answers(draw: st.DrawFn) -> e.AssistantMessage:
    """Draw an answer of any maker, with thoughts that only Claude wants back."""
    text = e.TextPart(text=draw(words))
    made = draw(_makers)
    thought = e.ReasoningPart(text="hm " * 30, signature=draw(st.sampled_from([None, "signed"])))
    return e.AssistantMessage(
        llm_call_id=draw(_llm_ids),
        parts=(thought, text) if made is not None and draw(st.booleans()) else (text,),
        tool_calls=tuple(draw(st.lists(_requests, max_size=3))),
        invocation=made,
    )


_payloads: st.SearchStrategy[e.Payload] = st.one_of(
    _answers(),
    _answers(),
    st.builds(e.ToolCall, call_id=_call_ids, name=st.just("f")),
    st.builds(e.ToolResult, call_id=_call_ids, status=_statuses, content=st.none() | words),
    st.builds(e.ToolResult, call_id=_call_ids, content=words, sections=_sections),
    st.builds(e.UserMessage.text, words),
    st.builds(e.LlmError, llm_call_id=_llm_ids, kind=st.just("network"), message=words),
    st.builds(e.LlmRequest, llm_call_id=_llm_ids, retry_of=st.none() | _llm_ids),
    st.builds(e.SystemInstruction, text=words),
    st.builds(e.Notebook, text=words),
    st.builds(e.Summary, text=words, versions=_ranges.map(tuple)),
    st.builds(e.Retraction, versions=_ranges.map(tuple)),
)
_metas = st.sampled_from(
    [
        *(e.Meta(), e.Meta(mode="agent", turn=1), e.Meta(mode="run", run_id="r1")),
        e.Meta(in_context=False),
    ]
)
entries = st.builds(e.NewEvent, _payloads, meta=_metas)


@st.composite
def _talks(draw: st.DrawFn) -> list[e.NewEvent]:
    """Draw a conversation as it goes well: each call is answered, by any model at any turn."""
    payloads: list[e.Payload] = [e.UserMessage.text(draw(words))]
    for _ in range(draw(st.integers(1, 5))):
        payloads.append(answer := draw(_answers()))
        version = len(payloads)
        payloads += [
            e.ToolResult(call_id=f"{version}.{index}", content=draw(words))
            for index in range(len(answer.tool_calls))
        ]
        if draw(st.booleans()):
            payloads.append(e.UserMessage.text(draw(words)))
    return [e.NewEvent(payload) for payload in payloads]


dense_histories = st.lists(entries, max_size=25) | _talks()
