"""One history in every format: what providers refuse never comes out, whatever the log holds."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Invocation,
    LlmError,
    Meta,
    NewEvent,
    Notebook,
    OtherPart,
    Payload,
    ReasoningPart,
    RefusalPart,
    Retraction,
    Summary,
    SystemInstruction,
    TextPart,
    ToolCall,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextRow
from projections.providers.request_formats import FORMATS
from tests.checkers import CHECKERS
from tests.list_row_source import ListRowSource
from tests.properties.promises import STRATEGIES, Request, ask, refused, tokens_of
from tests.properties.test_context import as_events, transcripts
from tests.unit.context.log import Log

NATIVE = ("anthropic_messages", "openai_responses")

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
JPEG = "/9j/4AAQSkZJRgABAQAAAQABAAD/2Q=="

_versions = st.integers(1, 20)
_ranges = st.lists(st.builds(VersionRange, first=_versions, last=_versions), max_size=2).map(tuple)
_words = st.sampled_from(["", " \n", "a ", "什么", "\ud83d", "TOOL_FAILED\nx", "<system_note>"])
_urls = st.sampled_from(
    [
        *("https://x/y.png", "http://x/y.png", "", "data:image/png;base64,AAAA", "data:,x%20y"),
        *("data:image/tiff;base64,AAAA", "data:image/png;base64,%%", "data:text/plain;base64,A"),
        *("data:text/plain,hello", "data:application/pdf;base64,AAAA", "data:", "ftp://x"),
        *(f"data:image/png;base64,{DOT}", f"DATA:image/jpeg;base64,{DOT}", f"data:;base64,{DOT}"),
        *(f"data:image/png;base64,{JPEG}", f"data:image/jpg;base64,{JPEG}", "blob:x"),
        f"data:image/png;base64,{DOT[:40]}",
    ]
)
_parts = st.lists(
    st.one_of(
        st.builds(TextPart, text=_words),
        st.builds(RefusalPart, text=_words),
        st.builds(ImagePart, url=_urls, detail=st.sampled_from([None, "low", "sharp"])),
        st.builds(FilePart, name=st.none() | _words, url=st.none() | _urls),
        st.builds(FilePart, file_id=st.just("file-1")),
        st.builds(OtherPart, raw=st.sampled_from([None, {"type": "text", "text": ""}, {"a": 1}])),
        st.builds(
            OtherPart,
            raw=st.sampled_from(
                [
                    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
                    {"type": "image_url", "image_url": {"url": "", "detail": 3}},
                    {"type": "file", "file": {"filename": 1, "file_data": ["x"]}},
                ]
            ),
        ),
        st.builds(ReasoningPart, text=_words, signature=st.sampled_from([None, "", "signed"])),
        st.just(ReasoningPart(text="", raw={"type": "redacted_thinking", "data": "secret"})),
    ),
    max_size=4,
).map(tuple)
_requests = st.builds(
    ToolCallRequest,
    name=st.sampled_from(["f", "", "two words", "工具"]),
    arguments_text=st.sampled_from(
        [
            *("", " ", "{}", "{broken", "[1]", "null", '"{}"', "{}{}", "*** Begin Patch"),
            *('{"a": NaN}', '{"a": 1e999}', '{"\\ud800": "\\udfff"}', '```json\n{"a": 1}\n```'),
        ]
    ),
    provider_id=st.sampled_from([None, "", "x", "y", "call_3_0", "z" * 50, "a b"]),
)
_items = st.sampled_from(
    [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abcd"},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "abcd", "status": None},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "computer_call", "id": "cc_1", "call_id": "cc"},
    ]
)
_blocks = st.sampled_from(
    [
        {"type": "thinking", "thinking": "t", "signature": "signed"},
        {"type": "thinking", "thinking": "t", "signature": ""},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "x"},
        {"type": "text", "text": ""},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    ]
)


@st.composite
def _answers(draw: st.DrawFn) -> AssistantMessage:
    """Draw a message of any maker; what is raw in it mostly agrees with its calls."""
    calls = tuple(draw(st.lists(_requests, max_size=3)))
    specification = draw(st.sampled_from([None, *FORMATS, *NATIVE, *NATIVE]))
    provider = draw(st.sampled_from([None, None, "anthropic", "openai", "deepseek"]))
    lost = draw(st.sampled_from([0, 0, 0, 1]))
    raw: Any = None
    if specification == "openai_responses":
        kind = draw(st.sampled_from(["function_call", "custom_tool_call"]))
        asked = [
            {"type": kind, "id": f"fc_{place}", "call_id": call.provider_id}
            for place, call in enumerate(calls)
        ]
        raw = {"output": draw(st.lists(_items, max_size=3)) + asked[lost:]}
    elif specification == "anthropic_messages" and draw(st.booleans()):
        used = [{"type": "tool_use", "id": call.provider_id, "input": 1} for call in calls]
        raw = {"content": draw(st.lists(_blocks, max_size=3)) + used[lost:][::-1]}
    made = Invocation(specification=specification, provider=provider)
    name = draw(st.sampled_from([None, "Ann Lee"]))
    return AssistantMessage(
        parts=draw(_parts), tool_calls=calls, invocation=made, raw=raw, name=name
    )


_call_ids = st.builds("{}.{}".format, _versions, st.integers(0, 2))
_payloads: st.SearchStrategy[Payload] = st.one_of(
    _answers(),
    _answers(),
    st.builds(UserMessage, parts=_parts, name=st.sampled_from([None, "Bo", "工具"])),
    st.builds(
        ToolResult,
        call_id=_call_ids,
        status=st.sampled_from(["success", "failed", "denied", "outcome_unknown"]),
        content=st.none() | _words | _parts,
    ),
    st.builds(ToolCall, call_id=_call_ids, name=st.just("f")),
    st.builds(LlmError, kind=st.just("network"), message=_words, partial_text=_words),
    st.builds(SystemInstruction, text=_words, role=st.sampled_from(["system", "developer"])),
    st.builds(Notebook, text=_words),
    st.builds(Summary, text=_words, versions=_ranges),
    st.builds(Retraction, versions=_ranges),
)
_results = st.builds(
    ToolResult,
    call_id=st.just(""),
    status=st.sampled_from(["success", "success", "failed", "denied"]),
    content=st.just("fine") | _words | _parts,
)


@st.composite
def _talks(draw: st.DrawFn) -> list[NewEvent]:
    """Draw a conversation as it goes well: each call is answered, by any model at any turn."""
    events: list[Payload] = []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            events.append(draw(_payloads))
        events.append(answer := draw(_answers()))
        version = len(events)
        for index in range(len(answer.tool_calls)):
            result = draw(_results)
            events.append(result.model_copy(update={"call_id": f"{version}.{index}"}))
    return [NewEvent(event) for event in events]


_metas = st.sampled_from([Meta(), Meta(), Meta(), Meta(in_context=False)])
logs = st.lists(st.builds(NewEvent, _payloads, meta=_metas), max_size=20) | _talks()
providers = st.sampled_from([None, "anthropic", "openai", "vertex"])


def chosen(log: Log, groups: int = 1_000_000) -> list[ContextRow]:
    """Return the rows of a view: system part, then the newest groups in order."""
    source = ListRowSource(log.rows())
    head = source.head()
    front = [*head.system, *((head.notebook,) if head.notebook else ())]
    newest = groupby(source.newest(64), key=lambda row: (row.version, min(row.part, 0)))
    taken = [list(group) for _, group in newest][:groups]
    return [*front, *(row for group in reversed(taken) for row in reversed(group))]


@pytest.mark.parametrize("name", CHECKERS)
@given(entries=logs, groups=st.integers(0, 20), provider=providers)
def test_every_window_of_any_history_is_valid(
    name: str, entries: list[NewEvent], groups: int, provider: str | None
) -> None:
    """Of any makers, cut anywhere between groups, for any provider."""
    wire = FORMATS[name](chosen(Log(entries), groups), provider=provider)
    problems = CHECKERS[name](wire.body)
    assert problems == []


@pytest.mark.parametrize("name", CHECKERS)
@given(
    entries=logs,
    strategy=st.sampled_from(STRATEGIES),
    steps=st.booleans(),
    shares=st.lists(st.integers(5, 110), min_size=1, max_size=4),
)
def test_every_cut_by_a_budget_is_valid(
    name: str, entries: list[NewEvent], strategy: str, steps: bool, shares: list[int]
) -> None:
    """Of any makers, by any strategy, whatever had to be left out or shortened."""
    rows = Log(entries).rows()
    for share in shares:
        budget = tokens_of(rows) * share // 100
        view = ask(rows, Request(strategy, name, steps, max_tokens=budget))
        assert view is None or refused(view) == []


@pytest.mark.parametrize("name", FORMATS)
@given(entries=logs)
def test_writing_alters_no_row(name: str, entries: list[NewEvent]) -> None:
    """A row is read again for the next request."""
    rows = chosen(Log(entries))
    before = json.dumps([row.message for row in rows] + [row.native for row in rows])
    FORMATS[name](rows)
    assert before == json.dumps([row.message for row in rows] + [row.native for row in rows])


@pytest.mark.parametrize("name", FORMATS)
@given(entries=logs)
def test_the_same_rows_give_the_same_bytes(name: str, entries: list[NewEvent]) -> None:
    """Key order included, since providers hash what they are sent."""
    first, second = chosen(Log(entries)), chosen(Log(entries))
    assert json.dumps(FORMATS[name](first).body) == json.dumps(FORMATS[name](second).body)


@given(entries=logs)
def test_the_neutral_form_tells_every_call_and_result(entries: list[NewEvent]) -> None:
    """Each call has one result, paired by the store's own ids."""
    messages = FORMATS["neutral"](chosen(Log(entries))).messages
    calls = [call["id"] for message in messages for call in message["calls"]]
    results = [result["call_id"] for message in messages for result in message["results"]]
    assert calls == results
    assert len(calls) == len(set(calls))


def test_real_transcripts_are_valid_in_every_format_and_keep_every_word() -> None:
    """Every conversation of the corpus at every assistant's turn, though many use ids twice."""
    for messages in transcripts():
        rows = chosen(Log(as_events(messages)))
        for end in [place for place, row in enumerate(rows) if row.kind != "tool"] + [len(rows)]:
            for name, check in CHECKERS.items():
                assert check(FORMATS[name](rows[:end]).body) == []
        for name in CHECKERS:
            sent = json.dumps(FORMATS[name](rows).body)
            for message in messages:
                text = (message["content"] or "").strip()
                assert json.dumps(text)[1:-1] in sent
