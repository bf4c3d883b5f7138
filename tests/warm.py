"""Programs at little cost: forked from a server that has imported the product already.

To start Python and import the product takes most of a second, several times what most programs of
the tests take. The server is a program of its own without threads, connections or stores; what it
forks is a process as any other, which runs a file, a module or a text as ``python`` does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

__all__ = ["Programs", "programs", "server"]

_ROOT = Path(__file__).parents[1]


@contextmanager
def server(module: str, *arguments: str) -> Iterator[Callable[[Any], int]]:
    """Run a module as a server of processes, and end it with the block.

    Yields:
        What gives it an order, which is JSON, and returns how the process of it ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    orders, answers = process.stdin, process.stdout
    assert orders is not None
    assert answers is not None

    def run(order: Any) -> int:
        orders.write(json.dumps(order) + "\n")
        orders.flush()
        return int(answers.readline())

    try:
        yield run
    finally:
        orders.close()
        process.wait()
        answers.close()


class Programs:
    """The server, as a test sees it."""

    def __init__(self, run: Callable[[Any], int]) -> None:
        self._run = run

    def run(
        self,
        *arguments: str,
        directory: Path = _ROOT,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run what follows ``python`` on a command line, to its end; it has no input.

        Args:
            arguments: A file, ``-m`` and a module, or ``-c`` and a text; and what the program is
                given.
            directory: The one it runs in, and imports from.
            environment: Its variables; by default those of this process.
        """
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            order = {
                "arguments": arguments,
                "directory": str(directory),
                "environment": dict(os.environ if environment is None else environment),
                "streams": [os.devnull, str(out), str(err)],
            }
            code = self._run(order)
            said = [path.read_text("utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *said)


@contextmanager
def programs(*imported: str) -> Iterator[Programs]:
    """Run the server, which imports these modules too, and end it with the block."""
    with server("tests.warm", *imported) as run:
        yield Programs(run)


def _serve() -> list[str] | None:
    """Fork for each order; return its arguments in the child, and nothing in the end."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(**order)
            return list(order["arguments"])
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


def _become(
    arguments: Sequence[str], directory: str, environment: dict[str, str], streams: Sequence[str]
) -> None:
    """Be where the program runs, with its variables and its streams."""
    for number, (path, flags) in enumerate(
        zip(streams, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT] * 2), strict=True)
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = directory


def _run(arguments: list[str]) -> None:
    """Run a program as Python's own command line does."""
    how, *given = arguments
    if how == "-m":
        sys.argv = given
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *given[1:]]
        main: Any = ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(given[0], "<string>", "exec"), vars(main))  # noqa: S102 - a test's own text
    else:
        sys.argv = arguments
        runpy.run_path(how, run_name="__main__")


if __name__ == "__main__":
    import alembic.command  # noqa: F401

    import agent_eventstore.cli  # noqa: F401 - for the children

    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    wanted = _serve()
    if wanted is not None:
        _run(wanted)
