"""Files of tool outputs: each conversation has its own, and erasure takes them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from agent_eventstore.conversation import Conversation
from tests.cli.program import run
from tests.integration.recording import Recorder, ask_for_tool


def with_outputs(conversation: Conversation, *texts: str) -> None:
    """Record a large output of each text."""
    for text in texts:
        with conversation.turn("list") as turn, turn.tool(ask_for_tool(turn)) as tool:
            tool.result(f"{text} " * 20_000)


def files(state: Path) -> list[str]:
    """Return the first words of all files, in order of path."""
    paths = sorted(path for path in state.rglob("*") if path.is_file())
    return [path.read_text("utf-8").partition(" ")[0] for path in paths]


def test_conversations_do_not_share_files(recording: Recorder, tmp_path: Path) -> None:
    """The same call id in another conversation is another file."""
    for word in ("one", "two"):
        with_outputs(recording.start(state_directory=tmp_path), word)
    assert {"one", "two"} == set(files(tmp_path))


def test_files_are_their_owners_alone(recording: Recorder, tmp_path: Path) -> None:
    """Nobody else on the machine reads what a tool has found."""
    state = tmp_path / "state"
    with_outputs(recording.start(state_directory=state), "x")
    modes = {oct(stat.S_IMODE(path.stat().st_mode)) for path in state.rglob("*")}
    assert {"0o600", "0o700"} == modes


def test_erasing_deletes_them(recording: Recorder, tmp_path: Path) -> None:
    """The process that writes them deletes them; what a tool has put beside them stays."""
    conversation = recording.start(state_directory=tmp_path)
    with_outputs(conversation, "secret")
    with_outputs(recording.start(state_directory=tmp_path), "other")
    (tmp_path / str(conversation.id) / "notes.txt").write_text("tool's own", "utf-8")

    recording.store.erase(conversation.id, reason="asked for")

    assert {"tool's", "other"} == set(files(tmp_path))
    assert not (tmp_path / str(conversation.id) / "logs").exists()


def test_erasing_elsewhere_is_told_where(recording: Recorder, tmp_path: Path) -> None:
    """Another process names the directory; outputs that were not erased stay."""
    conversation = recording.start(state_directory=tmp_path)
    with_outputs(conversation, "secret", "kept")
    conversation.close()
    [first, _] = [e for e in recording.store.read(conversation.id) if e.type == "tool_result"]
    recording.store.state_directories.clear()

    recording.store.erase(
        conversation.id,
        reason="asked for",
        versions=[first.version],
        state_directory=tmp_path,
    )

    assert ["kept"] == files(tmp_path)


def test_opening_deletes_what_was_erased_meanwhile(recording: Recorder, tmp_path: Path) -> None:
    """An erasure that knew nothing of the files is made up for."""
    conversation = recording.start(state_directory=tmp_path)
    with_outputs(conversation, "secret", "kept")
    conversation.close()
    half = tmp_path / str(conversation.id) / "logs" / "tool-results" / ".9.0.abc"
    half.write_text("secret ", "utf-8")
    [first, _] = [e for e in recording.store.read(conversation.id) if e.type == "tool_result"]
    recording.store.state_directories.clear()
    recording.store.erase(conversation.id, reason="asked for", versions=[first.version])
    assert 3 == len(files(tmp_path))

    recording.open(conversation.id, state_directory=tmp_path).close()

    assert ["kept"] == files(tmp_path)


def test_a_link_is_not_followed(recording: Recorder, tmp_path: Path) -> None:
    """Nothing is deleted where a tool has made a folder lead to."""
    (outside := tmp_path / "outside").mkdir()
    (outside / "6.0.txt").write_text("mine", "utf-8")
    conversation = recording.start(state_directory=tmp_path / "state")
    (tmp_path / "state" / str(conversation.id) / "logs").mkdir(parents=True)
    place = tmp_path / "state" / str(conversation.id) / "logs" / "tool-results"
    place.symlink_to(outside)
    conversation.close()

    with pytest.raises(OSError, match="leads out of"):
        recording.store.erase(conversation.id, reason="asked for")

    assert ["mine"] == files(outside)
    recording.store.state_directories.clear()


def test_the_command_deletes_them(recording: Recorder, tmp_path: Path) -> None:
    """``erase --state-directory`` does what the product's own process would."""
    url = recording.store.engine.url.render_as_string(hide_password=False)
    conversation = recording.start(state_directory=tmp_path)
    with_outputs(conversation, "secret")
    conversation.close()
    asked = ("erase", str(conversation.id), "--reason", "asked for", "--yes")

    assert 0 == run(*asked, "--state-directory", str(tmp_path), url=url).status
    assert [] == files(tmp_path)
    assert 2 == run(*asked, "--state-directory", str(tmp_path / "no"), url=url).status
