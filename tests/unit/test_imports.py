"""What is imported with the package and the command, and modules of a product with their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OPTIONAL = (
    "alembic anthropic genai_prices openai prompt_toolkit rich sentencex starlette structlog "
    "tiktoken uvicorn"
)
"""Modules that are imported for what needs them, and not with the core."""

LOADED = "import sys; print(*sorted({{*'{modules}'.split()}} & sys.modules.keys()))"


def python(code: str, directory: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program in a directory, from where it imports first."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import agent_eventstore", f"{OPTIONAL} asyncio click pydantic sqlalchemy tenacity"),
        ("from agent_eventstore.events import UserMessage", f"{OPTIONAL} click psycopg tenacity"),
        ("from agent_eventstore import Conversation, Views", f"{OPTIONAL} click"),
        ("import agent_eventstore.cli", f"{OPTIONAL} asyncio click pydantic sqlalchemy tenacity"),
    ],
)
def test_no_more_is_imported_than_needed(code: str, modules: str) -> None:
    """A product pays at its start for what it uses."""
    done = python(f"{code}; {LOADED.format(modules=modules)}")

    assert ("\n", "") == (done.stdout, done.stderr)


def test_help_imports_no_command() -> None:
    """``eventstore --help`` is made of the command line alone."""
    modules = f"{OPTIONAL} asyncio pydantic sqlalchemy tenacity agent_eventstore.cli.options"
    done = python(
        "import atexit, sys; from agent_eventstore.cli import main; sys.argv[1:] = ['--help']; "
        f"atexit.register(lambda: exec({LOADED.format(modules=modules)!r})); main()"
    )

    assert done.stdout.startswith("Usage: eventstore ")
    assert ("", "") == (done.stdout.splitlines()[-1], done.stderr)


def test_a_turn_binds_a_client_by_itself() -> None:
    """``turn.client`` needs no other name of the package to be imported."""
    done = python(
        "from agent_eventstore import Conversation, EventStore; from openai import OpenAI\n"
        "store = EventStore.open('sqlite://')\n"
        "with Conversation.start(store) as conversation, conversation.turn('q') as turn:\n"
        "    print(turn.client(OpenAI(api_key='none')).base_url)"
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("http")


@pytest.mark.parametrize("name", ["eventstore", "projections"])
@pytest.mark.parametrize("file", ["{name}.py", "{name}/__init__.py"])
@pytest.mark.parametrize("package", ["agent_eventstore", "agent_eventstore.cli"])
def test_module_of_the_product_is_named(name: str, file: str, package: str, tmp_path: Path) -> None:
    """A module beside the program hides ours; the error says which it is, and what to do."""
    foreign = tmp_path / file.format(name=name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.touch()
    done = python(f"import {package}", tmp_path)

    assert 1 == done.returncode
    assert (
        f"ImportError: agent_eventstore needs its own package {name}, which is another module: "
        f"{foreign}. Rename your module, or start the program from another directory"
    ) == done.stderr.splitlines()[-1]


def test_folder_of_the_product_that_is_no_package(tmp_path: Path) -> None:
    """A folder without an ``__init__.py`` hides nothing."""
    (tmp_path / "projections").mkdir()

    assert 0 == python("from agent_eventstore import Views", tmp_path).returncode
