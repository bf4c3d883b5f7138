"""``docs/analysis.md`` is true: its programs open the copy, and its queries give its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.parquet import export_parquet
from eventstore import EventStore
from tests.cli.once import once
from tests.docs.audit_store import fill
from tests.docs.document import Question, blocks, shown
from tests.docs.on_spark import DOCUMENT, ON_DUCKDB, QUESTIONS, made

each_question = pytest.mark.parametrize(
    "question", QUESTIONS, ids=[question.title for question in QUESTIONS]
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the directory with the copy of the documents' store."""

    def make(directory: Path) -> str:
        with EventStore.open(f"sqlite:///{directory}/agent.db") as store:
            fill(store)
            export_parquet(store, directory / "lake")
        return str(directory / "lake")

    with once(tmp_path_factory, "analysis", make) as path:
        yield path


@pytest.fixture(scope="module")
def on_duckdb(lake: str) -> Callable[[str], tuple[list[str], list[Any]]]:
    """Run a query on DuckDB."""
    connection = made(ON_DUCKDB, lake, "lake")

    def ask(query: str) -> tuple[list[str], list[Any]]:
        found = connection.execute(query)
        return [column[0] for column in found.description], found.fetchall()

    return ask


def test_no_query_is_overlooked() -> None:
    """Every SQL block of the document belongs to a question with an answer."""
    assert [question.sql for question in QUESTIONS] == blocks(DOCUMENT, "sql")
    assert len(QUESTIONS) >= 5
    assert all(question.rows for question in QUESTIONS)


@each_question
def test_duckdb_answers(
    question: Question, on_duckdb: Callable[[str], tuple[list[str], list[Any]]]
) -> None:
    """The rows that the document shows are the first ones of DuckDB's answer."""
    names, rows = on_duckdb(question.sql)
    assert question.answer[0].split("|") == names
    assert question.rows == [shown(row) for row in rows[: len(question.rows)]]
    assert question.is_whole == (len(rows) == len(question.rows))
