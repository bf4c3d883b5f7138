"""``eventstore purge``: a conversation with all its events, of which a receipt alone is left."""

from __future__ import annotations

from pathlib import Path

import click

from agent_eventstore.cli.console import plural, say
from agent_eventstore.cli.erasing import ask, no_file_left
from agent_eventstore.cli.options import (
    Target,
    common,
    conversation_argument,
    find_conversation,
    json_option,
    with_target,
)
from agent_eventstore.cli.progress import print_document

__all__ = ["purge"]


@click.command()
@conversation_argument
@click.option("--forks", is_flag=True, help="Purge the forks that share its events too.")
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
    """Delete a conversation with its events, for good.

    Headers, hashes, owner, title, usage and earlier receipts go too. What is left is a row of
    `purges` with the conversation's id, when, why, and how many events went. `erase` is what
    leaves the order of events and the usage.
    """
    with target.open_to_write() as store:
        stream = find_conversation(store, conversation)
        if not yes:
            events = plural(store.get(stream).version, "event")
            ask(f"Delete {stream} with its {events}, so that nothing is left, for good?")
        with no_file_left():
            receipt = store.purge(
                stream,
                reason=reason,
                forks=forks,
                requested_by=requested_by,
                state_directory=state_directory,
                vacuum=vacuum,
            )
    if as_json:
        print_document(receipt)
        return
    with_forks = f" and {plural(len(receipt.forks), 'fork')}" if receipt.forks else ""
    done = f"{plural(receipt.event_count, 'event')} of {receipt.conversation_id}{with_forks}"
    say(f"purged {done}; the receipt is {receipt.purge_id}")
