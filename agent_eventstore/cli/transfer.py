"""``eventstore import`` and ``eventstore export``: other formats to events, and back.

Both handle single files and whole projects.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Event
from typing import Any
from uuid import UUID

import click

from agent_eventstore import transcripts
from agent_eventstore.cli.console import (
    Meter,
    cell,
    count,
    fixed,
    grid,
    note,
    number,
    plural,
    print_document,
    progress_bar,
    say,
    stdout,
    write_json,
)
from agent_eventstore.cli.options import (
    InputFile,
    OutputPath,
    common,
    find_conversation,
    json_option,
)
from agent_eventstore.cli.program import NAME, Failed, found_something, require_server
from agent_eventstore.cli.target import Target
from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import ImportReport, Transcript, load, read_transcripts, size_of
from agent_eventstore.transcripts.archives import is_archive, unpack
from agent_eventstore.transcripts.left_out import LeftOut
from agent_eventstore.transcripts.openai_parts import known
from agent_eventstore.transcripts.project import json_text
from eventstore import EventStore, redact_secrets
from eventstore.database import count_events
from eventstore.errors import InvalidCursor
from eventstore.events.codec import dumps
from eventstore.ids import to_owner

__all__ = ["export", "import_files"]

_PROJECT, _SPANS = "project", "otlp-json"
_PAGE, _NAMED = 500, 5
_LOOK_EVERY_S = 2.0
_PAGE_FORMAT, _TABLES = "html", "parquet"


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
    type=click.Choice(transcripts.formats()),
    help="The format; by default it is detected.",
)
@click.option("--strict", is_flag=True, help="Stop at the first bad record.")
@click.option(
    "--force", is_flag=True, help="Import files too of which less than half is understood."
)
@click.option(
    "--dry-run", is_flag=True, help="Show what would be imported, and how much is understood."
)
@click.option(
    "--watch",
    is_flag=True,
    help="Go on: import what files gain, and new files, until Ctrl-C.",
)
@click.option("--tenant-id", metavar="ID", help="The tenant that the conversations belong to.")
@click.option(
    "--redact",
    type=click.Choice(["default"]),
    help="Replace keys, passwords and tokens with marks before storing.",
)
@click.option("--user-id", metavar="ID", help="The user that the conversations belong to.")
@json_option
@common
def import_files(
    target: Target,
    files: tuple[Path, ...],
    format_name: str | None,
    strict: bool,
    force: bool,
    dry_run: bool,
    watch: bool,
    tenant_id: str | None,
    user_id: str | None,
    redact: str | None,
    as_json: bool,
) -> None:
    """Add the conversations of transcripts and projects.

    A FILE may be a directory: a project or its conversations directory, with an index.json; or one
    that contains session files of coding agents or exports of chat programs, at any depth, each
    read by its own format. It may be a zip archive, whose JSON files are read.

    Existing content is left unchanged, so a file can be imported again, also after it has grown. A
    bad record is reported with file and line, and the import continues; the exit status is then 1.
    Records that became no event, or are kept but not understood, are counted by kind.

    Nothing is imported of a file of which less than half is understood: it may be of another
    program. The report says how much is, and the formats of which more is.

    With --watch the import goes on with what the files gain, looking every two seconds; a line that
    is not complete yet is read when it is.
    """
    if watch and dry_run:
        raise Failed("--watch imports, --dry-run does not: choose one")
    paths = files
    scratch = Path(click.get_current_context().with_resource(TemporaryDirectory()))
    files = tuple(file for path in files for file in _files_of(path, format_name, scratch))
    if dry_run:
        _tell_of(files, format_name, force=force, as_json=as_json)
        return
    named = {"tenant_id": tenant_id, "user_id": user_id}
    owner = known({name: to_owner(name, value) for name, value in named.items()})
    redactor = redact_secrets if redact else None
    with target.create(redactor) as store, progress_bar("importing") as meter:
        reading = _Reading(files, format_name, meter, force=force)
        transcripts = (_owned(found, owner) for found in reading)
        try:
            report = load(store, transcripts, on_progress=reading.loaded, strict=strict)
        except ImportFailed as failure:
            report = reading.report
            report.fail(failure)
        if watch:
            _tell(report, reading.tallies, as_json=as_json)
            _watch(store, paths, files, format_name, owner, scratch, force=force, as_json=as_json)
            return
    _tell(report, reading.tallies, as_json=as_json)
    if report.failed:
        found_something()


def _watch(
    store: EventStore,
    paths: Sequence[Path],
    files: Sequence[Path],
    format_name: str | None,
    owner: dict[str, Any],
    scratch: Path,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Import what files have gained, again and again, until an interrupt."""
    ended, failures = Event(), dict[Path, list[str]]()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    seen = {path: _state(path) for path in files}
    note("watching for changes; Ctrl-C ends it")
    while not ended.wait(_LOOK_EVERY_S):
        changed = list[Path]()
        for path in paths:
            try:
                found = _files_of(path, format_name, scratch, quiet=True)
            except Failed:
                continue  # gone, or empty for now
            changed += [each for each in found if seen.get(each) != _state(each)]
        for path in changed:
            seen[path] = _state(path)
            read = read_transcripts(path, format_name, force=force)
            try:
                report = load(store, (_owned(each, owner) for each in read))
            except (ImportFailed, OSError) as error:
                report = ImportReport()
                reasons = [str(error)]
            else:
                reasons = [str(each) for each in report.failures]
            if report.events_added:
                added = {"file": str(path), "events_added": report.events_added}
                if as_json:
                    print_document(added)
                else:
                    say(f"{path}: {plural(report.events_added, 'new event')}")
            # A line that is being written is complete next time.
            for reason in reasons:
                if reason in failures.get(path, ()):
                    note(reason, "red")
            failures[path] = reasons
    for reason in (reason for each in failures.values() for reason in each):
        note(reason, "red")


