"""Import and export from the command line."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from agent_eventstore import transcripts as reading
from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import archives
from tests.cli.program import run, start
from tests.cli.samples import MEETING, WEATHER, conversation_with
from tests.integration import claude_sessions, codex_sessions
from tests.integration.test_chatgpt import spoken
from tests.unit.importers.test_chat_exports import EXPORTS
from tests.unit.importers.test_gemini_cli import SESSION

pytestmark = pytest.mark.exhaustive_when("postgresql")


def test_import_counts(database_url: str, transcripts: Path) -> None:
    """An import tells what it added; a second one adds nothing."""
    first = run("import", str(transcripts), "--json", url=database_url).document
    second = run("import", str(transcripts), "--json", url=database_url).document
    assert (2, 0, []) == (first["conversations"], first["unchanged"], first["failures"])
    assert (0, 0, 2) == (second["conversations"], second["events_added"], second["unchanged"])


def test_import_in_words(sqlite_url: str, transcripts: Path) -> None:
    """Without ``--json`` one sentence tells the same."""
    done = run("import", str(transcripts), url=sqlite_url)
    assert "imported 2 conversations (12 events); 0 unchanged\n" == done.out


def test_import_of_several_files(sqlite_url: str, transcripts: Path, tmp_path: Path) -> None:
    """Several files are imported in one go."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"role": "user", "content": "another"}]), encoding="utf-8")
    done = run("import", str(transcripts), str(other), "--json", url=sqlite_url)
    assert 3 == done.document["conversations"]


def test_import_for_an_owner(sqlite_url: str, transcripts: Path) -> None:
    """Imported conversations belong to the tenant and user that are named."""
    run("import", str(transcripts), "--tenant-id", "t", "--user-id", "u", url=sqlite_url)
    listed = run("list", "--json", url=sqlite_url).document
    assert {("t", "u")} == {(each["tenant_id"], each["user_id"]) for each in listed}


