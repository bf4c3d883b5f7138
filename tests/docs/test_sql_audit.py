"""``docs/sql-audit.md`` is true: its queries run, its answers come out, its columns exist."""

from __future__ import annotations

import pytest

from projections import PROJECTIONS
from tests.docs.conftest import Ask
from tests.docs.document import ROOT, Question, blocks, columns, questions, shown

DOCUMENT = ROOT / "docs" / "sql-audit.md"
QUESTIONS = questions(DOCUMENT)
COLUMNS = columns(DOCUMENT)
VIEWS = [table.name for projection in PROJECTIONS for table in projection.tables]

each_question = pytest.mark.parametrize(
    "question", QUESTIONS, ids=[question.title for question in QUESTIONS]
)
each_answer = pytest.mark.parametrize(
    "question",
    [question for question in QUESTIONS if question.answer],
    ids=[question.title for question in QUESTIONS if question.answer],
)
each_table = pytest.mark.parametrize("table", sorted(COLUMNS))


def test_no_query_is_overlooked() -> None:
    """Every SQL block of the document belongs to a question, and there are a good many."""
    assert [question.sql for question in QUESTIONS] == blocks(DOCUMENT, "sql")
    assert len(QUESTIONS) >= 9


@each_question
def test_both_databases_give_the_same_rows(
    question: Question, sqlite_ask: Ask, postgres_ask: Ask
) -> None:
    """The same text runs on SQLite and on PostgreSQL, with the same columns and rows."""
    sqlite_names, sqlite_rows = sqlite_ask(question.sql)
    postgres_names, postgres_rows = postgres_ask(question.sql)

    assert sqlite_names == postgres_names
    assert [shown(row) for row in sqlite_rows] == [shown(row) for row in postgres_rows]


@each_answer
def test_the_answer_comes_out(question: Question, sqlite_ask: Ask) -> None:
    """The rows that the document shows are the first ones of the answer, and are said to be all."""
    names, rows = sqlite_ask(question.sql)

    assert question.answer[0].split("|") == names
    assert question.rows
    assert question.rows == [shown(row) for row in rows[: len(question.rows)]]
    assert question.is_whole == (len(rows) == len(question.rows))


def test_questions_without_an_answer_have_none(sqlite_ask: Ask) -> None:
    """Where the document shows no answer, there is none to show."""
    without = [question for question in QUESTIONS if not question.answer]

    assert [[] for _ in without] == [sqlite_ask(question.sql)[1] for question in without]


def test_every_view_is_documented() -> None:
    """The document lists the views of all projections, and the table of conversations."""
    assert {"conversations", "view_lag", *VIEWS} == set(COLUMNS)


@each_table
def test_columns_are_those_of_sqlite(table: str, sqlite_ask: Ask) -> None:
    """The document lists a view's columns: all of them, and no others."""
    names, _ = sqlite_ask(f"SELECT * FROM {table} LIMIT 0")

    assert sorted(name for name, _ in COLUMNS[table]) == sorted(names)


@each_table
def test_columns_and_types_are_those_of_postgresql(table: str, postgres_ask: Ask) -> None:
    """Names and types are those that PostgreSQL's catalogue gives."""
    _, rows = postgres_ask(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    short = {"timestamp with time zone": "timestamptz"}

    assert sorted(COLUMNS[table]) == sorted((name, short.get(kind, kind)) for name, kind in rows)


@each_table
def test_bold_columns_identify_a_row(table: str, sqlite_ask: Ask) -> None:
    """The conversation and the columns in bold are the key: no two rows share them."""
    section = DOCUMENT.read_text("utf-8").split(f"### {table}\n")[1].split("\n### ")[0]
    bold = [name for name, _ in COLUMNS[table] if f"**{name}**" in section]
    key = ["conversation_id", *(name for name in bold if name != "conversation_id")]
    _, rows = sqlite_ask(f"SELECT {', '.join(key)} FROM {table} GROUP BY {', '.join(key)}")
    _, [(count,)] = sqlite_ask(f"SELECT count(*) FROM {table}")
    declared = {
        each.name: list(each.key) for projection in PROJECTIONS for each in projection.tables
    }

    assert ["conversation_id", *declared.get(table, [])] == key
    assert count == len(rows)
