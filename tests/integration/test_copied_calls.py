"""A model call that several session files hold is counted once, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import Transcript, load, read_transcripts
from eventstore import EventStore
from projections import Views
from projections.models.totals import UsageTotal

pytestmark = pytest.mark.exhaustive_when("postgresql")

Lines = list[dict[str, Any]]
FIRST, SECOND = "11111111-2222-4333-8444-000000000001", "11111111-2222-4333-8444-000000000002"


def _at(number: int, minute: int = 0) -> str:
    return f"2026-03-01T10:{minute:02}:{number:02}.000Z"


def claude(session: str) -> Lines:
    """Return a session of Claude Code; a resumed one has the other's lines, under its own id."""
    common = {"sessionId": session, "isSidechain": False, "cwd": "/w", "version": "1.0.30"}
    used = {"input_tokens": 100, "output_tokens": 50}
    answer = {"id": "msg_A", "role": "assistant", "model": "claude-sonnet-4-5", "usage": used}
    found = [
        ("user", "u1", None, {"role": "user", "content": "q"}),
        ("assistant", "a1", "u1", {**answer, "content": [{"type": "text", "text": "one"}]}),
        ("assistant", "a2", "a1", {**answer, "content": [{"type": "text", "text": "two"}]}),
    ]
    return [
        {"type": kind, "uuid": uuid, "parentUuid": above, "message": message, "requestId": "r"}
        | {"timestamp": _at(number), **common}
        for number, (kind, uuid, above, message) in enumerate(found)
    ]


def codex(session: str) -> Lines:
    """Return a session of Codex; a fork has the other's lines again, at the time of the fork."""
    meta: Lines = [{"id": FIRST, "timestamp": _at(0), "cwd": "/w"}]
    minute = 0
    if session != FIRST:
        meta, minute = [{**meta[0], "id": session, "forked_from_id": FIRST}, *meta], 5
    used = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    info = {"total_token_usage": used, "last_token_usage": used}
    said = {"type": "message", "role": "assistant"}
    lines = [
        *(("session_meta", each) for each in meta),
        (
            "response_item",
            {**said, "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        ),
        ("response_item", {**said, "content": [{"type": "output_text", "text": "a"}]}),
        ("event_msg", {"type": "token_count", "info": info}),
    ]
    return [
        {"timestamp": _at(number, minute), "type": kind, "payload": payload}
        for number, (kind, payload) in enumerate(lines)
    ]


def gemini(session: str) -> Lines:
    """Return a session of Gemini CLI."""
    used = {"input": 100, "output": 50, "total": 150}
    answer: dict[str, Any] = {
        "type": "gemini",
        "content": "a",
        "model": "gemini-2.5-pro",
        "tokens": used,
    }
    messages: Lines = [{"type": "user", "content": "q"}, answer]
    listed = [
        {"id": f"m{number}", "timestamp": _at(number), **each}
        for number, each in enumerate(messages)
    ]
    return [{"sessionId": session, "projectHash": "p", "startTime": _at(0), "messages": listed}]


def opencode(session: str) -> Lines:
    """Return a session of OpenCode, whose forks give every message a new id."""
    used = {"input": 100, "output": 50, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    asked: dict[str, Any] = {"role": "user", "time": {"created": 1_772_359_200_000}}
    time = {"created": 1_772_359_201_000, "completed": 1_772_359_202_000}
    about: dict[str, Any] = {"role": "assistant", "time": time, "tokens": used}
    about |= {"providerID": "openai", "modelID": "gpt-4o"}
    messages: Lines = [
        {
            "info": {"id": f"{session}-{number}", "sessionID": session, **info},
            "parts": [{"type": "text", "text": "t"}],
        }
        for number, info in enumerate((asked, about))
    ]
    return [{"info": {"id": session, "title": "t"}, "messages": messages}]


def pi(session: str) -> Lines:
    """Return a session of pi."""
    used = {"input": 100, "output": 50, "totalTokens": 150}
    about = {"provider": "openai", "model": "gpt-4o", "usage": used}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "a"}], **about}
    lines = [{"role": "user", "content": "q"}, answer]
    begun = {"type": "session", "id": session, "timestamp": _at(0), "cwd": "/w"}
    return [
        begun,
        *(
            {"type": "message", "id": f"n{number}", "timestamp": _at(number), "message": each}
            for number, each in enumerate(lines)
        ),
    ]


