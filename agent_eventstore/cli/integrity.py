"""``eventstore verify`` and ``eventstore checkpoint``: nothing was altered, and nothing cut off.

``checkpoint`` writes what every chain has come to, signed, to be kept outside; ``verify`` proves
that nothing changed, also since a checkpoint.
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
    Target,
    common,
    find_conversation,
    json_option,
)
from agent_eventstore.cli.program import Failed, found_something
from eventstore import EventStore, Verification, checkpoints
from eventstore.errors import KeyRefused

__all__ = ["checkpoint", "said", "verify", "with_key"]


_LARGEST_KEY = 100_000

T = TypeVar("T")


@click.command()
@click.option(
    "--out",
    "output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A new file to write it to; by default stdout.",
)
@click.option(
    "--key", "key_file", metavar="FILE", type=InputFile(), help="Sign it with this private key."
)
@click.option(
    "--new-key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Only make a key to sign with: FILE, and FILE.pub for --public-key.",
)
@common
def checkpoint(
    target: Target, output: Path | None, key_file: Path | None, new_key: Path | None
) -> None:
    """Mark where every conversation stands.

    What is written is for a later `eventstore verify --against`. Keep it, and the key, where
    whoever can change the database cannot. Then it shows what the hash chains cannot: that last
    events, whole conversations or all since a backup are gone.
    """
    if new_key is not None:
        if output is not None or key_file is not None:
            raise Failed("--new-key makes a key and no checkpoint: give it alone")
        _make_key(new_key)
        return
    with target.open() as store:
        file: IO[bytes] | Path = sys.stdout.buffer if output is None else output
        made = with_key(key_file, lambda key: store.checkpoint(file, key=key))
    counts = f"{plural(made.conversations, 'conversation')}, {plural(made.events, 'event')}"
    if output is not None:
        say(f"checkpoint of {counts}: {output}")
    if made.signed_by is None:
        note("it is not signed: with --key a change of the file would show", "yellow")


def with_key(file: Path | None, use: Callable[[bytes | None], T]) -> T:
    """Use the key of a file, if there is one; what is wrong with the key is told with the file."""
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
        raise Failed(f"{known} is there already")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    known.write_bytes(public)
    say(f"made {path}, to be kept secret, and {known}, for verify --public-key")


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option(
    "--against",
    metavar="FILE",
    type=InputFile(),
    help="Also find what has gone since `eventstore checkpoint` wrote this file.",
)
@click.option(
    "--public-key",
    metavar="FILE",
    type=InputFile(),
    help="Refuse a checkpoint that is not signed by this key.",
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

    Recomputes the hash chain of a conversation, or of all, and compares. What is not as it was
    written is listed with conversation and version, and the exit status is 1.
    """
    if public_key is not None and against is None:
        raise Failed("--public-key is for a checkpoint: name it with --against")
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
        note("whose checkpoint it is was not checked: give --public-key", "yellow")
    if as_json:
        print_document({"ok": found.ok, **asdict(found)})
    else:
        if not found.ok:
            stdout().print(render.problems_table(found.problems))
        say(said(found), "green" if found.ok else "red")
        for kind, count in sorted(found.unregistered.items()):
            note(f"{plural(count, 'event')} of type {kind}, which is not registered here", "yellow")
    if not found.ok:
        found_something()


def _named(store: EventStore, conversation: str) -> UUID:
    # A whole id is not looked up: its row may be gone, which is what is to be found.
    try:
        return UUID(conversation)
    except ValueError:
        return find_conversation(store, conversation)


def said(found: Verification) -> str:
    """Return the result of a verification as a sentence."""
    seen = f"{plural(found.conversations, 'conversation')}, {plural(found.events, 'event')}"
    if found.ok:
        return f"{seen}: everything is as it was written"
    return f"{seen}: {plural(len(found.problems), 'problem')}"
