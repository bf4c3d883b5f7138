"""A package of somebody else's registers a reader, which detection, import and help then know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READER = """
from agent_eventstore.transcripts import openai_messages


def recognises(value):
    return isinstance(value, dict) and "acme_log" in value


def read(source):
    return openai_messages.read(source)
"""
FILE = '{"acme_log": 1, "messages": [{"role": "user", "content": "Where is my parcel now?"}]}'


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Give a directory with an installed package, and one whose module does not exist."""
    (tmp_path / "acme_reader.py").write_text(READER, "utf-8")
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "utf-8")
    points = "[agent_eventstore.transcripts]\nacme = acme_reader\nbroken = acme_missing\n"
    (about / "entry_points.txt").write_text(points, "utf-8")
    (tmp_path / "log.json").write_text(FILE, "utf-8")
    return tmp_path


def ran(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that finds the packages."""
    return subprocess.run(
        [sys.executable, "-m", "agent_eventstore.cli", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), os.getcwd()])},
        cwd=packages,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_files_are_detected_and_imported(packages: Path) -> None:
    """Before the readers of messages arrays, which would take them too."""
    dry = ran(packages, "import", "--dry-run", "log.json")
    assert dry.returncode == 0, dry.stderr
    assert "log.json: acme, 1 conversation" in dry.stdout
    done = ran(packages, "--db", "sqlite:///store.db", "import", "--format", "acme", "log.json")
    assert "imported 1 conversation" in done.stdout, done.stderr


def test_one_that_cannot_be_imported_is_left_out(packages: Path) -> None:
    """The others are there, and its name is no format."""
    refused = ran(packages, "import", "--format", "broken", "log.json")
    assert refused.returncode == 2
    assert "acme" in refused.stderr
    assert "acme_missing" not in refused.stdout
