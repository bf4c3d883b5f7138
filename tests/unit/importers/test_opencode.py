"""What OpenCode exports of a session: answers of several steps, tools, summaries, failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import Views
from agent_eventstore.transcripts import Transcript, detect, load, read_transcripts, sessions_in
from eventstore import EventStore
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

BEGUN = 1_780_000_000_000
STEP = {"type": "step-start"}
PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}


def text(said: str, **more: Any) -> dict[str, Any]:
    """Return a part that is a text."""
    return {"type": "text", "text": said, **more}


def tool(name: str, status: str, **state: Any) -> dict[str, Any]:
    """Return a part that is a call, with what came of it."""
    about = {"status": status, "input": {"path": "/a"}, "time": {"start": BEGUN, "end": BEGUN + 5}}
    return {"type": "tool", "tool": name, "callID": name, "state": {**about, **state}}


def finished(**counts: Any) -> dict[str, Any]:
    """Return the part that ends a step."""
    return {"type": "step-finish", "tokens": counts}


def message(role: str, *parts: Any, **info: Any) -> dict[str, Any]:
    """Return a message."""
    return {"info": {"role": role, "time": {"created": BEGUN}, **info}, "parts": list(parts)}


ANSWER = message(
    "assistant",
    STEP,
    {"type": "reasoning", "text": "look first"},
    text("I look."),
    tool("list", "completed", output="two files", title="ls", attachments=[PICTURE]),
    tool("edit", "error", error="The user rejected permission to use this tool."),
    tool("run", "running"),
    finished(input=10, output=5, reasoning=2, cache={"read": 100, "write": 20}),
    STEP,
    text("Two."),
    finished(total=7, input=3, output=4, reasoning=1),
    id="m2",
    modelID="m",
    providerID="anthropic",
    cost=0.1,
)
SESSION: dict[str, Any] = {
    "info": {"id": "s1", "title": "Files", "parentID": "s0", "time": {"created": BEGUN}},
    "messages": [
        message("user", text("what is there?"), text("a hint", ignored=True), PICTURE, id="m1"),
        ANSWER,
        message("user", {"type": "compaction"}),
        message("assistant", text("There are two files."), summary=True, tokens={"output": 9}),
        message("user", text("go on"), {"type": "subtask"}),
        message(
            "assistant",
            tokens={"input": 0, "output": 0},
            error={"name": "APIError", "data": {"message": "slow down", "statusCode": 429}},
        ),
    ],
}


def test_a_session_is_a_conversation(write: Write, tmp_path: Path) -> None:
    """Each step is an answer with its own tokens, tools have their results, a failure is told."""
    path = write(SESSION)
    assert "opencode" == detect(path)
    transcript = only(path)
    assert {"part subtask": 1} == dict(transcript.left_out.unknown)
    assert {"part text", "part compaction", "part step-start", "part step-finish"} == set(
        transcript.left_out.passed_over
    )
    asked, answer, listed, denied, second, summing, summary, more, failed = payloads(transcript)
    assert isinstance(asked, e.UserMessage)
    picture = e.ImagePart(url=PICTURE["url"], media_type="image/png")
    assert (e.TextPart(text="what is there?"), picture) == asked.parts
    answers = [each for each in (answer, second, summing) if isinstance(each, e.AssistantMessage)]
    used = [each.usage for each in answers if each.usage is not None]
    assert [(130, 7), (3, 4), (0, 9)] == [(u.prompt_tokens, u.completion_tokens) for u in used]
    assert (100, 20) == (used[0].cached_prompt_tokens, used[0].cache_write_tokens)
    assert ["list", "edit", "run"] == [each.name for each in answers[0].tool_calls]
    results = [each for each in (listed, denied) if isinstance(each, e.ToolResult)]
    assert [("success", "3.0"), ("denied", "3.1")] == [(r.status, r.call_id) for r in results]
    assert (e.TextPart(text="two files"), picture) == results[0].content
    assert isinstance(summary, e.Summary)
    assert "There are two files." == summary.text
    assert isinstance(more, e.UserMessage)
    assert isinstance(failed, e.LlmError)
    assert ("rate_limit", "slow down", 429) == (failed.kind, failed.message, failed.status_code)
    store = EventStore.open(f"sqlite:///{tmp_path}/opencode.db")
    report = load(store, read_transcripts(path))
    sent = [str(each["content"]) for each in Views(store).context(report.ids[0]).messages]
    assert "There are two files." in sent[0]
    assert ["go on"] == [each for each in sent if each == "go on"]
    store.close()


def test_what_is_broken_is_told(write: Write) -> None:
    """A message without parts leaves its session out, and no other."""
    broken = {"info": {"id": "s2"}, "messages": [ANSWER, {"info": {}}]}
    transcripts, failures = found(write([SESSION, broken]))
    assert 1 == len(transcripts)
    reason = "message 2 is not an object with info and a list of parts"
    assert [f"1: {reason}"] == failures


def _stored(root: Path) -> Path:
    """Write the session as OpenCode keeps it; return its own file."""
    own = root / "storage" / "session" / "global" / "ses_1.json"
    info = {**SESSION["info"], "id": "ses_1", "projectID": "global"}
    files: dict[Path, Any] = {own: info}
    for number, each in enumerate(SESSION["messages"]):
        own_id = f"msg_{number:03}"
        folder = root / "storage" / "message" / "ses_1"
        files[folder / f"{own_id}.json"] = {**each["info"], "id": own_id, "sessionID": "ses_1"}
        for place, part in enumerate(each["parts"]):
            beside = root / "storage" / "part" / own_id / f"prt_{place:03}.json"
            files[beside] = {**part, "id": f"prt_{place}", "messageID": own_id}
    for path, value in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value), "utf-8")
    return own


def test_a_session_in_the_folder_of_opencode(write: Write, tmp_path: Path) -> None:
    """Its messages and their parts are files of their own; they are the export's."""
    own = _stored(tmp_path)
    assert "opencode" == detect(own)
    assert ([own], []) == sessions_in(tmp_path)

    def spoken(transcript: Transcript) -> list[str]:
        return [
            f"{data.type} {[getattr(part, 'text', None) for part in getattr(data, 'parts', ())]}"
            for data in payloads(transcript)
        ]

    assert spoken(only(write(SESSION))) == spoken(only(own))
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        load(store, read_transcripts(own), strict=True)
        assert 0 == load(store, read_transcripts(own), strict=True).events_added


def test_a_broken_file_in_the_folder_is_reported(tmp_path: Path) -> None:
    """A session without one of its messages would be another session."""
    own = _stored(tmp_path)
    part = tmp_path / "storage" / "part" / "msg_000" / "prt_000.json"
    part.write_text("{", "utf-8")
    transcripts, [reason] = found(own)
    assert [] == transcripts
    assert "1:" in reason
    own.write_text(json.dumps({"id": "../x", "projectID": "p", "time": {}}), "utf-8")
    assert [] == found(own, "opencode")[0]


def test_a_folder_named_as_a_shell_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths have no further parents in their names."""
    own = _stored(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(SESSION), "utf-8")
    assert ([Path("a.json"), own.relative_to(tmp_path)], []) == sessions_in(Path())
    alone = tmp_path / "alone.json"
    alone.write_text(own.read_text("utf-8"), "utf-8")
    assert "session is not around it" in found(alone)[1][0]