def _state(path: Path) -> tuple[int, int] | None:
    """Return a file's size and time; None if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _tell_of(files: Sequence[Path], format_name: str | None, *, force: bool, as_json: bool) -> None:
    """Say of each file what would be imported; reads only."""
    documents, failed = [], 0
    for path in files:
        left, conversations, events = LeftOut(), 0, 0
        failures: list[str] = []
        try:
            name = format_name or transcripts.detect(path)
            found = transcripts.coverage(path, name)
        except (ImportFailed, OSError) as error:
            name, found = format_name or "unknown", None
            failures.append(str(error))
        for item in [] if failures else read_transcripts(path, name, force=force):
            if isinstance(item, ImportFailed):
                failures.append(str(item))
                continue
            conversations += 1
            for event in item.events if item.stream is None else item.stream.read({}):
                if isinstance(event, ImportFailed):
                    failures.append(str(event))
                else:
                    events += 1
                    left.note_event(event.data)
            left += item.left_out if item.stream is None else item.stream.left_out
        failed += len(failures)
        documents.append(
            {
                "file": str(path),
                "format": name,
                "understood": None if found is None else str(found),
                "conversations": conversations,
                "events": events,
                "passed_over": dict(left.passed_over),
                "not_understood": dict(left.unknown),
                "uninterpreted": dict(left.uninterpreted),
                "failures": failures,
            }
        )
        if not as_json:
            say(
                f"{path}: {name}, {plural(conversations, 'conversation')} "
                f"({plural(events, 'event')})" + ("" if found is None else f"; {found}")
            )
            for failure in failures:
                note(failure, "red")
            _tell_of_rest(left)
    if as_json:
        print_document({"files": documents})
    if failed:
        found_something()


def _files_of(
    path: Path, format_name: str | None, scratch: Path, *, quiet: bool = False
) -> list[Path]:
    """Return the files to read: the path itself, or the session files below it or in it."""
    if is_archive(path):
        if quiet:
            return []  # An archive does not grow.
        try:
            return unpack(path, Path(mkdtemp(dir=scratch)))
        except ImportFailed as error:
            raise Failed(str(error)) from error
    is_project = transcripts.is_project(path)
    no_project = f"{path} is not a project (there is no index.json and no conversations/index.json)"
    if format_name == _PROJECT and not is_project:
        raise Failed(no_project)
    if not path.is_dir() or (is_project and format_name in (None, _PROJECT)):
        return [path]
    if format_name not in (None, *transcripts.SESSIONS):
        readable = f"{', '.join(transcripts.SESSIONS)} and {_PROJECT}"
        raise Failed(f"{path} is a directory: only --format {readable} read directories")
    found, others = transcripts.sessions_in(path)
    if not found:
        readable = ", ".join(transcripts.SESSIONS)
        raise Failed(f"{no_project}, and no file of {readable} is below it")
    if others and not quiet:
        named = ", ".join(str(each.relative_to(path)) for each in others[:_NAMED])
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        note(
            f"skipped: {plural(len(others), 'file')} without a session ({named}{more})",
            "yellow",
        )
    return found


def _weight(path: Path) -> int:
    """Return a file's share of the progress; whether it can be read is said when it is read."""
    try:
        return max(size_of(path), 1)
    except OSError:
        return 1


def _owned(found: Transcript | ImportFailed, owner: dict[str, Any]) -> Transcript | ImportFailed:
    return replace(found, **owner) if owner and isinstance(found, Transcript) else found


@dataclass(slots=True)
class _Tally:
    """What the files of one format held, and what was refused."""

    files: int = 0
    conversations: int = 0
    events_added: int = 0
    passed_over: int = 0
    refused: int = 0


