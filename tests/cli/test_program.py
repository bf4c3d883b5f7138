"""What holds for every command: where things are written, and how it ends."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.cli.program import call, run, start

READERS = (
    ("list",),
    ("events", "00"),
    ("timeline", "00"),
    ("context", "00"),
    ("usage",),
    ("tools",),
    ("export", "00", "--format", "openai"),
    ("verify",),
    ("erase", "00", "--reason", "r", "--yes"),
    ("db", "current"),
    ("projections", "status"),
    ("projections", "rebuild"),
    ("projections", "rebuild", "--diff"),
    ("projections", "run", "--once"),
)
WRITERS = (
    ("import", "FILE"),
    ("db", "upgrade"),
    ("erase", "00", "--reason", "r", "--yes"),
    ("projections", "rebuild"),
    ("projections", "run", "--once"),
)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_missing_file_is_told_and_not_created(tmp_path: Path, command: tuple[str, ...]) -> None:
    """A command that does not make databases leaves none behind."""
    done = run(*command, url=f"sqlite:///{tmp_path / 'none.db'}")
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))
    assert "does not exist: name another with --db" in done.err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_read_only_refuses_to_write(own: str, transcripts: Path, command: tuple[str, ...]) -> None:
    """With ``--read-only`` a command that writes is wrong use."""
    arguments = [str(transcripts) if each == "FILE" else each for each in command]
    for place in (0, len(arguments)):
        done = run(*arguments[:place], "--read-only", *arguments[place:], url=own)
        assert (2, 1) == (done.status, len(done.err.splitlines()))
        assert "cannot be used with --read-only" in done.err


@pytest.mark.parametrize("command", [("list",), ("tools",), ("usage",), ("verify",)])
def test_read_only_reads(own: str, command: tuple[str, ...]) -> None:
    """With ``--read-only`` a store that nobody has read yet can be read, and stays as it is."""
    done = run("--read-only", *command, "--json", url=own)
    assert done == run(*command, "--json", "--read-only", url=own)
    status = run("projections", "status", "--json", url=own).document
    assert (0, "") == (done.status, done.err)
    assert {None} == {each["generation"] for each in status["projections"]}


@pytest.mark.parametrize("url", ["nonsense", "mysql://u@h/d", "sqlite:////no/such/place/x.db"])
def test_wrong_url(url: str, transcripts: Path) -> None:
    """A URL that leads nowhere is told in one line."""
    done = run("import", str(transcripts), url=url)
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))


def test_server_that_is_not_there() -> None:
    """A server that does not answer is told in one line, without the password."""
    done = run("list", url="postgresql://ada:secret@127.0.0.1:1/none")
    assert (2, 1, False) == (done.status, len(done.err.splitlines()), "secret" in done.err)


def test_file_that_is_no_database(tmp_path: Path) -> None:
    """A file that is something else is told in one line, and stays as it is."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be looked at\n" * 20, encoding="utf-8")
    before = path.read_bytes()
    done = run("list", url=f"sqlite:///{path}")
    assert (2, 1, before) == (done.status, len(done.err.splitlines()), path.read_bytes())


def test_database_without_schema(postgres_url: str) -> None:
    """A database that has no schema yet is told with the command that makes it."""
    done = run("list", url=postgres_url)
    assert (2, True) == (done.status, "eventstore db upgrade" in done.err)


def test_upgrade_makes_a_database(database_url: str) -> None:
    """``db upgrade`` makes the schema, and ``db current`` then shows the latest revision."""
    assert 0 == run("db", "upgrade", url=database_url).status
    found = run("db", "current", "--json", url=database_url).document
    assert (True, found["latest"]) == (found["is_latest"], found["revision"])
    assert run("db", "current", url=database_url).out.endswith("(the latest)\n")


def test_current_of_an_empty_database(postgres_url: str) -> None:
    """A database without a schema has no revision, which is not an error."""
    done = run("db", "current", url=postgres_url)
    assert (0, True) == (done.status, done.out.startswith("no schema "))


def test_current_of_a_newer_database(own: str) -> None:
    """Its schema cannot be upgraded by this version, which was told to do so."""
    with closing(sqlite3.connect(make_url(own).database or "")) as file, file:
        file.execute("UPDATE eventstore_version SET version_num = '9999'")

    done = run("db", "current", url=own)

    assert (0, "upgrade the package") == (done.status, done.out.strip(" ()\n")[-19:])
    assert "db upgrade" not in done.out


def test_url_after_the_command(own: str) -> None:
    """The database may be named after the command too."""
    assert run("list", url=own) == run("list", "--db", own)


def test_url_from_the_environment(own: str) -> None:
    """The variable names the database, and the option overrides it."""
    environment = {"EVENTSTORE_URL": own}
    assert run("list", url=own) == run("list", environment=environment)
    assert 2 == run("list", url="nonsense", environment=environment).status


def test_default_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL the database is the file eventstore.db of the current directory."""
    monkeypatch.chdir(tmp_path)
    assert 0 == run("db", "upgrade").status
    assert (tmp_path / "eventstore.db").exists()


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_writes_to_stderr(own: str, place: str) -> None:
    """Logs go to stderr, and stdout stays one JSON document."""
    arguments = ("-v", "list", "--json") if place == "before" else ("list", "--json", "-v")
    done = run(*arguments, url=own)
    assert 2 == len(done.document)
    assert "store opened" in done.err


def test_quiet_by_default(own: str) -> None:
    """Without ``--verbose`` nothing but the result is written."""
    assert "" == run("list", url=own).err


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("list", "--nonsense"), ("context",), ("usage", "--by", "x")]
)
def test_wrong_use_is_one_line(own: str, arguments: tuple[str, ...]) -> None:
    """Wrong use gives status 2 and one line that names where to read on."""
    done = run(*arguments, url=own)
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))
    assert "--help" in done.err


def test_without_a_command_help_is_shown() -> None:
    """Without a command the help is shown, as wrong use."""
    done = run()
    assert (2, True) == (done.status, done.err.startswith("Usage: eventstore"))


def test_closed_pipe_is_quiet(own: str, tmp_path: Path) -> None:
    """Whoever stops reading, as ``head`` does, ends the program without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    pipes = {"stdout": writing, "stderr": subprocess.PIPE}
    with start(("--db", own, "list", "--json"), tmp_path, **pipes) as process:
        _, err = process.communicate()
    os.close(writing)
    assert (141, "") == (process.returncode, err)


def test_closed_pipe_is_quiet_in_a_table(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So does a table, of which nothing is left to be written when the program exits."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        status = call("list", url=own)
        pipe.flush()
    assert (141, "") == (status, capsys.readouterr().err)


def test_terminal_of_another_encoding(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a terminal cannot show is escaped, and is not an error."""
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    status = call("list", url=own)
    assert (0, "") == (status, capsys.readouterr().err)
    assert rb"\u628a\u4f1a" in shown.getvalue()
