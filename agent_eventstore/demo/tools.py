"""The demo's tools: real ones, on a folder of their own that they cannot leave."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from eventstore.events import JsonObject

__all__ = ["DEFINITIONS", "IDEMPOTENT", "Outcome", "Workspace"]

Outcome = tuple[Literal["success", "failed"], str]
"""How a tool ended, and what it returned or why it failed."""

_TIMEOUT_S = 60


def _definition(name: str, description: str, *required: str) -> JsonObject:
    properties = {each: {"type": "string"} for each in required}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


DEFINITIONS: tuple[JsonObject, ...] = (
    _definition("list_files", "List the files of the project."),
    _definition("read_file", "Return the text of a file.", "path"),
    _definition("write_file", "Write a file, and replace it if it exists.", "path", "text"),
    _definition("append_line", "Write a line at the end of a file.", "path", "line"),
    _definition("run_tests", "Run the project's tests and return their output."),
)
"""What the model is told of the tools, in OpenAI's format."""

IDEMPOTENT = frozenset({"list_files", "read_file", "write_file", "run_tests"})
"""The tools that may run twice without harm; a line that is appended twice is there twice."""


class Workspace:
    """A folder with a small project, and the tools that work on it.

    Args:
        folder: An existing folder.
        files: What to put there, by name.
    """

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder = folder.resolve()
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, name: str, arguments: JsonObject | None) -> Outcome:
        """Run a tool; whatever goes wrong is its outcome, and never an exception."""
        tools: dict[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "append_line": self._append_line,
            "run_tests": self._run_tests,
        }
        try:
            return "success", tools[name](**(arguments or {}))
        except KeyError:
            return "failed", f"there is no tool {name}"
        except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            return "failed", self._local(f"{type(error).__name__}: {error}")

    def _list_files(self) -> str:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        names = (path.relative_to(self.folder) for path in files)
        return "\n".join(sorted(str(name) for name in names if "__pycache__" not in name.parts))

    def _read_file(self, path: str) -> str:
        return self._inside(path).read_text(encoding="utf-8")

    def _write_file(self, path: str, text: str) -> str:
        written = self._inside(path).write_text(text, encoding="utf-8")
        return f"wrote {written} characters to {path}"

    def _append_line(self, path: str, line: str) -> str:
        with self._inside(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return f"wrote a line to {path}"

    def _run_tests(self) -> str:
        # -B: a cached module of the same second and size would hide a change from the tests.
        command = [sys.executable, "-B", "-m", "unittest", "--verbose"]
        done = subprocess.run(  # noqa: S603 - our own interpreter, on files that the demo wrote
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return self._local(f"exit status {done.returncode}\n{done.stdout}".rstrip())

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder):
            raise ValueError(f"{path} is outside of the project")
        return found

    def _local(self, text: str) -> str:
        # Where the folder lies says nothing to the model, and differs from run to run.
        return text.replace(f"{self.folder}/", "").replace(str(self.folder), ".")
