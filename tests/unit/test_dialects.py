"""Few files know that there are two databases: a count of branches that may only fall."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("eventstore", "projections", "agent_eventstore")
NAMES = {"sqlite", "postgresql"}

ALLOWED = {
    "agent_eventstore/cli/db.py": 1,
    "agent_eventstore/cli/demo.py": 1,
    "agent_eventstore/cli/options.py": 1,
    "agent_eventstore/cli/torture.py": 1,
    "agent_eventstore/torture/run.py": 4,
    "agent_eventstore/torture/writing.py": 1,
    "eventstore/checks/log.py": 2,
    "eventstore/erasure.py": 1,
    "projections/context/levels.py": 5,
    "projections/context/prompts.py": 1,
    "projections/context/search.py": 3,
    "projections/context/search_index.py": 2,
    "projections/context/search_tables.py": 2,
    "projections/context/source.py": 1,
    "projections/engine/heads.py": 4,
    "projections/engine/owned.py": 1,
    "projections/engine/quoting.py": 1,
    "projections/engine/rows.py": 1,
    "projections/engine/tables.py": 3,
    "projections/engine/rounds.py": 1,
    "projections/finding.py": 1,
    "projections/models/message_search.py": 1,
    "projections/tokens/counts.py": 5,
}
"""How many branches each file has; those of `eventstore/sql` are about nothing else."""


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


def test_no_file_learns_of_a_second_database() -> None:
    """What differs goes to `eventstore/sql`; a number here is lowered when a file has fewer."""
    found = {
        path.relative_to(ROOT).as_posix(): branches(path)
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "eventstore/sql/" not in path.as_posix()
    }
    assert {} == {file: count for file, count in found.items() if count > ALLOWED.get(file, 0)}


def test_no_file_is_allowed_what_it_does_not_need() -> None:
    """Each that is named is there, and has a branch still."""
    assert [] == [file for file in ALLOWED if not branches(ROOT / file)]
