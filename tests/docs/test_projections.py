"""``docs/projections.md`` is true: its projection runs, from fold to SQL view to rebuild."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore.events import AssistantMessage, UserMessage
from tests.docs.document import ROOT, blocks
from tests.warm import Programs

DOCUMENT = ROOT / "docs" / "projections.md"
EXAMPLE = ROOT / "examples" / "answer_times.py"
PROGRAM, READING = blocks(DOCUMENT, "python")


def test_the_projection_shown_is_the_example() -> None:
    """Whole, and of thirty lines or so."""
    assert EXAMPLE.read_text("utf-8") == PROGRAM
    code = [line for line in PROGRAM.splitlines() if line.strip()]
    assert len(code) <= 40


def run(programs: Programs, database_url: str, directory: Path, *arguments: str) -> str:
    """Run Python where the example lies, as a product's engineer does; return what it printed."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "EVENTSTORE_URL": database_url}
    done = programs.run(*arguments, directory=directory, environment=variables)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    """Give a store on each database."""
    with EventStore.open(database_url) as store:
        yield store


@pytest.fixture
def product(store: EventStore, tmp_path: Path) -> Path:
    """Give a directory with the example, and a store two questions, one of them answered."""
    (tmp_path / EXAMPLE.name).write_text(PROGRAM, "utf-8")
    cid, asked = new_id(), store.clock()
    times = [asked, asked + timedelta(seconds=2.5), asked + timedelta(seconds=60)]
    said = [UserMessage.text("Well?"), AssistantMessage.of("Yes."), UserMessage.text("And?")]
    store.append(
        cid,
        [NewEvent(data, meta=Meta(occurred_at=at)) for data, at in zip(said, times, strict=True)],
    )
    return tmp_path


def test_it_is_read_followed_rebuilt_and_asked_by_sql(
    store: EventStore, database_url: str, product: Path, programs: Programs
) -> None:
    """What the document shows, in the order in which it shows it, on both databases."""
    program = READING.replace("sqlite:///agent.db", database_url)
    shown = [
        line.rsplit(" ", 1)[1]
        for line in run(programs, database_url, product, "-c", program).splitlines()
    ]
    assert ["2.5", "None"] == shown
    [question] = blocks(DOCUMENT, "sql")
    with store.reading() as connection:
        assert [(1, 2.5)] == [tuple(row) for row in connection.exec_driver_sql(question)]
    [commands] = blocks(DOCUMENT, "console")
    told = [
        run(programs, database_url, product, "-m", "agent_eventstore.cli", *line.split()[2:])
        for line in commands.splitlines()
    ]
    assert [True] * 5 == [
        words in said
        for words, said in zip(
            [
                "caught up",
                "rebuilt answer_times",
                "no difference",
                "answer_times",
                "11 projections",
            ],
            told,
            strict=True,
        )
    ]
