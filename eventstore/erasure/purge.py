"""Purging: deletes a conversation from the database, leaving only a receipt.

Its rows are deleted from every table, including headers and hashes. The receipt is a row of the
table ``purges``, which nothing changes. With it the triggers permit deleting these events, and no
others; and a feed cursor whose event is gone is checked against it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection, delete, func, insert, select

from eventstore.erasure.erase import (
    FORKS_AT_ONCE,
    erase_projected,
    erasure_count,
    erasure_lock,
    lock_stream,
    require_all,
    tables_with_content,
)
from eventstore.errors import (
    ConversationForked,
    ConversationNotFound,
    EventStoreError,
    InvalidEvent,
    KeyUnavailable,
    OutputFileError,
    OwnerMismatch,
)
from eventstore.events import RecordedEvent, ToolResult
from eventstore.ids import new_id
from eventstore.owners import ANY_OWNER, Owner
from eventstore.security.key_directory import retire
from eventstore.sql.backend import keys_of
from eventstore.sql.residues import clear_statistics
from eventstore.sql.row_security import require_forks_visible
from eventstore.sql.schema import metadata_for
from eventstore.sql.streams import descendants, owner_of, pages
from eventstore.sql.transactions import Transactions

__all__ = [
    "PERMANENT_TABLES",
    "PurgeReceipt",
    "Purging",
    "delete_erased",
    "delete_rows",
    "purge",
    "purge_in",
    "state_root",
    "write_output",
]


PERMANENT_TABLES = frozenset({"archives", "purges", "retired_keys"})


"""What stays of a conversation: the receipt, and the key's id and the place of a file in the
archive until these are deleted."""


@dataclass(frozen=True, slots=True)
class PurgeReceipt:
    """What was purged; rows of ``purges`` record the same, one for each of the forks too.

    ``event_count`` events and ``blob_count`` blobs, ``blob_bytes`` bytes in total, were deleted,
    including those of ``forks``. If ``log_emptied`` is false, a reader keeps old pages in SQLite's
    files.
    """

    conversation_id: UUID
    purge_id: UUID
    purged_at: datetime
    reason: str
    requested_by: str | None
    event_count: int
    blob_count: int
    blob_bytes: int
    forks: tuple[UUID, ...] = ()
    log_emptied: bool = True


@dataclass(frozen=True, slots=True)
class Purging:
    """Why a conversation is purged, and whether its forks are.

    Attributes:
        reason: Why; stored in the receipt.
        now: When.
        requested_by: Who requested it.
        forks: Whether to purge the forks that share its events too.
        whose: The owner that the conversation and the forks must have.
    """

    reason: str
    now: datetime
    requested_by: str | None = None
    forks: bool = False
    owner: Owner = ANY_OWNER


def purge_in(store: Transactions, conversation_id: UUID, purging: Purging) -> PurgeReceipt:
    """Purge a conversation in a separate transaction, as `purge` does.

    Many forks are purged first, some in each transaction, so that other writers of SQLite's file
    get their turn; each has its own receipt. If the process dies in between, the conversation is
    still there, and the next call purges it with the remaining forks. If it is already purged,
    return its receipt again, so that a process killed after the commit can repeat the call. Events
    that are left without a conversation are purged too. If an owner is named, neither exists.
    """
    try:
        purged: list[PurgeReceipt] = []
        for some in _pieces(store, conversation_id, purging):
            with store.writing() as connection:
                purged += _purge_forks(connection, some, purging)
        with store.writing() as connection:
            return _sum(purge(connection, conversation_id, purging), purged)
    except ConversationNotFound:
        if purging.owner.asks:
            raise
        with store.writing() as connection:
            receipt = _purge_left(connection, conversation_id, purging) or _last_receipt(
                connection, conversation_id
            )
        if receipt is None:
            raise
        return receipt


def _pieces(store: Transactions, conversation_id: UUID, purging: Purging) -> list[Sequence[UUID]]:
    """Return the forks to purge before the conversation, in pieces; none if one is refused."""
    _require_reason(purging)
    if not purging.forks:
        return []
    with store.reading() as connection:
        if (owner := owner_of(connection, conversation_id)) is None:
            return []
        forks = [each.conversation_id for each in descendants(connection, conversation_id)]
        if len(forks) <= FORKS_AT_ONCE:
            return []
        require_forks_visible(connection, conversation_id)
        if not purging.owner.owns(*owner):
            raise OwnerMismatch(conversation_id)
        for fork in forks:
            _require_purgeable(connection, fork, purging.owner)
    # Forks of forks first: a fork whose parent is gone could not be read or found.
    return [*pages(forks[::-1], FORKS_AT_ONCE)]


def _require_purgeable(connection: Connection, fork: UUID, owner: Owner) -> None:
    require_forks_visible(connection, fork)
    if not owner.owns(*(owner_of(connection, fork) or (None, None))):
        raise OwnerMismatch(fork)
    streams = metadata_for(connection.dialect.name).tables["conversations"].c
    query = select(streams.key_id).where(streams.conversation_id == fork)
    if keys_of(connection) is None and connection.execute(query).scalar() is not None:
        raise KeyUnavailable(fork, "the store was opened without keys")


def _purge_forks(
    connection: Connection, forks: Sequence[UUID], purging: Purging
) -> list[PurgeReceipt]:
    """Purge forks in a transaction of their own; another process may have purged some of them."""
    keyed: dict[UUID, str] = {}
    found: list[UUID] = []
    for fork in sorted(forks):
        with suppress(ConversationNotFound):
            keyed |= _lock(connection, fork, purging.owner)
            found.append(fork)
    for fork in found:  # which can itself be forked until it is locked
        for each, _ in descendants(connection, fork):
            if each not in found:
                keyed |= _lock(connection, each, purging.owner)
                found.append(each)
    return _delete_all(connection, found, keyed, purging)


def _sum(receipt: PurgeReceipt, others: Sequence[PurgeReceipt]) -> PurgeReceipt:
    return replace(
        receipt,
        event_count=receipt.event_count + sum(each.event_count for each in others),
        blob_count=receipt.blob_count + sum(each.blob_count for each in others),
        blob_bytes=receipt.blob_bytes + sum(each.blob_bytes for each in others),
        forks=(*receipt.forks, *(each.conversation_id for each in others)),
    )


def _purge_left(
    connection: Connection, conversation_id: UUID, purging: Purging
) -> PurgeReceipt | None:
    """Purge what is left of a conversation without its own row; None if nothing is."""
    erasure_lock(connection, conversation_id, exclusive=True)
    tables = metadata_for(connection.dialect.name).tables
    if owner_of(connection, conversation_id) is not None:
        return None  # It was created in the meantime.
    for rows in (tables["events"], tables["blobs"]):
        query = select(rows.c.conversation_id).where(rows.c.conversation_id == conversation_id)
        if connection.execute(query.limit(1)).first() is not None:
            [receipt] = _delete_all(connection, [conversation_id], {}, purging)
            return receipt
    return None


def _last_receipt(connection: Connection, conversation_id: UUID) -> PurgeReceipt | None:
    purges = metadata_for(connection.dialect.name).tables["purges"]
    names = [field.name for field in fields(PurgeReceipt) if field.name in purges.c]
    found = connection.execute(
        select(*(purges.c[name] for name in names))
        .where(purges.c.conversation_id == conversation_id)
        .order_by(purges.c.last_position.desc())
        .limit(1)
    ).first()
    return None if found is None else PurgeReceipt(**found._mapping)


def purge(connection: Connection, conversation_id: UUID, purging: Purging) -> PurgeReceipt:
    """Purge a conversation, and its forks if requested, in the caller's transaction.

    Raises:
        ConversationNotFound: No conversation has this id.
        ConversationForked: Forks share its events, and ``purging.forks`` is false.
        OwnerMismatch: The conversation or a fork belongs to another tenant or user.
        InvalidEvent: No reason was given.
        KeyUnavailable: A conversation is sealed, and the store has no keys.
        DeletionIncomplete: The database deleted fewer rows than there are.
    """
    _require_reason(purging)
    keyed = _lock(connection, conversation_id, purging.owner)
    forks: list[UUID] = []
    # A fork can itself be forked until it is locked.
    while new := [
        each.conversation_id
        for each in descendants(connection, conversation_id)
        if each.conversation_id not in forks
    ]:
        if not purging.forks:
            raise ConversationForked(conversation_id, sorted(new))
        for fork in sorted(new):
            keyed |= _lock(connection, fork, purging.owner)
        forks += new
    receipt, *others = _delete_all(connection, [conversation_id, *sorted(forks)], keyed, purging)
    return _sum(receipt, others)


def _require_reason(purging: Purging) -> None:
    if not isinstance(purging.reason, str) or not purging.reason.strip():
        raise InvalidEvent("a purge needs a reason")


def _delete_all(
    connection: Connection,
    streams: Sequence[UUID],
    keyed: Mapping[UUID, str],
    purging: Purging,
) -> list[PurgeReceipt]:
    """Delete locked conversations; return the receipt of each."""
    for stream, key_id in keyed.items():
        retire(connection, stream, key_id, purging.now)
    erase_projected(connection, metadata_for(connection.dialect.name).tables, streams)
    receipts = [delete_rows(connection, each, purging) for each in streams]
    clear_statistics(connection, tables_with_content(connection))
    return receipts


def _lock(connection: Connection, conversation_id: UUID, owner: Owner) -> dict[UUID, str]:
    """Lock a conversation against everyone else; return its key's id by conversation, if any."""
    _, key_id = lock_stream(connection, conversation_id)
    if not owner.owns(*(owner_of(connection, conversation_id) or (None, None))):
        raise OwnerMismatch(conversation_id)
    if key_id is None:
        return {}
    if keys_of(connection) is None:
        raise KeyUnavailable(conversation_id, "the store was opened without keys")
    return {conversation_id: key_id}


