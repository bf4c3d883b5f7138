"""Check names: no vague word as an identifier, and each class and module once: ``make lint``.

Import contracts in pyproject.toml hold which package may import which.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("eventstore", "projections", "agent_eventstore")
VAGUE = frozenset(
    "told said kept held asked begun brought anew teller standing besides whose stood lit".split()
)
"""Words that say nothing of what a value is, where the field has a term for it."""

SIBLINGS = frozenset(
    "__init__ __main__ aio answer errors events items read session store stream usage write".split()
)
"""Modules that packages of one kind have each, such as ``stream`` of every provider."""

_WORD = re.compile(r"[A-Z]?[a-z]+")


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each class, function, parameter, variable and attribute."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def problems() -> Iterator[str]:
    """Yield a line for each name to change."""
    classes, modules = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            shown = path.relative_to(ROOT).as_posix()
            if path.stem not in SIBLINGS:
                modules[path.stem].append(shown)
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    classes[node.name].append(f"{shown}:{node.lineno}")
            for line, name in names_in(tree):
                if VAGUE.intersection(map(str.lower, _WORD.findall(name))):
                    yield f"{shown}:{line}: {name}: use a term that says what it is"
    for kind, found in (("class", classes), ("module", modules)):
        for name, places in sorted(found.items()):
            if len(places) > 1:
                yield f"{kind} {name} is defined more than once: {', '.join(places)}"


if __name__ == "__main__":
    found = list(problems())
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))
