"""The demo, as a program and as a command."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from agent_eventstore.cli import demo
from agent_eventstore.demo import script
from tests.cli.once import once
from tests.cli.program import ENVIRONMENT, ROOT, Run, run
from tests.warm import Programs


@pytest.fixture(scope="session")
def shown(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """What the demo prints, run as a program, once for all workers."""

    def show(directory: Path) -> str:
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
        command = ("-m", "agent_eventstore.cli", "demo")
        done = programs.run(*command, directory=directory, environment=environment)
        return json.dumps(asdict(Run(done.returncode, done.stdout, done.stderr)))

    with once(tmp_path_factory, "demo", show) as printed:
        yield Run(**json.loads(printed))


def test_demo_ends_well(shown: Run) -> None:
    """The demo finds no difference and no problem, and says nothing on stderr."""
    assert (0, "") == (shown.status, shown.err)
    assert "compared: no difference" in shown.out
    assert "everything is as it was written" in shown.out


def test_demo_is_short(shown: Run) -> None:
    """The demo fits into a few screens."""
    assert len(shown.out.splitlines()) <= 175


def test_demo_shows_every_view(shown: Run) -> None:
    """Each view has its heading, and the rebuild its progress bar."""
    for heading in (
        "Killed",
        "Timeline",
        "messages[]",
        "Usage",
        "Tool audit",
        "Rebuild",
        "Explore",
    ):
        assert heading in shown.out
    assert re.search(r"rebuilding ━+ +100%", shown.out)


def test_demo_shows_both_recoveries(shown: Run) -> None:
    """What was lost, what was sealed, what the model is told, and that it went on."""
    assert 2 == len(re.findall(r"✗ process \d+ killed \(signal 9\)", shown.out))
    assert 2 == shown.out.count('✓ "continue" ran to the end')
    for said in ("outcome_unknown", "LLM_ERROR", "It may or may not", "CHANGELOG.md has 1 line"):
        assert said in shown.out


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Give the directory of a demo without deaths, and what it printed; only to be read.

    It ran where the environment names another database.
    """
    directory = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(script, "DEATHS", {})
        patch.setattr(demo, "DELAY_S", 0.0)
        done = run("demo", environment={"EVENTSTORE_URL": "sqlite:///production.db"})
    return directory, done


def test_commands_at_the_end_work(
    finished: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the demo tells to type next can be typed."""
    directory, done = finished
    monkeypatch.chdir(directory)
    end = done.out.partition("Explore it further")[2].splitlines()[1:]
    url = end[0].partition("=")[2]
    typed = [line.partition(" -m agent_eventstore.cli ")[2].split() for line in end[1:]]
    assert [0] * len(typed) == [run(*each, url=url).status for each in typed]


def test_demo_keeps_away_from_the_environments_database(finished: tuple[Path, Run]) -> None:
    """The database that the environment names is not for trying things out."""
    assert [demo.DEMO_FILE] == sorted(path.name for path in finished[0].glob("*.db"))


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty current directory, and a demo of one turn in which nobody dies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script, "DEATHS", {})
    monkeypatch.setattr(script, "USER", script.USER[-1:])
    monkeypatch.setattr(script, "REPLIES", script.REPLIES[-1:])
    monkeypatch.setattr(demo, "DELAY_S", 0.0)
    return tmp_path


def ids_in(url: str) -> set[str]:
    """Return the ids of the conversations of a store."""
    return {each["conversation_id"] for each in run("list", "--json", url=url).document}


def test_demo_replaces_its_own_file(finished: tuple[Path, Run], short: Path) -> None:
    """A second demo begins anew, unless the first is to be kept."""
    url = f"sqlite:///{demo.DEMO_FILE}"
    shutil.copy(finished[0] / demo.DEMO_FILE, short)
    first = ids_in(url)
    run("demo")
    second = ids_in(url)
    assert (1, 1, set()) == (len(first), len(second), first & second)
    run("demo", "--keep")
    assert (2, second) == (len(ids_in(url)), ids_in(url) & second)


def test_demo_adds_to_a_database_that_is_named(short: Path, own: str) -> None:
    """With ``--db`` the demo runs on any database, and leaves alone what is in it."""
    before = ids_in(own)
    done = run("demo", url=own)
    assert (0, 3, before) == (done.status, len(ids_in(own)), ids_in(own) & before)
    assert [] == list(short.glob(f"{demo.DEMO_FILE}*"))


@pytest.mark.parametrize("more", [(), ("--keep",)])
def test_demo_touches_no_other_file(short: Path, transcripts: Path, more: tuple[str, ...]) -> None:
    """A file of that name which holds something else is left as it is."""
    run("import", str(transcripts), url=f"sqlite:///{demo.DEMO_FILE}")
    done = run("demo", *more)
    listed = run("list", "--json", url=f"sqlite:///{demo.DEMO_FILE}").document
    assert (2, 1, 2) == (done.status, len(done.err.splitlines()), len(listed))


def test_demo_leaves_a_text_file_alone(short: Path) -> None:
    """A file of that name which is not a database is left as it is."""
    path = short / demo.DEMO_FILE
    path.write_text("my notes\n" * 100, encoding="utf-8")
    assert (2, "my notes\n" * 100) == (run("demo").status, path.read_text(encoding="utf-8"))


def test_demo_refuses_a_database_in_memory(short: Path) -> None:
    """The process that is killed could not write there, so it says so at once."""
    done = run("demo", url="sqlite:///:memory:")
    assert (2, "") == (done.status, done.out)
    assert "outlives a process" in done.err
