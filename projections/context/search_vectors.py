"""What an embedding made of a conversation's texts: each embedded once ever, and searched here.

Vectors are kept by a fingerprint of their text, so that an intent, which is a message too, need
not be embedded again. pgvector or sqlite-vec finds the nearest where it can be had; their scores
are worked out again in plain Python, which also searches alone, so that all give the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, text

from eventstore.sql.types import Id
from projections.compression.memory_search import best
from projections.compression.vector_search import Embedding, cosine, embedded
from projections.context.search_tables import has_pgvector
from projections.context.search_terms import fingerprint

__all__ = ["StoredVectors", "lacking", "store_vectors"]

Key = tuple[int, int]

_END: Key = ((1 << 62), 0)
_MORE = 16  # nearest ones beyond the limit: single precision may order neighbours otherwise

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


def lacking(
    connection: Connection, conversation_id: UUID, embedding: str, most: int
) -> dict[Key, bytes]:
    """Return places and fingerprints of indexed texts that have no vector yet, at most so many."""
    values = {"cid": conversation_id, "embedding": embedding, "most": most}
    rows = connection.execute(_LACKING, values)
    return {(version, part): bytes(mark) for version, part, mark in rows}


def store_vectors(
    connection: Connection,
    conversation_id: UUID,
    embedding: str,
    vectors: Mapping[bytes, Sequence[float]],
) -> None:
    """Keep vectors by the fingerprints of their texts, in the caller's transaction."""
    shape = "CAST(:vector AS vector)" if has_pgvector(connection) else ":vector"
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
        embedding: Whose vectors to search.
        until: As if what stands after this place had not been said yet.
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
        """Return the best groups with their cosines above 0.0, best first."""
        if not intent.strip() or limit <= 0:
            return {}
        sought = self._vector_of(intent)
        return best({key: cosine(sought, held) for key, held in self._near(sought, limit)}, limit)

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
        """Return SQL for how far a vector is from the sought one, if the database can tell."""
        if has_pgvector(self._connection):
            return "v.vector <#> CAST(:sought AS vector)"
        if self._connection.dialect.name == "sqlite" and load_sqlite_vec(self._connection):
            return "vec_distance_l2(v.vector, :sought)"
        return None

    def _execute(self, query: str, **values: Any) -> Any:
        statement = text(query).bindparams(bindparam("cid", type_=Id))
        bound = {**self._within, **values}
        named = {name: value for name, value in bound.items() if f":{name}" in query}
        return self._connection.execute(statement, named)


def load_sqlite_vec(connection: Connection) -> bool:
    """Load sqlite-vec into a connection; False without it, or if this Python loads no extensions.

    The package is the optional extra ``vectors``.
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
    if has_pgvector(connection):
        return "[" + ",".join(map(repr, vector)) + "]"
    return array("f", vector).tobytes()


def _read(stored: Any) -> Sequence[float]:
    if isinstance(stored, str):
        return array("f", map(float, stored[1:-1].split(",")))
    vector = array("f")
    vector.frombytes(bytes(stored))
    return vector
