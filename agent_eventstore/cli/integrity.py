"""``eventstore verify`` and ``eventstore checkpoint``: detect altered and missing events.

``checkpoint`` writes the current end of every chain, signed, to be stored elsewhere; ``verify``
proves that nothing has changed, also since a checkpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, TypeVar
from uuid import UUID

import click

from agent_eventstore.cli import render
from agent_eventstore.cli.console import note, plural, print_document, progress_bar, say, stdout
from agent_eventstore.cli.options import (
    InputFile,
    OutputPath,
    common,
    find_conversation,
    json_option,
)
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.target import Target
from eventstore import EventStore, Verification
from eventstore.errors import KeyRefused
from eventstore.security import checkpoints

__all__ = ["checkpoint", "summary_line", "verify", "with_key"]


_LARGEST_KEY = 100_000

T = TypeVar("T")


@click.command()
@click.option(
    "--out",
    "output",
    metavar="FILE",
    type=OutputPath(),
    help="A new file for the checkpoint; by default stdout (-).",
)
@click.option(
    "--key", "key_file", metavar="FILE", type=InputFile(), help="Sign it with this private key."
)
@click.option(
    "--new-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Only create a signing key: FILE, and FILE.pub for --public-key.",
)
@common
def checkpoint(
    target: Target, output: Path | None, key_file: Path | None, new_key: Path | None
) -> None:
    """Record the current end of every conversation's hash chain.

    The output is for a later `eventstore verify --against`. Store it, and the key, out of reach of
    everybody who can change the database. It then reveals what the hash chains cannot: that the
    last events, whole conversations or everything since a backup are missing.
    """
    if new_key is not None:
        if output is not None or key_file is not None:
            raise Failed("--new-key creates a key and no checkpoint: use it without other options")
        _make_key(new_key)
        return
    with target.open() as store:
        file: IO[bytes] | Path = sys.stdout.buffer if output is None else output
        made = with_key(key_file, lambda key: store.checkpoint(file, key=key))
    counts = f"{plural(made.conversations, 'conversation')}, {plural(made.events, 'event')}"
    if output is not None:
        say(f"checkpoint of {counts}: {output}")
    if made.signed_by is None:
        note(
            "the checkpoint is not signed: use --key to make changes of the file detectable",
            "yellow",
        )


def with_key(file: Path | None, use: Callable[[bytes | None], T]) -> T:
    """Use the key in a file, if given; an error about the key names the file."""
    if file is None:
        return use(None)
    with file.open("rb") as opened:
        pem = opened.read(_LARGEST_KEY)
    try:
        return use(pem)
    except KeyRefused as error:
        raise Failed(f"{file}: {error}") from error


def _make_key(path: Path) -> None:
    try:
        private, public = checkpoints.new_key()
    except KeyRefused as error:
        raise Failed(str(error)) from error
    known = Path(f"{path}.pub")
    if known.exists():
        raise Failed(f"{known} already exists")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    known.write_bytes(public)
    say(f"created {path} (keep it secret) and {known} (for verify --public-key)")


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option(
    "--against",
    metavar="FILE",
    type=InputFile(),
    help="Also find what is missing since `eventstore checkpoint` wrote this file.",
)
@click.option(
    "--public-key",
    metavar="FILE",
    type=InputFile(),
    help="Reject a checkpoint that is not signed by this key.",
)
@json_option
@common
def verify(
    target: Target,
    conversation: str | None,
    against: Path | None,
    public_key: Path | None,
    as_json: bool,
) -> None:
    """Check that nothing was altered.

    Recomputes the hash chain of a conversation, or of all, and compares it. Differences are listed
    with conversation and version, and the exit status is then 1.
    """
    if public_key is not None and against is None:
        raise Failed("--public-key is for a checkpoint: give it with --against")
    with target.open() as store, progress_bar("verifying") as meter:
        stream = None if conversation is None else _named(store, conversation)
        if against is None:
            found = store.verify(stream, progress=meter.update)
        else:
            found = with_key(
                public_key,
                lambda key: store.verify_against(
                    against, public_key=key, conversation_id=stream, progress=meter.update
                ),
            )
    if against is not None and public_key is None:
        note("the checkpoint's signature was not checked: use --public-key", "yellow")
    if as_json:
        print_document({"ok": found.ok, **asdict(found)})
    else:
        if not found.ok:
            stdout().print(render.problems_table(found.problems))
        say(summary_line(found), "green" if found.ok else "red")
        for kind, count in sorted(found.unregistered.items()):
            note(f"{plural(count, 'event')} of type {kind}, which is not registered here", "yellow")
    if not found.ok:
        found_something()


def _named(store: EventStore, conversation: str) -> UUID:
    # A full id is not looked up: its row may be missing, which is what verify must find.
    try:
        return UUID(conversation)
    except ValueError:
        return find_conversation(store, conversation)


def summary_line(found: Verification) -> str:
    """Return the result of a verification as a sentence."""
    seen = f"{plural(found.conversations, 'conversation')}, {plural(found.events, 'event')}"
    if found.ok:
        return f"{seen}: everything is as it was written"
    return f"{seen}: {plural(len(found.problems), 'problem')}"