@pytest.mark.parametrize("option", ["--tenant-id", "--user-id"])
def test_import_for_an_owner_without_a_name(
    sqlite_url: str, transcripts: Path, option: str
) -> None:
    """That is wrong use, told once and not for every conversation of the file."""
    done = run("import", str(transcripts), option, "", url=sqlite_url)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert "is empty: pass a text, or leave it out" in done.err


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Give a file whose second line is not a record."""
    path = tmp_path / "broken.jsonl"
    lines = (json.dumps({"messages": WEATHER}), "{broken", json.dumps({"messages": MEETING}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_bad_record_is_reported_and_the_rest_goes_on(sqlite_url: str, broken: Path) -> None:
    """A bad record gives status 1 and its file and line on stderr."""
    done = run("import", str(broken), url=sqlite_url)
    assert 1 == done.status
    assert f"{broken}:2:" in done.err
    assert done.out.startswith("imported 2 conversations")


def test_bad_record_in_json(sqlite_url: str, broken: Path) -> None:
    """The JSON report names file and line of what failed."""
    done = run("import", str(broken), "--json", url=sqlite_url)
    assert (1, 1) == (done.status, done.document["failed"])
    assert [(str(broken), 2)] == [
        (each["file"], each["line"]) for each in done.document["failures"]
    ]


def test_bad_records_beyond_a_thousand_are_counted(sqlite_url: str, tmp_path: Path) -> None:
    """Every bad line took a line of output: the first thousand are listed, and all are counted."""
    path = tmp_path / "bad.jsonl"
    path.write_text("{bad\n" * 1_002, encoding="utf-8")
    done = run("import", str(path), "--format", "session-jsonl", url=sqlite_url)
    assert (1, 1_001) == (done.status, len(done.err.splitlines()))
    assert done.err.endswith("\nand 2 more failures\n")
    assert done.out.endswith("; 1,002 failures\n")


def test_strict_import_stops(sqlite_url: str, broken: Path) -> None:
    """With ``--strict`` nothing after the first bad record is imported."""
    done = run("import", str(broken), "--strict", "--json", url=sqlite_url)
    assert (1, 1) == (done.status, done.document["conversations"])


@pytest.mark.parametrize(
    "arguments", [("missing.json",), ("--format", "nonsense", "FILE"), ("DIRECTORY",), ()]
)
def test_wrong_import_creates_nothing(
    tmp_path: Path, transcripts: Path, arguments: tuple[str, ...]
) -> None:
    """Wrong use is told in one line before a database is made."""
    named = {"FILE": str(transcripts), "DIRECTORY": str(tmp_path)}
    given = [named.get(each, each) for each in arguments]
    done = run("import", *given, url=f"sqlite:///{tmp_path / 'new.db'}")
    assert (2, 1, False) == (
        done.status,
        len(done.err.splitlines()),
        (tmp_path / "new.db").exists(),
    )


def test_export_gives_back_what_was_imported(imported: str) -> None:
    """Exported OpenAI messages equal the imported ones."""
    cid = conversation_with(imported, "How is the weather")
    assert WEATHER == json.loads(run("export", cid, "--format", "openai", url=imported).out)


def test_export_to_a_file(own: str, tmp_path: Path) -> None:
    """With ``-o`` the export goes to a file, and stdout stays empty."""
    cid, path = conversation_with(own, "How is the weather"), tmp_path / "out.json"
    done = run("export", cid, "--format", "openai", "-o", str(path), url=own)
    assert (0, "") == (done.status, done.out)
    assert WEATHER == json.loads(path.read_text(encoding="utf-8"))


def test_a_dash_is_stdout(own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export was a file of that name."""
    monkeypatch.chdir(tmp_path)
    cid = conversation_with(own, "How is the weather")
    assert WEATHER == json.loads(run("export", cid, "--format", "openai", "-o", "-", url=own).out)
    assert "name it with -o" in run("export", cid, "--format", "project", "-o", "-", url=own).err
    assert "store_id" in run("checkpoint", "--out", "-", url=own).out
    assert not (tmp_path / "-").exists()


def test_session_jsonl_can_be_imported_again(own: str, tmp_path: Path) -> None:
    """What is exported as session JSONL is a transcript that the import reads."""
    cid, path = conversation_with(own, "How is the weather"), tmp_path / "session.jsonl"
    run("export", cid, "--format", "session-jsonl", "-o", str(path), url=own)
    done = run("import", str(path), "--json", url=f"sqlite:///{tmp_path / 'other.db'}")
    assert (0, 1) == (done.status, done.document["conversations"])


def test_export_of_nothing_writes_no_file(own: str, tmp_path: Path) -> None:
    """A conversation that does not exist leaves no file behind."""
    path = tmp_path / "out.json"
    done = run("export", "ffff", "--format", "openai", "-o", str(path), url=own)
    assert (2, False) == (done.status, path.exists())


def test_export_to_a_place_that_does_not_exist(own: str, tmp_path: Path) -> None:
    """A file that cannot be written is told in one line."""
    cid = conversation_with(own, "How is the weather")
    path = str(tmp_path / "no" / "such" / "place.json")
    done = run("export", cid, "--format", "openai", "-o", path, url=own)
    assert (2, 1) == (done.status, len(done.err.splitlines()))


