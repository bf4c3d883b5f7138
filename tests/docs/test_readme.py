"""The README shows what there is: its program runs, and its answer comes out."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eventstore import EventStore
from projections import Views
from tests.docs.conftest import Ask
from tests.docs.document import ROOT, blocks, questions, shown

README = ROOT / "README.md"
PROGRAM = ROOT / "examples" / "agent.py"

Run = Callable[..., str]
"""Runs the program with arguments; returns what it printed."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Give what runs the program in this process, and returns what it printed."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [str(PROGRAM), *arguments])
        runpy.run_path(str(PROGRAM), run_name="__main__")["store"].close()
        return capsys.readouterr().out

    return run


def test_the_program_shown_is_the_example() -> None:
    """The README shows the whole of the example, but for a note to the linter."""
    program = PROGRAM.read_text("utf-8").removesuffix("\n# ruff: noqa: T201\n")

    assert [program] == blocks(README, "python")


def test_the_program_prints_what_is_shown(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in an empty directory, and then once more, the program prints what the README says."""
    first = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=tmp_path,
        # This checkout is to be imported, installed or not.
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    monkeypatch.chdir(tmp_path)

    assert (0, "") == (first.returncode, first.stderr)
    assert first.stdout == run()
    assert first.stdout in blocks(README, "text")


def test_the_program_records_a_whole_turn(tmp_path: Path, run: Run) -> None:
    """What the program leaves behind is a conversation whose only tool call succeeded."""
    url = f"sqlite:///{tmp_path / 'chosen.db'}"
    run(url)
    with EventStore.open(url) as store:
        [conversation] = store.list(user_id="ada")
        [call] = Views(store).tool_calls(conversation_id=conversation.conversation_id)

    assert 12 == conversation.version
    assert ("status", "success") == (call.name, call.status)


def test_the_answer_comes_out(sqlite_ask: Ask, postgres_ask: Ask) -> None:
    """The audit question of the README has the answer shown, on both databases."""
    [question] = questions(README)
    names, rows = sqlite_ask(question.sql)

    assert question.answer[0].split("|") == names
    assert question.rows == [shown(row) for row in rows]
    assert question.rows == [shown(row) for row in postgres_ask(question.sql)[1]]
