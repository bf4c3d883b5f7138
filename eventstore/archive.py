"""The archive: conversations that rest, as compressed files outside of the database.

A file holds all that the database has of one conversation: its row, its events with salts, digests
and chain values, blobs and erasures, one JSON document per line. It is written, read back, and only
then are the rows deleted, as a purge deletes them. Projected rows go too; a restored conversation
is folded again. Its title is in the file alone.

A row of ``archives`` says where the file is, and is written before it: whatever is killed, no file
is unknown to the database. Its states are ``writing``, ``archived`` and ``left`` (the conversation
is in the database, and the file is to be deleted). Files are read and written by fsspec, which
needs the extra ``archive``; it takes credentials from where each object store keeps them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import groupby
from typing import IO, Any
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from eventstore.erasure.erase import erase_projected, erasure_lock, lock_stream
from eventstore.erasure.purge import Purging, delete_rows
from eventstore.errors import (
    ArchiveFailed,
    ConversationNotFound,
    DatabaseBusy,
    EventStoreError,
    NotWritable,
    OwnerMismatch,
    StoreUnavailable,
)
from eventstore.ids import new_id
from eventstore.leases import lease_of
from eventstore.owners import ANY_OWNER, Owner
from eventstore.security.hash_chain import Problem
from eventstore.sql.backend import backend_of
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import ARCHIVED, descendants
from eventstore.sql.transactions import Transactions
from eventstore.sql.types import Id, Timestamp
from eventstore.sql.verify import verify_stream
from eventstore.telemetry.log import get_logger, masked

__all__ = [
    "TABLES_IN_FILE",
    "ArchiveReport",
    "ArchivedConversation",
    "archive_inactive",
    "archived",
    "discard_left",
    "leave_no_file",
    "restore",
    "restore_all",
    "verify_archive",
]

_log = get_logger("eventstore")

_FORMAT = 1
_FILE = re.compile(r"[0-9a-f-]{36}\.[0-9a-f-]{36}\.jsonl\.gz")
_PAGE = 500
_PAGES = {"events": ("version", _PAGE), "blobs": ("digest", 1)}
"""The tables that are read in pages: by which column, and how many rows at a time."""
_PIECE = 1 << 20  # bytes
_WRITING, _LEFT = "writing", "left"
_ABANDONED = timedelta(hours=1)  # after which a file that was begun has no writer
_MOST_FAILURES = 1_000
TABLES_IN_FILE = (
    "conversations",
    "events",
    "blobs",
    "erasures",
    "erased_versions",
    "import_sources",
)
"""What a file holds, in the order of insertion: row-level security needs the conversation first."""

_NOT_IN_FILE = frozenset({"position", "epoch", "tx_id"})
"""The events' place in the feed, which the database assigns again."""


@dataclass(frozen=True, slots=True)
class ArchivedConversation:
    """A conversation in the archive.

    Attributes:
        conversation_id: The conversation.
        url: Where its file is.
        digest: The SHA-256 of the file's bytes, in hexadecimal.
        size_bytes: The file's size.
        event_count: How many events are in it.
        erasure_count: How often something was erased from it.
        tenant_id: The conversation's tenant.
        user_id: The conversation's user.
        last_active_at: When its last event was recorded.
        archived_at: When it left the database.
    """

    conversation_id: UUID
    url: str
    digest: str
    size_bytes: int
    event_count: int
    erasure_count: int
    tenant_id: str | None
    user_id: str | None
    last_active_at: datetime
    archived_at: datetime


@dataclass(slots=True)
class ArchiveReport:
    """What `archive_inactive` has done so far.

    Attributes:
        conversations: How many conversations are in the archive now that were not before.
        events: How many events they have.
        size_bytes: The size of their files.
        left: Why other conversations that rest stay in the database, with how many.
        failed: How many could not be archived; they stay in the database.
        failures: The first 1,000 of them, each with the reason.
    """

    conversations: int = 0
    events: int = 0
    size_bytes: int = 0
    left: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    failures: list[tuple[UUID, str]] = field(default_factory=list)


