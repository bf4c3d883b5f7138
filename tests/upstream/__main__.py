"""Run the frameworks' own tests, from their source packages, with our classes in place of theirs.

Of the versions that are installed: `make test-upstream`. What a test finds that reaches into a
private member of the framework's class, or into its tables, says nothing of ours: those are left
out, and counted. Tests that fail for a known reason are in ``expected_failures.txt``: only others
make the run fail, and so do those of the list that pass now.
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
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
_TIMEOUT_S = 60
_EXPECTED = _HERE / "expected_failures.txt"


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
            ["-k", "sqlite or in_memory", "-n", "2"],
        ),
        Suite(
            "langgraph-checkpoint-sqlite",
            "langgraph_classes",
            [
                "tests/test_*sqlite.py",
                "tests/test_get_delta*.py",
                "tests/test_delta_parent*.py",
                "tests/test_*store.py",
                "tests/test_ttl.py",
            ],
            ["-o", "asyncio_mode=auto", "-o", "markers=flaky"],
            private=re.compile(r"index_config\b.*==|\.index_config|MIGRATIONS|store\._get_batch"),
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
    "langchain": [
        Suite(
            "langchain-core",
            "langchain_classes",
            [
                "tests/unit_tests/runnables/test_history.py",
                "tests/unit_tests/chat_history/test_*.py",
            ],
            # Their conftest is for other tests, and needs more packages.
            ["-o", "asyncio_mode=auto", "--noconftest"],
            private=re.compile(r"__doc__"),
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


def expected(project: str) -> set[str]:
    """Return the tests of a project that are known to fail; comments say why."""
    lines = (line.partition("#")[0].split() for line in _EXPECTED.read_text("utf-8").splitlines())
    return {words[1] for words in lines if words and words[0] == project}


def _outcomes(report: Path) -> tuple[set[str], set[str]]:
    """Return the tests of a report of pytest that passed, and those that failed."""
    passed, failed = set[str](), set[str]()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has just written it
        name = f"{case.get('classname')}::{case.get('name')}".replace(" ", "_")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed - failed, failed


def run(suite: Suite) -> bool:
    """Run a suite, and return whether exactly those tests failed that are known to."""
    with tempfile.TemporaryDirectory() as directory:
        root, report = fetched(suite.project, Path(directory)), Path(directory) / "report.xml"
        files = [path for pattern in suite.files for path in sorted(root.glob(pattern))]
        left_out = [
            f"--deselect={path.relative_to(root)}::{name}"
            for path in files
            for name, source in _tests_in(path.read_text("utf-8"))
            if suite.private is not None and suite.private.search(source)
        ]
        title = f"== {suite.project} {version(suite.project)}: {len(left_out)} tests left out"
        print(title, flush=True)  # noqa: T201
        search = os.pathsep.join([str(_HERE), str(root)])
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", suite.plugin),
                *("-p", "no:cacheprovider", f"--timeout={_TIMEOUT_S}", "--no-header"),
                f"--junitxml={report}",
                *suite.options,
                *left_out,
                *(str(path.relative_to(root)) for path in files),
            ],
            cwd=root,
            env={**os.environ, "PYTHONPATH": search, "NO_DOCKER": "true"},
            check=False,
        )
        if not report.exists():
            print("== pytest wrote no report")  # noqa: T201
            return False
        passed, failed = _outcomes(report)
    known = expected(suite.project)
    for heading, tests in (
        ("fails, and is not known to", failed - known),
        ("passes, and is in expected_failures.txt", passed & known),
    ):
        for each in sorted(tests):
            print(f"== {heading}: {each}")  # noqa: T201
    print(f"== {len(passed)} passed, {len(failed & known)} failed as expected")  # noqa: T201
    return bool(passed) and not failed - known and not passed & known


def main() -> int:
    """Run the suites of the frameworks that are named, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    named = f"of {' and '.join(SUITES)}; all by default"
    parser.add_argument("framework", nargs="*", metavar="framework", help=named)
    frameworks = parser.parse_args().framework or [*SUITES]
    if unknown := {*frameworks} - {*SUITES}:
        parser.error(f"no such framework: {', '.join(sorted(unknown))}")
    as_known = [run(suite) for name in frameworks for suite in SUITES[name]]
    return int(not all(as_known))


if __name__ == "__main__":
    sys.exit(main())
