"""What a projection is: a name, a version, its tables, and a pure fold over one conversation.

A fold gets the events of a single conversation in order of version and returns row changes. Its
state is a small JSON object that is kept between catch-ups. The state holds what later events need
(open items, running numbers), never the whole conversation, so that the cost of a catch-up depends
only on the new events. The fold must be pure: the same state and event must always give the same
result. If you change the results of a fold, raise its ``version``; the tables are then rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from eventstore.arguments import require_several
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
"""A JSON object that a fold carries from one event of a conversation to the next."""

ColumnType = Literal["text", "json", "integer", "float", "boolean", "timestamp", "uuid"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a read model; every column except those of the key may be NULL."""

    name: str
    type: ColumnType


class Storage(Protocol):
    """How a table stores rows in fewer bytes, by referring to the events in the same database.

    Folds produce whole rows and readers get whole rows: anything not stored in the row is in an
    event of its conversation. Equal storages must compare equal, because tables are built once per
    declaration.
    """

    @property
    def event(self) -> str:
        """The column with the version of that event, NULL in rows that need none."""

    def stored(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values to write for a row that sets these columns: the same columns."""

    def shown(self, table: str, dialect: str) -> Mapping[str, str]:
        """Return the SQL expressions of the columns that cannot be read directly.

        Args:
            table: The qualifier of the table's own columns; the event's are qualified with
                ``events``.
            dialect: ``sqlite`` or ``postgresql``.
        """


def named(
    projections: Iterable[Projection], names: Iterable[str] | None = None
) -> tuple[Projection, ...]:
    """Return the projections with these names, or with one name, or all of them.

    Raises:
        UnknownProjection: No projection has one of the names.
    """
    known = {projection.name: projection for projection in projections}
    # A string is one name, not a sequence of one-letter names.
    names = (names,) if isinstance(names, str) else names
    require_several(names=names)
    wanted = tuple(names or ()) or tuple(known)
    for name in wanted:
        if name not in known:
            raise UnknownProjection(name, tuple(known))
    return tuple(known[name] for name in dict.fromkeys(wanted))


class Counter(Protocol):
    """Counts tokens and remembers earlier counts."""

    def count(self, message: Mapping[str, Any], tokenizer: Tokenizer) -> Count:
        """Return the token count of one message within a request."""

    def count_text(self, text: str, tokenizer: Tokenizer) -> Count:
        """Return the token count of a text by itself."""


class Counting(Protocol):
    """The columns of a table that hold token counts of other columns; the engine fills them.

    A fold does not count tokens, so it needs neither a tokenizer nor earlier counts. Equal
    countings must compare equal.
    """

    def fill(self, values: dict[str, Any], counter: Counter) -> None:
        """Set the counts of these columns, in place; called before the columns are written."""


@dataclass(frozen=True, slots=True)
class Marked:
    """How attachments process many new rows at once, instead of one at a time in triggers.

    Attributes:
        column: A column of the attachments that is 0 in the new rows, so that triggers skip them.
        statements: SQL to run after the rows are inserted, in the same transaction; it sets the
            column.
    """

    column: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filling:
    """Statements that change attachments while a generation is built, before anyone reads it.

    Attributes:
        begin: Statements to run on the empty table.
        end: Statements that undo the change before the generation goes live; idempotent.
    """

    begin: tuple[str, ...]
    end: tuple[str, ...]


class Attachments(Protocol):
    """What the database itself maintains for a table: columns that no fold sets, and indexes.

    Equal attachments must compare equal, because tables are built once per declaration.
    """

    def made(self, table: str, dialect: str) -> Sequence[str]:
        """Return the SQL that creates them, to be run on the newly created, empty table.

        A table or function that must be dropped with the table is named ``<table>_beside``.

        Args:
            table: The generation's table.
            dialect: ``sqlite`` or ``postgresql``.
        """

    def marked(self, table: str, dialect: str) -> Marked | None:
        """Return how to write many new rows at once; None to write them like any others."""

    def filling(self, table: str, dialect: str) -> Filling | None:
        """Return what a rebuild runs before and after it fills the table; None for nothing."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table that a projection fills, and the stable SQL view of the same name.

    ``conversation_id`` is the first column of every table and need not be listed. ``key`` names the
    columns that identify a row within its conversation (each must be in ``columns``; empty for one
    row per conversation). ``indexes`` are lists of columns to index after ``conversation_id``.
    ``lookups`` are lists to index as given, for queries across conversations. ``sparse`` names
    columns that are NULL in most rows; only their other rows are indexed, and those of
    ``sparse_lookups`` across conversations. ``storage`` is None if rows are stored as they are,
    ``counting`` if no column holds a token count, ``attachments`` if the database maintains nothing
    else for the table.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    lookups: tuple[tuple[str, ...], ...] = ()
    sparse: tuple[str, ...] = ()
    sparse_lookups: tuple[str, ...] = ()
    storage: Storage | None = None
    counting: Counting | None = None
    attachments: Attachments | None = None


@dataclass(slots=True)
class Put:
    """Insert the row with this key, or set these columns of it if it exists.

    Columns that are not in ``values`` keep their value, or are NULL in a new row.
    """

    table: str
    key: tuple[Any, ...]
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """Set columns of all existing rows that match; insert none.

    A row of this conversation matches if ``column`` is between ``first`` and ``last``, both
    inclusive; ``column`` must be an integer column (usually a version). With ``only``, a text
    column and a value, the row must also have that value in that column.
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
        """The stable name in SQL, in Python and on the command line."""

    @property
    def version(self) -> int:
        """A number that is raised with every change to the fold's results."""

    @property
    def tables(self) -> Sequence[ReadTable]:
        """The tables that the fold's changes refer to."""

    def initial(self) -> State:
        """Return the state before the first event."""

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and the resulting row changes.

        Do not modify the given state. For an event that the projection ignores, return the same
        state and no changes.
        """
