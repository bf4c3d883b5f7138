"""An interrupt that comes before the command has begun, in a real process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.cli.program import ENVIRONMENT, ROOT

INTERRUPTED = 130

BEGIN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.{handler}); "
    "sys.argv[1:] = ['--db', {url!r}, 'projections', 'run', *{more!r}]; "
    "from eventstore_command import main; main()"
)
"""As the installed script begins, with interrupts as a shell has them in front or behind."""


def begun(url: str, *more: str, handler: str = "default_int_handler") -> subprocess.Popen[str]:
    """Start a worker, which tells of each import, and would then go on for ever."""
    return subprocess.Popen(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            BEGIN.format(handler=handler, url=url, more=more),
        ],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str], module: str) -> str:
    """Send an interrupt once a module was imported; return what is told from then on."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            process.send_signal(signal.SIGINT)
            return process.stderr.read()
    raise AssertionError(f"{module} was not imported")


@pytest.mark.parametrize("module", ["pydantic", "sqlalchemy", "eventstore", "agent_eventstore"])
def test_an_interrupt_while_it_imports_ends_it_quietly(module: str, own: str) -> None:
    """Status 130, and no traceback from the midst of some module."""
    with begun(own) as process:
        told = interrupt(process, module)
    assert INTERRUPTED == process.returncode
    said = (line for line in told.splitlines() if not line.startswith("import time:"))
    assert "" == "".join(said).strip()


def test_an_interrupt_that_the_caller_has_ignored_stays_so(own: str) -> None:
    """A shell ignores them for what runs behind it: the command goes on to its end."""
    with begun(own, "--once", handler="SIG_IGN") as process:
        interrupt(process, "pydantic")
    assert 0 == process.returncode
