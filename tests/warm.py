"""Programs at little cost: forked from a server that has imported the product already.

To start Python and import the product takes most of a second, several times what most programs of
the tests take. The server is a program of its own without threads, connections or stores; what it
forks is a process as any other, which runs a file, a module or a text as ``python`` does.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import IO, Any, Self

__all__ = ["FRAMEWORKS", "Programs", "Started", "programs", "server"]

FRAMEWORKS = (
    "agents.testing",
    "anthropic",
    "fastapi",
    "google.adk.runners",
    "langchain_core.language_models",
    "langgraph.checkpoint.sqlite",
    "langgraph.graph",
    "pydantic_ai",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
)
"""What programs of tests use beside the product, each of them some of it."""

_ROOT = Path(__file__).parents[1]
_RUNS = 1_000
"""What the server answers of a process that has not ended; no process ends so."""
_LONGEST = 2**17
"""Bytes of what a server is asked for with, most of which is the environment."""
_MOST_FILES = 16


@contextmanager
def server(
    module: str, *arguments: str, kept: Sequence[int] = ()
) -> Iterator[Callable[[Any], int]]:
    """Run a module as a server of processes, and end it with the block.

    Args:
        module: What is run.
        arguments: What it is given.
        kept: Numbers of open files that it inherits.

    Yields:
        What gives it an order, which is JSON, and returns how the process of it ended.
    """
    reading, ordering = os.pipe()
    answered, answering = os.pipe()
    command = ["-m", module, *arguments]
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=_ROOT,
        stdin=reading,
        stdout=answering,
        pass_fds=kept,
    )
    os.close(reading)
    os.close(answering)
    orders, answers = open(ordering, "w", encoding="utf-8"), open(answered, encoding="utf-8")

    def run(order: Any) -> int:
        orders.write(json.dumps(order) + "\n")
        orders.flush()
        return int(answers.readline())

    try:
        yield run
    finally:
        with answers:
            with suppress(BrokenPipeError):  # what a server that was killed has not read
                orders.close()
            process.wait()


class Programs:
    """The server, as a test sees it."""

    def __init__(self, run: Callable[[Any], int], files: socket.socket) -> None:
        self._run, self._files = run, files

    def start(
        self,
        *arguments: str,
        stdout: int | IO[Any],
        directory: Path = _ROOT,
        environment: Mapping[str, str] | None = None,
        kept: Sequence[int] = (),
    ) -> Started:
        """Start what follows ``python`` on a command line, which goes on beside the test.

        Args:
            arguments: As for `run`.
            stdout: An open file, ``subprocess.DEVNULL``, or ``subprocess.PIPE``, whose other end is
                the process's `stdout`.
            directory: The one it runs in, and imports from.
            environment: Its variables; by default those of this process.
            kept: Numbers of open files, which it has under the same numbers.
        """
        reading = None
        if stdout == subprocess.PIPE:
            ours, output = os.pipe()
            reading = open(ours, encoding="utf-8")
        elif stdout == subprocess.DEVNULL:
            output = os.open(os.devnull, os.O_WRONLY)
        else:
            output = os.dup(stdout if isinstance(stdout, int) else stdout.fileno())
        order = {**_order(arguments, directory, environment), "numbers": [1, *kept]}
        socket.send_fds(self._files, [b"."], [output, *kept])
        os.close(output)
        try:
            return Started(self._run, self._run(order), reading)
        except BaseException:
            if reading is not None:
                reading.close()
            raise

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
            streams = [os.devnull, str(out), str(err)]
            code = self._run({**_order(arguments, directory, environment), "streams": streams})
            said = [path.read_text("utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *said)


class Started:
    """A process that goes on beside the test, which sees it as it sees a `subprocess.Popen`.

    Attributes:
        stdout: What it writes, where that is a pipe.
        returncode: How it ended; None until that was waited for.
    """

    def __init__(self, run: Callable[[Any], int], pid: int, stdout: IO[str] | None) -> None:
        self._run, self.pid, self.stdout = run, pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, or None."""
        if self.returncode is None:
            status = self._run({"awaited": self.pid})
            self.returncode = None if status == _RUNS else status
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ends.

        Raises:
            subprocess.TimeoutExpired: It has not, after so many seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(0.002)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stdout is not None:
            self.stdout.close()
        self.wait()


@contextmanager
def programs(*imported: str) -> Iterator[Programs]:
    """Run the server, which imports these modules too, and end it with the block."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        given = ["tests.warm", str(number), *imported]
        with server(*given, kept=[number]) as run:
            yield Programs(run, ours)


def _order(
    arguments: Sequence[str], directory: Path = _ROOT, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "arguments": arguments,
        "directory": str(directory),
        "environment": dict(os.environ if environment is None else environment),
    }


def _serve(files: socket.socket) -> list[str] | None:
    """Fork for each order; return its arguments in the child, and nothing in the end."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = order.get("awaited", 0)
        numbers = order.pop("numbers", ())
        given = socket.recv_fds(files, 1, len(numbers))[1] if numbers else []
        if not pid and (pid := os.fork()) == 0:
            files.close()
            _receive(given, numbers)
            _become(**order)
            return list(order["arguments"])
        for each in given:
            os.close(each)
        answer = pid if numbers else _ended(pid, os.WNOHANG if "awaited" in order else 0)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def _ended(pid: int, how: int) -> int:
    found, status = os.waitpid(pid, how)
    return os.waitstatus_to_exitcode(status) if found else _RUNS


def _receive(given: Sequence[int], numbers: Sequence[int]) -> None:
    """Have open files under these numbers, and nothing to read."""
    above = max((0, *numbers, *given)) + 1
    apart = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in given]
    for each in given:
        os.close(each)
    for each, number in zip(apart, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)


def _become(
    arguments: Sequence[str],
    directory: str,
    environment: dict[str, str],
    streams: Sequence[str] = (os.devnull,),
) -> None:
    """Be where the program runs, with its variables and its streams."""
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    # What a stream can do was found of what stood there before: a terminal has no positions.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        how = {"encoding": before.encoding, "errors": before.errors, "closefd": False}
        stream = open(number, "w" if number else "r", **how)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
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
        sys.argv, sys.path[0] = arguments, str(Path(how).parent)
        runpy.run_path(how, run_name="__main__")


def _end(arguments: list[str]) -> None:
    """Run a program, and end this process as Python does, except for what its server imported.

    To take all imported modules apart costs many times what the fork of the server did. What the
    program itself has made is collected. Whatever ends with more than a status ends as ever.
    """
    status = 0
    try:
        _run(arguments)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        if (made := vars(sys.modules["__main__"])) is not globals():
            made.clear()
        gc.collect()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.exit(status)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    import alembic.command  # noqa: F401
    import click

    from agent_eventstore.cli.program_commands import cli

    for command in [*cli.commands]:
        cli.get_command(click.Context(cli), command)  # for the children

    number, *names = sys.argv[1:]
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    given = _serve(socket.socket(fileno=int(number)))
    if given is not None:
        _end(given)