def archive_inactive(
    store: Transactions,
    url: str,
    before: datetime,
    now: Callable[[], datetime],
    *,
    limit: int | None = None,
    on_progress: Callable[[ArchiveReport], None] = lambda _: None,
) -> ArchiveReport:
    """Archive the conversations without an event since a time; see `EventStore.archive`."""
    report = ArchiveReport()
    directory = _Directory(url)
    _tidy(store, now())
    for conversation_id in _inactive(store, before):
        if limit is not None and report.conversations >= limit:
            break
        try:
            done = _archive(store, directory, conversation_id, before, now)
        except _Stays as reason:
            report.left[str(reason)] += 1
        except EventStoreError as error:
            if isinstance(error, ArchiveFailed) and not error.is_file:
                raise  # The place itself cannot be used: neither could the next conversation.
            if isinstance(error, StoreUnavailable) and not isinstance(error, DatabaseBusy):
                raise
            report.failed += 1
            if len(report.failures) < _MOST_FAILURES:
                report.failures.append((conversation_id, str(error)))
        else:
            report.conversations += 1
            report.events += done.event_count
            report.size_bytes += done.size_bytes
        on_progress(report)
    return report


def archived(
    store: Transactions, owner: Owner = ANY_OWNER, *, after: UUID | None = None, limit: int = 100
) -> list[ArchivedConversation]:
    """Return the conversations in the archive, in order of id."""
    with store.reading() as connection:
        rows = _archives(connection).c
        query = _chosen(connection).where(rows.state == ARCHIVED)
        query = owner.limit(query, rows).order_by(rows.conversation_id).limit(limit)
        if after is not None:
            query = query.where(rows.conversation_id > after)
        return [ArchivedConversation(*row) for row in connection.execute(query)]


def restore(
    store: Transactions, conversation_id: UUID, owner: Owner = ANY_OWNER
) -> ArchivedConversation:
    """Bring a conversation back into the database; see `EventStore.restore`."""
    with store.reading() as connection:
        row = connection.execute(
            _chosen(connection).where(
                _archives(connection).c.conversation_id == conversation_id,
                _archives(connection).c.state == ARCHIVED,
            )
        ).first()
    if row is None:
        raise ConversationNotFound(conversation_id)
    found = ArchivedConversation(*row)
    if not owner.owns(found.tenant_id, found.user_id):
        raise OwnerMismatch(conversation_id)
    with _fetched(found) as file, store.writing() as connection:
        erasure_lock(connection, conversation_id, exclusive=True)
        rows = _archives(connection)
        own = (
            rows.c.conversation_id == conversation_id,
            rows.c.state == ARCHIVED,
            rows.c.url == found.url,
        )
        if connection.execute(update(rows).where(*own).values(state=_LEFT)).rowcount != 1:
            if connection.execute(select(rows.c.url).where(*own)).first() is None:
                return found  # Another process has restored it meanwhile.
            reason = "row-level security keeps this login from restoring: the tables' owner may"
            raise NotWritable(masked(connection.engine.url), reason)
        _insert(connection, found, file)
        _, problems = verify_stream(connection, conversation_id, Counter())
        if problems:
            raise _damaged(found.url, problems)
    try:
        discard_left(store, [conversation_id])
    except ArchiveFailed as error:
        # The conversation is back; its next erasure, or the next run, tries again.
        _log.warning("not deleted", url=found.url, why=str(error))
    return found


def restore_all(store: Transactions, owner: Owner) -> list[EventStoreError]:
    """Bring all archived conversations of an owner back; return why some stay in the archive."""
    failed: list[EventStoreError] = []
    after: UUID | None = None
    while page := archived(store, owner, after=after):
        for each in page:
            after = each.conversation_id
            try:
                restore(store, after)
            except EventStoreError as error:
                failed.append(error)
    return failed