def test_an_export_that_fails_leaves_what_stood_there(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk took the export of yesterday, and the message did not name the file."""
    cid, path = conversation_with(own, "How is the weather"), tmp_path / "out.json"
    path.write_text("[]")
    path.chmod(0o640)
    export = ("export", cid, "--format", "openai", "-o", str(path))
    assert 0 == run(*export, url=own).status
    whole = path.read_text()

    def fill(self: Path, text: str, **_options: Any) -> int:
        self.write_bytes(text[:10].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", fill)
    done = run(*export, url=own)
    assert (2, 1, True) == (done.status, len(done.err.splitlines()), str(path) in done.err)
    assert (WEATHER, 0o640) == (json.loads(whole), path.stat().st_mode & 0o777)
    assert whole == path.read_text()
    assert [] == list(tmp_path.glob(".eventstore-*"))


def test_export_to_a_pipe(own: str) -> None:
    """What is no file is written as it is."""
    cid = conversation_with(own, "How is the weather")
    assert 0 == run("export", cid, "--format", "openai", "-o", "/dev/null", url=own).status
    assert not Path("/dev/null").is_file()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project with two conversations and one that is listed, but not there."""
    root = tmp_path / "project" / "conversations"
    entries = [{"id": name, "title": name.upper()} for name in ("a", "b", "gone")]
    for entry in entries[:2]:
        (root / entry["id"]).mkdir(parents=True)
        text = json.dumps([{"id": "1", "role": "user", "content": "hi", "isCollapsed": True}])
        (root / entry["id"] / "messages.json").write_text(text, encoding="utf-8")
    (root / "index.json").write_text(json.dumps(entries), encoding="utf-8")
    return root.parent


def test_a_project_goes_in_and_out(database_url: str, project: Path, tmp_path: Path) -> None:
    """Its conversations are imported, what is missing is said, and the export is equal."""
    done = run("import", str(project), "--json", url=database_url)
    assert (1, 2, 1) == (
        done.status,
        done.document["conversations"],
        len(done.document["failures"]),
    )
    assert "'gone' is listed, but there is no file" in done.err
    out = tmp_path / "out"
    done = run("export", "--all", "--format", "project", "-o", str(out), url=database_url)
    assert (0, f"exported 2 conversations to {out}\n") == (done.status, done.out)
    files = sorted(path.relative_to(out) for path in out.rglob("*.json"))
    listed = sorted(path.relative_to(project) for path in project.rglob("*.json"))
    assert listed == files
    index = Path("conversations/index.json")
    entries = json.loads((project / index).read_text())
    assert entries[:2] == json.loads((out / index).read_text())
    for path in files[:2]:
        assert json.loads((project / path).read_text()) == json.loads((out / path).read_text())
    assert run("import", str(out), "--json", url=database_url).document["unchanged"] == 2


@pytest.mark.parametrize("form", ["messages-json", "messages-jsonl"])
def test_messages_can_be_imported_again(own: str, tmp_path: Path, form: str) -> None:
    """What is exported in a project's format is a transcript that the import reads."""
    cid, path = conversation_with(own, "How is the weather"), tmp_path / "messages"
    run("export", cid, "--format", form, "-o", str(path), url=own)
    done = run("import", str(path), "--json", url=f"sqlite:///{tmp_path / 'other.db'}")
    assert (0, 1) == (done.status, done.document["conversations"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "openai"), "name one conversation"),
        (("--all", "--format", "openai"), "--all needs --format project"),
        (("--all", "--format", "project"), "name it with -o"),
        (("CID", "--all", "--format", "project", "-o", "DIRECTORY"), "name one conversation"),
        (("CID", "--format", "openai", "-o", "DIRECTORY"), "is a directory"),
        (("--all", "--format", "project", "-o", "FILE"), "is a file"),
        (("--all", "--format", "project", "-o", "PROJECT"), "already exists"),
    ],
)
def test_wrong_export_is_told(
    imported: str, tmp_path: Path, project: Path, arguments: tuple[str, ...], said: str
) -> None:
    """One line says what is missing, and nothing is written."""
    file = tmp_path / "file"
    file.touch()
    cid = conversation_with(imported, "How is the weather")
    named = {"CID": cid, "DIRECTORY": str(tmp_path), "FILE": str(file), "PROJECT": str(project)}
    done = run("export", *(named.get(each, each) for each in arguments), url=imported)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert said in done.err


