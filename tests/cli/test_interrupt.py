"""An interrupt that comes before the command has begun, in a real process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.cli.program import ENVIRONMENT, ROOT
from tests.exhaustive import partly

INTERRUPTED = 130
MODULES = ["click", "pydantic", "sqlalchemy", "agent_eventstore.cli.options"]

BEGIN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.{handler}); "
    "sys.argv[1:] = ['--db', {url!r}, 'projections', 'run', *{more!r}]; "
    "from agent_eventstore.cli import main; main()"
)
"""As the installed script begins, with interrupts as a shell has them in front or behind."""


def begun(url: str, *more: str, handler: str = "default_int_handler") -> subprocess.Popen[str]:
    """Start a worker, which tells of each import, and would then go on for ever."""
    return started("-c", BEGIN.format(handler=handler, url=url, more=more))


def started(*program: str) -> subprocess.Popen[str]:
    """Start Python, which tells of each import."""
    return subprocess.Popen(
        [sys.executable, "-X", "importtime", *program],
        cwd=ROOT,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the suite may ignore it
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


@pytest.mark.parametrize("module", partly(MODULES))
def test_an_interrupt_while_it_imports_ends_it_quietly(module: str, own: str) -> None:
    """Status 130, and no traceback from the midst of some module."""
    with begun(own) as process:
        told = interrupt(process, module)
    assert INTERRUPTED == process.returncode
    assert "" == said(told)


@pytest.mark.parametrize("module", partly(MODULES))
def test_so_does_one_of_the_package_that_is_run(module: str, own: str) -> None:
    """``python -m`` runs another module of the package."""
    with started("-m", "agent_eventstore.cli", "--db", own, "projections", "run") as process:
        told = interrupt(process, module)
    assert INTERRUPTED == process.returncode
    assert "" == said(told)


def said(told: str) -> str:
    """Return what a process has written besides its imports."""
    lines = (line for line in told.splitlines() if not line.startswith("import time:"))
    return "".join(lines).strip()


def test_an_interrupt_that_the_caller_has_ignored_stays_so(own: str) -> None:
    """A shell ignores them for what runs behind it: the command goes on to its end."""
    with begun(own, "--once", handler="SIG_IGN") as process:
        interrupt(process, "pydantic")
    assert 0 == process.returncode
