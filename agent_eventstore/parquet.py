"""A copy of the log and its views as Parquet files, for engines that analyse many conversations.

The directory has one folder for the events and one for each view, and can be queried with DuckDB,
Spark or any other engine that reads Parquet. Exporting into it again adds the events since, writes
the views anew, and removes from older files what was erased or purged since.

``eventstore.json`` says how far the copy is, and is replaced as the last step of each change: an
export that is killed continues where it was, and no event comes twice. Needs the extra ``parquet``.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from sqlalchemy import func, select

from agent_eventstore.documents import json_bytes
from agent_eventstore.errors import ParquetRefused
from eventstore import ArchivedConversation, EventStore, RecordedEvent
from eventstore.database import escape, metadata_for, store_id_of
from eventstore.erasure.bill import is_unreadable
from eventstore.errors import ConversationArchived, ErrorType, EventStoreError, Traceback
from eventstore.events import Erasure
from eventstore.events.codec import encode
from projections import PROJECTIONS, ProjectionSet, ReadTable, Views

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise ImportError("Parquet needs the extra: pip install 'agent-eventstore[parquet]'") from error

__all__ = ["ParquetReport", "export_parquet"]

_EVENTS = "events"
_STATE = "eventstore.json"
_LOCK = "eventstore.lock"
_NEW = ".new"
_FILE = re.compile(r"\d{8}\.parquet(\.new)?")
_FORMAT = 1
_NOT_EXPORTED = {"context", "search"}
"""Projections whose tables repeat what the events say, for requests and for the search."""

_ROWS_IN_FILE = 1_000_000
_ROWS_IN_GROUP = 50_000
_CHARACTERS_IN_GROUP = 32_000_000
_PAGE = 1_000

_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {
    "text": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": _TIME,
}
_ID = ("conversation_id", "text")
_CONVERSATIONS = (
    _ID,
    ("version", "integer"),
    ("tenant_id", "text"),
    ("user_id", "text"),
    ("key", "text"),
    ("created_at", "timestamp"),
    ("last_active_at", "timestamp"),
    ("parent_conversation_id", "text"),
    ("parent_version", "integer"),
)
_EVENT_SCHEMA = pa.schema(
    [
        pa.field("conversation_id", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
        pa.field("recorded_at", _TIME, nullable=False),
        pa.field("occurred_at", _TIME, nullable=False),
        pa.field("erased", pa.bool_(), nullable=False),
        pa.field("data", pa.string()),
        pa.field("meta", pa.string(), nullable=False),
    ]
)


@dataclass(slots=True)
class ParquetReport:
    """What an export has written.

    Attributes:
        events: The events added since the last export.
        rewritten: The files of events from which something erased or purged was removed.
        passed: The events that can never be read again, most often because their key is lost.
        rows: The rows of each view.
    """

    events: int = 0
    rewritten: int = 0
    passed: int = 0
    rows: dict[str, int] = field(default_factory=dict)


Progress = Callable[[ParquetReport], None]
"""Called with the report so far."""


def export_parquet(
    store: EventStore,
    directory: Path,
    *,
    projections: ProjectionSet = PROJECTIONS,
    on_progress: Progress = lambda _: None,
) -> ParquetReport:
    """Write the events and views of a whole store into a directory, or bring the copy up to date.

    Reads in pages and snapshots of its own, so events that are appended meanwhile may or may not be
    there. What is erased or purged stays in the copy until the next export.

    Args:
        store: The store; it must not be bound to an owner.
        directory: A new or empty directory, or one that this function has written before.
        projections: The projections to export, including the product's own, if any.
        on_progress: Called with the report so far.

    Raises:
        ParquetRefused: The directory holds something else, or the copy of another store.
        OwnerMismatch: The store is bound to one owner.
        InvalidCursor: The log has been restored to an older state: export to a new directory.
    """
    report = ParquetReport()
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        made = _Copy(store, directory)
        made.add_events(report, on_progress)
        made.remove_erased(report)
        made.write_conversations(report)
        views = Views(store, projections)
        for projection in projections:
            if projection.name not in _NOT_EXPORTED:
                for table in projection.tables:
                    made.write_view(views, table, report)
                    on_progress(report)
    return report


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Refuse a second export into the directory; a process that dies ends its own."""
    # SQLite's lock on a file works on every system, and ends with its process.
    with closing(sqlite3.connect(directory / _LOCK, timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise ParquetRefused(directory, f"another export may be running: {error}") from error
        yield


class _Copy:
    """A directory with a copy, and how far it is.

    New content of a file has another name until ``eventstore.json`` says that it counts.
    """

    def __init__(self, store: EventStore, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._state_file = directory / _STATE
        with store.reading() as connection:
            store_id = str(store_id_of(connection))
        self._state: dict[str, Any] = {
            "format": _FORMAT,
            "store_id": store_id,
            "cursor": None,
            "files": [],
            "replaced": [],
            "stale": [],
            "purges": 0,
            "archived": [],
        }
        if self._state_file.exists():
            found = json.loads(self._state_file.read_text("utf-8"))
            if found.get("format") != _FORMAT or found.get("store_id") != store_id:
                raise ParquetRefused(directory, "it has an export of another store or version")
            self._state = found
        elif any(not path.name.startswith((_LOCK, _STATE)) for path in directory.iterdir()):
            raise ParquetRefused(directory, "it is not empty, and has no earlier export")
        else:
            self._save()
        (directory / _EVENTS).mkdir(exist_ok=True)
        self._settle()
        for path in (directory / _EVENTS).iterdir():
            if _FILE.fullmatch(path.name) and path.name not in self._state["files"]:
                path.unlink()  # a killed export had not completed it

    def add_events(self, report: ParquetReport, on_progress: Progress) -> None:
        """Add what the feed has after the cursor, in files of a limited size."""
        stale = {*self._state["stale"]}
        cursor: str | None = self._state["cursor"]
        is_end = False
        while not is_end:
            name = f"{int((self._state['files'] or ['0'])[-1].split('.')[0]) + 1:08}.parquet"
            with _Writer(self._path(name, _NEW), _EVENT_SCHEMA) as writer:
                while writer.rows < _ROWS_IN_FILE:
                    page = self._store.read_all(after=cursor, limit=_PAGE)
                    is_end, cursor = page.cursor == cursor, page.cursor
                    if is_end:
                        break
                    for event in page:
                        if isinstance(event.data, Erasure):
                            stale.add(str(event.conversation_id))
                        writer.add(_event_row(event))
                    report.events += len(page)
                    report.passed += sum(each.count for each in page.passed)
                    on_progress(report)
            self._state.update(cursor=cursor, stale=sorted(stale))
            if writer.rows:
                self._commit([name])
            else:
                self._path(name, _NEW).unlink()
                self._save()

    def remove_erased(self, report: ParquetReport) -> None:
        """Write files anew whose content was erased or purged; what was only archived stays.

        Of a conversation that has been restored, newer files have all events.
        """
        stale, purged, count = {*self._state["stale"]}, set[str](), self._state["purges"]
        now = {str(each.conversation_id): each for each in self._archived()}
        before = {*self._state["archived"]}
        stale.update(before - now.keys())
        # What was erased of them since the last export, nothing here says any more.
        stale.update(each for each in now.keys() - before if now[each].erasure_count)
        with self._store.reading() as connection:
            purges = metadata_for(connection.dialect.name).tables["purges"].c
            if (
                total := connection.execute(select(func.count(purges.purge_id))).scalar_one()
            ) != count:
                ids = connection.execute(select(purges.conversation_id)).scalars()
                purged = {str(each) for each in ids}
        if affected := pa.array(sorted(stale | (purged - now.keys())), pa.string()):
            for name in [*self._state["files"]]:
                ids = pq.read_table(self._path(name), columns=["conversation_id"])
                if pc.any(pc.is_in(ids["conversation_id"], affected)).as_py():
                    self._rewrite(name, affected, report)
                    report.rewritten += 1
        self._state.update(stale=[], purges=total, archived=sorted(now))
        self._save()

    def _archived(self) -> Iterator[ArchivedConversation]:
        after: UUID | None = None
        while page := self._store.archived(after=after, limit=_PAGE):
            yield from page
            after = page[-1].conversation_id

    def _rewrite(self, name: str, affected: pa.Array, report: ParquetReport) -> None:
        with (
            pq.ParquetFile(self._path(name)) as file,
            _Writer(self._path(name, _NEW), _EVENT_SCHEMA) as writer,
        ):
            for number in range(file.num_row_groups):
                group = file.read_row_group(number)
                theirs = pc.is_in(group["conversation_id"], affected)
                writer.add_table(group.filter(pc.invert(theirs)))
                for row in self._as_now(group.filter(theirs), report):
                    writer.add(row)
        if writer.rows:
            self._commit([name])
        else:
            self._path(name, _NEW).unlink()
            self._state["files"].remove(name)
            self._save()
            self._path(name).unlink()

    def _as_now(self, rows: pa.Table, report: ParquetReport) -> Iterator[tuple[Any, ...]]:
        """Yield what the store has of these rows, without what can never be read again."""
        wanted: dict[str, dict[int, int]] = {}
        for row in rows.select(["conversation_id", "version", "position"]).to_pylist():
            wanted.setdefault(row["conversation_id"], {})[row["version"]] = row["position"]
        for conversation_id, positions in wanted.items():
            for version, position in positions.items():
                # One by one: an event that cannot be read would take its neighbours with it.
                try:
                    found = [*self._store.read(UUID(conversation_id), after=version - 1, limit=1)]
                except ConversationArchived:
                    break  # It was erased before that: when it is restored, it comes again.
                except EventStoreError as error:
                    if not is_unreadable(error):
                        raise
                    report.passed += 1
                    continue
                yield from (_event_row(each) for each in found if each.position == position)

    def write_conversations(self, report: ParquetReport) -> None:
        """Replace the copy of the list of conversations, with their owners and keys."""

        def pages() -> Iterator[list[dict[str, Any]]]:
            after: UUID | None = None
            while page := self._store.list(after=after, limit=_PAGE):
                yield [{name: getattr(each, name) for name, _ in _CONVERSATIONS} for each in page]
                after = page[-1].conversation_id

        self._write_table("conversations", _CONVERSATIONS, pages(), report)

    def write_view(self, views: Views, table: ReadTable, report: ParquetReport) -> None:
        """Replace the copy of a view."""
        columns = (_ID, *((each.name, each.type) for each in table.columns))
        write = partial(self._write_table, table.name, columns, report=report)
        views.read_batches(table.name, write, size=_PAGE)

    def _write_table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]],
        batches: Iterable[list[dict[str, Any]]],
        report: ParquetReport,
    ) -> None:
        schema = pa.schema([pa.field(column, _TYPES[kind]) for column, kind in columns])
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.parquet"
        new = path.with_name(path.name + _NEW)
        with _Writer(new, schema) as writer:
            for batch in batches:
                for row in batch:
                    writer.add(tuple(_value(kind, row[column]) for column, kind in columns))
        report.rows[name] = writer.rows
        new.replace(path)

    def _commit(self, names: Sequence[str]) -> None:
        """Let the new content of these files count."""
        self._state["files"] = sorted({*self._state["files"], *names})
        self._state["replaced"] = [*names]
        self._save()
        self._settle()

    def _settle(self) -> None:
        for name in self._state["replaced"]:
            new = self._path(name, _NEW)
            if new.exists():
                new.replace(self._path(name))
        if self._state["replaced"]:
            self._state["replaced"] = []
            self._save()

    def _save(self) -> None:
        new = self._state_file.with_name(_STATE + _NEW)
        with new.open("w", encoding="utf-8") as file:
            json.dump(self._state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state_file)

    def _path(self, name: str, suffix: str = "") -> Path:
        return self._directory / _EVENTS / (name + suffix)


