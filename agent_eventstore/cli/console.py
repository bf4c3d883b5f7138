"""The two consoles: results go to stdout; logs, progress and notes to stderr.

Text is never read as markup, whoever wrote it. Consoles are made when they are needed, because
whoever calls a command from a program may have replaced the streams.
"""

from __future__ import annotations

import logging
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from agent_eventstore.cli.text import shown

__all__ = ["StderrHandler", "note", "say", "stderr", "stdout"]


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Let the program decide how it ends, instead of exiting here."""
        raise BrokenPipeError(32, "the pipe is closed")


def stdout() -> Console:
    """Return a console on stdout, as wide as the terminal, or 80 columns without one."""
    return _Console(highlight=False, markup=False, emoji=False)


def stderr() -> Console:
    """Return a console on stderr."""
    return _Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str, style: str = "") -> None:
    """Print a sentence of a result on stdout, unbroken however long."""
    stdout().print(Text(shown(text), style=style), soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """Tell the user something beside the result, on stderr, unbroken however long."""
    stderr().print(Text(shown(text), style=style), soft_wrap=True)


class StderrHandler(logging.Handler):
    """Log records as lines on stderr that do not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        note(f"{record.levelname.lower()} {record.name} {self.format(record)}")
