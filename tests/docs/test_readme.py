"""The README shows what there is: its program runs, and its answer comes out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventstore import EventStore
from projections import Views
from tests.docs.conftest import Ask
from tests.docs.document import ROOT, blocks, questions, shown

README = ROOT / "README.md"
PROGRAM = ROOT / "examples" / "agent.py"


@pytest.fixture
def environment() -> dict[str, str]:
    """Give the environment of a program that is to import this checkout, installed or not."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_program_shown_is_the_example() -> None:
    """The README shows the whole of the example, but for a note to the linter."""
    program = PROGRAM.read_text("utf-8").removesuffix("\n# ruff: noqa: T201\n")

    assert [program] == blocks(README, "python")


def test_the_program_prints_what_is_shown(tmp_path: Path, environment: dict[str, str]) -> None:
    """Run in an empty directory and twice, the program prints what the README says."""
    runs = [
        subprocess.run(
            [sys.executable, str(PROGRAM)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(2)
    ]

    assert [(0, ""), (0, "")] == [(run.returncode, run.stderr) for run in runs]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout in blocks(README, "text")


def test_the_program_records_a_whole_turn(tmp_path: Path, environment: dict[str, str]) -> None:
    """What the program leaves behind is a conversation whose only tool call succeeded."""
    url = f"sqlite:///{tmp_path / 'chosen.db'}"
    subprocess.run([sys.executable, str(PROGRAM), url], env=environment, check=True)
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
