"""Foreign transcripts to events, and conversations to foreign formats.

::

    found = read_transcripts(Path("conversations.json"))
    report = load(store, found)
    print(report.conversations, report.events_added, report.failures)

Reading is pure, and the same content is the same conversation: loading a file again adds nothing,
and loading one that has grown adds its tail. A record that cannot be read is an `ImportFailed`
among the transcripts, in its place. A coding agent's session file is read while it is loaded, and
never held in memory: its transcript has a ``stream`` instead of events.

`WRITTEN` names the formats for export.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from agent_eventstore.errors import ImportFailed
from agent_eventstore.transcripts import (
    agent_dumps,
    aider,
    atif,
    chat_exports,
    chat_jsonl,
    chatgpt,
    claude_code,
    cline,
    codex,
    copilot_cli,
    cursor,
    gemini_cli,
    inspect_log,
    langchain_dump,
    openai_messages,
    opencode,
    openhands,
    pi,
    project,
    project_messages,
    session_import,
    sharegpt,
    ui_messages,
    vscode_chat,
)
from agent_eventstore.transcripts.coverage import Coverage, coverage_of
from agent_eventstore.transcripts.loader import ImportReport, load
from agent_eventstore.transcripts.openai_messages import export_openai
from agent_eventstore.transcripts.otlp import export_otlp
from agent_eventstore.transcripts.project import ProjectReport, export_project
from agent_eventstore.transcripts.project_messages import (
    export_messages_json,
    export_messages_jsonl,
)
from agent_eventstore.transcripts.record_source import Record, Source
from agent_eventstore.transcripts.session_export import export_session_jsonl
from agent_eventstore.transcripts.transcript import Transcript
from agent_eventstore.transcripts.ui_messages import export_ui_messages
from eventstore.telemetry.log import get_logger

__all__ = [
    "ENTRY_POINTS",
    "FORMATS",
    "PROJECT",
    "SESSIONS",
    "WRITTEN",
    "Coverage",
    "ImportReport",
    "ProjectReport",
    "Transcript",
    "coverage",
    "detect",
    "export_messages_json",
    "export_messages_jsonl",
    "export_openai",
    "export_otlp",
    "export_project",
    "export_session_jsonl",
    "export_ui_messages",
    "formats",
    "is_project",
    "load",
    "read_transcripts",
    "sessions_in",
    "size_of",
]


_CHAT_EXPORTS = (chat_exports.CLAUDE_AI, chat_exports.LIBRECHAT, chat_exports.OPEN_WEBUI)
_AGENT_DUMPS = (
    *(agent_dumps.PYDANTIC_AI, agent_dumps.ADK),
    *(agent_dumps.AI_STUDIO, agent_dumps.TAU2_BENCH),
)
_READERS: dict[str, Any] = {
    reader.FORMAT: reader
    for reader in (
        session_import,
        project_messages,
        openai_messages,
        chat_jsonl,
        claude_code,
        codex,
        ui_messages,
        chatgpt,
        sharegpt,
        langchain_dump,
        openhands,
        atif,
        inspect_log,
        copilot_cli,
        cursor,
        gemini_cli,
        opencode,
        pi,
        vscode_chat,
        aider,
        cline,
        *_CHAT_EXPORTS,
        *_AGENT_DUMPS,
    )
}

_TELLING = (
    *_CHAT_EXPORTS,
    *_AGENT_DUMPS,
    cursor,
    claude_code,
    codex,
    copilot_cli,
    gemini_cli,
    opencode,
    pi,
    vscode_chat,
    aider,
    cline,
    chatgpt,
    sharegpt,
    langchain_dump,
    openhands,
    atif,
    inspect_log,
    ui_messages,
    session_import,
)
"""Readers of formats that a single record identifies, whatever surrounds it."""

WRITTEN = (
    "openai",
    "session-jsonl",
    "messages-json",
    "messages-jsonl",
    "ui-messages",
    "otlp-json",
    "project",
)
"""The names of the formats for export."""

_READ = (
    *("claude-code", "codex", "copilot-cli", "gemini-cli", "opencode", "pi", "chatgpt", "sharegpt"),
    *("langchain", "openhands", "atif", "inspect", "claude-ai", "librechat", "open-webui"),
    *("pydantic-ai", "google-adk", "ai-studio", "tau2-bench", "vscode-copilot", "aider", "cline"),
    "cursor",
)

FORMATS = (*WRITTEN[:-2], *_READ, WRITTEN[-1])
"""The names of the formats for import; a ``project`` is a directory, the others are files."""


_OWN = ("session-jsonl", "messages-json", "messages-jsonl", "project")

ENTRY_POINTS = "agent_eventstore.transcripts"
"""The group in which other packages register readers, each under the name of its format.

