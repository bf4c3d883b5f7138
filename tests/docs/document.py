"""The documents as tests read them: queries with the answers shown, and tables of columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "Question", "blocks", "columns", "questions", "shown"]

ROOT = Path(__file__).parents[2]

MORE = "…"
"""What an answer ends with if more rows follow."""

_QUESTION = re.compile(
    r"^##+ (?P<title>[^\n]+)\n(?:(?!^#).)*?"
    r"^```sql\n(?P<sql>.*?)^```\n(?:\n```text\n(?P<answer>.*?)^```)?",
    re.MULTILINE | re.DOTALL,
)
_ROWS = r"^\| column \| meaning \|\n\|[-|]+\|\n(?P<rows>(?:\|[^\n]*\n?)+)"
_TABLE = re.compile(
    r"^### (?P<name>\w+)\n(?P<said>(?:(?!^#).)*?)" + _ROWS,
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A query of a document, with the lines of its answer if one is shown."""

    title: str
    sql: str
    answer: tuple[str, ...]

    @property
    def rows(self) -> list[list[str]]:
        """The rows that the answer shows."""
        return [shown(line.split("|")) for line in self.answer[1:] if line != MORE]

    @property
    def is_whole(self) -> bool:
        """Whether the answer shows every row."""
        return self.answer[-1] != MORE


def questions(path: Path) -> list[Question]:
    """Return a document's queries, in order."""
    return [
        Question(found["title"], found["sql"], tuple((found["answer"] or "").splitlines()))
        for found in _QUESTION.finditer(path.read_text("utf-8"))
    ]


def columns(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the names and types of the columns that a document lists, by table.

    Columns that mean the same everywhere are in one table, and views name them after "Also".
    """
    text = path.read_text("utf-8")
    [shared] = re.findall(rf"^## Columns\n(?:(?!^#).)*?{_ROWS}", text, re.MULTILINE | re.DOTALL)
    types = dict(_column(row) for row in shared.splitlines())
    tables = {}
    for found in _TABLE.finditer(text):
        also = re.findall(r"`(\w+)`", re.split(r"\sAlso\s", f"{found['said']} Also ")[1])
        listed = [_column(row) for row in found["rows"].splitlines()]
        tables[found["name"]] = [*((name, types[name]) for name in also), *listed]
    return tables


def blocks(path: Path, language: str) -> list[str]:
    """Return the contents of a document's code blocks in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def shown(row: Any) -> list[str]:
    """Return a row's values as text that is the same whichever database they come from."""
    return [_shown(value) for value in row]


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(int(value))
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
        case int() | float() | Decimal():
            return f"{float(value):g}"
    text = str(value)
    return f"{float(text):g}" if re.fullmatch(r"-?\d+(\.\d+)?", text) else text


def _column(row: str) -> tuple[str, str]:
    column, meaning = (cell.strip() for cell in row.strip("|").split("|", 1))
    assert meaning.strip(" |"), f"the column {column} has no meaning"
    name, _, kind = column.partition(" ")
    return name.strip("*"), kind or "text"
