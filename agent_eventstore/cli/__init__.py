"""The command ``eventstore``: each group of commands in a thin file of its own.

A command reads its options, calls the library, and hands what came back to `render` or, with
``--json``, to `console.print_document`. Nothing here decides anything that the library does not.
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
    reading,
    recovery,
    torture,
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
@click.option("--read-only", is_flag=True, help="Write nothing: for replicas and borrowed files.")
@click.option(
    "--keys",
    "key_directory",
    metavar="DIR",
    envvar=KEYS_VARIABLE,
    type=click.Path(file_okay=False, path_type=Path),
    help=f"The keys of a store that seals what it writes.  [env var: {KEYS_VARIABLE}]",
)
@click.option(
    "--key-file",
    "key_files",
    metavar="FILE",
    envvar=KEY_FILE_VARIABLE,
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The key that those are wrapped with; repeat it for older ones.  "
    f"[env var: {KEY_FILE_VARIABLE}]",
)
@click.option("-v", "--verbose", is_flag=True, help="Show on stderr what is going on.")
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

    Every command that lists takes --json: one JSON document on stdout. Conversations are named by
    their id or by its beginning. Exit status: 0 done; 1 the check found something; 2 wrong use or
    a missing thing.
    """
    by_hand = called.get_parameter_source("url") is click.core.ParameterSource.COMMANDLINE
    called.obj = Target(url, by_hand, read_only, key_directory, key_files)
    configure(verbose)


for command in (
    db.db,
    transfer.import_files,
    transfer.export,
    reading.list_conversations,
    reading.events,
    reading.timeline,
    reading.search,
    context.context,
    reading.usage,
    reading.tools,
    recovery.recover,
    integrity.verify,
    integrity.checkpoint,
    db.doctor,
    erasing.erase,
    erasing.purge,
    db.keys,
    projections.projections,
    demo.demo,
    chat.chat,
    torture.torture,
):
    cli.add_command(command)


def main() -> None:
    """Run the command and exit with its status."""
    gc.freeze()  # What is imported is left out of collections: the last took a tenth of a second.
    cli(prog_name=NAME)
