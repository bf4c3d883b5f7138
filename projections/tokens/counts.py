"""Token counts that outlive the rows: a message is tokenized once per encoding, and stored.

The table ``token_counts`` serves every generation of every projection, so that a rebuild counts
nothing again. It holds digests and no text; the projections' set-up creates it, and erasing a
conversation deletes its counts. Folds and builders call `count`; the engine chooses the
`TokenCounts` that answers with `TokenCounts.active`. If none is active, a count is not stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json
from sqlalchemy import (
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
)

from eventstore.database import (
    AnyConnection,
    Backend,
    Bound,
    Digest,
    Id,
    Statement,
    backend_of,
    fetch,
    has_table,
)
from projections.tokens import Count, Tokenizer, count_message

__all__ = [
    "TABLE",
    "BoundCounts",
    "TokenCounts",
    "canonical",
    "count",
    "count_all",
    "count_text",
    "create",
    "is_there",
    "known_of",
    "recall",
    "write_all",
]

Message = Mapping[str, Any]

TABLE = Table(
    "token_counts",
    MetaData(),
    Column("conversation_id", Id, nullable=False),
    # The digest of encoding and content; see `TokenCounts`.
    Column("digest", Digest, nullable=False),
    Column("tokens", Integer, nullable=False),
    # NULL for an exact count.
    Column("margin", Double, nullable=True),
    PrimaryKeyConstraint("conversation_id", "digest", name="pk_token_counts"),
    sqlite_with_rowid=False,
)

_VERSION = b"2"
"""Changed whenever counting changes, so that old counts are no longer found."""

_MOST_LOADED = 50_000  # counts that are read ahead, about 10 MB; others are looked up one by one
_MOST_AT_ONCE = 500  # digests in one query

_COLUMNS = {"conversation_id": "uuid", "digest": "uuid", "tokens": "int", "margin": "float8"}

_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode
_counted = lru_cache(maxsize=4096)(Count)  # Most counts are small numbers.
_ACTIVE: ContextVar[TokenCounts | None] = ContextVar("token_counts", default=None)


class TokenCounts:
    """The known token counts of one conversation, and the new ones.

    A count is stored under a 16-byte digest, keyed with the conversation's id: equal texts in two
    conversations have different digests. The stored counts are those of the plain encoding; an
    estimating tokenizer's margin is added when they are read.
    """

    def __init__(
        self,
        conversation_id: UUID | None = None,
        connection: AnyConnection | None = None,
    ) -> None:
        """Start without any counts.

        Args:
            conversation_id: The conversation; None for counts that are never stored.
            connection: Where to look up unknown counts; None if all messages are new.
        """
        self._conversation_id = conversation_id
        self._hashes: dict[str, blake2b] = {}
        self._known: dict[bytes, Count] = {}
        self._new: dict[bytes, Count] = {}
        self._missed: set[bytes] = set()  # looked up and not found
        self._connection = connection
        self._read_ahead = False

    def look_in(self, connection: AnyConnection | None) -> None:
        """Look up unknown counts on this connection; with None, treat them as new."""
        self._connection = connection
        self._missed.clear()

    def go_on_in(self, connection: AnyConnection) -> None:
        """Continue on this connection, in a later transaction, unless all counts are known."""
        if self._connection is not None:
            self.look_in(connection)

    def read_ahead(self) -> None:
        """Read all of the conversation's counts at the first miss, for a fold of all events."""
        self._read_ahead = True

    @property
    def looks(self) -> bool:
        """Whether unknown counts are looked up."""
        return self._connection is not None

    @property
    def new(self) -> Mapping[bytes, Count]:
        """The counts that are not written yet, by digest; grows with each new count."""
        return self._new

    def know_new(self, counted: Mapping[bytes, Count]) -> None:
        """Add counts made elsewhere, and write them too."""
        self._new |= counted

    @property
    def has_new(self) -> bool:
        """Whether there are counts that are not written yet."""
        return bool(self._new)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Serve all counts within the block, in this thread or task."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def count(self, message: Message, tokenizer: Tokenizer, *, new: bool = False) -> Count:
        """Return the token count of a message within a request; ``new`` skips the lookup."""
        return self._count(message, tokenizer, count_message, new=new)

    def count_text(self, text: str, tokenizer: Tokenizer) -> Count:
        """Return the token count of a text by itself."""
        return self._count(text, tokenizer, lambda text, plain: plain.count(text))

    def recall(self, messages: Sequence[Message], tokenizer: Tokenizer) -> None:
        """Look up the counts of many messages at once; counting them then needs no query."""
        self._look_for([self._digest(message, tokenizer) for message in messages])

    def write(self, connection: AnyConnection) -> None:
        """Write the new counts, in the caller's transaction, and keep them in memory.

        The caller must hold the erasure lock, and must have checked under it that nothing counted
        here was erased.
        """
        write_all(connection, [self])

    def bind(self, backend: Backend) -> BoundCounts:
        """Return the statement for the new counts, before the write transaction."""
        return BoundCounts.of(backend, [self])

    def _written(self) -> None:
        if len(self._known) + len(self._new) <= _MOST_LOADED:
            self._known |= self._new
        self._new = {}

    def _count(
        self,
        content: Any,
        tokenizer: Tokenizer,
        counted: Callable[[Any, Tokenizer], Count],
        *,
        new: bool = False,
    ) -> Count:
        digest = self._digest(content, tokenizer)
        found = self._find(digest)
        if found is None and self._connection is not None and not new:
            self._look_for([digest])
            found = self._find(digest)
        if found is None:
            found = self._new[digest] = counted(content, tokenizer.plain)
        return found if tokenizer.exact else tokenizer.widen(found)

    def _digest(self, content: Any, tokenizer: Tokenizer) -> bytes:
        running = self._hashes.get(tokenizer.name)
        if running is None:
            running = self._hashes[tokenizer.name] = blake2b(
                digest_size=16,
                key=b"" if self._conversation_id is None else self._conversation_id.bytes,
                person=tokenizer.name.encode("ascii"),
                salt=_VERSION,
            )
        digest = running.copy()
        digest.update(canonical(content))
        return digest.digest()

    def _find(self, digest: bytes) -> Count | None:
        return self._known.get(digest) or self._new.get(digest)

    def _look_for(self, digests: Sequence[bytes]) -> None:
        if self._connection is None:
            return
        if self._read_ahead:
            self._read_ahead = False
            found = self._read(self._connection, "LIMIT {}", [_MOST_LOADED])
            if found < _MOST_LOADED:
                # Everything is known now, so missing counts are new.
                self._connection = None
                return
        lacking = [each for each in dict.fromkeys(digests) if self._find(each) is None]
        lacking = [each for each in lacking if each not in self._missed]
        self._missed.update(lacking)
        for start in range(0, len(lacking), _MOST_AT_ONCE):
            stored = backend_of(self._connection).from_digest
            some = [stored(each) for each in lacking[start : start + _MOST_AT_ONCE]]
            marks = ", ".join(["{}"] * len(some))
            self._read(self._connection, f"AND digest IN ({marks})", some)

    def _read(self, connection: AnyConnection, rest: str, values: Sequence[Any]) -> int:
        """Read counts into memory; in ``rest``, a pair of braces stands for each value."""
        if self._conversation_id is None:
            return 0
        backend = backend_of(connection)
        query = (_OF_ONE + rest).replace("{}", backend.mark)
        rows = fetch(connection, query, [backend.from_id(self._conversation_id), *values])
        self._know(backend, rows)
        return len(rows)

    def _know(self, backend: Backend, rows: Iterable[tuple[Any, int, float | None]]) -> None:
        for digest, tokens, margin in rows:
            exact = margin is None
            counted = _counted(tokens, exact, 0.0 if margin is None else margin)
            self._known[backend.to_digest(digest)] = counted


