"""Write docs/rooms.md: every module and the first sentence of what it says of itself, room by room.

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


def page() -> str:
    """Return the page's text."""
    return "\n".join([_HEAD, *(line for floor in FLOORS for line in _room(ROOT / floor))])


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
