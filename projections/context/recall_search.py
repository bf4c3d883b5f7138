"""Search over a whole conversation, in the database: BM25 over its words, optionally with vectors.

The database counts in how many groups each term occurs and adds up the scores; k1, b and the weight
of a term are those of `projections.context.compression.search`, over the groups of this
conversation only. So SQLite, PostgreSQL and the search in memory return the same scores, and other
conversations do not influence them.

Vectors are an embedding of the conversation's texts; each text is embedded only once. They are
stored by a fingerprint of their text, so that an intent, which is also a message, need not be
embedded again. pgvector or sqlite-vec finds the nearest vectors if available. The scores are then
computed in Python, which can also search without them, so that the results are always the same.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from eventstore.database import END, AnyConnection, Id, Statement, backend_of, raw_of
from projections.context import search_index, search_tables
from projections.context.compression.search import (
    DECIMALS,
    MOST_POSTINGS,
    Embedding,
    FusedSearch,
    best,
    cosine,
    embedded,
    query_text,
    rarest,
    wanted,
    weight,
)
from projections.context.rows import Key
from projections.context.search_tables import fingerprint, indexed_terms, pgvector_type
from projections.context.source import SqlRowSource
from projections.engine.generations import Generation
from projections.engine.heads import FoldHead

__all__ = [
    "DriverRows",
    "SearchBehind",
    "SearchableRows",
    "SqlSearch",
    "StoredVectors",
    "lacking",
    "store_vectors",
]


_END: Key = (END, 0)
# Of all rows up to the head, less those that are later: few, for most searches end at the latest
# message. Rows beyond the head are of an index in the making.
_SIZES = Statement(
    "SELECT h.documents - later.documents, h.length - later.length FROM search_heads h, "
    "(SELECT count(*) AS documents, coalesce(sum(length), 0) AS length FROM search_rows "
    "WHERE conversation_id = :cid AND piece = 0 AND (version, part) > (:version, :part) "
    "AND version <= (SELECT version FROM search_heads WHERE conversation_id = :cid)) later "
    "WHERE h.conversation_id = :cid"
)

_MOST_LATER = 256
# Of later rows, which are few, the words are counted here: a join for each posting is slow.
_LATER = Statement(
    "SELECT words FROM search_rows WHERE conversation_id = :cid "
    "AND (version, part) > (:version, :part) LIMIT :most"
)
_COUNTS_SQLITE = Statement("""
    SELECT w.value, (SELECT count(*) FROM (
        SELECT 1 FROM search_postings p
        WHERE p.term >= w.value || '=' AND p.term < w.value || '>' LIMIT :most
    )) FROM json_each(:terms) w