_OF_ONE = "SELECT digest, tokens, margin FROM token_counts WHERE conversation_id = {} "
_OF_SEVERAL = Statement(
    "SELECT conversation_id, digest, tokens, margin FROM token_counts "
    "WHERE conversation_id = ANY(:ids) ORDER BY conversation_id LIMIT :most"
)


def known_of(connection: AnyConnection, ids: Sequence[UUID]) -> dict[UUID, TokenCounts]:
    """Return the counts of many conversations, for folding all of them, from one query.

    If they are too many to hold at once, each conversation reads its own when needed.
    """
    several = {each: TokenCounts(each, connection) for each in ids}
    backend = backend_of(connection)
    rows = _OF_SEVERAL.rows(connection, ids=list(ids), most=_MOST_LOADED)
    if len(rows) < _MOST_LOADED:
        for owner, own in groupby(rows, itemgetter(0)):
            several[backend.to_id(owner)]._know(backend, (row[1:] for row in own))
        for each in several.values():
            each.look_in(None)
    return several


@dataclass(frozen=True, slots=True)
class BoundCounts:
    """The new counts of several conversations, in the driver's form."""

    several: Sequence[TokenCounts]
    _statement: Bound | None

    @classmethod
    def of(cls, backend: Backend, several: Sequence[TokenCounts]) -> BoundCounts:
        """Bind the new counts."""
        rows = [
            (owner, digest, count.tokens, None if count.exact else count.margin)
            for each in several
            if each._conversation_id is not None
            for owner in [str(each._conversation_id)]
            for digest, count in each._new.items()
        ]
        if not rows:
            return cls(several, None)
        # The same order everywhere, so that two writers cannot deadlock.
        rows.sort()
        return cls(several, backend.insert(TABLE.name, _COLUMNS, rows))

    def write(self, connection: AnyConnection) -> None:
        """Write the counts, as `TokenCounts.write` does."""
        if self._statement is not None:
            self._statement.run(connection)
        for known in self.several:
            known._written()


