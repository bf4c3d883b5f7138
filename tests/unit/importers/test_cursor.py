"""Sessions of Cursor's agent: files of the editor, and what its command prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import detect, load, read_transcripts, sessions_in
from eventstore import NewEvent
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import only

SESSION = "3f0c2a4e-7d2b-4a63-9f7c-1f6f7a3c1d20"


def said(role: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a line of the editor's file, or with more fields one that is printed."""
    message = {"content": [*blocks]}
    if not more:
        return {"role": role, "message": message}
    return {"type": role, "message": {"role": role, **message}, "session_id": SESSION, **more}


def text(words: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def called(number: int, subtype: str, call: dict[str, Any]) -> dict[str, Any]:
    """Return a printed line about a tool."""
    return {
        "type": "tool_call",
        "subtype": subtype,
        "call_id": f"c{number}",
        "tool_call": call,
        "session_id": SESSION,
        "timestamp_ms": 1_790_000_000_000 + number,
    }


READ = {"args": {"path": "pots.py"}}
PRINTED = [
    {
        **{"type": "system", "subtype": "init", "session_id": SESSION, "model": "Composer"},
        **{"apiKeySource": "login", "cwd": "/garden", "permissionMode": "default"},
    },
    said("user", text("How moist is pot four, and who wrote its file?"), at=1),
    {"type": "thinking", "subtype": "delta", "text": "First the file.", "session_id": SESSION},
    {"type": "thinking", "subtype": "completed", "session_id": SESSION},
    said("assistant", text("Reading `pots.py`."), timestamp_ms=3, model_call_id="m1"),
    called(1, "started", {"readToolCall": READ}),
    called(2, "started", {"function": {"name": "whoami", "arguments": "{}"}}),
    called(
        1, "completed", {"readToolCall": {**READ, "result": {"success": {"content": "4: dry"}}}}
    ),
    called(2, "completed", {"function": {"result": {"error": {"message": "no user"}}}}),
    called(3, "started", {"mcpToolCall": {"args": {"toolName": "ask", "args": {"q": "who?"}}}}),
    called(3, "completed", {"mcpToolCall": {"result": {"rejected": {"reason": "not now"}}}}),
    said("assistant", text("Pot four is dry; its author is unknown."), at=2),
    {
        **{"type": "result", "subtype": "success", "is_error": False, "session_id": SESSION},
        **{"result": "Pot four is dry.", "usage": {"inputTokens": 40, "outputTokens": 9}},
    },
]
EDITOR = [
    said(
        "user", text("<timestamp>1 May</timestamp>\n<user_query>\nIs pot four dry?\n</user_query>")
    ),
    said("assistant", text("Reading."), {"type": "tool_use", "name": "Read", "input": {"n": 4}}),
    said("user", {"type": "tool_result", "content": [text("4: dry")]}),
    said("assistant", text("It is.")),
    said("assistant", {"type": "tool_use", "name": "Write", "input": {}}, {"type": "image"}),
    {"type": "turn_ended"},
    said("user", text("Thanks, <user_query> is a tag."), {"type": "image", "path": "p.png"}),
]


def payloads(path: Path) -> list[Any]:
    """Return the payloads of a file's session."""
    transcript = only(path)
    assert transcript.stream is not None
    events = [item for item in transcript.stream.read({}) if isinstance(item, NewEvent)]
    return [each.data for each in events]


def test_what_the_command_prints(write_lines: Write) -> None:
    """Results, also refused ones, go to their calls; the end's repetition is passed over."""
    path = write_lines(*PRINTED)
    assert "cursor" == detect(path)
    _, asked, first, read, nobody, second, refused, last = payloads(path)
    assert (e.TextPart(text="How moist is pot four, and who wrote its file?"),) == asked.parts
    assert (
        e.ReasoningPart(text="First the file."),
        e.TextPart(text="Reading `pots.py`."),
    ) == first.parts
    calls = [(each.name, each.arguments) for each in (*first.tool_calls, *second.tool_calls)]
    assert [("read", READ["args"]), ("whoami", {}), ("ask", {"q": "who?"})] == calls
    assert ("success", "4: dry", "3.0") == (read.status, read.content, read.call_id)
    assert ("3.1", "6.0") == (nobody.call_id, refused.call_id)
    assert ("failed", '{"message": "no user"}') == (nobody.status, nobody.error)
    assert ("denied", "not now") == (refused.status, refused.error)
    assert ("Composer", 40, 9) == (
        last.invocation.model,
        last.usage.prompt_tokens,
        last.usage.completion_tokens,
    )


PIECES = [
    said("user", text("Which pot?"), at=1),
    {"type": "thinking", "subtype": "delta", "text": "The ", "session_id": SESSION},
    {"type": "thinking", "subtype": "delta", "text": "dry one.", "session_id": SESSION},
    said("assistant", text("Pot "), timestamp_ms=1_790_000_000_001),
    said("assistant", text("pot "), timestamp_ms=1_790_000_000_002),
    said("assistant", text("four."), timestamp_ms=1_790_000_000_003),
    said("assistant", text("Pot pot four."), timestamp_ms=3, model_call_id="m1"),
    said("assistant", text("Pot pot four."), at=2),
]


def test_an_answer_in_pieces(write_lines: Write, tmp_path: Path) -> None:
    """What repeats the pieces is read once, also where the file was imported between them."""
    *_, answer = payloads(write_lines(*PIECES))
    assert (
        e.ReasoningPart(text="The dry one."),
        e.TextPart(text="Pot pot four."),
    ) == answer.parts
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for end in range(1, len(PIECES) + 1):
            path = write_lines(*PIECES[:end])
            report = load(store, read_transcripts(path, "cursor", force=True))
        found = [each.data for each in store.read(report.ids[0])]
    answers = [each for each in found if isinstance(each, e.AssistantMessage)]
    texts = [part.text for each in answers for part in each.parts if isinstance(part, e.TextPart)]
    assert "Pot pot four." == "".join(texts)


def test_a_file_of_the_editor(tmp_path: Path) -> None:
    """Its name is the session; the tag around a question goes, a call without an id is answered."""
    folder = tmp_path / "projects" / "garden" / "agent-transcripts" / SESSION
    folder.mkdir(parents=True)
    path = folder / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in EDITOR), "utf-8")
    assert ("cursor", ([path], [])) == (detect(path), sessions_in(tmp_path))
    _, asked, first, result, second, third, thanks = payloads(path)
    assert (e.TextPart(text="Is pot four dry?"),) == asked.parts
    assert [("Read", {"n": 4})] == [(each.name, each.arguments) for each in first.tool_calls]
    assert ("success", "4: dry") == (result.status, result.content)
    assert (e.TextPart(text="It is."),) == second.parts
    assert (["Write"], (e.OtherPart(raw={"type": "image"}),)) == (
        [each.name for each in third.tool_calls],
        third.parts,
    )
    assert (
        e.TextPart(text="Thanks, <user_query> is a tag."),
        e.OtherPart(raw={"type": "image", "path": "p.png"}),
    ) == thanks.parts


def test_what_a_session_is_known_by(tmp_path: Path) -> None:
    """By the name of its folder, or by its content: two that begin alike are two."""
    hello, bye = (said("user", text(words)) for words in ("hello", "bye"))
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for name, lines in (
            ("agent-transcripts/s1/s1.jsonl", [hello]),
            ("agent-transcripts/s1/s1.jsonl", [hello, bye]),
            ("agent-transcripts/s2.jsonl", [hello]),
            ("a/transcript.jsonl", [hello, bye]),
            ("b/transcript.jsonl", [hello, hello]),
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
            report = load(store, read_transcripts(path), strict=True)
            assert report.events_added
        assert 4 == len(Views(store).conversations())


def test_it_goes_on(tmp_path: Path) -> None:
    """A conversation that is continued here shows the result, and the call that has none."""
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in EDITOR), "utf-8")
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        report = load(store, read_transcripts(path), strict=True)
        assert {"turn_ended": 1} == dict(report.left_out.passed_over)
        messages = Views(store).context(report.ids[0], max_tokens=4_000).messages
    roles = [each["role"] for each in messages]
    assert ["user", "assistant", "tool", "assistant", "assistant", "tool", "user"] == roles
