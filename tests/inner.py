"""A run of pytest within a test, for what is said of runs as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["run_pytest"]

_ROOT = Path(__file__).parents[1]


def run_pytest(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run pytest in the project's directory; return the status, and all that was said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=_ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
