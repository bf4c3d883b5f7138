"""The command ``eventstore``: a thin module for each group of commands.

A command reads its options, calls the library, and passes the result to `render` or, with
``--json``, to `console.print_document`. All decisions are made by the library.

This module imports nothing of that: `main` does, where an interrupt is already handled.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agent_eventstore.cli.importing import INTERRUPTED, importing
from eventstore.lazy import exports

if TYPE_CHECKING:
    from agent_eventstore.cli.program_commands import cli

__all__ = ["cli", "main"]

__getattr__ = exports(__name__, {"cli": "agent_eventstore.cli.program_commands"})


def main() -> None:
    """Run the command and exit with its status."""
    with importing():
        from agent_eventstore.cli.program_commands import cli
    cli.importing = importing
    try:
        cli(prog_name=cli.name)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
