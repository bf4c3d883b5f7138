"""The command's top level: its options, and its commands, whose modules are imported when used."""

from __future__ import annotations

from pathlib import Path

import click

from agent_eventstore.cli.program import NAME, LazyCommand, Program
from agent_eventstore.cli.target import (
    KEY_FILE_VARIABLE,
    KEYS_VARIABLE,
    URL_VARIABLE,
    Target,
    configure,
)

__all__ = ["COMMANDS", "cli"]

COMMANDS = (
    ("db", "db.db", "Create, upgrade and inspect the database."),
    ("import", "transfer.import_files", "Add the conversations of transcripts and projects."),
    ("export", "transfer.export", "Write conversations in another format."),
    ("list", "read_commands.list_conversations", "List conversations, most recently active first."),
    ("events", "read_commands.events", "List the events of a conversation, as recorded."),
    ("follow", "follow_command.follow", "Print all events as they are committed."),
    ("timeline", "read_commands.timeline", "Show a conversation as a user interface would."),
    ("search", "read_commands.search", "Find messages in all conversations, best first."),
    ("context", "context.context", "Show the messages[] of the next model call."),
    ("usage", "read_commands.usage", "Show totals of tokens, cost, latency and errors."),
    ("tools", "read_commands.tools", "Audit tool calls, newest first."),
    ("recover", "recovery_command.recover", "End the work that a crash left open."),
    ("verify", "integrity.verify", "Check that nothing was altered."),
    (
        "checkpoint",
        "integrity.checkpoint",
        "Record the current end of every conversation's hash chain.",
    ),
    ("doctor", "db.doctor", "Check a database, and suggest remedies."),
    ("erase", "erasing.erase", "Erase a conversation's content permanently."),
    ("purge", "erasing.purge", "Delete a conversation with its events permanently."),
    (
        "archive",
        "archive_commands.archive",
        "Move conversations that rest out of the database, and back.",
    ),
    ("keys", "db.keys", "Manage the keys of sealed conversations."),
    ("projections", "projections.projections", "Inspect, rebuild and follow the read models."),
    ("demo", "demo.demo", "Run a scripted conversation and show it."),
    ("serve", "serve.serve", "Serve the viewer and an HTTP API for this database."),
    ("chat", "chat.chat", "Talk to a model; every turn is recorded as it happens."),
)
"""The name of each command, in which module it is, and what its help begins with."""


@click.group(NAME, cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
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


for _name, _place, _help in COMMANDS:
    cli.add_command(LazyCommand(_name, f"agent_eventstore.cli.{_place}", _help))
