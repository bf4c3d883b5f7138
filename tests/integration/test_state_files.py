"""Files of tool outputs: each conversation has its own, and erasure takes them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import OutputFileError
from eventstore.events import ToolResult
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


def test_the_command_prints_the_receipt_of_what_is_done(
    recording: Recorder, tmp_path: Path
) -> None:
    """A file that could not be deleted took the receipt with it."""
    url = recording.store.engine.url.render_as_string(hide_password=False)
    for command in ("erase", "purge"):
        conversation = recording.start(state_directory=tmp_path / command / "state")
        with_outputs(conversation, "secret")
        conversation.close()
        place = tmp_path / command / "state" / str(conversation.id) / "logs" / "tool-results"
        (outside := tmp_path / command / "outside").mkdir()
        put_in_place("link", place, outside)
        asked = (command, str(conversation.id), "--reason", "asked for", "--yes", "--json")

        done = run(*asked, "--state-directory", str(tmp_path / command / "state"), url=url)

        assert (2, True) == (done.status, "leads out of" in done.err)
        assert str(conversation.id) == done.document["conversation_id"]
    recording.store.state_directories.clear()


def put_in_place(kind: str, place: Path, outside: Path) -> None:
    """Put something into the place of a conversation's outputs, as a tool may."""
    if place.exists():
        place.rename(outside.parent / "moved")
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        place.symlink_to(outside)
    elif kind == "dangling":
        place.symlink_to(outside / "nowhere")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.write_text("a file")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "file"])
@pytest.mark.parametrize("part", ["", "logs", "logs/tool-results"])
def test_what_stands_in_the_place_of_a_folder_harms_its_own_conversation_alone(
    recording: Recorder, tmp_path: Path, kind: str, part: str
) -> None:
    """The user's other files stayed, and no receipt was returned."""
    state, outside = tmp_path / "state", tmp_path / "outside"
    outside.mkdir()
    (outside / "6.0.txt").write_text("mine", "utf-8")
    user = str(tmp_path)  # the tests share a database, in which others have users too
    conversations = [recording.start(state_directory=state, user_id=user) for _ in range(3)]
    for conversation in conversations:
        with_outputs(conversation, "secret")
        conversation.close()
    put_in_place(kind, state / str(conversations[1].id) / part, outside)

    with pytest.raises(OutputFileError) as caught:
        recording.store.erase_user(user, reason="asked for")

    assert 3 == len(caught.value.receipt.conversations)
    assert [] == [
        path for path in state.rglob("*.txt") if str(conversations[1].id) not in str(path)
    ]
    assert ["mine"] == files(outside)
    receipt = caught.value.receipt
    assert (3, ()) == (len(receipt.conversations), receipt.left)
    recording.store.state_directories.clear()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "file"])
@pytest.mark.parametrize("part", ["", "logs", "logs/tool-results"])
def test_a_tool_is_answered_all_the_same(
    recording: Recorder, tmp_path: Path, kind: str, part: str
) -> None:
    """The result of an effect was lost, and the conversation could never be opened again."""
    state, outside = tmp_path / "state", tmp_path / "outside"
    outside.mkdir()
    conversation = recording.start(state_directory=state)
    put_in_place(kind, state / str(conversation.id) / part, outside)

    with_outputs(conversation, "large")
    with conversation.turn("go on") as turn:
        turn.context(max_tokens=8_000, model="gpt-4o")
    conversation.close()

    assert [] == list(outside.iterdir())
    data = [event.data for event in recording.store.read(conversation.id)]
    [result] = [each for each in data if isinstance(each, ToolResult)]
    alias = f"@state/logs/tool-results/{result.call_id}.txt"
    assert "large" in conversation.resolve(alias)
    first = next(recording.store.read(conversation.id, limit=1))
    recording.store.state_directories.clear()
    recording.store.erase(conversation.id, reason="asked for", versions=[first.version])
    recording.open(conversation.id, state_directory=state).close()
    recording.store.state_directories.clear()


def test_a_file_that_cannot_be_deleted_is_named(recording: Recorder, tmp_path: Path) -> None:
    """The others are deleted, and the receipt of the erasure is there."""
    conversation = recording.start(state_directory=tmp_path)
    with_outputs(conversation, "one", "two")
    conversation.close()
    [first, _] = sorted((tmp_path / str(conversation.id)).rglob("*.txt"))
    first.unlink()
    (first / "inside").mkdir(parents=True)

    with pytest.raises(OutputFileError) as caught:
        recording.store.erase(conversation.id, reason="asked for")

    assert [first] == [path for path, _ in caught.value.files]
    assert [] == files(tmp_path)
    newest = next(recording.store.read(conversation.id, backward=True))
    assert newest.version == caught.value.receipt.version
    recording.store.state_directories.clear()


def test_a_hard_link_is_replaced(recording: Recorder, tmp_path: Path) -> None:
    """What another name refers to is neither written nor deleted."""
    state, other = tmp_path / "state", tmp_path / "other.txt"
    other.write_text("mine", "utf-8")
    conversation = recording.start(state_directory=state)
    folder = state / str(conversation.id) / "logs" / "tool-results"
    folder.mkdir(parents=True)
    for call in range(4, 8):
        (folder / f"{call}.0.txt").hardlink_to(other)

    with_outputs(conversation, "secret")
    conversation.close()
    assert 1 == files(state).count("secret")
    recording.store.erase(conversation.id, reason="asked for")

    assert ("mine", []) == (other.read_text("utf-8"), files(state))


def test_a_state_directory_replaced_by_a_link_is_not_followed(
    recording: Recorder, tmp_path: Path
) -> None:
    """The product's own link counts when a session begins; not what comes in its place later."""
    state, outside = tmp_path / "state", tmp_path / "outside"
    outside.mkdir()
    conversation = recording.start(state_directory=state)
    with_outputs(conversation, "one")
    state.rename(tmp_path / "moved")
    state.symlink_to(outside)

    with_outputs(conversation, "two")
    conversation.close()

    assert [] == list(outside.iterdir())
    recording.store.state_directories.clear()


def test_the_state_directory_is_its_owners_alone(recording: Recorder, tmp_path: Path) -> None:
    """Its folders were, but it was itself open to all."""
    state = tmp_path / "state"
    with_outputs(recording.start(state_directory=state), "x")
    assert 0o700 == stat.S_IMODE(state.stat().st_mode)