class _Writer:
    """A Parquet file, written in groups of rows of a limited size."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._path = path
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._size = 0

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a row; its values are in the order of the columns."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
            if isinstance(value, str):
                self._size += len(value)
        self.rows += 1
        if len(self._columns[0]) >= _ROWS_IN_GROUP or self._size >= _CHARACTERS_IN_GROUP:
            self._flush()

    def add_table(self, table: pa.Table) -> None:
        """Add rows as another file had them."""
        if table.num_rows:
            self._writer.write_table(table)
            self.rows += table.num_rows

    def _flush(self) -> None:
        if self._columns[0]:
            arrays = [
                pa.array(values, each.type)
                for values, each in zip(self._columns, self._schema, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._columns, self._size = [[] for _ in self._schema], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Complete the file, and wait until it is on disk."""
        if error is None:
            self._flush()
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


def _event_row(event: RecordedEvent) -> tuple[Any, ...]:
    return (
        str(event.conversation_id),
        event.version,
        str(event.event_id),
        event.position,
        event.type,
        event.schema_version,
        event.recorded_at,
        event.occurred_at,
        event.erased,
        None if event.data is None else encode(event.data),
        json_bytes(event.meta.model_dump(mode="json", exclude_none=True)).decode(),
    )


def _value(kind: str, value: Any) -> Any:
    """Return a view's value as its column holds it; text as SQL shows it."""
    if value is None or kind in ("integer", "float", "boolean", "timestamp"):
        return value
    return json_bytes(value).decode() if kind == "json" else escape(str(value))