class _Reading:
    """The conversations of several files, and the progress of their import."""

    def __init__(
        self, files: tuple[Path, ...], format_name: str | None, meter: Meter, *, force: bool
    ) -> None:
        self.report = ImportReport()
        self._force = force
        self._format = format_name
        self._meter = meter
        self._sizes = [(path, _weight(path)) for path in files]
        self._total = sum(size for _, size in self._sizes)
        self._read = 0.0
        self.tallies: dict[str, _Tally] = {}

    def __iter__(self) -> Iterator[Transcript | ImportFailed]:
        before = 0
        for path, size in self._sizes:

            def at(share: float, before: int = before, size: int = size) -> None:
                self._read = before + share * size
                self._show()

            name = self._format or self._detected(path)
            tally = self.tallies.setdefault(name or "unknown", _Tally())
            tally.files += 1
            added, lines_left = self.report.events_added, self._lines_left()
            for found in read_transcripts(path, name, on_read=at, force=self._force):
                tally.refused += isinstance(found, ImportFailed)
                tally.conversations += isinstance(found, Transcript)
                yield found
            tally.events_added += self.report.events_added - added
            tally.passed_over += self._lines_left() - lines_left
            before += size

    def _lines_left(self) -> int:
        left = self.report.left_out
        return left.passed_over.total() + left.unknown.total()

    def _detected(self, path: Path) -> str | None:
        try:
            return transcripts.detect(path)
        except (ImportFailed, OSError):
            return None  # The reader says why.

    def loaded(self, report: ImportReport) -> None:
        """Update the report and the progress bar."""
        self.report = report
        self._show()

    def _show(self) -> None:
        self._meter.update(self._read, self._total, self.report.events_added)


def _tell(report: ImportReport, tallies: Mapping[str, _Tally], *, as_json: bool) -> None:
    for failure in report.failures:
        note(str(failure), "red")
    if more := report.failed - len(report.failures):
        note(f"and {plural(more, 'more failure')}", "red")
    left = report.left_out
    _tell_of_rest(left)
    if as_json:
        failures = [
            {"file": each.file, "line": each.line, "reason": each.reason}
            for each in report.failures
        ]
        counts = {
            "conversations": report.conversations,
            "events_added": report.events_added,
            "unchanged": report.unchanged,
            "passed_over": dict(left.passed_over),
            "not_understood": dict(left.unknown),
            "uninterpreted": dict(left.uninterpreted),
            "failed": report.failed,
        }
        by_format = {name: asdict(tally) for name, tally in tallies.items()}
        print_document({**counts, "formats": by_format, "failures": failures})
        return
    if sum(tally.files for tally in tallies.values()) > 1:
        columns = ("files", "conversations", "new events", "passed over", "refused")
        table = grid(fixed("format"), *map(number, columns))
        for name, tally in sorted(tallies.items()):
            table.add_row(cell(name), *map(count, astuple(tally)))
        stdout().print(table)
    summary = (
        f"imported {plural(report.conversations, 'conversation')} "
        f"({plural(report.events_added, 'event')}); {report.unchanged:,} unchanged"
    )
    if report.failed:
        summary = f"{summary}; {plural(report.failed, 'failure')}"
    say(summary)


def _tell_of_rest(left: LeftOut) -> None:
    for what, unit, counts_of in (
        ("passed over", "line", left.passed_over),
        ("not understood", "line", left.unknown),
        ("kept as it came, but not understood", "piece", left.uninterpreted),
    ):
        if counts_of:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts_of.items()))
            note(f"{what}: {plural(counts_of.total(), unit)} ({kinds})", "yellow")


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Export every conversation; only for a project and for parquet.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice([*transcripts.WRITTEN, _PAGE_FORMAT, _TABLES]),
    required=True,
    help="The format to write; html is a page to read, which needs the extra [server]; parquet is "
    "a copy of the events and views for analysis, which needs the extra [parquet].",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=OutputPath(),
    help="The output file, by default stdout (-); for a project and parquet a directory.",
)
@click.option(
    "--content/--no-content",
    default=None,
    help="For otlp-json, include message content or not; by default not, unless "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is true.",
)
@common
def export(
    target: Target,
    conversation: str | None,
    everything: bool,
    format_name: str,
    output: Path | None,
    content: bool | None,
) -> None:
    """Write conversations in another format.

    CID names one; --all exports every one, as a project or as parquet. A project is a directory
    with conversations/index.json and a messages.json for each conversation. Unreadable
    conversations are reported, and the export continues; the exit status is then 1. html is one
    file that a browser shows, with all that it needs in it.

    parquet is a directory with the events and each view. Exporting into it again adds what is new,
    and removes what was erased since.
    """
    _check(conversation, everything, format_name, output)
    if content is not None and format_name != _SPANS:
        raise Failed(f"--content and --no-content need --format {_SPANS}")
    if format_name == _PAGE_FORMAT:
        require_server("--format html")
    if format_name == _TABLES and find_spec("pyarrow") is None:
        needed = "pip install 'agent-eventstore[parquet]'"
        raise Failed(f"pyarrow is not installed: --format {_TABLES} needs the extra, {needed}")
    with target.open() as store:
        if format_name == _TABLES and output is not None:
            _export_tables(store, output)
            return
        named = None if conversation is None else find_conversation(store, conversation)
        if format_name == _PROJECT and output is not None:
            _export_project(store, output, named)
            return
        assert named is not None  # noqa: S101 - checked
        text = _exported(store, named, format_name, content)
    if output is None:
        write_json(text)
    else:
        _write(output, text)