def copilot(session: str) -> Lines:
    """Return a session of Copilot's CLI."""
    used = {"inputTokens": 100, "outputTokens": 50}
    events = [
        ("session.start", {"sessionId": session}),
        ("user.message", {"content": "q"}),
        ("assistant.message", {"content": "a", "messageId": "m1"}),
        ("assistant.usage", used),
    ]
    return [
        {"type": kind, "data": data, "id": f"e{number}", "timestamp": _at(number)}
        for number, (kind, data) in enumerate(events)
    ]


def chatgpt(session: str) -> Lines:
    """Return a conversation of ChatGPT's export; a branch repeats the messages of the other."""
    texts = [("user", "q"), ("assistant", "a")]
    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": ["n0"]}}
    for number, (role, text) in enumerate(texts):
        message = {
            "id": f"n{number}",
            "author": {"role": role},
            "create_time": 1_772_359_200.5 + number,
            "content": {"content_type": "text", "parts": [text]},
            "metadata": {},
        }
        above = f"n{number - 1}" if number else "root"
        mapping[f"n{number}"] = {"id": f"n{number}", "parent": above, "message": message}
        mapping[f"n{number}"]["children"] = [] if number else ["n1"]
    return [{"id": session, "title": "t", "current_node": "n1", "mapping": mapping}]


def openhands(session: str) -> Lines:
    """Return a trajectory of OpenHands."""
    model = {"id": "chatcmpl-1", "model": "gpt-4o"}
    about = {"function_name": "run", "tool_call_id": "c1", "model_response": model}
    events: Lines = [
        {"source": "user", "action": "message", "args": {"content": "q"}},
        {"source": "agent", "action": "run", "args": {"command": "ls", "thought": "a"}},
    ]
    events[1]["tool_call_metadata"] = about
    listed = [{"id": n, "timestamp": _at(n), **each} for n, each in enumerate(events)]
    return [{"instance_id": session, "history": listed}]


def openhands_sdk(session: str) -> Lines:
    """Return a trajectory of the newer SDK of OpenHands."""
    said = {"role": "assistant", "content": [{"type": "text", "text": "a"}]}
    asked = {**said, "role": "user"}
    events: Lines = [
        {"source": "user", "llm_message": asked},
        {"source": "agent", "llm_message": said, "llm_response_id": "chatcmpl-1"},
    ]
    listed = [
        {"kind": "MessageEvent", "id": f"e{n}", "timestamp": _at(n), **each}
        for n, each in enumerate(events)
    ]
    return [{"instance_id": session, "history": listed}]


def atif(session: str) -> Lines:
    """Return a trajectory in ATIF; one that continues another repeats its steps."""
    used = {"prompt_tokens": 100, "completion_tokens": 50}
    steps: Lines = [
        {"source": "user", "message": "q"},
        {"source": "agent", "message": "a", "metrics": used},
    ]
    steps = [{"step_id": n + 1, "timestamp": _at(n), **each} for n, each in enumerate(steps)]
    agent = {"name": "x", "version": "1", "model_name": "gpt-4o"}
    return [{"schema_version": "ATIF-v1.5", "session_id": session, "agent": agent, "steps": steps}]


def atif_without_times(session: str) -> Lines:
    """Return a trajectory of one session, whose steps have no time."""
    found = atif(FIRST)
    for step in found[0]["steps"]:
        del step["timestamp"]
    return [{**found[0], "trajectory_id": session}]


def langchain(session: str) -> Lines:
    """Return dumped messages of LangChain."""
    used = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    asked = {"type": "human", "data": {"content": "q", "id": "h"}}
    answer = {"content": "a", "id": "lc_run--1", "usage_metadata": used}
    return [{"id": session, "messages": [asked, {"type": "ai", "data": answer}]}]


