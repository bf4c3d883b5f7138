"""Run the frameworks' own tests, from their source packages, with our classes in place of theirs.

Of the versions that are installed: `make test-upstream`. What a test finds that reaches into a
private member of the framework's class, or into its tables, says nothing of ours: those are left
out, and counted.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Suite:
    """Tests of a project: which files, chosen how, and with which plugin.

    Attributes:
        project: The name of the package.
        plugin: The module here that puts our classes in place.
        files: Patterns of files.
        options: More arguments for pytest.
        private: What the source of a test has that looks into the framework's own class.
    """

    project: str
    plugin: str
    files: Sequence[str]
    options: Sequence[str] = ()
    private: re.Pattern[str] | None = None


_PRIVATE = re.compile(
    r"session\._(?!current_branch_id)|backend\._|advanced\._|SQLiteSession\._|_gate_worker|"
    r"sqlite3\.connect|\bdb_path\b.*\.connect|patch\.object|monkeypatch|_count_rows|[Pp]rocess\(|"
    r"_table=|_layouts?\b|legacy|\._\w+_sync"
)
SUITES = {
    "langgraph": [
        Suite(
            "langgraph",
            "langgraph_classes",
            ["tests/test_*.py"],
            ["-k", "(sqlite or in_memory) and not aes", "-n", "2"],
        ),
        Suite(
            "langgraph-checkpoint-sqlite",
            "langgraph_classes",
            ["tests/test_*sqlite.py", "tests/test_get_delta*.py", "tests/test_delta_parent*.py"],
            ["-o", "asyncio_mode=auto"],
        ),
    ],
    "openai-agents": [
        Suite(
            "openai-agents",
            "openai_agents_classes",
            [
                "tests/memory/test_session*.py",
                "tests/memory/test_compaction*.py",
                "tests/extensions/memory/test_advanced_sqlite_session.py",
                "tests/test_agent_runner*.py",
                "tests/test_run_impl_resume_paths.py",
                "tests/test_soft_cancel.py",
                "tests/test_*tool_failure*.py",
            ],
            private=_PRIVATE,
        )
    ],
}


def fetched(project: str, into: Path) -> Path:
    """Return the unpacked source package of the version that is installed."""
    wanted = f"{project}=={version(project)}"
    options = ("--quiet", "--no-deps", "--no-binary", project, "--dest", str(into))
    subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
    [archive] = into.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    [found] = (path for path in into.iterdir() if path.is_dir())
    return found


def _tests_in(source: str) -> Iterator[tuple[str, str]]:
    """Yield the tests of a file that are functions of the module: name and source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield node.name, ast.get_source_segment(source, node) or ""


def run(suite: Suite) -> int:
    """Run a suite, and return pytest's status."""
    with tempfile.TemporaryDirectory() as directory:
        root = fetched(suite.project, Path(directory))
        files = [path for pattern in suite.files for path in sorted(root.glob(pattern))]
        left_out = [
            f"--deselect={path.relative_to(root)}::{name}"
            for path in files
            for name, source in _tests_in(path.read_text("utf-8"))
            if suite.private is not None and suite.private.search(source)
        ]
        told = f"== {suite.project} {version(suite.project)}: {len(left_out)} tests left out"
        print(told, flush=True)  # noqa: T201
        search = os.pathsep.join([str(_HERE), str(root)])
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", suite.plugin),
                *("-p", "no:cacheprovider", f"--timeout={_TIMEOUT_S}", "--no-header"),
                *suite.options,
                *left_out,
                *(str(path.relative_to(root)) for path in files),
            ],
            cwd=root,
            env={**os.environ, "PYTHONPATH": search, "NO_DOCKER": "true"},
            check=False,
        )
    return done.returncode


def main() -> int:
    """Run the suites of the frameworks that are named, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    named = f"of {' and '.join(SUITES)}; all by default"
    parser.add_argument("framework", nargs="*", metavar="framework", help=named)
    asked = parser.parse_args().framework or [*SUITES]
    if unknown := {*asked} - {*SUITES}:
        parser.error(f"no such framework: {', '.join(sorted(unknown))}")
    return max([run(suite) for name in asked for suite in SUITES[name]])


if __name__ == "__main__":
    sys.exit(main())
