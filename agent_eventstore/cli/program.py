"""How every command ends: with an exit status, and one clear line about an error.

Errors that this project raises deliberately, and wrong usage, exit with status 2 and one line on
stderr. An interrupt exits with 130 and a closed pipe with 141, as usual for these signals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

import click

from agent_eventstore.cli.harmless import one_line, shown
from eventstore.errors import EventStoreError

__all__ = [
    "FOUND",
    "NAME",
    "WRONG_USE",
    "Failed",
    "LazyCommand",
    "Program",
    "found_something",
    "require_server",
]

NAME = "eventstore"

FOUND = 1
"""Exit status: the check found something."""

WRONG_USE = 2
"""Exit status: wrong usage, or something is missing."""

_OF_SERVER = ("starlette", "uvicorn", "jinja2", "markdown_it", "pygments", "nh3")
_INTERRUPTED = 130
_CLOSED_PIPE = 141


class Failed(click.ClickException):
    """The command cannot run; the message says why, in one line."""

    exit_code = WRONG_USE


def found_something() -> NoReturn:
    """End the command with the exit status for a check that found something."""
    raise click.exceptions.Exit(FOUND)


def require_server(what: str) -> None:
    """Refuse what needs the extra ``server`` if it is not installed.

    Raises:
        Failed: A package of it is missing.
    """
    missing = [name for name in _OF_SERVER if find_spec(name) is None]
    if missing:
        raise Failed(
            f"{missing[0]} is not installed: {what} needs the extra, "
            "pip install 'agent-eventstore[server]'"
        )


class LazyCommand(click.Command):
    """A command of `Program` whose module is imported when it is used, not to list it.

    Args:
        name: How it is called.
        place: The full name of its function.
        help_line: The first sentence of its help.
    """

    def __init__(self, name: str, place: str, help_line: str) -> None:
        super().__init__(name, short_help=help_line)
        self.place = place

    def load(self) -> click.Command:
        """Import the command."""
        module, _, function = self.place.rpartition(".")
        command = getattr(import_module(module), function)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command


class Program(click.Group):
    """The top-level group, which converts whatever ends a command into an exit status."""

    importing: Callable[[], AbstractContextManager[None]] = nullcontext
    """What is around the import of a command's module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, and import its module if this was not done."""
        command = self.commands.get(cmd_name)
        if isinstance(command, LazyCommand):
            with self.importing():
                command = self.commands[cmd_name] = command.load()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without their modules."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(limit)) for name, each in self.commands.items()]
            )

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        """Run a command and exit."""
        _open_streams()
        for stream in (sys.stdout, sys.stderr):
            # A character that a terminal cannot show must not be an error.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        options["standalone_mode"] = False
        try:
            _refuse_bytes(sys.argv[1:] if args is None else args)
            status = super().main(args, *rest, **options)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(WRONG_USE)
        except click.Abort:
            sys.exit(_INTERRUPTED)
        except (click.ClickException, EventStoreError) as error:
            click.echo(_line(error), err=True)
            sys.exit(WRONG_USE)
        except BrokenPipeError:
            _silence_stdout()
            sys.exit(_CLOSED_PIPE)
        except OSError as error:
            click.echo(_line(error), err=True)
            try:
                sys.stdout.flush()
            except OSError:  # stdout itself is what failed
                _silence_stdout()
            sys.exit(WRONG_USE)
        sys.exit(status if isinstance(status, int) else 0)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the options; ``--help`` is printed here."""
        with _closed_pipe_ends_quietly():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        with _closed_pipe_ends_quietly():
            return super().invoke(ctx)


@contextmanager
def _closed_pipe_ends_quietly() -> Iterator[None]:
    # Before click sees the error: it would exit with the status of a check that found something.
    try:
        yield
    except BrokenPipeError as error:
        _silence_stdout()
        raise click.exceptions.Exit(_CLOSED_PIPE) from error


def _line(error: Exception) -> str:
    message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        message = f"{place}{error.strerror}"
    message = "; ".join((message, *getattr(error, "__notes__", ())))
    context = getattr(error, "ctx", None)
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    return f"{NAME}: {shown(one_line(message, limit=1_000))}{hint}"


def _open_streams() -> None:
    """Open closed standard streams, so that a database file does not get their descriptors."""
    closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    if closed:
        click.echo(f"{NAME}: stdout is closed", err=True)
        sys.exit(WRONG_USE)


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Refuse arguments that a database cannot store as text, except names of existing files."""
    for place, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
            known = "\0" not in argument
        except UnicodeEncodeError:
            known = os.path.exists(argument)
        if not known:
            raise Failed(f"argument {place} is not text in UTF-8: {argument!r}")


def _silence_stdout() -> None:
    # The interpreter flushes stdout on exit, and would report the closed pipe again.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")