def delete_rows(connection: Connection, conversation_id: UUID, purging: Purging) -> PurgeReceipt:
    """Delete a conversation's rows except projected ones, and return the receipt, which stays."""
    tables = metadata_for(connection.dialect.name).tables
    events, blobs = tables["events"].c, tables["blobs"].c
    event_count, first, last = connection.execute(
        select(func.count(), func.min(events.position), func.max(events.position)).where(
            events.conversation_id == conversation_id
        )
    ).one()
    blob_count, blob_bytes = connection.execute(
        select(func.count(), func.coalesce(func.sum(blobs.size_bytes), 0)).where(
            blobs.conversation_id == conversation_id
        )
    ).one()
    receipt = PurgeReceipt(
        conversation_id,
        new_id(),
        purging.now,
        purging.reason,
        purging.requested_by,
        int(event_count),
        int(blob_count),
        int(blob_bytes),
    )
    connection.execute(
        insert(tables["purges"]).values(
            conversation_id=conversation_id,
            purge_id=receipt.purge_id,
            purged_at=receipt.purged_at,
            reason=receipt.reason,
            requested_by=receipt.requested_by,
            event_count=receipt.event_count,
            blob_count=receipt.blob_count,
            blob_bytes=receipt.blob_bytes,
            first_position=first or 0,
            last_position=last or 0,
        )
    )
    own = owner_of(connection, conversation_id) is not None
    planned = {"events": event_count, "blobs": blob_count, "conversations": int(own)}
    theirs = [each for name, each in tables.items() if name not in PERMANENT_TABLES]
    # The conversation's own row last: without it, row-level security hides all its other rows.
    for rows in sorted(theirs, key=lambda each: each.name == "conversations"):
        if "conversation_id" in rows.c:
            query = delete(rows).where(rows.c.conversation_id == conversation_id)
            done = connection.execute(query).rowcount
            require_all(conversation_id, rows.name, planned.get(rows.name, done), done)
    return receipt


