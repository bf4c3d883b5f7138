"""What a projection is: a name, a version, its tables, and a pure fold over one conversation.

A fold sees the events of a single conversation in order of version and answers with row changes.
Its state is a small JSON object that is kept between two catch-ups; it holds what later events
need (open items, running numbers), never the whole conversation, so that a catch-up costs what
the new events cost. The fold must be pure: same state and event, same answer, for ever; whoever
changes what it answers raises ``version``, and the tables are built anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from eventstore.events import RecordedEvent
from projections.errors import UnknownProjection
from projections.tokens import Count, Tokenizer

__all__ = [
    "Attachments",
    "Change",
    "Column",
    "ColumnType",
    "Counter",
    "Counting",
    "Filling",
    "Marked",
    "Patch",
    "Projection",
    "Put",
    "ReadTable",
    "State",
    "Storage",
    "named",
]

State = dict[str, Any]
"""A JSON object: what a fold carries from one event of a conversation to the next."""

ColumnType = Literal["text", "json", "integer", "float", "boolean", "timestamp", "uuid"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a read model; every column but the key's may be NULL."""

    name: str
    type: ColumnType


class Storage(Protocol):
    """How rows are kept in fewer bytes than they say, in tables that stand beside the events.

    A fold gives whole rows, and whoever reads gets whole rows: what is not in the row is in an
    event of its conversation. Equal storages must be equal values, since tables are built once
    for each declaration.
    """

    @property
    def event(self) -> str:
        """The column with the version of that event, NULL in rows that need none."""

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is written of a row that sets these columns: the same columns."""

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL of the columns that are not read as they stand.

        Args:
            table: What its own columns are qualified with; those of the event with ``events``.
            dialect: ``sqlite`` or ``postgresql``.
        """


def named(
    projections: Iterable[Projection], names: Iterable[str] | None = None
) -> tuple[Projection, ...]:
    """Return the projections of these names, or of one, or all of them.

    Raises:
        UnknownProjection: One of the names is none.
    """
    known = {projection.name: projection for projection in projections}
    # A text is one name, and not a name for each of its letters.
    wanted = (names,) if isinstance(names, str) else tuple(names or ()) or tuple(known)
    for name in wanted:
        if name not in known:
            raise UnknownProjection(name, tuple(known))
    return tuple(known[name] for name in dict.fromkeys(wanted))


class Counter(Protocol):
    """Counts tokens; what was counted before is remembered."""

    def count(self, message: Mapping[str, Any], tokenizer: Tokenizer) -> Count:
        """Return the tokens of one message within a request."""

    def count_text(self, text: str, tokenizer: Tokenizer) -> Count:
        """Return the tokens of a text alone."""


class Counting(Protocol):
    """The columns of a table that say how many tokens others have: the engine fills them.

    A fold counts nothing, so that it needs neither a tokenizer nor what was counted before. Equal
    countings must be equal values.
    """

    def fill(self, values: dict[str, Any], counter: Counter) -> None:
        """Set the counts of what these columns hold, in place; called before they are written."""


@dataclass(frozen=True, slots=True)
class Marked:
    """How attachments treat many new rows at once, where their triggers would take each by itself.

    Attributes:
        column: One of the attachments' own, which is 0 in the new rows: triggers pass these over.
        statements: What is run when the rows are in, in the same transaction; it fills the column.
    """

    column: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filling:
    """What is done to attachments around the making of a generation, which nobody reads till then.

    Attributes:
        begin: Statements for the empty table.
        end: Statements that undo it before the generation goes live; run again, they do no harm.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...]


class Attachments(Protocol):
    """What a database keeps beside a table by itself: columns that no fold sets, and indexes.

    Equal attachments must be equal values, since tables are built once for each declaration.
    """

    def made(self, table: str, dialect: str) -> Sequence[str]:
        """Return the SQL that makes them, to be run when the table was made and holds nothing.

        What is dropped with the table is named ``<table>_beside`` if it is a table, or a function.

        Args:
            table: The generation's table.
            dialect: ``sqlite`` or ``postgresql``.
        """

    def marked(self, table: str, dialect: str) -> Marked | None:
        """Return how many new rows are written at once; None if as any others."""

    def filling(self, table: str, dialect: str) -> Filling | None:
        """Return what a rebuild does before it fills the table and afterwards; None if nothing."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table that a projection fills, and the stable SQL view of the same name.

    ``conversation_id`` comes first in every table and every index, without being listed;
    ``key`` names the columns that identify a row within its conversation (all of them in
    ``columns``; empty for one row a conversation). ``indexes`` are lists of column names that
    are indexed with ``conversation_id`` in front; ``lookups`` are indexed as they stand, for
    questions across conversations; ``sparse`` names columns that are NULL in most rows, the others
    of which are indexed. ``storage`` is None if rows are kept as they are, ``counting`` where no
    column holds a count of tokens, ``attachments`` where the database keeps nothing beside.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    lookups: tuple[tuple[str, ...], ...] = ()
    sparse: tuple[str, ...] = ()
    storage: Storage | None = None
    counting: Counting | None = None
    attachments: Attachments | None = None


@dataclass(slots=True)
class Put:
    """Insert the row with this key, or set these columns of it if it exists.

    Columns that are not in ``values`` keep what they held, or are NULL in a new row.
    """

    table: str
    key: tuple[Any, ...]
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """Set columns of the rows that exist and match; none is inserted.

    A row matches when ``column`` lies between ``first`` and ``last``, both included, in this
    conversation; ``column`` is one of integers (usually a version). With ``only``, a column of
    texts and a value, it must have that value there, too.
    """

    table: str
    column: str
    first: int
    last: int
    values: dict[str, Any]
    only: tuple[str, str | None] | None = None


Change = Put | Patch


class Projection(Protocol):
    """A read model: its tables, and how a conversation's events become their rows."""

    @property
    def name(self) -> str:
        """The stable name, in SQL, in Python and on the command line."""

    @property
    def version(self) -> int:
        """Raised whenever the fold would answer otherwise than before."""

    @property
    def tables(self) -> Sequence[ReadTable]:
        """The tables that the fold's changes name."""

    def initial(self) -> State:
        """Return the state before the first event."""

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event and the row changes that it brings.

        The given state is not altered. An event that the projection does not care for returns
        the same state and no changes.
        """