A reader has ``recognises(value)``, which looks at one JSON value of a file, and ``read(source)``,
which yields `Transcript`s and `ImportFailed`s; a module with both will do.
"""

_log = get_logger("transcripts")


@cache
def _registered() -> dict[str, Any]:
    """Return the readers of other packages; one that cannot be imported is logged and left out."""
    found: dict[str, Any] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            if entry.name in FORMATS:
                raise ValueError("the format has a reader in agent_eventstore")
            found[entry.name] = entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            _log.warning("entry_point_failed", name=entry.name, value=entry.value, error=reason)
    return found


def formats() -> tuple[str, ...]:
    """Return the names of the formats for import: `FORMATS`, then those of other packages."""
    return (*FORMATS, *_registered())


def _reader_of(name: str) -> Any:
    return _READERS.get(name) or _registered()[name]


PROJECT = project.FORMAT
"""The format that is a directory."""


SESSIONS = tuple(
    reader.FORMAT for reader in _TELLING if reader not in (sharegpt, ui_messages, session_import)
)
"""The formats whose files can be found in a directory: a single record identifies each."""


def sessions_in(directory: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of sessions and exports below a directory, and the others, each sorted.

    The others are JSON files that hold none of `SESSIONS`, and compressed ones. The messages of a
    session of OpenCode, each of which is a file, are neither. Links to directories are not
    followed, and what disappears meanwhile is in neither list.

    Raises:
        OSError: A directory cannot be listed.
    """

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or not directory.exists():
            raise error

    found: list[Path] = []
    others: list[Path] = []
    for at, _, names in os.walk(directory, onerror=fail):
        for path in (Path(at, name) for name in names if _is_named_so(name)):
            (found if _is_session(path) else others).append(path)
    storages = {opencode.storage_of(path) for path in found} - {None}
    beside = {each / name for each in storages if each for name in ("message", "part")}
    others = [each for each in others if each.absolute().parent.parent not in beside]
    return sorted(found), sorted(others)


def _is_named_so(name: str) -> bool:
    """Whether a file may be a session or an export by its name."""
    named = not {".json", ".jsonl", ".eval"}.isdisjoint(Path(name).suffixes)
    return named or name == aider.FILE


def _is_session(path: Path) -> bool:
    try:
        return path.is_file() and detect(path) in SESSIONS
    except (ImportFailed, OSError):
        return False


def is_project(path: Path) -> bool:
    """Whether a directory is a project, that is, contains an index."""
    return project.root_of(path) is not None


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, or of a project's files together."""
    return sum(f.stat().st_size for f in (project.files_of(path) if path.is_dir() else [path]))


