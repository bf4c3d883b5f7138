"""A row's lower levels of detail: computed when a request first needs them, then stored.

A fold computes none, since no request ever needs them for most rows. Lower levels are a pure
function of the row, stored in the table ``lower_levels`` under a digest of their input and of the
algorithm's version, so that they serve every generation. The table is not a source of truth:
missing or damaged entries are computed again, and an erasure deletes those of its conversation.

The product's own text for a level (document 004, ``sections``) takes precedence over a computed
one. A row has no level that is not shorter than the level above it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, Table, Text

from eventstore import EventStore
from eventstore.blobs import alias_of
from eventstore.database import AnyConnection, Digest, Id, backend_of, fetch, has_table, schema_lock
from eventstore.erasure.erase import erasure_count, erasure_lock
from eventstore.errors import DatabaseBusy
from eventstore.ids import call_id
from projections.context.compression.facts import Fact, FactKind
from projections.context.compression.lasting import facts_to_keep
from projections.context.compression.shortening import Preview, ends, is_short, shorten
from projections.context.counting import ENCODING
from projections.context.limits import content_chars
from projections.context.rows import ContextRow, counted
from projections.engine import setup
from projections.tokens import Count, Tokenizer, count_message, counts, tokenizer_for
from projections.tokens.counts import canonical

__all__ = ["TABLE", "Lower", "StoredLevels", "create", "ends_of", "lower"]

TABLE = Table(
    "lower_levels",
    MetaData(),
    Column("conversation_id", Id, nullable=False),
    Column("digest", Digest, nullable=False),
    # JSON in ASCII: content and tokens of the shortened message, then its facts.
    Column("held", Text, nullable=False),
    PrimaryKeyConstraint("conversation_id", "digest", name="pk_lower_levels"),
    sqlite_with_rowid=False,
)

_VERSION = b"7"
"""Raised when shortening or facts change, so that old entries are no longer found."""

_MOST_AT_ONCE = 500  # digests in one query
_LEAST_KEPT = 16  # fewer are computed again faster than a transaction writes them

_TOKENIZER = tokenizer_for(ENCODING)
_LETTERS: dict[FactKind, str] = {
    "rule": "r",
    "identifier": "i",
    "conclusion": "c",
    "name": "n",
    "phrase": "p",
    "term": "t",
}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}

_COLUMNS = {"conversation_id": "uuid", "digest": "uuid", "held": "text"}
_MENDING = "(conversation_id, digest) DO UPDATE SET held = excluded.held"
_READ = "SELECT digest, held FROM lower_levels WHERE conversation_id = {} AND digest IN "


class Lower(NamedTuple):
    """A row's lower levels of detail.

    Attributes:
        shortened: The shortened message; None if there is no shorter form.
        tokens: The shortened message's tokens, counted like the row's own.
        facts: The message's facts for a digest.
    """

    shortened: dict[str, Any] | None = None
    tokens: int | None = None
    facts: tuple[Fact, ...] = ()


class _Unkept(Lower):
    """Lower levels that are not in the table yet."""

    __slots__ = ()


_NONE = Lower()


def lower(row: ContextRow) -> Lower:
    """Return the lower levels of a row, computed once and cached in the row."""
    found: Lower | None = row.noted
    if found is None:
        found = _made(row, _shorter(row), counts.count) if _has_levels(row) else _NONE
        row.note("noted", found)
    return found


def ends_of(row: ContextRow, most_bytes: int) -> ContextRow:
    """Return a row with the two ends of its text and arguments; the same row if that is not less.

    It is what a group is sent as if no other form of it fits; see `shortening.ends`.
    """
    if not _has_levels(row) or row.kind == "error":
        return row
    if row.ends is None:
        row.note("ends", {})
    if most_bytes not in row.ends:
        row.ends[most_bytes] = _ends_of(row, most_bytes)
    made: ContextRow = row.ends[most_bytes]
    return made


def _ends_of(row: ContextRow, most_bytes: int) -> ContextRow:
    came = row.came or row
    message = ends(came.message, most_bytes, _preview(came))
    if message is None:
        return row
    count = counts.count(message, _TOKENIZER)
    if count.tokens >= row.tokens:
        return row
    made = row.with_(**counted(message, count, ENCODING), native=None)
    made.note("noted", _NONE)
    return made


def create(store: EventStore, *, patience_ms: int | None = None) -> None:
    """Create the table if it is missing, in one transaction under the schema lock."""
    with schema_lock(store.engine, patience_ms=patience_ms) as connection:
        TABLE.create(connection, checkfirst=True)
        setup.register(connection, [TABLE.name])


class StoredLevels:
    """The lower levels of one conversation's rows, read and written for successive requests.

    Levels of rows that this process has folded are written in the transaction that saves the rows.

    Attributes:
        is_there: Whether the table existed when it was last checked.
        busy: Whether the current read has looked up levels, as a read that plans a step does.
    """

    def __init__(self, conversation_id: UUID) -> None:
        self._conversation_id = conversation_id
        self._new: dict[bytes, list[ContextRow]] = {}
        self._sent: Iterable[ContextRow] = ()
        self._erasures: int | None = None
        self.is_there = self.busy = self._started = False

    def begin(self, erasures: int | None = None, *, is_there: bool = False) -> None:
        """Begin a read, or begin it again; forget levels that were not written.

        Args:
            erasures: How often the conversation has been erased, if that is known.
            is_there: Whether the table existed at an earlier read; ignored when a read begins
                again.
        """
        self._new, self._sent, self.busy = {}, (), False
        self._erasures = erasures
        self.is_there, self._started = is_there and not self._started, True

    def look_for(self, connection: AnyConnection, rows: Iterable[ContextRow]) -> None:
        """Set the lower levels of each row: read stored ones in few queries, compute the others.

        Args:
            connection: A connection in the transaction that has read the rows.
            rows: Any rows of the conversation.
        """
        self.busy = True
        lacking: dict[bytes, list[ContextRow]] = {}
        for row in rows:
            if row.noted is None:
                if _has_levels(row):
                    lacking.setdefault(self._digest(row), []).append(row)
                else:
                    row.note("noted", _NONE)
        if not lacking:
            return
        self._look(connection)
        found: dict[bytes, str] = {}
        stored = [digest for digest, equal in lacking.items() if not equal[0].fresh]
        # Computing a few costs less than a query.
        if len(stored) >= _LEAST_KEPT and self.is_there:
            found = self._read(connection, stored)
        new: dict[bytes, tuple[ContextRow, dict[str, Any] | None]] = {}
        for digest, equal in lacking.items():
            loaded = _loaded(found.get(digest), equal[0].message)
            if loaded is None:
                new[digest] = equal[0], _shorter(equal[0])
            else:
                _note(equal, loaded)
        some = [shorter for row, shorter in new.values() if shorter and not row.fresh]
        if some:
            counts.recall(some, _TOKENIZER)
        for digest, (row, shorter) in new.items():
            equal, count = lacking[digest], partial(counts.count, new=row.fresh)
            _note(equal, _Unkept(*_made(row, shorter, count)))
            if not row.fresh:
                self._new[digest] = equal

    @staticmethod
    def look_ahead(rows: Iterable[ContextRow]) -> None:
        """Compute the levels of rows that this process has folded, before a step needs them."""
        for row in rows:
            if row.fresh and row.noted is None and _has_levels(row):
                row.note("noted", _Unkept(*_made(row, _shorter(row), count_message)))

    def offer(self, rows: Iterable[ContextRow]) -> None:
        """Set the rows of a request, from which `bind` collects new levels; does not read them."""
        self._sent = rows

    def bind(self, connection: AnyConnection) -> None:
        """Collect the levels for `write` to write, in the transaction that has read the rows."""
        for row in self._sent:
            if type(row.noted) is _Unkept:
                self._new.setdefault(self._digest(row), []).append(row)
        if self._new:
            self._look(connection)

    def write(self, connection: AnyConnection) -> None:
        """Write new levels, if the table existed when it was checked, and forget them.

        The caller's transaction must hold the erasure lock, and must have checked that the
        conversation has not been erased since the read.
        """
        if self._new and self.is_there:
            self._write(connection)

    def keep(self, store: EventStore, patience_ms: int) -> None:
        """Write new levels in their own transaction, unless few or the database is busy."""
        if len(self._new) < _LEAST_KEPT:
            return
        with suppress(DatabaseBusy):
            while not self._written(store, patience_ms):
                create(store, patience_ms=patience_ms)

    def _written(self, store: EventStore, patience_ms: int) -> bool:
        """Write new levels in one transaction; return False if the table is missing."""
        stream = self._conversation_id
        with store.writing(durable=False, patience_ms=patience_ms) as connection:
            if not has_table(connection, TABLE.name):
                return False
            erasure_lock(connection, stream)
            # Do not write anything derived from content that was erased since the read.
            if erasure_count(connection, [stream]) == self._erasures:
                self._write(connection)
        self.is_there = True
        return True

    def _write(self, connection: AnyConnection) -> None:
        owner, new = str(self._conversation_id), self._new
        # The same order everywhere, so that two writers cannot wait for each other.
        rows = [(owner, digest, _dumped(new[digest][0].noted)) for digest in sorted(new)]
        # An existing entry is either damaged or equal.
        backend = backend_of(connection)
        backend.insert(TABLE.name, _COLUMNS, rows, otherwise=_MENDING).run(connection)
        for equal in new.values():
            _note(equal, Lower(*equal[0].noted))
        self._new = {}

    def _look(self, connection: AnyConnection) -> None:
        """Check whether the table exists, and how often the conversation was erased."""
        if self._erasures is None:
            self._erasures = erasure_count(connection, [self._conversation_id])
        self.is_there = self.is_there or has_table(connection, TABLE.name)

    def _digest(self, row: ContextRow) -> bytes:
        digest = blake2b(
            digest_size=16, key=self._conversation_id.bytes, person=b"levels", salt=_VERSION
        )
        digest.update(canonical([row.kind, row.message, row.tokens, row.given, row.result]))
        return digest.digest()

    def _read(self, connection: AnyConnection, digests: list[bytes]) -> dict[bytes, str]:
        backend = backend_of(connection)
        owner = backend.from_id(self._conversation_id)
        found: dict[bytes, str] = {}
        for start in range(0, len(digests), _MOST_AT_ONCE):
            some = digests[start : start + _MOST_AT_ONCE]
            query = f"{_READ} ({', '.join(['{}'] * len(some))})"
            bound = map(backend.from_digest, some)
            rows = fetch(connection, query.replace("{}", backend.mark), [owner, *bound])
            found.update((backend.to_digest(digest), stored) for digest, stored in rows)
        return found


def _note(rows: Iterable[ContextRow], made: Lower) -> None:
    for row in rows:
        row.note("noted", made)


def _has_levels(row: ContextRow) -> bool:
    if row.kind == "tool":
        return row.result is not None  # A row without it is a placeholder.
    return row.kind in ("user", "assistant", "error")


def _shorter(row: ContextRow) -> dict[str, Any] | None:
    """Return the shortened message, or None if it has more characters; counts no tokens."""
    message, given = row.message, row.given or {}
    if row.kind == "error":
        return _with_content(message, given.get("shortened"))
    if "shortened" in given:
        shorter = _with_content(message, given["shortened"])
    elif row.table and is_short(row.table.message["content"], message["content"]):
        shorter = row.table.message
    else:
        shorter = shorten(message, _preview(row))
    if shorter is None or content_chars(shorter) > content_chars(message):
        return None
    return shorter


def _preview(row: ContextRow) -> Preview | None:
    if row.result is None:
        return None
    preview = Preview(**row.result)
    if preview.path is None:
        alias = alias_of(call_id(row.version, row.part - 1), str(row.message["content"]))
        preview = preview._replace(path=alias)
    return preview


def _made(
    row: ContextRow,
    shorter: dict[str, Any] | None,
    count: Callable[[dict[str, Any], Tokenizer], Count],
) -> Lower:
    table = row.table or None
    if shorter is None:
        tokens = None
    elif table is not None and table.message == shorter:
        tokens = table.tokens  # Already counted: most shortened results are the table itself.
    else:
        tokens = count(shorter, _TOKENIZER).tokens
    if tokens is None or tokens >= row.tokens:
        shorter = tokens = None
    if row.kind == "error":
        return Lower(shorter, tokens)
    message = {"role": row.role, **row.message}
    return Lower(shorter, tokens, facts_to_keep((message,), (shorter or row.message,)))


def _with_content(message: Mapping[str, Any], content: str | None) -> dict[str, Any] | None:
    return None if content is None else {**message, "content": content}


def _dumped(made: Lower) -> str:
    content = None if made.shortened is None else made.shortened["content"]
    facts = [_LETTERS[fact.kind] + fact.text for fact in made.facts]
    return json.dumps([content, made.tokens, facts])


def _loaded(stored: Any, message: Mapping[str, Any]) -> Lower | None:
    """Return stored levels, or None if they are missing or damaged."""
    if stored is None:
        return None
    try:
        content, tokens, facts = json.loads(stored)
        known_facts = tuple(Fact(each[1:], _KINDS[each[0]]) for each in facts)
    except (ValueError, TypeError, LookupError):
        return None
    if (type(content), type(tokens)) not in ((str, int), (type(None), type(None))):
        return None
    return Lower(_with_content(message, content), tokens, known_facts)