def inspect(session: str) -> Lines:
    """Return a sample of a log of Inspect; a retried evaluation copies those that are done."""
    used = {"input_tokens": 100, "output_tokens": 50}
    answer = {"id": "m2", "role": "assistant", "content": "a", "usage": used}
    messages = [{"id": "m1", "role": "user", "content": "q"}, answer]
    return [{"id": 1, "epoch": 1, "uuid": session, "messages": messages, "scores": {}}]


def openai(session: str) -> Lines:
    """Return a messages array whose answer has the whole response, as mini-swe-agent keeps it."""
    used = {"prompt_tokens": 100, "completion_tokens": 50}
    response = {"id": "chatcmpl-1", "usage": used}
    answer = {"role": "assistant", "content": "a", "extra": {"response": response}}
    return [{"id": session, "messages": [{"role": "user", "content": "q"}, answer]}]


def anthropic(session: str) -> Lines:
    """Return a messages array with an answer of Anthropic."""
    used = {"input_tokens": 100, "output_tokens": 50}
    answer = {"id": "msg_1", "role": "assistant", "usage": used}
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    content = [thought, {"type": "text", "text": "a"}]
    return [
        {
            "id": session,
            "messages": [{"role": "user", "content": "q"}, {**answer, "content": content}],
        }
    ]


def responses(session: str) -> Lines:
    """Return items of OpenAI's Responses."""
    said = {"type": "message", "id": "msg_1", "role": "assistant"}
    answer = {**said, "content": [{"type": "output_text", "text": "a"}]}
    return [{"id": session, "input": [{"role": "user", "content": "q"}, answer]}]


def ui_messages(session: str) -> Lines:
    """Return messages of the AI SDK."""
    parts = [{"type": "step-start"}, {"type": "text", "text": "a"}]
    asked = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "q"}]}
    return [{"id": session, "messages": [asked, {"id": "a", "role": "assistant", "parts": parts}]}]


FORMATS: list[Callable[[str], Lines]] = [
    *(claude, codex, gemini, opencode, pi, copilot),
    *(atif, atif_without_times, langchain, inspect, openai, anthropic),
]
WITHOUT_USAGE: list[Callable[[str], Lines]] = [
    *(chatgpt, openhands, openhands_sdk, responses, ui_messages)
]
each_format = pytest.mark.parametrize("session", FORMATS, ids=lambda made: made.__name__)
each_order = pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)], ids=["12", "21"])


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def _load(store: EventStore, folder: Path, name: str, lines: Lines, **owner: Any) -> Any:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    read = (each for each in read_transcripts(path) if isinstance(each, Transcript))
    report = load(store, [replace(each, **owner) for each in read])
    assert (0, 1) == (report.failed, len(report.ids))
    return report.ids[0]


def _counted(totals: list[UsageTotal]) -> tuple[int, int]:
    spent = sum((each.prompt_tokens or 0) + (each.completion_tokens or 0) for each in totals)
    return sum(each.calls for each in totals), spent


@each_order
@each_format
def test_it_is_counted_once_in_any_order(
    store: EventStore, tmp_path: Path, session: Callable[[str], Lines], order: tuple[str, str]
) -> None:
    """Two files with one call have its tokens once, also if they are loaded again."""
    for name in (*order, *order):
        _load(store, tmp_path, name, session(name))
    views = Views(store)
    assert (1, 150) == _counted(views.usage())
    assert (1, 150) == _counted(views.usage(by="conversation"))


@pytest.mark.parametrize("session", WITHOUT_USAGE, ids=lambda made: made.__name__)
def test_calls_without_usage_are_counted_once(
    store: EventStore, tmp_path: Path, session: Callable[[str], Lines]
) -> None:
    """Formats that do not say what a call cost have copies too."""
    ids = [_load(store, tmp_path, name, session(name)) for name in (FIRST, SECOND)]
    assert 2 == len(set(ids))
    assert 1 == sum(each.calls for each in Views(store).usage())