def test_a_directory_needs_its_format(sqlite_url: str, project: Path) -> None:
    """Another format does not read one, and a file is not a project."""
    for arguments, said in (
        (
            (str(project), "--format", "openai"),
            ("inspect and project read directories"),
        ),
        ((str(project / "conversations" / "a"),), "is not a project"),
        (
            (str(project / "conversations" / "a" / "messages.json"), "--format", "project"),
            "is not a",
        ),
    ):
        done = run("import", *arguments, url=sqlite_url)
        assert (2, 1) == (done.status, len(done.err.splitlines()))
        assert said in done.err


def test_what_nobody_understands_is_told(sqlite_url: str, tmp_path: Path) -> None:
    """It is kept, and counted by kind; reading it later warns of nothing."""
    path = tmp_path / "odd.json"
    content = [{"type": "text", "text": "hi"}, {"type": "hologram", "beam": 1}]
    odd = [{"role": "user", "content": content}, {"role": "oracle", "content": "42"}]
    path.write_text(json.dumps(odd), "utf-8")
    said = "kept as it came, but not understood: 2 pieces"
    for _ in range(2):
        done = run("import", str(path), "--json", url=sqlite_url)
        assert {"content of type hologram": 1, "message of role oracle": 1} == done.document[
            "uninterpreted"
        ]
        assert (0, True) == (done.status, said in done.err)
    [listed] = run("list", "--json", url=sqlite_url).document
    shown = run("events", listed["conversation_id"], url=sqlite_url)
    assert ("", True) == (shown.err, "imported_message" in shown.out)
    assert "" == run("verify", url=sqlite_url).err


def test_exports_of_other_products(sqlite_url: str, tmp_path: Path) -> None:
    """Their format is told by their content, and what was passed over is said."""
    said = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hello"]}}
    silent = {"author": {"role": "system"}, "content": {"content_type": "text", "parts": [""]}}
    nodes = {
        "a": {"message": silent, "parent": None, "children": ["b"]},
        "b": {"message": said, "parent": "a", "children": []},
    }
    chat, data = tmp_path / "conversations.json", tmp_path / "data.jsonl"
    chat.write_text(json.dumps([{"conversation_id": "c", "mapping": nodes}]), "utf-8")
    data.write_text(json.dumps({"conversations": [{"from": "human", "value": "hi"}]}), "utf-8")
    done = run("import", str(chat), str(data), "--json", url=sqlite_url)
    assert (0, 2, 4) == (done.status, done.document["conversations"], done.document["events_added"])
    assert {"text of system without content": 1} == done.document["passed_over"]
    assert "passed over: 1 line (1 text of system without content)" in done.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"{}", "the format cannot be detected: name the format: openai"),
        ('[{"role": "user"}]'.encode("utf-16"), "the text is not UTF-8"),
        (b'[{"role": "user", "role": "tool"}]', "the name 'role' occurs twice in an object"),
        (b"question,answer\n", "the text is not JSON"),
    ],
)
def test_a_file_without_a_format(
    sqlite_url: str, tmp_path: Path, content: bytes, said: str
) -> None:
    """What is wrong with it is told."""
    (tmp_path / "a").write_bytes(content)
    done = run("import", str(tmp_path / "a"), url=sqlite_url)
    assert (1, True) == (done.status, said in done.err)


