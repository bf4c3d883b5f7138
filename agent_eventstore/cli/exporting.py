"""``eventstore export``: conversations to foreign files, one or a whole project of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

import click

from agent_eventstore import exporters
from agent_eventstore.cli.console import note, say
from agent_eventstore.cli.documents import write_json
from agent_eventstore.cli.options import Target, common, find_conversation, with_target
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.progress import progress_bar
from agent_eventstore.cli.text import plural
from agent_eventstore.exporters.project import json_text
from eventstore import EventStore
from eventstore.events.codec import dumps

__all__ = ["export"]

_PROJECT = "project"
_PAGE = 500


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every conversation; for a project only.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(exporters.FORMATS),
    required=True,
    help="What to write.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(writable=True, path_type=Path),
    help="Where to: a file, by default stdout; for a project a directory.",
)
@common
@with_target
def export(
    target: Target,
    conversation: str | None,
    everything: bool,
    format_name: str,
    output: Path | None,
) -> None:
    """Write conversations in another format.

    CID names one; --all takes every one, for a project. That is a directory, with
    conversations/index.json and a messages.json for each conversation. What cannot be read is
    reported, and the rest goes on; the exit status is then 1.
    """
    _check(conversation, everything, format_name, output)
    with target.open() as store:
        named = None if conversation is None else find_conversation(store, conversation)
        if format_name == _PROJECT and output is not None:
            _export_project(store, output, named)
            return
        assert named is not None  # noqa: S101 - checked
        text = _exported(store, named, format_name)
    if output is None:
        write_json(text)
    else:
        output.write_text(text, encoding="utf-8", newline="\n")


def _check(
    conversation: str | None, everything: bool, format_name: str, output: Path | None
) -> None:
    if (conversation is None) is not everything:
        raise Failed("name one conversation, or give --all with --format project")
    if format_name != _PROJECT and everything:
        raise Failed("--all needs --format project: the other formats hold one conversation")
    if format_name == _PROJECT and output is None:
        raise Failed("--format project needs a directory: name it with -o")
    if format_name == _PROJECT and output is not None and output.is_file():
        raise Failed(f"{output} is a file; a project needs a directory")
    if format_name != _PROJECT and output is not None and output.is_dir():
        raise Failed(f"{output} is a directory; name a file")


def _export_project(store: EventStore, directory: Path, named: UUID | None) -> None:
    ids = _all(store) if named is None else [named]
    with progress_bar("exporting") as meter:
        try:
            report = exporters.export_project(
                store,
                directory,
                ids,
                on_progress=lambda done: meter.update(
                    done.conversations + len(done.failures), len(ids)
                ),
            )
        except FileExistsError as error:
            raise Failed(f"{error}: name another directory with -o") from error
    for conversation_id, reason in report.failures:
        note(f"{conversation_id}: {reason}", "red")
    said = f"exported {plural(report.conversations, 'conversation')} to {directory}"
    if report.failures:
        say(f"{said}; {plural(len(report.failures), 'failure')}")
        found_something()
    say(said)


def _all(store: EventStore) -> list[UUID]:
    """Return every conversation, the oldest first; a project that was imported has its order."""
    found: list[tuple[datetime, UUID]] = []
    after: UUID | None = None
    while page := store.list(after=after, limit=_PAGE):
        found += [(info.created_at, info.conversation_id) for info in page]
        after = page[-1].conversation_id
    return [conversation_id for _, conversation_id in sorted(found)]


def _exported(store: EventStore, conversation_id: UUID, format_name: str) -> str:
    match format_name:
        case "session-jsonl":
            lines = exporters.export_session_jsonl(store, conversation_id)
        case "messages-jsonl":
            lines = exporters.export_messages_jsonl(store, conversation_id)
        case "messages-json":
            return json_text(exporters.export_messages_json(store, conversation_id))
        case _:
            return json_text(exporters.export_openai(store, conversation_id))
    return "".join(f"{dumps(line)}\n" for line in lines)
