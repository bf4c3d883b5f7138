"""``eventstore verify`` and ``eventstore erase``: proof that nothing changed; deletion."""

from __future__ import annotations

import sys
from uuid import UUID

import click

from conversations.cli import render
from conversations.cli.console import say, stdout
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
from eventstore import EventStore, Problem, Verification

__all__ = ["erase", "verify", "verify_all"]

_PAGE = 1_000


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@json_option
@common
@with_target
def verify(target: Target, conversation: str | None, as_json: bool) -> None:
    """Check that nothing was altered.

    Recomputes the hash chain of a conversation, or of all, and compares. What is not as it was
    written is listed with conversation and version, and the exit status is 1.
    """
    with target.open() as store:
        if conversation is None:
            found = verify_all(store)
        else:
            found = store.verify(find_conversation(store, conversation))
    if as_json:
        print_document({"ok": found.ok, **_document(found)})
    else:
        if not found.ok:
            stdout().print(render.problems_table(found.problems))
        say(said(found), "green" if found.ok else "red")
    if not found.ok:
        found_something()


def verify_all(store: EventStore) -> Verification:
    """Verify every conversation of a store, with a progress bar."""
    streams = _streams(store)
    total = sum(version for _, version in streams)
    events = 0
    problems: list[Problem] = []
    with progress_bar("verifying") as meter:
        for conversation_id, _ in streams:
            found = store.verify(conversation_id)
            events += found.events
            problems.extend(found.problems)
            meter.update(events, max(total, events))
    return Verification(len(streams), events, tuple(problems))


def _streams(store: EventStore) -> list[tuple[UUID, int]]:
    found: list[tuple[UUID, int]] = []
    while page := store.list(after=found[-1][0] if found else None, limit=_PAGE):
        found += [(info.conversation_id, info.version) for info in page]
    return found


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
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@common
@with_target
def erase(
    target: Target,
    conversation: str,
    reason: str,
    requested_by: str | None,
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
        receipt = store.erase(stream, reason=reason, requested_by=requested_by)
    if as_json:
        print_document(receipt)
        return
    blobs = f" and {plural(len(receipt.blobs), 'blob')}" if receipt.blobs else ""
    done = f"erased {plural(len(receipt.versions), 'event')}{blobs} of {stream}"
    say(f"{done}; the receipt is event {receipt.version}")


def _ask(conversation_id: UUID, version: int) -> None:
    if not sys.stdin.isatty():
        raise Failed("nobody is there to be asked: give --yes to erase without being asked")
    question = f"Erase the {plural(version, 'event')} of {conversation_id} for good?"
    if not click.confirm(question, err=True):
        raise Failed("nothing was erased")