def _write(path: Path, text: str) -> None:
    """Write a file atomically: on a full disk or an interrupt, the old content remains."""
    target = path.resolve()  # keep a link a link
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_text(text, encoding="utf-8", newline="\n")  # a pipe, a device
        return
    new = target.with_name(f".{NAME}-{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        if target.exists():
            shutil.copymode(target, new)
        new.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        new.unlink(missing_ok=True)


def _check(
    conversation: str | None, everything: bool, format_name: str, output: Path | None
) -> None:
    if (conversation is None) is not everything:
        raise Failed(f"name one conversation, or give --all with --format {_PROJECT} or {_TABLES}")
    if everything and format_name not in (_PROJECT, _TABLES):
        reason = "the other formats contain one conversation"
        raise Failed(f"--all needs --format {_PROJECT} or {_TABLES}: {reason}")
    if format_name == _TABLES and not everything:
        raise Failed(f"--format {_TABLES} contains all conversations: give --all")
    if format_name not in (_PROJECT, _TABLES):
        if output is not None and output.is_dir():
            raise Failed(f"{output} is a directory; name a file")
    elif output is None:
        raise Failed(f"--format {format_name} needs a directory: name it with -o")
    elif output.is_file():
        raise Failed(f"{output} is a file; --format {format_name} needs a directory")


def _export_tables(store: EventStore, directory: Path) -> None:
    from agent_eventstore.parquet import export_parquet

    with store.reading() as connection:
        total = count_events(connection)
    with progress_bar("exporting") as meter:
        try:
            report = export_parquet(
                store, directory, on_progress=lambda done: meter.update(done.events, total)
            )
        except InvalidCursor as error:
            raise Failed(f"{error}: export to a new directory") from error
    if report.passed:
        note(f"{plural(report.passed, 'event')} cannot be read: their keys are lost", "yellow")
    more = (
        f"; {plural(report.rewritten, 'file')} without what was erased" if report.rewritten else ""
    )
    say(
        f"exported {plural(report.events, 'new event')} and {plural(len(report.rows), 'view')} "
        f"({plural(sum(report.rows.values()), 'row')}) to {directory}{more}"
    )


def _export_project(store: EventStore, directory: Path, named: UUID | None) -> None:
    ids = _all(store) if named is None else [named]
    with progress_bar("exporting") as meter:
        try:
            report = transcripts.export_project(
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
    summary = f"exported {plural(report.conversations, 'conversation')} to {directory}"
    if report.failures:
        say(f"{summary}; {plural(len(report.failures), 'failure')}")
        found_something()
    say(summary)


def _all(store: EventStore) -> list[UUID]:
    """Return every conversation, oldest first, which restores an imported project's order."""
    found: list[tuple[datetime, UUID]] = []
    after: UUID | None = None
    while page := store.list(after=after, limit=_PAGE):
        found += [(info.created_at, info.conversation_id) for info in page]
        after = page[-1].conversation_id
    return [conversation_id for _, conversation_id in sorted(found)]


def _exported(
    store: EventStore, conversation_id: UUID, format_name: str, content: bool | None
) -> str:
    match format_name:
        case "html":
            from agent_eventstore.server.viewer.standalone import conversation_html

            return conversation_html(store, conversation_id)
        case "otlp-json":
            return json_text(transcripts.export_otlp(store, conversation_id, content=content))
        case "session-jsonl":
            lines = transcripts.export_session_jsonl(store, conversation_id)
        case "messages-jsonl":
            lines = transcripts.export_messages_jsonl(store, conversation_id)
        case "ui-messages":
            return json_text(transcripts.export_ui_messages(store, conversation_id))
        case "messages-json":
            return json_text(transcripts.export_messages_json(store, conversation_id))
        case _:
            return json_text(transcripts.export_openai(store, conversation_id))
    return "".join(f"{dumps(line)}\n" for line in lines)
