"""Imports between the packages go down only; a copy of the tree shows that the contract bites."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FLOORS = ["agent_eventstore", "projections", "eventstore"]
LINT = "from importlinter.cli import lint_imports_command as run; raise SystemExit(run())"


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages in a directory, not on those that are installed."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(pytestconfig: pytest.Config, tmp_path: Path) -> Path:
    """Copy the packages and the contract to a directory where they may be spoilt."""
    shutil.copy(pytestconfig.rootpath / "pyproject.toml", tmp_path)
    without_caches = shutil.ignore_patterns("__pycache__")
    for package in FLOORS:
        source = pytestconfig.rootpath / package
        shutil.copytree(source, tmp_path / package, ignore=without_caches)
    return tmp_path


def add_import(directory: Path, module: str, imported: str) -> None:
    """Write a module that imports another, both created where they are missing."""
    for name in (module, imported):
        path = directory.joinpath(*name.split("."))
        if path.with_suffix(".py").exists():
            continue
        path.mkdir(exist_ok=True)
        path.joinpath("__init__.py").touch()
    directory.joinpath(*module.split("."), "spoilt.py").write_text(f"import {imported}\n")


def test_imports_of_this_project_go_down_only(pytestconfig: pytest.Config) -> None:
    """The project keeps its own contracts."""
    run = lint(pytestconfig.rootpath)

    assert 0 == run.returncode, run.stdout + run.stderr


def test_an_unspoilt_copy_passes(copy: Path) -> None:
    """What the other tests see broken is broken by their import alone."""
    run = lint(copy)

    assert 0 == run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(lower, upper) for place, lower in enumerate(FLOORS) for upper in FLOORS[:place]],
)
def test_an_import_that_goes_up_is_refused(copy: Path, lower: str, upper: str) -> None:
    """A module of a lower floor may not import a higher one, and the report names the import."""
    add_import(copy, lower, upper)

    run = lint(copy)

    assert 1 == run.returncode
    assert "Imports go down only BROKEN" in run.stdout
    assert f"{lower}.spoilt -> {upper}" in run.stdout


def test_compression_may_not_import_context(copy: Path) -> None:
    """Compression strategies stay usable without the context that calls them."""
    add_import(copy, "projections.context.compression", "projections.context.builder")

    run = lint(copy)

    assert 1 == run.returncode
    assert "projections.context.compression.spoilt -> projections.context.builder" in run.stdout


def test_context_may_import_compression(copy: Path) -> None:
    """The context calls the strategies; only the other direction is refused."""
    add_import(copy, "projections.context", "projections.context.compression")

    run = lint(copy)

    assert 0 == run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        (
            "projections.engine",
            "projections.catalogue",
            "The engine imports no model, and no model imports the context",
        ),
        (
            "projections.engine",
            "projections.models.usage",
            "The engine imports no model, and no model imports the context",
        ),
        (
            "projections.engine",
            "projections.context.fold",
            "The engine imports no model, and no model imports the context",
        ),
        (
            "projections.tokens",
            "projections.engine.heads",
            "The engine imports no model, and no model imports the context",
        ),
        (
            "projections.models",
            "projections.context.rows",
            "No model imports the context, and the context no model",
        ),
        (
            "projections.context",
            "projections.models.runs",
            "No model imports the context, and the context no model",
        ),
        (
            "projections.context",
            "projections.views",
            "The engine imports no model, and no model imports the context",
        ),
    ],
)
def test_the_read_side_has_floors_too(
    copy: Path, module: str, imported: str, contract: str
) -> None:
    """What folds knows nothing of what is folded, nor of those who ask."""
    add_import(copy, module, imported)

    run = lint(copy)

    assert 1 == run.returncode
    assert f"{contract} BROKEN" in run.stdout.replace("\n", " ")
    assert f"{module}.spoilt -> {imported}" in run.stdout


def test_one_model_may_not_import_another(copy: Path) -> None:
    """Each can be rebuilt, and understood, without the others."""
    model = copy / "projections" / "models" / "tool_calls.py"
    model.write_text(model.read_text("utf-8") + "\nimport projections.models.usage\n", "utf-8")

    run = lint(copy)

    assert 1 == run.returncode
    assert "Models do not import each other BROKEN" in run.stdout
