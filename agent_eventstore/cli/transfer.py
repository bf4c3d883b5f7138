"""``eventstore import``: foreign files, and whole projects, to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from agent_eventstore import importers
from agent_eventstore.cli.console import note, say
from agent_eventstore.cli.documents import print_document
from agent_eventstore.cli.options import (
    Target,
    common,
    json_option,
    with_target,
)
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.progress import Meter, progress_bar
from agent_eventstore.cli.text import plural
from agent_eventstore.cli.values import InputFile
from agent_eventstore.importers import ImportReport, Transcript, load, read_transcripts, size_of
from eventstore import redact_secrets
from eventstore.errors import ImportFailed

__all__ = ["import_files"]


@click.command("import")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=InputFile(folders=True),
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(importers.FORMATS),
    help="The format; by default the content tells.",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad record.")
@click.option("--tenant-id", metavar="ID", help="The tenant that the conversations belong to.")
@click.option(
    "--redact",
    type=click.Choice(["default"]),
    help="Mark keys, passwords and tokens, and do not store them.",
)
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
    redact: str | None,
    as_json: bool,
) -> None:
    """Add the conversations of transcripts and projects.

    A FILE may be a directory: a project's, or its conversations, with an index.json.

    What is there already is left alone, so a file may be imported again, also one that has grown.
    A bad record is reported with file and line, and the rest goes on; the exit status is then 1.
    """
    for path in files:
        _require_project(path, format_name)
    owner = {name: value for name, value in _owner(tenant_id, user_id) if value is not None}
    redactor = redact_secrets if redact else None
    with target.create(redactor) as store, progress_bar("importing") as meter:
        reading = _Reading(files, format_name, meter)
        transcripts = (_owned(found, owner) for found in reading)
        try:
            report = load(store, transcripts, on_progress=reading.loaded, strict=strict)
        except ImportFailed as failure:
            report = replace(reading.report, failures=[*reading.report.failures, failure])
    _tell(report, as_json=as_json)
    if report.failures:
        found_something()


def _require_project(path: Path, format_name: str | None) -> None:
    if path.is_dir() and format_name not in (None, importers.PROJECT):
        raise Failed(f"{path} is a directory: only --format {importers.PROJECT} reads one")
    if (path.is_dir() or format_name == importers.PROJECT) and not importers.is_project(path):
        raise Failed(
            f"{path} is no project: there is no index.json and no conversations/index.json"
        )


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
        self._sizes = [(path, max(size_of(path), 1)) for path in files]
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
