"""Whoever is told of an output that is not shown whole can read it: by the tool, or as a file."""

from __future__ import annotations

import asyncio
import json
import re
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import UnknownAlias
from agent_eventstore.turn import Turn
from eventstore.events import Artifact, RunEnd, RunStart, RunStepEnd, RunStepStart, ToolPolicy
from tests.integration.recording import Recorder, ask, ask_for_tool, data_of

TALE = "It was written in 2019. Nobody has read it since. " + "It is old news. " * 1_000
ROWS = json.dumps([{"id": f"A-{n}", "told": "It is old news. " * 20} for n in range(40)])
LARGE = "18 degrees, sunny\n" * 10_000
PATHS = re.compile(r"@(?:state/logs/tool-results/[0-9]|project/artifacts/\w)[^\s\"]*")


def reads(conversation: Conversation, *arguments: Any, **named: Any) -> str:
    """Return what the tool says, of either kind of conversation."""
    said: Any = conversation.tools.read_output.run(*arguments, **named)
    return str(asyncio.run(_awaited(said)) if isawaitable(said) else said)


async def _awaited(said: Any) -> Any:
    return await said


def use_tool(turn: Turn, content: str, **options: Any) -> str:
    """Record a call of a tool with its result, and return the id of the call."""
    with turn.tool(ask_for_tool(turn)) as tool:
        tool.result(content, **options)
    return tool.call_id


def told(request: Any) -> list[str]:
    """Return the paths that a request's messages hold."""
    return PATHS.findall(json.dumps(request.messages, ensure_ascii=False).replace('\\"', '"'))


def request_of(turn: Turn, **options: Any) -> Any:
    """Return a request that has room for a part of the history only."""
    return turn.context(mode=None, max_tokens=2_000, **options)


@pytest.mark.parametrize("content", [TALE, ROWS, LARGE], ids=["prose", "json", "blob"])
def test_whoever_is_told_a_path_gets_the_whole(recording: Recorder, content: str) -> None:
    """Of a result in a blob as of one that this request alone has shortened."""
    conversation = recording.start()
    reader = [conversation.tools.read_output.declaration()]
    with conversation.turn("read it") as turn:
        call_id = use_tool(turn, content)
        ask(turn)
        paths = told(request_of(turn, tools=reader))
    [path] = set(paths)
    pieces, offset = [], "0"
    while offset:
        piece, _, note = reads(conversation, path, offset).rpartition("\n")
        pieces.append(piece)
        found = re.search(r"Next offset: (\d+)\.", note)
        offset = found[1] if found else ""

    assert path == f"@state/logs/tool-results/{call_id}.{'json' if content is ROWS else 'txt'}"
    assert content == "".join(pieces)
    assert content == conversation.resolve(path)


def test_a_file_is_there_for_whatever_is_told(recording: Recorder, tmp_path: Path) -> None:
    """A tool of the product's may read files (there was none for results under 32 KB)."""
    conversation = recording.start(state_directory=tmp_path)
    with conversation.turn("read it") as turn:
        for content in (TALE, ROWS, LARGE):
            use_tool(turn, content)
        ask(turn)
        paths = set(told(request_of(turn)))
    for path in paths:
        file = tmp_path / str(conversation.id) / path.removeprefix("@state/")
        assert conversation.resolve(path) == file.read_text("utf-8")
    assert paths


def test_a_file_is_written_for_what_the_digest_tells(recording: Recorder, tmp_path: Path) -> None:
    """It names calls by their version; the files have the names that it says."""
    conversation = recording.start(state_directory=tmp_path)
    with conversation.turn("read it") as turn:
        for place in "ABCDEF":
            use_tool(turn, ROWS.replace("A-", f"{place}-"))
        requests = (turn.context(mode=None, max_tokens=n) for n in range(9_000, 500, -250))
        request = next(each for each in requests if "CONVERSATION_DIGEST" in str(each.messages))
    named = [call_id for call_id, _, by_digest in request.view.in_part if by_digest]

    assert named
    for call_id in named:
        path = f"logs/tool-results/{call_id}.txt"
        file = tmp_path / str(conversation.id) / path
        assert conversation.resolve(f"@state/{path}") == file.read_text("utf-8")


def test_nothing_is_promised_that_nobody_can_read(recording: Recorder) -> None:
    """Without the tool and without files, no path is told, and the request is given back so."""
    conversation = recording.start()
    with conversation.turn("read it") as turn:
        for content in (ROWS, LARGE, TALE):
            use_tool(turn, content)
        request = request_of(turn)
        with turn.llm_call(request) as call:
            call.response(
                {
                    "object": "chat.completion",
                    "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
                }
            )
        assert told(request_of(turn, paths=True))
    views, store = conversation.views, recording.store
    sent = [each for each in store.read(conversation.id) if each.type == "llm_request"][-1]

    assert "@state" not in str(request.messages)
    assert request.messages == list(views.context_of(conversation.id, sent.version).messages)
    assert request.tokens.tokens <= 2_000
    assert "without_paths" in data_of(store, conversation, "llm_request")[-1].policy


