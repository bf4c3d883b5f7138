"""``eventstore checkpoint``: what every chain has come to, signed, to be kept outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

import click

from agent_eventstore.cli.console import note, say
from agent_eventstore.cli.options import Target, common, with_target
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.text import plural
from agent_eventstore.cli.values import InputFile
from eventstore import signing
from eventstore.errors import KeyRefused

__all__ = ["checkpoint", "with_key"]

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
@with_target
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
        private, public = signing.new_key()
    except KeyRefused as error:
        raise Failed(str(error)) from error
    known = Path(f"{path}.pub")
    if known.exists():
        raise Failed(f"{known} is there already")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    known.write_bytes(public)
    say(f"made {path}, to be kept secret, and {known}, for verify --public-key")
