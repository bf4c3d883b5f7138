"""``eventstore import`` and ``eventstore export``: foreign files to events, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from conversations import exporters, importers
from conversations.cli.console import note, say
from conversations.cli.documents import print_document
from conversations.cli.options import (
    Target,
    common,
    conversation_argument,
    find_conversation,
    json_option,
    with_target,
)
from conversations.cli.program import found_something
from conversations.cli.progress import Meter, progress_bar
from conversations.cli.text import plural
from conversations.importers import ImportReport, Transcript, load, read_transcripts
from eventstore import EventStore
from eventstore.errors import ImportFailed
from eventstore.events.codec import dumps

__all__ = ["export", "import_files"]


@click.command("import")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(importers.FORMATS),
    help="The format; by default the content tells.",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad record.")
@click.option("--tenant-id", metavar="ID", help="The tenant that the conversations belong to.")
@click.option("--user-id", metavar="ID", help="The user that the conversations belong to.")
@json_option
@common
@with_target
def import_files(
    target: Target,
    files: tuple[Path, ...],
    format_name: str | None,
    strict: bool,
    tenant_id: str | None,
    user_id: str | None,
    as_json: bool,
) -> None:
    """Add the conversations of transcript files.

    What is there already is left alone, so a file may be imported again, also one that has grown.
    A bad record is reported with file and line, and the rest goes on; the exit status is then 1.
    """
    owner = {name: value for name, value in _owner(tenant_id, user_id) if value is not None}
    with target.create() as store, progress_bar("importing") as meter:
        reading = _Reading(files, format_name, meter)
        transcripts = (_owned(found, owner) for found in reading)
        try:
            report = load(store, transcripts, on_progress=reading.loaded, strict=strict)
        except ImportFailed as failure:
            report = replace(reading.report, failures=[*reading.report.failures, failure])
    _tell(report, as_json=as_json)
    if report.failures:
        found_something()


def _owner(tenant_id: str | None, user_id: str | None) -> Iterable[tuple[str, str | None]]:
    return (("tenant_id", tenant_id), ("user_id", user_id))


def _owned(found: Transcript | ImportFailed, owner: dict[str, Any]) -> Transcript | ImportFailed:
    return replace(found, **owner) if owner and isinstance(found, Transcript) else found


class _Reading:
    """The conversations of several files, and how far their import is."""

    def __init__(self, files: tuple[Path, ...], format_name: str | None, meter: Meter) -> None:
        self.report = ImportReport()
        self._format = format_name
        self._meter = meter
        self._sizes = [(path, max(path.stat().st_size, 1)) for path in files]
        self._total = sum(size for _, size in self._sizes)
        self._read = 0.0

    def __iter__(self) -> Iterator[Transcript | ImportFailed]:
        before = 0
        for path, size in self._sizes:

            def at(share: float, before: int = before, size: int = size) -> None:
                self._read = before + share * size
                self._show()

            yield from read_transcripts(path, self._format, on_read=at)
            before += size

    def loaded(self, report: ImportReport) -> None:
        """Take note of what has been loaded."""
        self.report = report
        self._show()

    def _show(self) -> None:
        self._meter.update(self._read, self._total, self.report.events_added)


def _tell(report: ImportReport, *, as_json: bool) -> None:
    for failure in report.failures:
        note(str(failure), "red")
    if as_json:
        failures = [
            {"file": each.file, "line": each.line, "reason": each.reason}
            for each in report.failures
        ]
        counts = {
            "conversations": report.conversations,
            "events_added": report.events_added,
            "unchanged": report.unchanged,
        }
        print_document({**counts, "failures": failures})
        return
    said = (
        f"imported {plural(report.conversations, 'conversation')} "
        f"({plural(report.events_added, 'event')}); {report.unchanged:,} unchanged"
    )
    if report.failures:
        said = f"{said}; {plural(len(report.failures), 'failure')}"
    say(said)


@click.command()
@conversation_argument
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
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where to; by default to stdout.",
)
@common
@with_target
def export(target: Target, conversation: str, format_name: str, output: Path | None) -> None:
    """Write a conversation in another format."""
    with target.open() as store:
        text = _exported(store, find_conversation(store, conversation), format_name)
    if output is None:
        click.echo(text.encode(), nl=False)
    else:
        output.write_text(text, encoding="utf-8", newline="\n")


def _exported(store: EventStore, conversation_id: UUID, format_name: str) -> str:
    if format_name == "session-jsonl":
        lines = exporters.export_session_jsonl(store, conversation_id)
        return "".join(f"{dumps(line)}\n" for line in lines)
    messages = exporters.export_openai(store, conversation_id)
    text = json.dumps(messages, ensure_ascii=False, allow_nan=False, indent=2)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates have no UTF-8; as escapes they are kept.
        text = json.dumps(messages, allow_nan=False, indent=2)
    return f"{text}\n"