# An output's file name, or the name of its temporary file, left when the process was killed.
_OUTPUT = re.compile(r"\.?([0-9]{1,18}\.[0-9]{1,9})\..+")


_BELOW = ("logs", "tool-results")


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_root(directory: str | Path) -> Path:
    """Return the path of a product's state directory, as the other functions here expect it.

    The product may use a link to it. Later, a link in its place is not followed.
    """
    return Path(os.path.realpath(directory))


def write_output(state: Path, conversation_id: UUID, name: str, content: bytes) -> None:
    """Write a file of a conversation's outputs: completely and durably, or not at all.

    Missing folders are created, and the state directory too. Only their owner has access to them
    and to the file.

    Raises:
        OutputFileError: A folder or file cannot be written, or a folder is a link.
    """
    place = _place(state, conversation_id) / name
    with _named(place), _folders(state, conversation_id, create=True) as (*_, folder):
        # The name begins like those that `delete_erased` deletes.
        new = f".{name}.{os.urandom(8).hex()}"
        try:
            with os.fdopen(os.open(new, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=folder)
            raise


def delete_erased(
    store: Transactions,
    read: Callable[[UUID], Iterable[RecordedEvent]],
    conversation_id: UUID,
    state: Path,
) -> None:
    """If anything was erased, delete the conversation's files whose text the log no longer holds.

    A file that cannot be deleted does not stop the others.

    Raises:
        OutputFileError: Files cannot be deleted, or a folder is a link; it names each of them.
        EventStoreError: The conversation's events cannot be read; no file was deleted.
    """
    with _named(state / str(conversation_id)):
        try:
            os.lstat(state / str(conversation_id))
        except FileNotFoundError:
            return
    with store.reading() as connection:
        if not erasure_count(connection, [conversation_id]):
            return
    data = (event.data for event in read(conversation_id))
    keep = {each.call_id for each in data if isinstance(each, ToolResult)}
    with (
        _named(_place(state, conversation_id)),
        suppress(FileNotFoundError),
        _folders(state, conversation_id) as folders,
    ):
        _delete_outputs(folders[-1], _place(state, conversation_id), keep)
        # The folders that are empty by now, but not the state directory itself.
        names = (str(conversation_id), *_BELOW)
        for parent, name in reversed([*zip(folders, names, strict=False)]):
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError:  # not empty
                return


def _place(state: Path, conversation_id: UUID) -> Path:
    return state.joinpath(str(conversation_id), *_BELOW)


def _delete_outputs(folder: int, place: Path, keep: Container[str]) -> None:
    """Delete all outputs in an open folder, except those of the calls to ``keep``."""
    left: list[tuple[Path, str]] = []
    for name in sorted(os.listdir(folder)):
        match = _OUTPUT.fullmatch(name)
        if match is None or match[1] in keep:
            continue
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append((place / name, error.strerror or str(error)))
    if left:
        raise OutputFileError(left)


@contextmanager
def _folders(
    state: Path, conversation_id: UUID, *, create: bool = False
) -> Iterator[tuple[int, ...]]:
    """Open the state directory and the folders down to the outputs, each from the one above.

    Raises:
        FileNotFoundError: One does not exist, and is not to be created.
        OutputFileError: One of them is a link, or not a folder.
        OSError: One cannot be opened or created.
    """
    opened: list[int] = []
    try:
        if create and not state.exists():
            state.parent.mkdir(parents=True, exist_ok=True)
            state.mkdir(mode=0o700, exist_ok=True)
        opened.append(os.open(state, _FOLDER))
        path = state
        for name in (str(conversation_id), *_BELOW):
            path /= name
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=opened[-1])
            try:
                opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            except OSError as error:
                kind = _kind(name, opened[-1])
                if kind is None or stat.S_ISDIR(kind):
                    raise
                what = "a link, which leads out of the state directory"
                what = what if stat.S_ISLNK(kind) else "not a folder"
                raise OutputFileError([(path, f"it is {what}")]) from error
        yield tuple(opened)
    finally:
        for each in opened:
            os.close(each)


def _kind(name: str, folder: int) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None


@contextmanager
def _named(place: Path) -> Iterator[None]:
    """Raise this package's error for the system's, which names no more than a part of the path."""
    try:
        yield
    except EventStoreError:
        raise
    except OSError as error:
        raise OutputFileError([(place, error.strerror or str(error))]) from error