def discard_left(store: Transactions, conversations: Sequence[UUID] | None = None) -> None:
    """Delete the files that hold what is in the database, or was when their writer died.

    Raises:
        ArchiveFailed: A file cannot be deleted; its row stays, and says where it is.
    """
    with store.reading() as connection:
        rows = _archives(connection).c
        query = select(rows.conversation_id, rows.url).where(rows.state == _LEFT)
        if conversations is not None:
            query = query.where(rows.conversation_id.in_(conversations))
        left = connection.execute(query).all()
    for conversation_id, url in left:
        _delete_file(url)
        _forget(store, conversation_id, url)


def leave_no_file(store: Transactions, conversations: Sequence[UUID]) -> None:
    """Delete all files of conversations that were erased, unfinished ones too.

    Raises:
        ArchiveFailed: See `discard_left`.
    """
    with store.reading() as connection:
        rows = _archives(connection).c
        query = select(rows.url).where(rows.conversation_id.in_(conversations))
        if connection.execute(query.limit(1)).first() is None:
            return
    with store.writing() as connection:
        _give_up(connection, _archives(connection).c.conversation_id.in_(conversations))
    discard_left(store, conversations)


def verify_archive(
    store: Transactions, *, progress: Callable[[int], None] = lambda _: None
) -> list[ArchiveFailed]:
    """Read every file of the archive; return the problems. See `EventStore.verify_archive`."""
    problems: list[ArchiveFailed] = []
    count, after = 0, None
    while page := archived(store, after=after):
        for each in page:
            after = each.conversation_id
            try:
                _read_back(each)
            except ArchiveFailed as error:
                problems.append(error)
            count += 1
            progress(count)
    return problems


class _Stays(Exception):
    """A conversation that rests, but is not archived; the text says why."""


class _Directory:
    """Where the files go: a directory, or any place that fsspec knows."""

    def __init__(self, url: str) -> None:
        self.system, self.path = _opened(url)
        try:
            self.system.makedirs(self.path, exist_ok=True)
        except Exception as error:
            raise ArchiveFailed(url, _reason(error)) from error

    def url_of(self, name: str) -> str:
        """Return the URL of a file, as it is stored: without a password."""
        return str(self.system.unstrip_protocol(f"{self.path.rstrip('/')}/{name}"))


