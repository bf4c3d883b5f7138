"""``eventstore archive``: conversations that rest, as files outside of the database."""

from __future__ import annotations

from datetime import timedelta

import click

from agent_eventstore.cli.console import (
    cell,
    count,
    fixed,
    flexible,
    grid,
    moment,
    note,
    number,
    plural,
    print_document,
    progress_bar,
    say,
    stdout,
)
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import (
    Days,
    Number,
    common,
    conversation_argument,
    find_archived,
    json_option,
    limit_option,
)
from agent_eventstore.cli.program import found_something
from agent_eventstore.cli.target import Target
from eventstore import ArchiveReport

__all__ = ["archive"]

_LONGEST_DAYS = 36_500


@click.group()
def archive() -> None:
    """Move conversations that rest out of the database, and back.

    Each becomes a compressed file in a directory or an object store. Until it is restored, lists,
    searches and totals lack it, and commands that name it say where it is. `erase` and `purge`
    reach it. Needs the extra [archive].
    """


@archive.command("run")
@click.argument("place", metavar="PLACE")
@click.option(
    "--days",
    type=Days(min=0, min_open=True, max=_LONGEST_DAYS),
    required=True,
    metavar="N",
    help="Move conversations without an event for N days.",
)
@click.option("--limit", type=Number(min=1), help="The most conversations to move.")
@json_option
@common
def move(target: Target, place: str, days: float, limit: int | None, as_json: bool) -> None:
    """Move conversations that rest to PLACE.

    PLACE is a directory, or a URL such as s3://bucket/path. Each conversation is verified, written,
    read back, and only then deleted here. Those that a session has open or that share events with a
    fork stay. A command that was killed is run again.
    """
    with target.open_to_write() as store, progress_bar("archive") as meter:
        report = store.archive(
            place,
            inactive_for=timedelta(days=days),
            limit=limit,
            on_progress=lambda so_far: meter.update(so_far.conversations, 0, so_far.events),
        )
    if as_json:
        print_document(report)
    else:
        _tell(report, place)
    if report.failed:
        found_something()


def _tell(report: ArchiveReport, place: str) -> None:
    moved = f"{plural(report.conversations, 'conversation')}, {plural(report.events, 'event')}"
    say(f"moved to {place}: {moved}, {report.size_bytes:,} bytes")
    for reason, number_of in sorted(report.left.items()):
        note(f"{plural(number_of, 'conversation')} left here: {reason}")
    for conversation_id, reason in report.failures:
        note(f"{conversation_id} left here: {reason}", "red")
    if report.failed > len(report.failures):
        note(f"and {report.failed - len(report.failures):,} more", "red")


@archive.command("list")
@click.option("--tenant-id", metavar="ID", help="Only this tenant's conversations.")
@click.option("--user-id", metavar="ID", help="Only this user's conversations.")
@limit_option(50, "conversations")
@json_option
@common
def list_archived(
    target: Target, tenant_id: str | None, user_id: str | None, limit: int, as_json: bool
) -> None:
    """List the conversations in the archive.

    They are in order of id; --json says where each file is.
    """
    with target.open() as store:
        found = store.archived(tenant_id=tenant_id, user_id=user_id, limit=limit + 1)
    if as_json:
        print_document(found[:limit])
        return
    table = grid(
        fixed("conversation"),
        flexible("user"),
        number("events"),
        number("bytes"),
        fixed("archived"),
    )
    for each in found[:limit]:
        table.add_row(
            cell(each.conversation_id),
            cell(each.user_id and one_line(each.user_id)),
            cell(count(each.event_count)),
            cell(count(each.size_bytes)),
            cell(moment(each.archived_at), "dim"),
        )
    stdout().print(table)
    if len(found) > limit:
        note(f"only the first {plural(limit, 'conversation')} are shown: use --limit")


@archive.command("restore")
@conversation_argument
@json_option
@common
def restore(target: Target, conversation: str, as_json: bool) -> None:
    """Bring a conversation back from the archive.

    Its file is deleted.

    CID is its id, the start of it, or the product's key (with a tenant: TENANT/KEY).
    """
    with target.open_to_write() as store:
        stream = find_archived(store, conversation)
        found = store.restore(stream)
    if as_json:
        print_document(found)
        return
    say(f"restored {stream} with its {plural(found.event_count, 'event')}")


@archive.command("verify")
@json_option
@common
def verify(target: Target, as_json: bool) -> None:
    """Compare every file with what was written."""
    seen = 0

    def progress(done: int) -> None:
        nonlocal seen
        seen = done

    with target.open() as store:
        problems = store.verify_archive(progress=progress)
    if as_json:
        print_document(
            {
                "files": seen,
                "problems": [{"url": each.url, "detail": str(each)} for each in problems],
            }
        )
    else:
        for each in problems:
            note(str(each), "red")
        say(f"{plural(seen, 'file')} read, {plural(len(problems), 'problem')}")
    if problems:
        found_something()
