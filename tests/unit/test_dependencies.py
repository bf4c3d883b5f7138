"""The least versions that are allowed are those that `make test-lowest` runs with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BOUND = re.compile(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)")
_PIN = re.compile(r"^([\w-]+)==(.+)$", re.MULTILINE)


def released(version: str) -> tuple[int, ...]:
    """Return a version without the zeros at its end: 2.10 is 2.10.0."""
    return tuple(map(int, re.sub(r"(\.0)+$", "", version).split(".")))


def pins(name: str) -> dict[str, str]:
    """Return the pinned versions of a file, by the names of the projects."""
    found = _PIN.findall((ROOT / "requirements" / name).read_text("utf-8"))
    return {project.lower().replace("_", "-"): version for project, version in found}


def bounds() -> dict[str, str]:
    """Return the least version of each dependency, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = [_BOUND.match(each) for each in project["dependencies"]]
    assert all(found), "a dependency has no least version"
    return {each[1]: each[2] for each in found if each}


def test_least_versions_are_those_that_are_tested() -> None:
    """Whoever moves a bound tests it; whoever tests another version says so."""
    lowest = pins("lowest.txt")

    assert {name: released(version) for name, version in bounds().items()} == {
        name: released(lowest[name]) for name in bounds()
    }


@pytest.mark.parametrize("extra", ["langchain", "langgraph", "openai-agents"])
def test_least_versions_of_frameworks_are_those_that_are_tested(extra: str) -> None:
    """The bound of an extra is the version that its adapter's tests run with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = [_BOUND.match(each) for each in project["optional-dependencies"][extra]]
    assert all(found), "a dependency has no least version"
    lowest = pins(f"lowest-{'langgraph' if extra == 'langchain' else extra}.txt")

    assert [released(each[2]) for each in found if each] == [
        released(lowest[each[1]]) for each in found if each
    ]


def test_the_suite_runs_with_newer_ones() -> None:
    """What make installs is at least the least version, of every dependency."""
    pinned = pins("constraints.txt")
    older = [name for name, low in bounds().items() if released(pinned[name]) < released(low)]

    assert [] == older