def test_equal_answers_at_one_time_in_one_file_are_as_many_calls(
    store: EventStore, tmp_path: Path
) -> None:
    """An id that recurs in a file, as those of some servers do, hides no call."""
    lines = langchain(FIRST)
    lines[0]["messages"] *= 2
    found = _load(store, tmp_path, FIRST, lines)
    assert (2, 300) == _counted(Views(store).usage(conversation_id=found))
    _load(store, tmp_path, SECOND, [{**lines[0], "id": SECOND}])
    assert (2, 300) == _counted(Views(store).usage())


@each_format
def test_each_conversation_has_its_own_usage(
    store: EventStore, tmp_path: Path, session: Callable[[str], Lines]
) -> None:
    """The usage of one conversation is what its file says."""
    for name in (FIRST, SECOND):
        told = Views(store).usage(conversation_id=_load(store, tmp_path, name, session(name)))
        assert (1, 150) == _counted(told)


@pytest.mark.parametrize("erased", [0, 1])
@each_format
def test_the_other_counts_once_one_is_erased(
    store: EventStore, tmp_path: Path, session: Callable[[str], Lines], erased: int
) -> None:
    """Whichever copy is erased with its usage, the call is still counted once."""
    ids = [_load(store, tmp_path, name, session(name)) for name in (FIRST, SECOND)]
    store.erase(ids[erased], reason="asked", keep_usage=False)
    assert (1, 150) == _counted(Views(store).usage())


@pytest.mark.parametrize("erased", [0, 1])
@each_format
def test_an_erasure_that_keeps_usage_doubles_none(
    store: EventStore, tmp_path: Path, session: Callable[[str], Lines], erased: int
) -> None:
    """The kept bill of an erased copy is recognized as that of the same call."""
    ids = [_load(store, tmp_path, name, session(name)) for name in (FIRST, SECOND)]
    store.erase(ids[erased], reason="asked", keep_usage=True)
    assert (1, 150) == _counted(Views(store).usage())


def test_owners_do_not_share_calls(store: EventStore, tmp_path: Path) -> None:
    """Two users who imported the same file are each billed for it."""
    for user in ("ann", "bob"):
        _load(store, tmp_path, FIRST, claude(FIRST), user_id=user)
    assert (2, 300) == _counted(Views(store).usage())


def test_equal_answers_of_unrelated_sessions_of_codex_count_twice(
    store: EventStore, tmp_path: Path
) -> None:
    """The same question, answer and tokens in two sessions are no copy."""
    for name in (FIRST, SECOND):
        lines = codex(FIRST)
        lines[0]["payload"]["id"] = name
        _load(store, tmp_path, name, lines)
    assert (2, 300) == _counted(Views(store).usage())


def test_what_a_fork_adds_is_counted(store: EventStore, tmp_path: Path) -> None:
    """The copied beginning of a fork counts once, its own calls besides."""
    _load(store, tmp_path, FIRST, codex(FIRST))
    lines = codex(SECOND)
    own = json.loads(json.dumps(lines[-3:]))
    own[0]["payload"]["content"][0]["text"] = "more?"
    own[2]["payload"]["info"]["total_token_usage"] |= {"input_tokens": 200, "output_tokens": 100}
    _load(store, tmp_path, SECOND, [*lines, *own])
    assert (2, 300) == _counted(Views(store).usage())


def test_a_call_that_other_lines_interrupt_is_one(store: EventStore, tmp_path: Path) -> None:
    """An answer of Claude Code with a title between its lines is one call."""
    lines = claude(FIRST)
    title = {"type": "custom-title", "customTitle": "t", "sessionId": FIRST}
    found = _load(store, tmp_path, FIRST, [*lines[:2], title, lines[2]])
    assert (1, 150) == _counted(Views(store).usage(conversation_id=found))
    _load(store, tmp_path, SECOND, claude(SECOND))
    assert (1, 150) == _counted(Views(store).usage())
