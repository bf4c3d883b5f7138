"""Search over a whole conversation, in the database: BM25 over its words, and vectors if given.

The database counts in how many groups each term stands and adds up the scores; k1, b and the
weight of a term are those of `projections.compression.memory_search`, over the groups of this
conversation alone. So both databases and the memory give the same scores, and no other
conversation moves one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from eventstore.events.codec import dumps
from eventstore.sql.types import Id
from projections.compression.memory_search import DECIMALS, best, wanted, weight
from projections.compression.vector_search import Embedding, FusedSearch
from projections.context import search_index, search_tables
from projections.context.search_terms import indexed_terms
from projections.context.search_vectors import StoredVectors, lacking
from projections.context.sql_source import SqlRowSource
from projections.generations import Generation

__all__ = ["SearchBehind", "SearchableRows", "SqlSearch"]

Key = tuple[int, int]

_END: Key = ((1 << 62), 0)
_SIZES = text(
    "SELECT count(*), sum(length) FROM search_rows r WHERE r.conversation_id = :cid "
    "AND r.piece = 0 AND (r.version, r.part) <= (:version, :part)"
).bindparams(bindparam("cid", type_=Id))

# The terms come first in both: from there the index leads to the rows.
_SQLITE = """
    SELECT w.key AS place, r.version, r.part, r.length,
        CAST(substr(p.term, length(w.value) + 2) AS INTEGER) AS tf
    FROM json_each(:terms) w
    CROSS JOIN search_postings p ON p.term >= w.value || '=' AND p.term < w.value || '>'
    CROSS JOIN search_rows r ON r.id = p.doc
    WHERE r.conversation_id = :cid AND (r.version, r.part) <= (:version, :part)
"""
_POSTGRESQL = """
    SELECT w.place, r.version, r.part, r.length,
        coalesce(CAST(r.repeated ->> substr(w.term, 10) AS integer), 1) AS tf
    FROM unnest(CAST(:terms AS text[])) WITH ORDINALITY AS w(term, place)
    CROSS JOIN LATERAL (
        SELECT * FROM search_rows s
        WHERE s.conversation_id = :cid AND (s.version, s.part) <= (:version, :part)
        AND s.words @@ CAST('''' || w.term || '''' AS tsquery)
    ) r
"""
_SCORES = """
    WITH hits AS MATERIALIZED ({hits}), worths AS MATERIALIZED (
        SELECT place, {weight} AS worth FROM hits GROUP BY place
    )
    SELECT version, part, round({sum}, {decimals}) AS score
    FROM (
        SELECT h.version, h.part, sum(
            w.worth * h.tf * 2.2 / (h.tf + 1.2 * (0.25 + 0.75 * h.length / {mean}))
        ) AS total
        FROM hits h JOIN worths w ON w.place = h.place
        GROUP BY h.version, h.part
    ) found
    ORDER BY score DESC, version DESC, part DESC
    LIMIT :most
"""
_QUERIES = {
    "sqlite": _SCORES.format(
        hits=_SQLITE,
        weight="search_weight(:count, count(*))",
        sum="total",
        decimals=DECIMALS,
        mean=":mean",
    ),
    "postgresql": _SCORES.format(
        hits=_POSTGRESQL,
        weight="ln(1 + (:count - count(*) + 0.5)::float8 / (count(*) + 0.5)::float8)",
        sum="total::numeric",
        decimals=DECIMALS,
        mean="CAST(:mean AS float8)",
    ).replace("::", "\\:\\:"),
}


class SearchBehind(Exception):
    """The index lacks something and cannot be written here: bring it up, then read again."""


class SqlSearch:
    """A `Search` over the visible rows of one conversation; its index must be current.

    Args:
        connection: To a database that has the tables of `projections.context.search_tables`.
        conversation_id: The conversation.
        until: As if what stands after this place had not been said yet.
    """

    def __init__(
        self, connection: Connection, conversation_id: UUID, *, until: Key | None = None
    ) -> None:
        self._connection = connection
        self._conversation_id = conversation_id
        self._is_sqlite = connection.dialect.name == "sqlite"
        version, part = _END if until is None else until
        self._within = {"cid": conversation_id, "version": version, "part": part}

    def scores(self, intent: str, limit: int) -> Mapping[Key, float]:
        """Return the best groups with their scores, best first; of equal ones the newer first."""
        listed = wanted(indexed_terms(intent))
        count, length = self._connection.execute(_SIZES, self._within).one()
        if not listed or not length or limit <= 0:
            return {}
        prefix = search_tables.prefix_of(self._conversation_id)
        terms: Any = [prefix + term for term in listed]
        if self._is_sqlite:
            terms = dumps(terms)
            _teach(self._connection)
        values = {"terms": terms, "count": count, "mean": length / count, "most": limit}
        statement = text(_QUERIES[self._connection.dialect.name])
        rows = self._connection.execute(
            statement.bindparams(bindparam("cid", type_=Id)), {**self._within, **values}
        )
        return best({(version, part): float(score) for version, part, score in rows}, limit)


def _teach(connection: Connection) -> None:
    """Give SQLite the weight of a term: many builds of it have no logarithm."""
    pooled = connection.connection
    if "search_weight" not in pooled.info:
        raw: Any = pooled.driver_connection
        raw.create_function("search_weight", 2, weight, deterministic=True)
        pooled.info["search_weight"] = True


class SearchableRows(SqlRowSource):
    """The rows of one conversation, with a search over its index.

    Args:
        connection: In a transaction.
        generation: Of the projection ``context``, caught up.
        conversation_id: The conversation.
        patient: Whether to search without the index where it lacks something, instead of asking
            for it by `SearchBehind`.
        excluded: See `SqlRowSource`.
    """

    def __init__(
        self,
        connection: Connection,
        generation: Generation,
        conversation_id: UUID,
        *,
        patient: bool,
        excluded: bool = False,
    ) -> None:
        table = generation.tables["context_messages"]
        super().__init__(connection, table, conversation_id, excluded=excluded)
        self._stream = conversation_id
        self._generation = generation
        self._connection = connection
        self._patient = patient

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: Key | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[Key, float]:
        """Return the groups that answer an intent best, with their scores.

        Raises:
            SearchBehind: The index is not current, and this transaction may not mend it.
        """
        if not self._is_indexed(embedding):
            if not self._patient:
                raise SearchBehind
            return super().search(intent, limit, until=until, embedding=embedding)
        search = SqlSearch(self._connection, self._stream, until=until)
        if embedding is None:
            return search.scores(intent, limit)
        vectors = StoredVectors(self._connection, self._stream, embedding, until=until)
        return FusedSearch(search, vectors).scores(intent, limit)

    def _is_indexed(self, embedding: Embedding | None) -> bool:
        connection, stream = self._connection, self._stream
        if not search_tables.are_there(connection):
            return False
        if not search_index.is_current(connection, self._generation, stream):
            return False
        return embedding is None or not lacking(connection, stream, embedding.name, 1)