def test_a_directory_of_sessions(sqlite_url: str, tmp_path: Path) -> None:
    """Those in it and below are imported; files that are none are named."""
    (tmp_path / "x" / "subagents").mkdir(parents=True)
    claude_sessions.example().write(tmp_path / f"{claude_sessions.SESSION}.jsonl")
    codex_sessions.rollout().write(tmp_path / "x" / "rollout-2026.jsonl")
    (tmp_path / "x" / "subagents" / "journal.jsonl").write_text('{"type":"started"}\n', "utf-8")
    (tmp_path / "old.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00")
    (tmp_path / "notes.txt").write_text("no", "utf-8")
    done = run("import", str(tmp_path), "--json", url=sqlite_url)
    assert (0, 2, 0) == (done.status, done.document["conversations"], done.document["unchanged"])
    assert "2 files without a session (old.jsonl.zst, x/subagents/journal.jsonl)" in done.err
    assert 2 == run("import", str(tmp_path), "--json", url=sqlite_url).document["unchanged"]
    refused = run("import", str(tmp_path / "old.jsonl.zst"), url=sqlite_url)
    assert (1, True) == (refused.status, "compressed with zstd: decompress it first" in refused.err)
    chats = tmp_path / "tmp" / "project" / "chats"
    chats.mkdir(parents=True)
    (chats / "session-1.json").write_text(json.dumps(SESSION), "utf-8")
    (chats / "logs.json").write_text("[]", "utf-8")
    assert 1 == run("import", str(chats), "--json", url=sqlite_url).document["conversations"]
    empty = run("import", str(tmp_path / "x" / "subagents"), url=sqlite_url)
    assert (2, True) == (empty.status, "no file of claude-ai, librechat, open-webui" in empty.err)


def test_a_folder_of_many_programs(sqlite_url: str, tmp_path: Path) -> None:
    """Each file by its own format, with a table at the end; one that is damaged stops nothing."""
    claude_sessions.example().write(tmp_path / f"{claude_sessions.SESSION}.jsonl")
    codex_sessions.rollout().write(tmp_path / "rollout-2026.jsonl")
    for name, value in EXPORTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps([value]), "utf-8")
    damaged = {"conversationId": "x", "messages": [{"messageId": 1, "isCreatedByUser": True}]}
    (tmp_path / "damaged.json").write_text(json.dumps(damaged), "utf-8")
    (tmp_path / "settings.json").write_text('{"theme": "dark"}', "utf-8")
    done = run("import", str(tmp_path), url=sqlite_url)
    lines = [line.split() for line in done.out.splitlines()]
    assert ["librechat", "2", "2", "8", "0", "1"] in lines
    assert ["codex", "1", "1"] in [line[:3] for line in lines]
    assert "1 file without a session (settings.json)" in done.err
    assert (1, True) == (done.status, "damaged.json" in done.err)
    again = run("import", str(tmp_path), "--json", url=sqlite_url).document
    assert (0, 8) == (again["events_added"], again["unchanged"])
    assert {"claude-ai", "claude-code", "codex", "librechat", "open-webui"} == {*again["formats"]}


