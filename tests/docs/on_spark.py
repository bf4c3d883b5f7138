"""Ask Spark the queries of ``docs/analysis.md``: ``make test-spark``, which needs Java."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from agent_eventstore.parquet import export_parquet
from eventstore import EventStore
from tests.docs.audit_store import fill
from tests.docs.document import ROOT, blocks, questions, shown

__all__ = ["DOCUMENT", "ON_DUCKDB", "QUESTIONS", "made"]

DOCUMENT = ROOT / "docs" / "analysis.md"
QUESTIONS = questions(DOCUMENT)
ON_DUCKDB, ON_SPARK = blocks(DOCUMENT, "python")


def made(program: str, lake: str, name: str) -> Any:
    """Run a program of the document on a copy, and return what it has made."""
    variables: dict[str, Any] = {}
    exec(program.replace('Path("lake")', f"Path({lake!r})"), variables)  # noqa: S102 - our own
    return variables[name]


def _main() -> int:
    """Compare each answer of Spark with DuckDB's; return the number of those that differ."""
    with tempfile.TemporaryDirectory() as scratch:
        lake = str(Path(scratch, "lake"))
        with EventStore.open(f"sqlite:///{scratch}/agent.db") as store:
            fill(store)
            export_parquet(store, Path(lake))
        spark, duckdb = made(ON_SPARK, lake, "spark"), made(ON_DUCKDB, lake, "lake")
        differing = 0
        for question in QUESTIONS:
            found, wanted = spark.sql(question.sql), duckdb.execute(question.sql)
            is_same = found.columns == [column[0] for column in wanted.description] and [
                shown(row) for row in found.collect()
            ] == [shown(row) for row in wanted.fetchall()]
            click.echo(f"{'same rows' if is_same else 'OTHER ROWS'}: {question.title}")
            differing += not is_same
        spark.stop()
    return differing


if __name__ == "__main__":
    sys.exit(_main())
