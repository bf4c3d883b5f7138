"""No circle of files: whatever a module imports, in a function too, never leads back to it."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("eventstore", "projections", "agent_eventstore")


def imported(file: Path) -> set[Path]:
    """Return the project's own files that a module imports, wherever in it the statement stands."""
    found: set[Path | None] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {file_of(f"{module}.{each.name}") or file_of(module) for each in names}
            case ast.Import(names=names):
                found |= {file_of(each.name) for each in names}
    return {each for each in found if each is not None}


def file_of(name: str) -> Path | None:
    """Return the file of a dotted name; None where it is no module of this project."""
    place = ROOT.joinpath(*name.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.exists()), None)


def test_no_module_leads_back_to_itself() -> None:
    """An order in which each file comes after what it imports; a circle would be named."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    order = list(TopologicalSorter({file: imported(file) for file in files}).static_order())
    assert set(files) <= set(order)