def write_all(connection: AnyConnection, several: Sequence[TokenCounts]) -> None:
    """Write the new counts of several conversations at once; see `TokenCounts.write`."""
    BoundCounts.of(backend_of(connection), several).write(connection)


def count(message: Message, tokenizer: Tokenizer, *, new: bool = False) -> Count:
    """Return the token count of a message; the active `TokenCounts` remembers it.

    ``new`` means that the message cannot have been counted before, so it is not looked up.
    """
    active = _ACTIVE.get()
    if active is None:
        return count_message(message, tokenizer)
    return active.count(message, tokenizer, new=new)


def count_all(messages: Sequence[Message], tokenizer: Tokenizer) -> list[Count]:
    """Return the token count of each message; the active `TokenCounts` uses a single query."""
    if len(messages) > 1:
        recall(messages, tokenizer)
    return [count(message, tokenizer) for message in messages]


def recall(messages: Sequence[Message], tokenizer: Tokenizer) -> None:
    """Make the active `TokenCounts` look up all these messages in one query."""
    active = _ACTIVE.get()
    if active is not None:
        active.recall(messages, tokenizer)


def count_text(text: str, tokenizer: Tokenizer) -> Count:
    """Return the token count of a text by itself; the active `TokenCounts` remembers it."""
    active = _ACTIVE.get()
    return tokenizer.count(text) if active is None else active.count_text(text, tokenizer)


def create(connection: Connection) -> None:
    """Create the table if it does not exist, in the caller's transaction."""
    TABLE.create(connection, checkfirst=True)


def is_there(connection: AnyConnection) -> bool:
    """Whether the table exists: a replica's primary may not have created it."""
    return has_table(connection, TABLE.name)


def canonical(content: Any) -> bytes:
    """Return the bytes to hash: equal messages give equal bytes, different messages do not.

    Below a message's top-level keys the order matters; parsers and the database preserve it.
    """
    try:
        # Keys are unique, so values are never compared.
        return to_json(sorted(content.items()) if isinstance(content, dict) else content)
    except PydanticSerializationError:  # lone surrogates, or something that is not JSON
        return _sorted(content).encode("ascii")
