"""Few files know that there are two databases: a count of branches that may only fall."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("eventstore", "projections", "agent_eventstore")
NAMES = {"sqlite", "postgresql"}
BACKENDS = {f"eventstore/sql/{name}.py" for name in NAMES}

ALLOWED = {
    "eventstore/checks/event_log.py": 1,
    "eventstore/sql/borrowed.py": 1,
    "eventstore/sql/engines.py": 1,
    "eventstore/sql/migrate.py": 1,
    "eventstore/sql/rights.py": 2,
    "eventstore/sql/schema.py": 2,
    "eventstore/sql/residues.py": 3,
    "eventstore/sql/transactions.py": 4,
    "eventstore/sql/types.py": 7,
    "eventstore/sql/urls.py": 5,
    "projections/context/recall_search.py": 4,
    "projections/context/search_index.py": 2,
    "projections/context/search_tables.py": 2,
    "projections/search/finding.py": 1,
    "projections/search/message_search.py": 1,
}
"""How many branches each file has."""


def branches(path: Path) -> int:
    """Count uses of ``is_sqlite``, and comparisons with or lookups by a database's name."""
    found = 0
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Attribute(attr="is_sqlite"):
                found += 1
            case ast.Compare(left=left, comparators=[right]):
                found += any(
                    isinstance(each, ast.Constant) and each.value in NAMES for each in (left, right)
                )
            case ast.Dict(keys=keys):
                found += NAMES <= {each.value for each in keys if isinstance(each, ast.Constant)}
    return found


def test_the_files_with_branches_are_these() -> None:
    """What differs goes behind `eventstore.sql.backend`; a number here is lowered with its file."""
    found = {
        name: count
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) not in BACKENDS and (count := branches(path))
    }
    assert found == ALLOWED
