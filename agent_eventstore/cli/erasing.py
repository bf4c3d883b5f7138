"""``eventstore erase``: what was said in a conversation or in single events of it, for good."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from uuid import UUID

import click

from agent_eventstore.cli.console import note, plural, say
from agent_eventstore.cli.options import (
    Target,
    Versions,
    common,
    conversation_argument,
    find_conversation,
    json_option,
    with_target,
)
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.progress import print_document
from eventstore import ErasureReceipt
from eventstore.events.values import Quoting
from eventstore.quoting import ranges

__all__ = ["erase"]


@click.command()
@conversation_argument
@click.option(
    "--version",
    "chosen",
    type=Versions(),
    multiple=True,
    metavar="N[-M]",
    help="Erase this event or these alone, and what copies them; may be repeated.",
)
@click.option(
    "--no-derived",
    is_flag=True,
    help="With --version: leave the copies, and name them as what still quotes.",
)
@click.option(
    "--no-usage",
    is_flag=True,
    help="Erase the usage of model calls too, which otherwise stays: the bill without the words.",
)
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
    """Erase what a conversation says, for good.

    Payloads, blobs and everything derived from them go; the order of events, their types, the
    usage of model calls and a receipt stay, and can be verified. A conversation that was erased
    as a whole is listed by `list --status erased` alone. The receipt names what went along as it
    copied what was to be erased (derived), and what repeats it still (quoted_by).
    """
    if no_derived and not chosen:
        raise Failed("--no-derived is for --version: erasing all leaves no copies")
    with target.open_to_write() as store:
        stream = find_conversation(store, conversation)
        newest = store.get(stream).version
        versions = _versions(stream, newest, chosen)
        if not yes:
            what = f"the {plural(newest, 'event')} of {stream}"
            if versions is not None:
                copies = "" if no_derived else " and their copies"
                what = f"{plural(len(versions), 'event')} of {stream}{copies}"
            _ask(f"Erase {what} for good?")
        try:
            receipt = store.erase(
                stream,
                reason=reason,
                versions=versions,
                requested_by=requested_by,
                state_directory=state_directory,
                vacuum=vacuum,
                derived=not no_derived,
                keep_usage=not no_usage,
            )
        except OSError as error:
            raise Failed(f"erased, but for a file: {error}; erase again once it can go") from error
    if as_json:
        print_document(receipt)
    else:
        _tell(receipt)
    if missed := set(versions or ()).difference(receipt.versions):
        note(f"nothing was left to erase of {_listed(ranges(sorted(missed)))}", "yellow")


def _versions(stream: UUID, newest: int, chosen: Collection[range]) -> set[int] | None:
    """Return the versions that were asked for, or None for all."""
    for each in chosen:
        if each[-1] > newest:
            raise Failed(f"there is no event {each[-1]}: the newest of {stream} is {newest}")
    return set(chain(*chosen)) or None


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise Failed("nobody is there to be asked: give --yes to erase without being asked")
    if not click.confirm(question, err=True):
        raise Failed("nothing was erased")


def _tell(receipt: ErasureReceipt) -> None:
    blobs = f" and {plural(receipt.blob_count, 'blob')}" if receipt.blob_count else ""
    done = f"erased {plural(len(receipt.versions), 'event')}{blobs} of {receipt.conversation_id}"
    say(f"{done}; the receipt is event {receipt.version}")
    if receipt.kept_calls:
        say(f"the usage of {plural(receipt.kept_calls, 'model call')} is kept")
    if receipt.derived:
        say(f"of these, as copies: {_quoting(receipt.derived)}")
    if receipt.quoted_by:
        say(f"not erased, though they hold the same words: {_quoting(receipt.quoted_by)}", "yellow")


def _quoting(found: Iterable[Quoting]) -> str:
    return "; ".join(
        f"{each.what} {_listed((run.first, run.last) for run in each.versions)}" for each in found
    )


def _listed(runs: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
