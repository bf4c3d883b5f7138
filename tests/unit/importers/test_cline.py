"""Tasks of Cline and Roo: what was condensed or hidden is not sent again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import detect, load, read_transcripts, sessions_in
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

_CALL = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a.py"}}
_RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "eleven lines of code"}


def _message(role: str, content: Any, ts: int, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": role, "content": blocks, "ts": 1_772_000_000_000 + ts, **more}


MESSAGES: list[dict[str, Any]] = [
    _message("user", "<task>\nWater the pots.\n</task>", 0),
    _message("assistant", [{"type": "text", "text": "I read the file."}, _CALL], 1),
    _message("user", [_RESULT], 2),
    _message("assistant", "Pot four is dry.", 3),
    _message("user", "Which one next?", 4),
    _message("assistant", "Pot five.", 5),
]


def _condensed(messages: list[dict[str, Any]], own_id: str, text: str) -> list[dict[str, Any]]:
    """Return messages as Roo marks them when it condenses them."""
    marked = [{"condenseParent": own_id, **each} for each in messages]
    return [*marked, _message("user", text, 50, isSummary=True, condenseId=own_id)]


def _sent(path: Path, tmp_path: Path, name: str = "a") -> str:
    with EventStore.open(f"sqlite:///{tmp_path / name}.db") as store:
        load(store, read_transcripts(path), strict=True)
        [entry] = Views(store).conversations()
        store.append(entry.conversation_id, e.UserMessage.text("Go on."))
        view = Views(store).context(entry.conversation_id, model="gpt-4o")
        return json.dumps(view.messages)


def _task(write: Write, messages: list[Any]) -> Path:
    write(
        [{"ts": 1, "type": "say", "say": "text", "text": "Water the pots.\nAll."}],
        "tasks/7f/ui_messages.json",
    )
    return write(messages, "tasks/7f/api_conversation_history.json")


def test_a_task_is_a_conversation(write: Write, tmp_path: Path) -> None:
    """With its title, its calls and their results; a folder of tasks is found."""
    path = _task(write, MESSAGES)
    assert "cline" == detect(path)
    assert [path] == sessions_in(tmp_path)[0]
    transcript = only(path)
    assert "Water the pots." == transcript.events[0].data.title  # type: ignore[union-attr]
    with EventStore.open(f"sqlite:///{tmp_path / 'b.db'}") as store:
        load(store, read_transcripts(path), strict=True)
        [row] = Views(store).tool_calls()
        assert ("read_file", "success") == (row.name, row.status)
    assert "eleven lines of code" in _sent(path, tmp_path)


def test_what_was_condensed_is_not_sent_again(write: Write, tmp_path: Path) -> None:
    """The summary is, and what came after it; also if it was condensed itself."""
    once = [*_condensed(MESSAGES, "s1", "One: four was dry."), _message("assistant", "Six.", 60)]
    path = _task(write, once)
    request = _sent(path, tmp_path)
    assert "One: four was dry." in request
    assert "Six." in request
    assert [] == [each for each in ("eleven lines", "Pot five.") if each in request]
    twice = _condensed(once, "s2", "Two: six is next.")
    request = _sent(_task(write, twice), tmp_path, "b")
    assert "Two: six is next." in request
    hidden = ("One: four", "eleven lines", "Pot five.", "Six.")
    assert [] == [each for each in hidden if each in request]


def test_a_mark_without_its_summary_means_nothing(write: Write, tmp_path: Path) -> None:
    """Roo sends such messages: the user has gone back to before the summary."""
    marked = [{**each, "condenseParent": "gone"} for each in MESSAGES]
    assert "Pot five." in _sent(write(marked), tmp_path)


def test_what_a_marker_hides(write: Write, tmp_path: Path) -> None:
    """A sliding window leaves its marker in their place."""
    hidden = [{**each, "truncationParent": "t1"} for each in MESSAGES[1:4]]
    marker = _message("user", "[3 messages hidden]", 6, isTruncationMarker=True, truncationId="t1")
    path = write([MESSAGES[0], *hidden, marker, *MESSAGES[4:]])
    assert "cline" == detect(path)
    request = _sent(path, tmp_path)
    assert "[3 messages hidden]" in request
    assert "Pot five." in request
    assert "Pot four" not in request


def test_marks_far_into_a_file_are_noticed(write: Write, tmp_path: Path) -> None:
    """Under any name; words about marks in a text are none."""
    many = [*MESSAGES * 20, _message("user", "All is dry.", 9, isSummary=True)]
    assert "cline" == detect(write(many, "copy.json"))
    told = _message("user", 'I wrote {"isSummary": true} myself.', 9)
    assert "openai" == detect(write([*MESSAGES, told], "other.json"))


def test_a_summary_of_an_earlier_version(write: Write) -> None:
    """It has no marks, and replaces everything before it."""
    summary = _message("assistant", "All is dry.", 6, isSummary=True)
    [summed] = [
        each for each in payloads(only(write([*MESSAGES, summary]))) if isinstance(each, e.Summary)
    ]
    [covered] = summed.versions
    assert (2, "All is dry.") == (covered.first, summed.text)


def test_a_task_that_goes_on(write: Write, tmp_path: Path) -> None:
    """Marks that come later change no message, so that the next import adds only what is new."""
    stages = [MESSAGES[:3], MESSAGES, _condensed(MESSAGES, "s1", "Four was dry.")]
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        added = [
            load(store, read_transcripts(_task(write, stage)), strict=True).events_added
            for stage in (*stages, stages[-1])
        ]
        assert 1 == len(Views(store).conversations())
    assert [3, 1, 0] == added[1:]


@pytest.mark.parametrize("content", ["[]", '[{"role": "user"}, 5]', '[{"role": "x"}]', "[{", "{}"])
def test_what_is_no_task_is_refused(write: Write, content: str) -> None:
    """Whole, with a reason."""
    transcripts, failures = found(write(content, "api_conversation_history.json"), "cline")
    assert ([], 1) == (transcripts, len(failures))
