"""The command ``eventstore``: a thin module for each group of commands.

A command reads its options, calls the library, and passes the result to `render` or, with
``--json``, to `console.print_document`. All decisions are made by the library.
"""

from __future__ import annotations

import gc
from pathlib import Path

import click

from agent_eventstore.cli import (
    chat,
    context,
    db,
    demo,
    erasing,
    integrity,
    projections,
    read_commands,
    recovery_command,
    transfer,
)
from agent_eventstore.cli.options import (
    KEY_FILE_VARIABLE,
    KEYS_VARIABLE,
    URL_VARIABLE,
    Target,
    configure,
)
from agent_eventstore.cli.program import NAME, Program

__all__ = ["cli", "main"]


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--db",
    "url",
    metavar="URL",
    envvar=URL_VARIABLE,
    help="The database: sqlite:///FILE or postgresql://USER@HOST/DATABASE.  "
    f"[env var: {URL_VARIABLE}; default: sqlite:///eventstore.db]",
)
@click.option("--read-only", is_flag=True, help="Write nothing: for replicas and others' files.")
@click.option(
    "--keys",
    "key_directory",
    metavar="DIR",
    envvar=KEYS_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The keys of a store that encrypts its events.  [env var: {KEYS_VARIABLE}]",
)
@click.option(
    "--key-file",
    "key_files",
    metavar="FILE",
    envvar=KEY_FILE_VARIABLE,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key that wraps those keys; repeat the option for older ones.  "
    f"[env var: {KEY_FILE_VARIABLE}]",
)
@click.option("-v", "--verbose", is_flag=True, help="Show log messages on stderr.")
@click.version_option(package_name="agent-eventstore", prog_name=NAME)
@click.pass_context
def cli(
    called: click.Context,
    url: str | None,
    read_only: bool,
    key_directory: Path | None,
    key_files: tuple[Path, ...],
    verbose: bool,
) -> None:
    """Store, read and rebuild the conversations of agents.

    Every command that lists takes --json: one JSON document on stdout. A conversation is named by
    its id or the start of its id. Exit status: 0 success; 1 a check found something; 2 wrong usage,
    or something is missing.
    """
    by_hand = called.get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE
    called.obj = Target(url, by_hand, read_only, key_directory, key_files)
    configure(verbose)


for each in (
    db.db,
    transfer.import_files,
    transfer.export,
    read_commands.list_conversations,
    read_commands.events,
    read_commands.timeline,
    read_commands.search,
    context.context,
    read_commands.usage,
    read_commands.tools,
    recovery_command.recover,
    integrity.verify,
    integrity.checkpoint,
    db.doctor,
    erasing.erase,
    erasing.purge,
    db.keys,
    projections.projections,
    demo.demo,
    chat.chat,
):
    cli.add_command(each)


def main() -> None:
    """Run the command and exit with its status."""
    gc.freeze()  # Exclude the imported modules: the last collection took a tenth of a second.
    cli(prog_name=NAME)
