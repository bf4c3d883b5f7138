"""Write docs/rooms.md: which package imports which, and what each module is for.

``python scripts/rooms.py`` writes the page; ``tests/docs/test_rooms.py`` checks that it is up to
date.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rooms.md"
FLOORS = ("agent_eventstore", "projections", "eventstore")
_HEAD = """# Modules

Every module, with the first sentence of its docstring. Imports only go down: `agent_eventstore/`,
then `projections/`, then `eventstore/`. `python scripts/rooms.py` generates this page.
"""


_IMPORTS = """## Imports

The number of modules in each package (row) that import from another package (column). Layers go
down and to the right, so a number left of a layer's own columns would be an upward import.
"""


def page() -> str:
    """Return the page's text."""
    rooms = [line for floor in FLOORS for line in _room(ROOT / floor)]
    return "\n".join([_HEAD, _IMPORTS, *_matrix(), "", *rooms])


def _matrix() -> Iterator[str]:
    """Draw the import matrix, from the import statements in the code."""
    rooms = [file.parent for floor in FLOORS for file in _packages(ROOT / floor)]
    names = [str(room.relative_to(ROOT)) for room in rooms]
    widest = max(map(len, names)) + 2
    yield "```text"
    yield " " * (widest + 3) + "".join(f"{number:4}" for number in range(1, len(rooms) + 1))
    for number, (room, name) in enumerate(zip(rooms, names, strict=True), 1):
        if name in FLOORS[1:]:
            yield ""
        files = [_imported(file) for file in room.glob("*.py")]
        counts = [sum(other in found for found in files) for other in rooms]
        cells = [
            "■" if other == room else count or "·"
            for other, count in zip(rooms, counts, strict=True)
        ]
        yield f"{number:2} {name + '/':{widest}}" + "".join(f"{cell:>4}" for cell in cells)
    yield "```"


def _packages(folder: Path) -> Iterator[Path]:
    """Yield the ``__init__.py`` of a package and of the packages in it, in the page's order."""
    yield folder / "__init__.py"
    for inner in sorted(folder.glob("*/__init__.py")):
        yield from _packages(inner.parent)


def _imported(file: Path) -> set[Path]:
    """Return the packages that a module imports from."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {_room_of(f"{module}.{each.name}") for each in names}
            case ast.Import(names=names):
                found |= {_room_of(each.name) for each in names}
    return found


def _room_of(name: str) -> Path:
    """Return the innermost package of a dotted name; the root for third-party modules."""
    place = ROOT
    for part in name.split("."):
        if not (place / part / "__init__.py").exists():
            break
        place /= part
    return place


def _room(folder: Path) -> Iterator[str]:
    yield f"## `{folder.relative_to(ROOT)}/`\n"
    yield f"{_said(folder / '__init__.py')[1]}\n"
    files = sorted(file for file in folder.glob("*.py") if not file.stem.startswith("__"))
    if files:
        yield "| module | purpose |\n|---|---|"
        for file in files:
            sentence = _said(file)[0].replace("|", "\\|")
            yield f"| `{file.name}` | {sentence} |"
        yield ""
    for inner in sorted(file.parent for file in folder.glob("*/__init__.py")):
        yield from _room(inner)


def _said(file: Path) -> tuple[str, str]:
    """Return the first sentence of a module's docstring, and its whole first paragraph."""
    told = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    first = " ".join(told.partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".:"), first


if __name__ == "__main__":
    text = page()
    PAGE.write_text(text, "utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {text.count('.py`')} modules\n")
