"""``eventstore verify`` and ``eventstore erase``: proof that nothing changed; deletion."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

import click

from conversations.cli import render
from conversations.cli.checkpoint import with_key
from conversations.cli.console import note, say, stdout
from conversations.cli.documents import print_document
from conversations.cli.options import (
    Target,
    common,
    conversation_argument,
    find_conversation,
    json_option,
    with_target,
)
from conversations.cli.program import Failed, found_something
from conversations.cli.progress import progress_bar
from conversations.cli.text import plural
from conversations.cli.values import InputFile
from eventstore import EventStore, Verification

__all__ = ["erase", "verify"]


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
@with_target
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
        print_document({"ok": found.ok, **_document(found)})
    else:
        if not found.ok:
            stdout().print(render.problems_table(found.problems))
        say(said(found), "green" if found.ok else "red")
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


def _document(found: Verification) -> dict[str, object]:
    return {
        "conversations": found.conversations,
        "events": found.events,
        "problems": found.problems,
    }


@click.command()
@conversation_argument
@click.option("--reason", required=True, metavar="TEXT", help="Why; it stands in the receipt.")
@click.option("--requested-by", metavar="WHO", help="Who asked for it; stands in the receipt.")
@click.option(
    "--state-directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the product has files of tool outputs: the conversation's are deleted.",
)
@click.option("--vacuum", is_flag=True, help="Rewrite all tables, so that no page holds it either.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@common
@with_target
def erase(
    target: Target,
    conversation: str,
    reason: str,
    requested_by: str | None,
    state_directory: Path | None,
    vacuum: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase what a conversation says, for good.

    Payloads, blobs and everything derived from them go; the order of events, their types and a
    receipt stay, and can be verified.
    """
    with target.open_to_write() as store:
        stream = find_conversation(store, conversation)
        if not yes:
            _ask(stream, store.get(stream).version)
        try:
            receipt = store.erase(
                stream,
                reason=reason,
                requested_by=requested_by,
                state_directory=state_directory,
                vacuum=vacuum,
            )
        except OSError as error:
            raise Failed(f"erased, but for a file: {error}; erase again once it can go") from error
    if as_json:
        print_document(receipt)
        return
    blobs = f" and {plural(receipt.blob_count, 'blob')}" if receipt.blob_count else ""
    done = f"erased {plural(len(receipt.versions), 'event')}{blobs} of {stream}"
    say(f"{done}; the receipt is event {receipt.version}")


def _ask(conversation_id: UUID, version: int) -> None:
    if not sys.stdin.isatty():
        raise Failed("nobody is there to be asked: give --yes to erase without being asked")
    question = f"Erase the {plural(version, 'event')} of {conversation_id} for good?"
    if not click.confirm(question, err=True):
        raise Failed("nothing was erased")