""")
_COUNTS = Statement("""
    SELECT w.term, (SELECT count(*) FROM (
        SELECT 1 FROM search_rows s
        WHERE s.conversation_id = :cid AND (s.version, s.part) <= (:version, :part)
        AND s.words @@ CAST('''' || w.term || '''' AS tsquery) LIMIT :most
    ) f) FROM unnest(CAST(:terms AS text[])) AS w(term)
""")

# Both start from the terms, from which the index leads to the rows.
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
_EXACT_SQLITE = Statement(
    "SELECT term, count(*) FROM (SELECT w.value AS term FROM json_each(:terms) w "
    "CROSS JOIN search_postings p ON p.term >= w.value || '=' AND p.term < w.value || '>' "
    "CROSS JOIN search_rows r ON r.id = p.doc "
    "WHERE r.conversation_id = :cid AND (r.version, r.part) <= (:version, :part)) GROUP BY term"
)
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
    "sqlite": Statement(
        _SCORES.format(
            hits=_SQLITE,
            weight="search_weight(:count, count(*))",
            sum="total",
            decimals=DECIMALS,
            mean=":mean",
        )
    ),
    "postgresql": Statement(
        _SCORES.format(
            hits=_POSTGRESQL,
            weight="ln(1 + CAST(:count - count(*) + 0.5 AS float8)"
            " / CAST(count(*) + 0.5 AS float8))",
            sum="CAST(total AS numeric)",
            decimals=DECIMALS,
            mean="CAST(:mean AS float8)",
        )
    ),
}

_MORE = 16  # nearest vectors beyond the limit: single precision may order close ones differently

_LACKING = text(
    "SELECT r.version, r.part, r.fingerprint FROM search_rows r WHERE r.conversation_id = :cid "
    "AND r.piece = 0 AND r.length > 0 AND NOT EXISTS (SELECT 1 FROM search_vectors v "
    "WHERE v.conversation_id = :cid AND v.embedding = :embedding "
    "AND v.fingerprint = r.fingerprint) LIMIT :most"
).bindparams(bindparam("cid", type_=Id))

_HELD = (
    "FROM search_rows r JOIN search_vectors v ON v.conversation_id = r.conversation_id "
    "AND v.fingerprint = r.fingerprint WHERE r.conversation_id = :cid AND r.piece = 0 "
    "AND v.embedding = :embedding AND (r.version, r.part) <= (:version, :part)"
)
_ORDER = "r.version DESC, r.part DESC"


class SearchBehind(Exception):
    """The index is not current and cannot be updated in this read: update it, then read again."""


class SqlSearch:
    """A `Search` over the visible rows of one conversation, whose index must have them all.

    Args:
        connection: To a database that has the tables of `projections.context.search_tables`.
        conversation_id: The conversation.
        until: Ignore everything after this key.
    """

    def __init__(
        self, connection: AnyConnection, conversation_id: UUID, *, until: Key | None = None
    ) -> None:
        self._connection = connection
        self._conversation_id = conversation_id
        version, part = _END if until is None else until
        self._within = {"cid": conversation_id, "version": version, "part": part}

    def scores(self, intent: str, limit: int) -> Mapping[Key, float]:
        """Return the scores of the best groups, best first; of equal scores, the newer first."""
        connection, listed = self._connection, wanted(indexed_terms(query_text(intent)))
        [(count, length)] = map(_whole, _SIZES.rows(connection, **self._within))
        if not listed or not length or limit <= 0:
            return {}
        dialect = backend_of(connection).name
        prefix = search_tables.prefix_of(self._conversation_id)
        if dialect == "sqlite":
            _teach(connection)
        counts = self._counts([prefix + term for term in listed])
        rows = _QUERIES[dialect].rows(
            connection,
            terms=rarest(counts),
            count=count,
            mean=length / count,
            most=limit,
            **self._within,
        )
        return best({(version, part): float(score) for version, part, score in rows}, limit)

    def _counts(self, terms: list[str]) -> dict[str, int]:
        """Return in how many groups each term occurs; any number above the most is enough."""
        connection, most = self._connection, MOST_POSTINGS + 1
        if backend_of(connection).name != "sqlite":
            return dict(_COUNTS.rows(connection, terms=terms, most=most, **self._within))
        later = [
            words for (words,) in _LATER.rows(connection, most=_MOST_LATER + 1, **self._within)
        ]
        if len(later) > _MOST_LATER:
            exact = dict(_EXACT_SQLITE.rows(connection, terms=terms, **self._within))
            return {term: exact.get(term, 0) for term in terms}
        found = dict(_COUNTS_SQLITE.rows(connection, terms=terms, most=most + len(later)))
        prefix = len(search_tables.prefix_of(self._conversation_id))
        words = Counter(each.rpartition("=")[0] for row in later for each in row.split(" "))
        return {term: count - words[term[prefix:]] for term, count in found.items()}


def _whole(sizes: Sequence[Any]) -> tuple[int, int]:
    """Return sizes as integers: PostgreSQL's sums are of another type."""
    return int(sizes[0]), int(sizes[1])


def _teach(connection: AnyConnection) -> None:
    """Define the weight of a term as a SQL function: many builds of SQLite have no logarithm."""
    raw: Any = raw_of(connection)
    raw = getattr(raw, "driver_connection", raw)
    raw.create_function("search_weight", 2, weight, deterministic=True)


class DriverRows(SqlRowSource):
    """The rows of one conversation, read on the driver, with a search by words over its index.

    Args:
        connection: A connection in a transaction.
        generation: The generation of the projection ``context``.
        conversation_id: The conversation.
        excluded: See `SqlRowSource`.
        head: See `SqlRowSource`.
    """

    def __init__(
        self,
        connection: AnyConnection,
        generation: Generation,
        conversation_id: UUID,
        *,
        excluded: bool = False,
        head: FoldHead | None = None,
    ) -> None:
        table = generation.tables["context_messages"]
        super().__init__(connection, table, conversation_id, excluded=excluded, head=head)
        self._driver, self._of, self._stream = connection, generation, conversation_id
        unsaved = None if head is None else head.unsaved
        self._keys = () if unsaved is None else tuple(unsaved.rows)

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: Key | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[Key, float]:
        """Return the scores of the groups that answer an intent best.

        Raises:
            SearchBehind: The index lacks rows, or there is an embedding to search with.
        """
        connection, stream = self._driver, self._stream
        if embedding is not None or not search_tables.are_there(connection):
            raise SearchBehind
        if not search_index.covers(connection, self._of, stream, until or _END, self._keys):
            raise SearchBehind
        return SqlSearch(connection, stream, until=until).scores(intent, limit)


class SearchableRows(SqlRowSource):
    """The rows of one conversation, with a search over its index.

    Args:
        connection: A connection in a transaction.
        generation: The generation of the projection ``context``, caught up.
        conversation_id: The conversation.
        patient: Whether to search without the index if it is not current, instead of raising
            `SearchBehind`.
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
        """Return the scores of the groups that answer an intent best.

        Raises:
            SearchBehind: The index lacks rows, and ``patient`` is false.
        """
        if not self._is_indexed(until, embedding):
            if not self._patient:
                raise SearchBehind
            return super().search(intent, limit, until=until, embedding=embedding)
        search = SqlSearch(self._connection, self._stream, until=until)
        if embedding is None:
            return search.scores(intent, limit)
        vectors = StoredVectors(self._connection, self._stream, embedding, until=until)
        return FusedSearch(search, vectors).scores(intent, limit)

    def _is_indexed(self, until: Key | None, embedding: Embedding | None) -> bool:
        connection, stream = self._connection, self._stream
        if not search_tables.are_there(connection):
            return False
        if not search_index.covers(connection, self._generation, stream, until or _END):
            return False
        return embedding is None or not lacking(connection, stream, embedding.name, 1)


def lacking(
    connection: Connection, conversation_id: UUID, embedding: str, most: int
) -> dict[Key, bytes]:
    """Return up to ``most`` indexed texts without a vector, as fingerprints by key."""
    values = {"cid": conversation_id, "embedding": embedding, "most": most}
    rows = connection.execute(_LACKING, values)
    return {(version, part): bytes(mark) for version, part, mark in rows}


def store_vectors(
    connection: Connection,
    conversation_id: UUID,
    embedding: str,
    vectors: Mapping[bytes, Sequence[float]],
) -> None:
    """Store vectors by the fingerprints of their texts, in the caller's transaction."""
    kind = pgvector_type(connection)
    shape = ":vector" if kind is None else f"CAST(:vector AS {kind})"
    statement = text(
        "INSERT INTO search_vectors (conversation_id, embedding, fingerprint, vector) "  # noqa: S608
        f"VALUES (:cid, :embedding, :mark, {shape}) ON CONFLICT DO NOTHING"
    ).bindparams(bindparam("cid", type_=Id))
    own = {"cid": conversation_id, "embedding": embedding}
    rows = [
        {**own, "mark": mark, "vector": _written(connection, vector)}
        for mark, vector in sorted(vectors.items())
    ]
    if rows:
        connection.execute(statement, rows)


class StoredVectors:
    """A `Search` by the cosine of stored vectors.

    Args:
        connection: To a database that has the tables of `projections.context.search_tables`.
        conversation_id: The conversation.
        embedding: The embedding whose vectors to search.
        until: Ignore everything after this key.
    """

    def __init__(
        self,
        connection: Connection,
        conversation_id: UUID,
        embedding: Embedding,
        *,
        until: Key | None = None,
    ) -> None:
        self._connection = connection
        self._conversation_id = conversation_id
        self._embedding = embedding
        version, part = _END if until is None else until
        self._within = {
            "cid": conversation_id,
            "embedding": embedding.name,
            "version": version,
            "part": part,
        }

    def scores(self, intent: str, limit: int) -> Mapping[Key, float]:
        """Return the cosines above 0.0 of the best groups, best first."""
        if not intent.strip() or limit <= 0:
            return {}
        sought = self._vector_of(intent)
        return best(
            {key: cosine(sought, vector) for key, vector in self._near(sought, limit)}, limit
        )

    def _vector_of(self, intent: str) -> Sequence[float]:
        query = (
            "SELECT v.vector FROM search_vectors v WHERE v.conversation_id = :cid "
            "AND v.embedding = :embedding AND v.fingerprint = :mark"
        )
        mark = fingerprint(self._conversation_id, intent)
        row = self._execute(query, mark=mark).first()
        if row is not None:
            return _read(row[0])
        return embedded([intent], self._embedding.embed)[0]

    def _near(self, sought: Sequence[float], limit: int) -> Iterable[tuple[Key, Sequence[float]]]:
        values: dict[str, Any] = {}
        order = ""
        distance = self._distance()
        if distance is not None:
            order = f" ORDER BY {distance}, {_ORDER} LIMIT :most"
            values = {"sought": _written(self._connection, sought), "most": limit + _MORE}
        rows = self._execute(f"SELECT r.version, r.part, v.vector {_HELD}{order}", **values)
        return [((version, part), _read(vector)) for version, part, vector in rows]

    def _distance(self) -> str | None:
        """Return SQL for a vector's distance to ``:sought``, or None without an extension."""
        kind = pgvector_type(self._connection)
        if kind is not None:  # The type's operator is in the same schema.
            return f"v.vector OPERATOR({kind.removesuffix('vector')}<#>) CAST(:sought AS {kind})"
        if self._connection.dialect.name == "sqlite" and load_sqlite_vec(self._connection):
            return "vec_distance_l2(v.vector, :sought)"
        return None

    def _execute(self, query: str, **values: Any) -> Any:
        statement = text(query).bindparams(bindparam("cid", type_=Id))
        bound = {**self._within, **values}
        named = {name: value for name, value in bound.items() if f":{name}" in query}
        return self._connection.execute(statement, named)


def load_sqlite_vec(connection: Connection) -> bool:
    """Load sqlite-vec into a connection; return whether it is available.

    It needs the optional extra ``vectors``, and a Python that can load SQLite extensions.
    """
    pooled = connection.connection
    if "sqlite_vec" not in pooled.info:
        pooled.info["sqlite_vec"] = _loaded(pooled.driver_connection)
    return bool(pooled.info["sqlite_vec"])


def _loaded(raw: Any) -> bool:
    try:
        import sqlite_vec
    except ImportError:
        return False
    if not hasattr(raw, "enable_load_extension"):
        return False
    raw.enable_load_extension(True)
    try:
        sqlite_vec.load(raw)
    finally:
        raw.enable_load_extension(False)
    return True


def _written(connection: Connection, vector: Sequence[float]) -> Any:
    if pgvector_type(connection) is not None:
        return "[" + ",".join(map(repr, vector)) + "]"
    return array("f", vector).tobytes()


def _read(stored: Any) -> Sequence[float]:
    if isinstance(stored, str):
        return array("f", map(float, stored[1:-1].split(",")))
    vector = array("f")
    vector.frombytes(bytes(stored))
    return vector