def detect(path: Path) -> str:
    """Return the name of a file's format, by its content alone; a directory is a ``project``.

    Raises:
        ImportFailed: The content does not identify a format, perhaps because none of it can be
            read; name the format.
    """
    if path.is_dir():
        return project.FORMAT
    if inspect_log.is_archive(path):
        return inspect_log.FORMAT
    if aider.is_history(path):
        return aider.FORMAT
    source = Source(path)
    source.require_text()
    if cline.is_task(path) or cline.is_marked(source):
        return cline.FORMAT
    by_line = source.is_lines() or not source.is_array()
    for value in source.first_values():
        for reader in _TELLING:
            if reader.recognises(value):
                return str(reader.FORMAT)
        for name, other in _registered().items():
            if other.recognises(value):
                return name
        if any(map(ui_messages.has_invocations, source.first_values())):
            return ui_messages.FORMAT
        if isinstance(value, list) or openai_messages.holder_of(value) is not None:
            return openai_messages.FORMAT
        if by_line and chat_jsonl.recognises(value):
            return chat_jsonl.FORMAT
        if project_messages.recognises(value):
            return project_messages.FORMAT
        if openai_messages.recognises(value):
            return openai_messages.FORMAT
    if not path.stat().st_size:
        raise source.failed(1, "the file is empty")
    first = next(source.records(), None)
    reason = f" ({first.reason})" if isinstance(first, ImportFailed) else ""
    names = f"{', '.join(FORMATS[:-2])} or {FORMATS[-2]}"
    raise source.failed(1, f"the format cannot be detected{reason}: name the format: {names}")


def read_transcripts(
    path: Path | str,
    format_name: str | None = None,
    *,
    on_read: Callable[[float], None] | None = None,
    force: bool = False,
) -> Iterator[Transcript | ImportFailed]:
    """Iterate over a file's conversations, and over reports of its bad records, in file order.

    A file of another program of which less than half is understood yields only a failure, which
    says how much is, and the formats of which it is.

    Args:
        path: The file, or the directory of a project.
        format_name: One of `formats`; by default it is detected from the content.
        on_read: Called with the share of the file that has been read, from 0.0 to 1.0.
        force: Read a file all the same of which less than half is understood.

    Raises:
        ValueError: The format does not exist.
    """
    if format_name is not None and format_name not in formats():
        raise ValueError(f"{format_name!r} is not a format: choose {' or '.join(formats())}")
    return _read(Path(path), format_name, on_read, force=force)


def coverage(path: Path, format_name: str | None = None) -> Coverage | None:
    """Return how much of a file a reader understands; None if it is this package's or not JSON.

    Raises:
        ImportFailed: The file, or its format, cannot be read.
        OSError: Likewise.
    """
    name = format_name or detect(path)
    if name in (*_OWN, aider.FORMAT) or (
        name == inspect_log.FORMAT and inspect_log.is_archive(path)
    ):
        return None
    values = (each.value for each in Source(path).records() if isinstance(each, Record))
    return coverage_of(values, _reader_of(name).read(Source(path)))


def _require_certain(path: Path, name: str) -> None:
    found = coverage(path, name)
    if found is None or found.is_certain or not found.conversations:
        return  # What the reader refuses itself, it says better.
    better = [
        each
        for each in _READERS
        if each not in (name, *_OWN, aider.FORMAT) and _is_certain(path, each)
    ]
    advice = f"name another format ({', '.join(better)})" if better else "no format fits better"
    raise ImportFailed(
        str(path), None, f"as {name}, {found}; {advice}, or --force to import it all the same"
    )


def _is_certain(path: Path, name: str) -> bool:
    try:
        found = coverage(path, name)
    except (ImportFailed, OSError):
        return False
    return found is not None and found.messages > 1 and found.is_certain


def _read(
    path: Path,
    format_name: str | None,
    on_read: Callable[[float], None] | None,
    *,
    force: bool,
) -> Iterator[Transcript | ImportFailed]:
    try:
        name = format_name or detect(path)
        if name == project.FORMAT:
            yield from project.read(path, on_read)
        else:
            source = Source(path, on_read)
            if name != inspect_log.FORMAT or not inspect_log.is_archive(path):
                source.require_text()
            if not force:
                _require_certain(path, name)
            yield from _reader_of(name).read(source)
    except ImportFailed as failure:
        yield failure
    except OSError as error:
        yield ImportFailed(str(path), None, f"the file cannot be read: {error.strerror or error}")
