"""Running the command as a user does: in this process, or as a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_eventstore.cli import cli

ENVIRONMENT = {"COLUMNS": "80", "TERM": "dumb", "EVENTSTORE_URL": "", "NO_COLOR": "1"}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


def run(*arguments: str, url: str | None = None, environment: dict[str, str] | None = None) -> Run:
    """Run a command in this process; an exception that it does not expect is raised."""
    given = ("--db", url, *arguments) if url else arguments
    runner = CliRunner(env={**ENVIRONMENT, **(environment or {})})
    result = runner.invoke(cli, list(given), prog_name="eventstore")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def call(*arguments: str, url: str) -> int:
    """Run a command in this process on its standard streams as they are; return its status."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli(["--db", url, *arguments], prog_name="eventstore")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def start(arguments: Sequence[str], directory: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command as a program of its own in a directory."""
    return subprocess.Popen(
        [sys.executable, "-m", "agent_eventstore.cli", *arguments],
        cwd=directory,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        text=True,
        encoding="utf-8",
        **options,
    )