def test_a_file_that_disappears_meanwhile(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is gone before its turn is a failure of its own, and the others come in."""
    codex_sessions.rollout().write(tmp_path / "rollout-b.jsonl")
    gone = tmp_path / "rollout-a.jsonl"
    sessions_in = reading.sessions_in

    def found_before(path: Path) -> tuple[list[Path], list[Path]]:
        codex_sessions.rollout().write(gone)
        both = sessions_in(path)
        gone.unlink()
        return both

    monkeypatch.setattr(reading, "sessions_in", found_before)
    done = run("import", str(tmp_path), "--json", url=sqlite_url)
    reason = "the file cannot be read: No such file or directory"
    failure = {"file": str(gone), "line": None, "reason": reason}
    assert (1, [failure]) == (done.status, done.document["failures"])
    assert 1 == done.document["conversations"]


def test_a_zip_archive_of_an_export(sqlite_url: str, tmp_path: Path) -> None:
    """Its JSON files are read, several parts too; pictures, and names that lead elsewhere, not."""
    path = tmp_path / "export.zip"
    with ZipFile(path, "w") as archive:
        for number in range(2):
            value = {**spoken().exported(), "id": f"c{number}", "conversation_id": f"c{number}"}
            archive.writestr(f"../conversations-00{number}.json", json.dumps([value]))
        archive.writestr("image.png", b"no")
        archive.writestr("__MACOSX/._conversations.json", b"no")
    done = run("import", str(path), "--json", url=sqlite_url)
    assert (0, 2) == (done.status, done.document["conversations"])
    assert {"chatgpt": 2} == {
        name: each["files"] for name, each in done.document["formats"].items()
    }
    assert 2 == run("import", str(path), "--json", url=sqlite_url).document["unchanged"]
    assert [path] == [*tmp_path.glob("*.zip")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "has no JSON file"),
        ({"a.json": b"x" * 2_000}, "has more than 1,000 bytes of JSON"),
        ({f"{number}.json": b"{}" for number in range(1_001)}, "has 1,001 JSON files"),
    ],
)
def test_an_archive_that_is_refused(
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: dict[str, bytes],
    said: str,
) -> None:
    """A bomb is not unpacked, and what is wrong is said."""
    monkeypatch.setattr(archives, "MOST_BYTES", 1_000)
    with ZipFile(tmp_path / "export.zip", "w", ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    with pytest.raises(ImportFailed, match=said):
        archives.unpack(tmp_path / "export.zip", tmp_path)
    done = run("import", str(tmp_path / "export.zip"), url=sqlite_url)
    assert done.status in (1, 2)


def test_the_events_of_a_subagent_name_its_session(sqlite_url: str, tmp_path: Path) -> None:
    """By the id of the conversation, whose list tells it too."""
    agent = claude_sessions.Session()
    agent.user("Look.", isSidechain=True, agentId="a1")
    run("import", str(agent.write(tmp_path / "agent-a1.jsonl")), url=sqlite_url)
    run("import", str(claude_sessions.example().write(tmp_path / "a")), url=sqlite_url)
    listed = run("list", "--json", url=sqlite_url).document
    [own] = [each for each in listed if each["parent_conversation_id"]]
    shown = run("events", own["conversation_id"], url=sqlite_url).out
    assert f"from {own['parent_conversation_id']}"[:20] in shown
    assert own["parent_conversation_id"] in [each["conversation_id"] for each in listed]


def test_import_without_secrets(database_url: str, tmp_path: Path) -> None:
    """With ``--redact default`` a key is marked in what is stored."""
    path = tmp_path / "keys.json"
    key = "sk-proj-" + "aB3" * 14
    path.write_text(json.dumps([{"role": "user", "content": f"use {key}"}]), encoding="utf-8")
    assert 0 == run("import", str(path), "--redact", "default", url=database_url).status
    [found] = run("list", "--json", url=database_url).document
    said = run("events", found["conversation_id"], "--json", url=database_url).out
    assert key not in said
    assert "use [redacted: api_key]" in said


def test_project_on_a_full_disk(own: str, tmp_path: Path) -> None:
    """The file that had no room is named."""
    full = tmp_path / "conversations" / conversation_with(own, "How is the weather")
    full.mkdir(parents=True)
    (full / "messages.json").symlink_to("/dev/full")
    done = run("export", "--all", "--format", "project", "-o", str(tmp_path), url=own)
    assert (2, f"eventstore: {full}/messages.json: No space left on device\n") == (
        done.status,
        done.err,
    )


def test_an_import_that_goes_on(sqlite_url: str, tmp_path: Path) -> None:
    """What a live session writes comes in, a line once it is complete, until an interrupt."""
    session = claude_sessions.Session()
    session.user("Look.")
    path = session.write(tmp_path / f"{claude_sessions.SESSION}.jsonl")
    arguments = ("--db", sqlite_url, "import", str(tmp_path), "--watch")
    process = start(arguments, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert "imported 1 conversation (2 events)" in process.stdout.readline()
        assert "watching" in process.stderr.readline()
        session.user("And there.")
        text = session.write(tmp_path.parent / "whole.jsonl").read_text("utf-8")
        path.write_text(text[:-20], "utf-8")
        other = tmp_path / "export.json"
        other.write_text(json.dumps(EXPORTS["open-webui"]), "utf-8")
        assert f"{other}: 8 new events" in process.stdout.readline()
        path.write_text(text, "utf-8")
        assert f"{path}: 1 new event" in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (0, "") == (process.returncode, errors)
