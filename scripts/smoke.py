"""Check the wheel that `make dist` has built, installed outside the checkout.

``python scripts/smoke.py DIRECTORY`` installs the one wheel of the directory in a new environment,
runs a few commands there, and follows the README and the tutorial: what they print is compared with
what the pages show.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = [
    "eventstore --version",
    "eventstore demo",
    "eventstore --db sqlite:///eventstore-demo.db verify",
    "eventstore --db sqlite:///own.db db upgrade",
    "eventstore --db sqlite:///own.db db current",
]
_RELATIVE = re.compile(r"\]\((?!\w+:|#)[^)\s]+\)")


def main() -> None:
    """Check the wheel of a directory, and end with an error if anything is wrong."""
    [wheel] = Path(sys.argv[1]).resolve().glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        [name] = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        description = files.read(name).decode("utf-8")
    prose = re.sub(r"^```.*?^```", "", description, flags=re.MULTILINE | re.DOTALL)
    if relative := _RELATIVE.findall(prose):
        raise SystemExit(f"relative links are broken on a package index: {', '.join(relative)}")
    with tempfile.TemporaryDirectory() as directory:
        _try(wheel, Path(directory))
    sys.stdout.write(f"{wheel.name} works when installed\n")


def _try(wheel: Path, directory: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTSTORE")}
    kept.pop("PYTHONPATH", None)
    environment = {**kept, "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    venv.create(directory, with_pip=True)
    python = str(directory / "bin" / "python")
    constraints = str(ROOT / "requirements" / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "--no-input", "-c", constraints, str(wheel))
    where = run(python, "-c", "import agent_eventstore; print(agent_eventstore.__file__)")
    if not where.startswith(str(directory)):
        raise SystemExit(f"imported {where.strip()} instead of the installed package")
    for command in COMMANDS:
        run(*command.split())
    _follow_tutorial(directory, environment)
    _run_readme(directory, run)


def _follow_tutorial(directory: Path, environment: Mapping[str, str]) -> None:
    folder = directory / "tutorial"
    folder.mkdir()
    surroundings = {**environment, "COLUMNS": "80", "NO_COLOR": "1"}

    def run(command: str, variables: Mapping[str, str]) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command],  # as a reader types it
            cwd=folder,
            env={**surroundings, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    follow = runpy.run_path(str(ROOT / "tests" / "docs" / "following.py"))["follow"]
    for difference in follow(page, folder, run):
        raise SystemExit(f"docs/tutorial.md shows other output than this:\n{difference}")


def _run_readme(directory: Path, run: Callable[..., str]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    (directory / "agent.py").write_text(program, "utf-8")
    said = run(str(directory / "bin" / "python"), "agent.py")
    if said.split() != shown.split():
        raise SystemExit(f"README.md shows other output than this:\n{said}")


if __name__ == "__main__":
    main()