def _opened(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        reason = "the archive needs the extra: pip install 'agent-eventstore[archive]'"
        raise ArchiveFailed(url, reason) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise ArchiveFailed(url, _reason(error)) from error
    return system, str(path)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _archives(connection: Connection) -> Table:
    return metadata_for(connection.dialect.name).tables["archives"]


def _chosen(connection: Connection) -> Any:
    columns = _archives(connection).c
    names = ArchivedConversation.__dataclass_fields__
    return select(*(columns[name] for name in names))


def _inactive(store: Transactions, before: datetime) -> Iterator[UUID]:
    after: UUID | None = None
    while True:
        with store.reading() as connection:
            streams = metadata_for(connection.dialect.name).tables["conversations"].c
            query = select(streams.conversation_id).where(streams.last_active_at < before)
            if after is not None:
                query = query.where(streams.conversation_id > after)
            query = query.order_by(streams.conversation_id).limit(_PAGE)
            page = connection.execute(query).scalars().all()
        if not page:
            return
        yield from page
        after = page[-1]


def _archive(
    store: Transactions,
    directory: _Directory,
    conversation_id: UUID,
    before: datetime,
    now: Callable[[], datetime],
) -> ArchivedConversation:
    """Archive one conversation; it stays as it was if anything fails."""
    url = directory.url_of(f"{conversation_id}.{new_id()}.jsonl.gz")
    _reserve(store, conversation_id, url, now())
    try:
        with store.reading(snapshot=True) as connection:
            state = _state_of(connection, conversation_id, before)
            count, problems = verify_stream(connection, conversation_id, Counter())
            if problems:
                raise _damaged(url, problems)
            digest, size = _write(connection, conversation_id, url)
        found = ArchivedConversation(
            conversation_id,
            url,
            digest,
            size,
            count,
            state.erasures,
            *state.owner,
            state.last_active_at,
            now(),
        )
        _read_back(found)
        with store.writing() as connection:
            lock_stream(connection, conversation_id)
            if _state_of(connection, conversation_id, before) != state:
                raise _Stays("changed meanwhile")
            _delete(connection, found)
    except BaseException:
        with suppress(EventStoreError):  # What cannot be deleted now is left to the next run.
            _abandon(store, conversation_id, url)
        raise
    return found


@dataclass(frozen=True, slots=True)
class _Rested:
    """What must not change between a conversation's file and its deletion."""

    version: int
    chain: bytes
    writer_epoch: int
    erasures: int
    owner: tuple[str | None, str | None]
    last_active_at: datetime


def _state_of(connection: Connection, conversation_id: UUID, before: datetime) -> _Rested:
    streams = metadata_for(connection.dialect.name).tables["conversations"].c
    query = select(
        streams.version,
        streams.chain,
        streams.writer_epoch,
        streams.tenant_id,
        streams.user_id,
        streams.last_active_at,
        streams.parent_conversation_id,
    )
    row = connection.execute(query.where(streams.conversation_id == conversation_id)).first()
    if row is None:
        raise _Stays("deleted meanwhile")
    version, chain, epoch, tenant_id, user_id, last_active_at, parent = row
    if last_active_at >= before:
        raise _Stays("changed meanwhile")
    if parent is not None or any(descendants(connection, conversation_id)):
        raise _Stays("shares events with a fork")
    lease = lease_of(connection, conversation_id)
    if lease is not None and lease.live:
        raise _Stays("open in a session")
    rows = metadata_for(connection.dialect.name).tables["erasures"].c
    erasures = select(func.count()).where(rows.conversation_id == conversation_id)
    return _Rested(
        int(version),
        bytes(chain),
        int(epoch),
        int(connection.execute(erasures).scalar_one()),
        (tenant_id, user_id),
        last_active_at,
    )


def _reserve(store: Transactions, conversation_id: UUID, url: str, at: datetime) -> None:
    """Say where the file will be, in a transaction of its own; take over what a dead writer left.

    Raises:
        _Stays: Another process is writing the conversation's file.
        ArchiveFailed: What was left cannot be deleted.
    """
    while True:
        with store.writing() as connection:
            rows = _archives(connection)
            erasure_lock(connection, conversation_id, exclusive=True)
            query = select(rows.c.state, rows.c.archived_at)
            left = connection.execute(
                query.where(rows.c.conversation_id == conversation_id)
            ).first()
            if left is None:
                connection.execute(
                    insert(rows).values(
                        conversation_id=conversation_id,
                        state=_WRITING,
                        url=url,
                        digest="",
                        size_bytes=0,
                        event_count=0,
                        erasure_count=0,
                        last_active_at=at,
                        archived_at=at,
                    )
                )
                return
            if left.state == ARCHIVED:
                raise _Stays("archived meanwhile")
            if left.state == _WRITING and at - left.archived_at < _ABANDONED:
                raise _Stays("being archived by another process")
            _give_up(connection, rows.c.conversation_id == conversation_id)
        discard_left(store, [conversation_id])


def _give_up(connection: Connection, *chosen: ColumnElement[bool]) -> None:
    """Have unfinished files deleted: from here on, no writer can complete them."""
    rows = _archives(connection)
    connection.execute(update(rows).where(rows.c.state == _WRITING, *chosen).values(state=_LEFT))


def _abandon(store: Transactions, conversation_id: UUID, url: str) -> None:
    """Delete a file that does not count.

    It does if the last transaction was committed, although the connection was lost: the row says.
    """
    with store.writing() as connection:
        rows = _archives(connection)
        _give_up(connection, rows.c.url == url)
        counts = select(rows.c.url).where(rows.c.url == url, rows.c.state == ARCHIVED)
        if connection.execute(counts).first() is not None:
            return
    # Also if an erasure has deleted it, and its row, while it was being written.
    _delete_file(url)
    _forget(store, conversation_id, url)


def _tidy(store: Transactions, at: datetime) -> None:
    """Delete what runs left that died, of any conversation."""
    with store.writing() as connection:
        _give_up(connection, _archives(connection).c.archived_at < at - _ABANDONED)
    try:
        discard_left(store)
    except ArchiveFailed as error:
        _log.warning("not deleted", url=error.url, why=str(error))


def _delete(connection: Connection, found: ArchivedConversation) -> None:
    """Delete the rows, and let the file count, in the caller's transaction."""
    stream = found.conversation_id
    erase_projected(connection, metadata_for(connection.dialect.name).tables, [stream])
    delete_rows(connection, stream, Purging("archived", found.archived_at))
    rows = _archives(connection)
    done = connection.execute(
        update(rows)
        .where(rows.c.conversation_id == stream, rows.c.url == found.url, rows.c.state == _WRITING)
        .values(
            state=ARCHIVED,
            digest=found.digest,
            size_bytes=found.size_bytes,
            event_count=found.event_count,
            erasure_count=found.erasure_count,
            tenant_id=found.tenant_id,
            user_id=found.user_id,
            last_active_at=found.last_active_at,
            archived_at=found.archived_at,
        )
    ).rowcount
    if done != 1:
        raise _Stays("being archived by another process")


def _forget(store: Transactions, conversation_id: UUID, url: str) -> None:
    with store.writing() as connection:
        rows = _archives(connection)
        connection.execute(
            delete(rows).where(
                rows.c.conversation_id == conversation_id,
                rows.c.url == url,
                rows.c.state == _LEFT,
            )
        )


# The file.


def _tables(connection: Connection) -> Iterator[tuple[Table, list[Column[Any]]]]:
    """Yield the tables in a file, in the order of insertion, each with its columns there."""
    tables = metadata_for(connection.dialect.name).tables
    for name in TABLES_IN_FILE:
        yield tables[name], [each for each in tables[name].c if each.name not in _NOT_IN_FILE]


def _write(connection: Connection, conversation_id: UUID, url: str) -> tuple[str, int]:
    """Write the file so that it survives a power cut; return its digest and its size."""
    system, path = _opened(url)
    try:
        if _is_local(system):  # for its owner's eyes, from the first byte
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with system.open(path, "wb") as raw:
            writer = _Hashing(raw)
            with gzip.GzipFile("", "wb", 6, writer, mtime=0) as file:
                head = {"format": _FORMAT, "conversation_id": str(conversation_id)}
                file.write(json.dumps(head).encode() + b"\n")
                for table, columns in _tables(connection):
                    for row in _rows(connection, table, columns, conversation_id):
                        values = {
                            column.name: _out(value)
                            for column, value in zip(columns, row, strict=True)
                        }
                        file.write(json.dumps({table.name: values}).encode() + b"\n")
        if _is_local(system):
            _sync(path)
    except EventStoreError:
        raise
    except Exception as error:
        raise ArchiveFailed(url, _reason(error)) from error
    return writer.digest.hexdigest(), writer.size


def _is_local(system: Any) -> bool:
    return "file" in (system.protocol if isinstance(system.protocol, tuple) else [system.protocol])


def _sync(path: str) -> None:
    """Wait until a file and its name are on the disk."""
    for each, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):
        descriptor = os.open(each, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Hashing:
    """A file that hashes what is written to it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = sha256()
        self.size = 0

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        self.size += len(content)
        self._raw.write(content)
        return len(content)

    def flush(self) -> None:
        self._raw.flush()


def _rows(
    connection: Connection, table: Table, columns: Sequence[Column[Any]], conversation_id: UUID
) -> Iterator[Any]:
    """Yield a conversation's rows of a table; events and blobs a few at a time."""
    query = select(*columns).where(table.c.conversation_id == conversation_id)
    if table.name not in _PAGES:
        yield from connection.execute(query.order_by(*table.primary_key.columns)).all()
        return
    key, size = _PAGES[table.name]
    query = query.order_by(table.c[key]).limit(size)
    page = connection.execute(query).all()
    while page:
        yield from page
        following = query.where(table.c[key] > getattr(page[-1], key))
        page = connection.execute(following).all()


def _out(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode()
    return value


def _in(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, Id):
        return UUID(value)
    if isinstance(column.type, Timestamp):
        return datetime.fromisoformat(value)
    if isinstance(column.type, LargeBinary):
        return b64decode(value)
    return value


def _fetched(found: ArchivedConversation) -> IO[bytes]:
    """Copy a file into a temporary one, and compare its digest before anything reads it.

    Raises:
        ArchiveFailed: It cannot be read, or is not the file that was written.
    """
    if not _FILE.fullmatch(found.url.rpartition("/")[2]):
        raise ArchiveFailed(found.url, "this is not the name of an archive's file", is_file=True)
    system, path = _opened(found.url)
    copy = tempfile.TemporaryFile()
    try:
        digest = sha256()
        try:
            with system.open(path, "rb") as raw:
                while piece := raw.read(_PIECE):
                    digest.update(piece)
                    copy.write(piece)
        except FileNotFoundError as error:
            raise ArchiveFailed(found.url, "the file is gone", is_file=True) from error
        except Exception as error:
            raise ArchiveFailed(found.url, _reason(error)) from error
        if digest.hexdigest() != found.digest:
            reason = "its bytes are not those that were written"
            raise ArchiveFailed(found.url, reason, is_file=True)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _read_back(found: ArchivedConversation) -> None:
    """Read a file as a restore would; its digest proves what the rows are.

    Raises:
        ArchiveFailed: It cannot be read, or is not the file that was written.
    """
    with _fetched(found) as file:
        count = sum(name == "events" for name, _ in _documents(found, file))
    if count != found.event_count:
        reason = f"it has {count} events, not {found.event_count}"
        raise ArchiveFailed(found.url, reason, is_file=True)


def _documents(
    found: ArchivedConversation, file: IO[bytes]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a file, each with the name of its table."""
    with gzip.GzipFile(fileobj=file, mode="rb") as lines:
        head = json.loads(next(lines, b"null"))
        if head != {"format": _FORMAT, "conversation_id": str(found.conversation_id)}:
            reason = "it is of another conversation, or of another version of this package"
            raise ArchiveFailed(found.url, reason, is_file=True)
        for line in lines:
            [(name, values)] = json.loads(line).items()
            yield name, values


def _insert(connection: Connection, found: ArchivedConversation, file: IO[bytes]) -> None:
    tables = {table.name: (table, columns) for table, columns in _tables(connection)}
    place = backend_of(connection).feed.new_place
    for name, documents in groupby(_documents(found, file), lambda each: each[0]):
        table, columns = tables[name]
        batch: list[dict[str, Any]] = []
        query = insert(table)
        if name == "events":
            query = query.values({each: literal_column(sql) for each, sql in place.items()})
        for _, values in documents:
            batch.append({each.name: _in(each, values[each.name]) for each in columns})
            if len(batch) == (_PAGE if name == "events" else 1):
                connection.execute(query, batch)
                batch = []
        if batch:
            connection.execute(query, batch)


def _delete_file(url: str) -> None:
    if not _FILE.fullmatch(url.rpartition("/")[2]):
        raise ArchiveFailed(url, "this is not the name of an archive's file", is_file=True)
    system, path = _opened(url)
    try:
        system.rm_file(path)
    except FileNotFoundError:
        return
    except Exception as error:
        raise ArchiveFailed(url, _reason(error), is_file=True) from error


def _damaged(url: str, problems: Sequence[Problem]) -> ArchiveFailed:
    first = problems[0]
    reason = f"the conversation does not verify: version {first.version}: {first.detail}"
    return ArchiveFailed(url, reason, is_file=True)
