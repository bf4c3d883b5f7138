"""Write docs/rooms.md: which room imports which, and what every module says of itself.

``python scripts/rooms.py`` writes the page; ``tests/docs/test_rooms.py`` holds that it is up to
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
_HEAD = """# Rooms

Every module, and what it is for in its own words. Imports go down only: `agent_eventstore/`,
then `projections/`, then `eventstore/`. This page is made by `python scripts/rooms.py`.
"""


_IMPORTS = """## Imports

How many modules of a room, by row, import something of another, by column. The floors go down and
to the right, so whatever stood left of its floor would be an import that goes up.
"""


def page() -> str:
    """Return the page's text."""
    rooms = [line for floor in FLOORS for line in _room(ROOT / floor)]
    return "\n".join([_HEAD, _IMPORTS, *_matrix(), "", *rooms])


def _matrix() -> Iterator[str]:
    """Draw who imports whom, from the import statements as they stand."""
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
    """Yield a room's own file and those of the rooms in it, as the page has them."""
    yield folder / "__init__.py"
    for inner in sorted(folder.glob("*/__init__.py")):
        yield from _packages(inner.parent)


def _imported(file: Path) -> set[Path]:
    """Return the rooms that a module imports something of."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {_room_of(f"{module}.{each.name}") for each in names}
            case ast.Import(names=names):
                found |= {_room_of(each.name) for each in names}
    return found


def _room_of(name: str) -> Path:
    """Return the innermost room that a dotted name leads into; the root for others' modules."""
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
        yield "| module | what it is for |\n|---|---|"
        for file in files:
            sentence = _said(file)[0].replace("|", "\\|")
            yield f"| `{file.name}` | {sentence} |"
        yield ""
    for inner in sorted(file.parent for file in folder.glob("*/__init__.py")):
        yield from _room(inner)


def _said(file: Path) -> tuple[str, str]:
    """Return the first paragraph of a module's docstring, and the whole first sentence."""
    told = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    first = " ".join(told.partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".:"), first


if __name__ == "__main__":
    text = page()
    PAGE.write_text(text, "utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {text.count('.py`')} modules\n")
