"""``eventstore verify``: proof that nothing changed."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from agent_eventstore.cli import render
from agent_eventstore.cli.checkpoint import with_key
from agent_eventstore.cli.console import note, say, stdout
from agent_eventstore.cli.documents import print_document
from agent_eventstore.cli.options import (
    Target,
    common,
    find_conversation,
    json_option,
    with_target,
)
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.progress import progress_bar
from agent_eventstore.cli.text import plural
from agent_eventstore.cli.values import InputFile
from eventstore import EventStore, Verification

__all__ = ["said", "verify"]


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
