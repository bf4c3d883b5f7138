"""The public face: one package has what a product imports, and documents import it there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

import agent_eventstore
from agent_eventstore import AsyncConversation
from agent_eventstore.conversation import StartOptions

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES]
_IMPORT = re.compile(
    r"^\s*from (?P<where>(?:agent_eventstore|eventstore|projections)[\w.]*) "
    r"import (?P<names>[\w, ]+)$",
    re.MULTILINE,
)


def test_every_name_is_there() -> None:
    """What is listed can be imported, in order and once."""
    names = agent_eventstore.__all__

    assert [] == [name for name in names if not hasattr(agent_eventstore, name)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "package", ["agent_eventstore", "agent_eventstore.cli", "eventstore", "projections"]
)
def test_names_are_listed_and_imported_by_star(package: str) -> None:
    """As if they were defined there, whether or not they were used before."""
    scope: dict[str, object] = {}
    exec(f"from {package} import *", scope)  # noqa: S102 - the statement is what is tested
    module = import_module(package)

    assert {*module.__all__} <= {*dir(module)}
    assert {*module.__all__} <= scope.keys()


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_documents_import_from_the_face(page: Path) -> None:
    """No page sends its reader past the face for a name that the face has."""
    found = [
        (each["where"], name.strip())
        for each in _IMPORT.finditer(page.read_text("utf-8"))
        for name in each["names"].split(",")
    ]

    public = {*agent_eventstore.__all__}
    beside = [pair for pair in found if pair[0] != "agent_eventstore" and pair[1] in public]
    assert [] == beside
    if page.suffix == ".py" or page.name == "README.md":
        allowed = {"agent_eventstore", "eventstore.events"}
        assert found
        # A framework's module is imported by itself, as it needs the framework.
        framework = "agent_eventstore.integrations."
        assert {where for where, _ in found if not where.startswith(framework)} <= allowed


def test_help_of_the_asynchronous_start_has_its_options() -> None:
    """`help` shows a method's own text, and not what another one's says."""
    for name in get_type_hints(StartOptions):
        assert f"``{name}``" in str(AsyncConversation.start.__doc__)
