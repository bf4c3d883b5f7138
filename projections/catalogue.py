"""The available projections: those of this package, plus a product's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args, overload

from eventstore.database import VIEWS, metadata_for
from projections.context import CONTEXT, search_tables
from projections.engine import set_aside
from projections.engine.projection import ColumnType, Projection, named
from projections.errors import InvalidProjection, UnknownProjection
from projections.models.directory import DIRECTORY
from projections.models.open_work import OPEN_WORK
from projections.models.runs import RUNS
from projections.models.session_rows import SESSIONS
from projections.models.tasks import TASKS
from projections.models.timeline import TIMELINE
from projections.models.tool_calls import TOOL_CALLS
from projections.models.usage import USAGE
from projections.search.message_search import SEARCH
from projections.tokens import counts

__all__ = ["PROJECTIONS", "SHARED_TABLES", "ProjectionSet"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OF_A_GENERATION = re.compile(r".*_(g\d+|beside)")
_BUILT_IN: tuple[Projection, ...] = (
    DIRECTORY,
    TIMELINE,
    CONTEXT,
    USAGE,
    TOOL_CALLS,
    RUNS,
    OPEN_WORK,
    SEARCH,
    TASKS,
    SESSIONS,
)
SHARED_TABLES = (
    set_aside.TABLE.name,
    counts.TABLE.name,
    *search_tables.TABLES,
)
"""This package's tables that belong to no generation; some are created when first needed."""


class ProjectionSet(Sequence[Projection]):
    """This package's projections followed by a product's own: create one and pass it everywhere.

    `Views`, the worker, `rebuild`, `compare` and `status` accept it. The command line finds it
    through an entry point or ``--projections module:NAME``. See ``docs/projections.md``.

    Args:
        own: The product's own projections.

    Raises:
        InvalidProjection: The name of a projection is already taken or not valid in a database, or
            it declares a table that cannot be created.
    """

    def __init__(self, own: Iterable[Projection] = ()) -> None:
        self.own = tuple(own)
        self._all = (*_BUILT_IN, *self.own)
        taken = {each.name for each in _BUILT_IN}
        tables = {table.name for each in _BUILT_IN for table in each.tables}
        tables.update(SHARED_TABLES, metadata_for("postgresql").tables, VIEWS)
        for projection in self.own:
            if (problem := _problem(projection, taken, tables)) is not None:
                raise InvalidProjection(str(projection.name), problem)
            taken.add(projection.name)
            tables.update(table.name for table in projection.tables)

    @overload
    def __getitem__(self, place: int) -> Projection: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Projection, ...]: ...
    def __getitem__(self, place: int | slice) -> Projection | tuple[Projection, ...]:
        """Return the projection at an index, or the projections of a slice."""
        return self._all[place]

    def __len__(self) -> int:
        """Return the number of projections."""
        return len(self._all)

    def __iter__(self) -> Iterator[Projection]:
        """Iterate over the projections, those of this package first."""
        return iter(self._all)

    def named(self, names: Iterable[str] | None = None) -> tuple[Projection, ...]:
        """Return the projections with these names, or all of them.

        Raises:
            UnknownProjection: No projection has one of the names.
        """
        return named(self, names)

    def owner_of(self, table: str) -> Projection:
        """Return the projection that declares the table with this stable name.

        Raises:
            UnknownProjection: No projection declares it.
        """
        owners = {each.name: projection for projection in self for each in projection.tables}
        if table not in owners:
            raise UnknownProjection(table, tuple(owners))
        return owners[table]


def _problem(projection: Projection, taken: set[str], tables: set[str]) -> str | None:
    if not _NAME.fullmatch(projection.name):
        return "a name is up to 40 of a-z, 0-9 and _, and starts with a letter"
    if projection.name in taken:
        return "another projection already has this name"
    if type(projection.version) is not int or projection.version < 1:
        return f"its version must be an integer of at least 1, not {projection.version!r}"
    names = [table.name for table in projection.tables]
    if not names or len(names) > len(set(names)):
        return "it must declare at least one table, and each table name must be unique"
    for table in projection.tables:
        if not _NAME.fullmatch(table.name) or table.name in tables:
            return f"its table name {table.name!r} is already taken or not valid"
        if _OF_A_GENERATION.fullmatch(table.name):
            return f"its table name {table.name!r} is not valid: generations are named like this"
        columns = {column.name: column.type for column in table.columns}
        wrong = [name for name in columns if not _NAME.fullmatch(name)]
        wrong += [name for name, kind in columns.items() if kind not in get_args(ColumnType)]
        if wrong or "conversation_id" in columns or len(columns) < len(table.columns):
            return (
                f"the columns of {table.name!r} need unique, valid names and known types, and "
                "conversation_id must not be among them"
            )
        for keys in (table.key, table.sparse, *table.indexes, *table.lookups):
            if not columns.keys() >= {*keys} - {"conversation_id"}:
                return f"a key or index of {table.name!r} names a column that does not exist"
            if any(columns.get(name) == "json" for name in keys):
                return f"a key or index of {table.name!r} names a json column"
        if "conversation_id" in table.key:
            return f"conversation_id must not be in the key of {table.name!r}: every key has it"
    return None


PROJECTIONS = ProjectionSet()
"""The projections of this package."""
