"""``eventstore erase`` and ``purge``: permanent deletion of content, or of a whole conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from agent_eventstore.cli.console import note, plural, print_document, say
from agent_eventstore.cli.options import (
    Command,
    Versions,
    common,
    conversation_argument,
    find_conversation,
    json_option,
)
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.target import Target
from eventstore import ErasureReceipt, EventStore, PurgeReceipt, UserErasure
from eventstore.erasure.plan import ranges
from eventstore.errors import ConversationNotFound, EventStoreError, InvalidEvent
from eventstore.events.values import Quoting
from eventstore.owners import named

__all__ = ["ask", "erase", "purge"]

R = TypeVar("R")


def _receipted(command: Command) -> Command:
    """Add the options of both commands, which leave a receipt."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--vacuum",
            is_flag=True,
            help="Also rewrite all tables, so that no page keeps the content.",
        ),
        click.option(
            "--state-directory",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="DIR",
            help="The directory of tool output files: the conversation's files are deleted.",
        ),
        click.option(
            "--requested-by", metavar="WHO", help="Who requested it; recorded in the receipt."
        ),
        click.option(
            "--reason", required=True, metavar="TEXT", help="Why; recorded in the receipt."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option("--user", "user_id", metavar="ID", help="Erase all conversations of this user.")
@click.option("--tenant-id", metavar="ID", help="With --user: the user's tenant.")
@click.option(
    "--version",
    "chosen",
    type=Versions(),
    multiple=True,
    metavar="N[-M]",
    help="Erase only these events, and their copies; may be repeated.",
)
@click.option(
    "--no-derived",
    is_flag=True,
    help="With --version: keep the copies, and list them as still quoting the events.",
)
@click.option(
    "--no-usage",
    is_flag=True,
    help="Also erase the usage of model calls, which is otherwise kept.",
)
@_receipted
@json_option
@common
def erase(
    target: Target,
    conversation: str | None,
    user_id: str | None,
    tenant_id: str | None,
    chosen: tuple[range, ...],
    no_derived: bool,
    no_usage: bool,
    reason: str,
    requested_by: str | None,
    state_directory: Path | None,
    vacuum: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase a conversation's content permanently.

    Payloads, blobs and everything derived from them are deleted. The order of events, their types,
    the usage of model calls and a receipt remain, and can be verified. A conversation erased as a
    whole is listed only by `list --status erased`. The receipt lists erased copies of the erased
    events (derived), and remaining events that still repeat them (quoted_by).

    With --user, all conversations of the user are erased, one after another; run an interrupted
    command again to continue.
    """
    if (conversation is None) == (user_id is None):
        raise Failed("give a conversation, or --user for all of a user's")
    if tenant_id is not None and user_id is None:
        raise Failed("--tenant-id requires --user")
    options: dict[str, Any] = {
        "reason": reason,
        "requested_by": requested_by,
        "state_directory": state_directory,
        "vacuum": vacuum,
        "keep_usage": not no_usage,
    }
    if conversation is None:
        if chosen or no_derived:
            raise Failed("--version and --no-derived cannot be used with --user")
        _erase_user(target, user_id or "", tenant_id, options, yes=yes, as_json=as_json)
        return
    if no_derived and not chosen:
        raise Failed("--no-derived requires --version: erasing everything leaves no copies")
    with target.open_to_write() as store:
        stream = find_conversation(store, conversation)
        newest = store.get(stream).version
        versions = _versions(stream, newest, chosen)
        if not yes:
            what = f"the {plural(newest, 'event')} of {stream}"
            if versions is not None:
                copies = "" if no_derived else " and their copies"
                what = f"{plural(len(versions), 'event')} of {stream}{copies}"
            ask(f"Erase {what} for good?")
        receipt, failed = _receipt_of(
            partial(store.erase, stream, versions=versions, derived=not no_derived, **options)
        )
    if as_json:
        print_document(_document(receipt))
    else:
        _tell(receipt)
    if missed := set(versions or ()).difference(receipt.versions):
        why = "already erased, or a receipt or kept usage"
        note(f"not erased: {_listed(ranges(sorted(missed)))} ({why})", "yellow")
    _fail(failed)


def _erase_user(
    target: Target,
    user_id: str,
    tenant_id: str | None,
    options: dict[str, Any],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    with target.open_to_write() as store:
        if not yes:
            ask(f"Erase all conversations of user {user_id!r} for good?")
        done, failed = _receipt_of(
            partial(store.erase_user, user_id, tenant_id=tenant_id, **options)
        )
    if as_json:
        print_document(_document(done))
        _fail(failed)
        return
    blobs = f" and {plural(done.blob_count, 'blob')}" if done.blob_count else ""
    what = f"{plural(done.event_count, 'event')}{blobs}"
    say(f"erased {what} of {plural(len(done.conversations), 'conversation')} of {user_id!r}")
    if done.erased_before:
        say(f"erased before: {plural(done.erased_before, 'conversation')}")
    if done.billed_calls:
        say(f"the usage of {plural(done.billed_calls, 'model call')} is kept")
    if done.forks:
        say(f"other users' forks that lost shared events: {', '.join(map(str, done.forks))}")
    if done.left:
        note(f"not erased: {', '.join(map(str, done.left))}", "yellow")
    _fail(failed)


def _document(receipt: ErasureReceipt | UserErasure) -> dict[str, Any]:
    """Return a receipt's fields by the names in the printed JSON, where one has another name."""
    renamed = {"billed_calls": "kept_calls"}
    return {
        renamed.get(each.name, each.name): getattr(receipt, each.name) for each in fields(receipt)
    }


def _receipt_of(erasing: Callable[[], R]) -> tuple[R, EventStoreError | None]:
    """Return the receipt, and the error of what failed after the erasure was committed."""
    try:
        return erasing(), None
    except EventStoreError as error:
        if error.receipt is None:
            raise
        return error.receipt, error


def _fail(error: EventStoreError | None) -> None:
    """End with what is left to do, after the receipt was printed."""
    if error is not None:
        what = "; ".join((str(error), *getattr(error, "__notes__", ())))
        raise Failed(f"done, except for this: {what}; run the command again to finish") from error


def _versions(stream: UUID, newest: int, chosen: Collection[range]) -> set[int] | None:
    """Return the requested versions, or None for all."""
    for each in chosen:
        if each[-1] > newest:
            raise Failed(f"there is no event {each[-1]}: the newest of {stream} is {newest}")
    return set(chain(*chosen)) or None


def ask(question: str) -> None:
    """Ask for confirmation.

    Raises:
        Failed: The answer was no, or stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise Failed("stdin is not a terminal: use --yes to erase without confirmation")
    if not click.confirm(question, err=True):
        raise Failed("nothing was erased")


def _tell(receipt: ErasureReceipt) -> None:
    blobs = f" and {plural(receipt.blob_count, 'blob')}" if receipt.blob_count else ""
    done = f"erased {plural(len(receipt.versions), 'event')}{blobs} of {receipt.conversation_id}"
    say(f"{done}; the receipt is event {receipt.version}")
    if receipt.billed_calls:
        say(f"the usage of {plural(receipt.billed_calls, 'model call')} is kept")
    if receipt.derived:
        say(f"of these, as copies: {_quoting(receipt.derived)}")
    if receipt.quoted_by:
        say(
            f"not erased, although they contain the same text: {_quoting(receipt.quoted_by)}",
            "yellow",
        )


def _quoting(found: Iterable[Quoting]) -> str:
    return "; ".join(
        f"{each.what} {_listed((run.first, run.last) for run in each.versions)}" for each in found
    )


def _listed(runs: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@click.command()
@conversation_argument
@click.option("--forks", is_flag=True, help="Also purge the forks that share its events.")
@_receipted
@json_option
@common
def purge(
    target: Target,
    conversation: str,
    forks: bool,
    reason: str,
    requested_by: str | None,
    state_directory: Path | None,
    vacuum: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a conversation with its events permanently.

    Headers, hashes, owner, title, usage and earlier receipts are deleted too. A row of `purges`
    remains, with the conversation's id, time, reason, and number of events. Use `erase` to keep the
    order of events and the usage. Run a command that was killed again: it finishes what is left to
    do, and prints the receipt.
    """
    options: dict[str, Any] = {
        "reason": reason,
        "forks": forks,
        "requested_by": requested_by,
        "state_directory": state_directory,
        "vacuum": vacuum,
    }
    failed: EventStoreError | None = None
    with target.open_to_write() as store:
        try:
            stream = find_conversation(store, conversation)
        except Failed:
            found, failed = _receipt_of(partial(_purged_again, store, conversation, options))
            if found is None:
                raise
            receipt = found
        else:
            if not yes:
                events = plural(store.get(stream).version, "event")
                ask(f"Delete {stream} with its {events} permanently, leaving nothing?")
            receipt, failed = _receipt_of(partial(store.purge, stream, **options))
    if as_json:
        print_document(receipt)
        _fail(failed)
        return
    with_forks = f" and {plural(len(receipt.forks), 'fork')}" if receipt.forks else ""
    done = f"{plural(receipt.event_count, 'event')} of {receipt.conversation_id}{with_forks}"
    say(f"purged {done}; the receipt is {receipt.purge_id}")
    _fail(failed)


def _purged_again(store: EventStore, name: str, options: dict[str, Any]) -> PurgeReceipt | None:
    """Finish the purge of a conversation that no longer exists; None if it was never purged."""
    tenant, _, key = name.partition("/")
    for each, of_tenant in ((name, None), (key, tenant)):
        with suppress(ConversationNotFound, InvalidEvent):
            return store.purge(named(each, of_tenant)[0], **options)
    return None