def test_a_tool_that_is_denied_reads_nothing(recording: Recorder) -> None:
    """Where the policy keeps it from being declared, no path is told."""
    conversation = recording.start(tool_policy=ToolPolicy(denied=("read_output",)))
    reader = [conversation.tools.read_output.declaration()]
    with conversation.turn("read it") as turn:
        use_tool(turn, TALE)
        ask(turn)
        assert [] == told(request_of(turn, tools=reader))


def test_a_product_may_choose_the_path(recording: Recorder) -> None:
    """Under ``@project/artifacts/``; it is told, and leads to the text of the newest."""
    conversation = recording.start()
    path = "@project/artifacts/reports/weather.txt"
    reader = [conversation.tools.read_output.declaration()]
    with conversation.turn("read it") as turn:
        use_tool(turn, "older", alias=path)
        use_tool(turn, TALE, alias=path)
        ask(turn)
        assert {path} == set(told(request_of(turn, tools=reader)))
        for wrong in ("@project/artifacts/../x", "/etc/passwd", "@project/x", "@state/logs/x"):
            with pytest.raises(ValueError, match="is not an alias: write"):
                use_tool(turn, "x", alias=wrong)
    assert TALE == conversation.resolve(path)


def test_artifacts_of_a_run_are_read(recording: Recorder) -> None:
    """By their path or their name, if the log has their content."""
    conversation = recording.start(mode="run")
    made = (
        Artifact(name="report", path="@project/artifacts/out/report.md", content="# Report"),
        Artifact(name="numbers", content={"a": 1}),
        Artifact(name="elsewhere", path="@project/artifacts/elsewhere"),
    )
    start = RunStart(run_id="r", workflow_id="w")
    step = RunStepStart(run_id="r", node_id="n")
    end = RunStepEnd(run_id="r", node_id="n", status="completed", artifacts=made)
    conversation.append(start, step, end, RunEnd(run_id="r", status="completed"))

    assert "# Report" == conversation.resolve("@project/artifacts/out/report.md")
    assert "# Report" == conversation.resolve("@project/artifacts/report")
    assert '{"a":1}' == reads(conversation, "@project/artifacts/numbers")
    with pytest.raises(UnknownAlias):
        conversation.resolve("@project/artifacts/elsewhere")


def test_the_model_is_told_in_words_what_was_wrong(recording: Recorder) -> None:
    """It may make up paths and numbers; nothing is raised for that."""
    conversation = recording.start()
    with conversation.turn("read it") as turn:
        path = f"@state/logs/tool-results/{use_tool(turn, 'short')}"

    for ending in ("", ".txt", ".json"):
        assert "short" == reads(conversation, path + ending)
    assert reads(conversation, "@state/logs/tool-results/99.0.txt").startswith("ERROR: ")
    for odd in ("../../etc/passwd", "\x00", "@project/artifacts/\ud800\x00"):
        assert reads(conversation, odd).startswith("ERROR: ")
    assert "or\n[characters 2 to 4 of 5. Next offset: 4.]" == reads(conversation, path, 2, 2)
    assert "rt\n[characters 3 to 5 of 5. This is the end.]" == reads(conversation, path, "3", "9")
    assert "ERROR: offset is from 0 to 5, and limit at least 1." == reads(conversation, path, 6)
    for offset in ("x", float("inf"), float("nan"), None):  # JSON's 1e999 is infinite
        assert "ERROR: offset and limit are whole numbers." == reads(conversation, path, offset)
    for wrong in ("lines", "self", "function", "n" * 10_000):
        said = reads(conversation, path, **{wrong: 1})
        assert f"ERROR: no argument '{wrong[:200]}': use alias, offset and limit." == said
    assert reads(conversation).startswith("ERROR: '' names no output")
    assert 500 > len(reads(conversation, "/etc/" * 10_000))


def test_what_the_tool_returns_is_never_a_preview_itself(recording: Recorder) -> None:
    """Characters of four bytes, and those that JSON escapes, are fewer at a time."""
    conversation = recording.start()
    with conversation.turn("read it") as turn:
        for content in ("\u0001" * 50_000, "\U0001f324" * 50_000):
            path = f"@state/logs/tool-results/{use_tool(turn, content)}.txt"
            use_tool(turn, reads(conversation, path))
    results = data_of(recording.store, conversation, "tool_result")

    assert [True, False, True, False] == [each.blob is not None for each in results]


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_it_is_declared_in_each_format(recording: Recorder, format: str) -> None:
    """A request of the format takes it among its tools, and tells paths."""
    conversation = recording.start()
    reader = conversation.tools.read_output
    with conversation.turn("read it") as turn:
        use_tool(turn, TALE)
        ask(turn)
        request = request_of(turn, tools=[reader.declaration(format)], format=format)

    assert told(request)
    assert request.tools
    with pytest.raises(ValueError, match="no declaration for the format 'neutral'"):
        reader.declaration("neutral")
