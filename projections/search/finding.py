"""Search across the messages of all conversations: each database's query and the hits.

If very many messages contain a word, only the newest of them are ranked: by time on PostgreSQL; on
SQLite those indexed last, which after a rebuild is the order of the rebuild.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from uuid import UUID

from sqlalchemy import Connection, select, text
from sqlalchemy.types import Text

from eventstore import EventStore
from eventstore.database import Id, escape
from eventstore.owners import Owner
from projections.engine.generations import Generation
from projections.search.message_search import searched_text
from projections.search.words import Term, pieces_of, snippet_of

__all__ = ["FoundPlace", "SearchHit", "hits_of", "places_of", "titles_of"]

_RANKED = 2_000  # newest matches, which are pieces of messages

# Of a long message with several matching pieces, only the best one takes a place on the page.
# The index comes first in its join, so that it is read from its end, and no further than needed.
_SQLITE = """
    WITH found AS MATERIALIZED (
        SELECT message.conversation_id, message.version, message.piece, message.role,
            message.doc, bm25({table}_beside, 1.0, 0.0) AS score
        FROM {table}_beside CROSS JOIN {table} AS message
            ON message.doc = {table}_beside.rowid AND message.inactive IS NULL
        WHERE {table}_beside MATCH :words ORDER BY {table}_beside.rowid DESC LIMIT :ranked)
    SELECT conversation_id, version, piece, role, -score FROM (
        SELECT *, row_number() OVER (
            PARTITION BY conversation_id, version ORDER BY score, doc DESC) AS nth
        FROM found)
    WHERE nth = 1 ORDER BY score, doc DESC LIMIT :limit
    """
_POSTGRESQL = """
    WITH found AS MATERIALIZED (
        SELECT conversation_id, version, piece, role, occurred_at, tokens FROM {table}
        WHERE tokens @@ CAST(:owned AS tsquery)
            AND inactive IS NULL ORDER BY occurred_at DESC, version DESC LIMIT :ranked)
    SELECT conversation_id, version, piece, role, score FROM (
        SELECT DISTINCT ON (conversation_id, version) conversation_id, version, piece, role,
            occurred_at, ts_rank_cd(tokens, CAST(:words AS tsquery), 1) AS score
        FROM found ORDER BY conversation_id, version, score DESC, piece) AS best
    ORDER BY score DESC, occurred_at DESC, version DESC, conversation_id LIMIT :limit
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message that matches a search.

    Attributes:
        conversation_id: Its conversation.
        title: The conversation's title.
        version: The message's version.
        role: ``user``, ``assistant``, or ``title`` if the match is in the conversation's title.
        snippet: The part of the message that contains most of the words.
        marks: Where the words are in the snippet: start and end of each, as in a slice.
        rank: Higher is better; comparable only within one result. The database computes it. Rows
            folded in memory (when the tables are behind and cannot be written) are ranked by
            SQLite, and so may come in a different order than on PostgreSQL.
    """

    conversation_id: UUID
    title: str | None
    version: int
    role: str
    snippet: str
    marks: tuple[tuple[int, int], ...]
    rank: float

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Return the snippet with each matching word enclosed in ``before`` and ``after``."""
        parts, end = [], 0
        for first, last in self.marks:
            parts += [self.snippet[end:first], before, self.snippet[first:last], after]
            end = last
        return "".join([*parts, self.snippet[end:]])


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """A match's place and its rank."""

    conversation_id: UUID
    version: int
    piece: int
    role: str
    rank: float


def places_of(
    connection: Connection,
    generation: Generation,
    terms: Sequence[Term],
    owned_by: Owner,
    limit: int,
) -> list[FoundPlace]:
    """Return the messages that contain all terms, best first, in the caller's transaction."""
    table = generation.tables["message_words"].name
    if connection.dialect.name == "sqlite":
        query, parameters = _SQLITE, {"words": _fts5(terms, owned_by)}
    else:
        words = " & ".join(map(_tsquery, terms))
        marks = [f"'{mark}'" for mark in _marks(owned_by)]
        query, parameters = _POSTGRESQL, {"words": words, "owned": " & ".join([*marks, words])}
    statement = text(query.format(table=table)).columns(
        conversation_id=Id, **({"role": Text} if "role" in query else {})
    )
    bound = {**parameters, "ranked": _RANKED, "limit": limit}
    return [FoundPlace(*row) for row in connection.execute(statement, bound)]


def _fts5(terms: Sequence[Term], owned_by: Owner) -> str:
    words = " AND ".join(f'"{" ".join(term.words)}"{" *" if term.prefix else ""}' for term in terms)
    marks = [f'"{kind}{own.encode().hex()}"' for kind, own in _named(owned_by)]
    theirs = f"owner : ({' AND '.join(marks)}) AND " if marks else ""
    return f"{theirs}words : ({words})"


def _tsquery(term: Term) -> str:
    *others, last = (f"'{word}'" for word in term.words)
    return f"({' <-> '.join([*others, last + (':*' if term.prefix else '')])})"


def _marks(owned_by: Owner) -> Iterator[str]:
    for kind, own in _named(owned_by):
        yield f"{kind}={md5(own.encode(), usedforsecurity=False).hexdigest()}"


def _named(owned_by: Owner) -> Iterator[tuple[str, str]]:
    """Yield the user and the tenant to ask the index for; an empty tenant stands for none."""
    if owned_by.user_id is not None:
        yield "u", escape(owned_by.user_id)
    if owned_by.tenant_id is not None or owned_by.exact:
        yield "t", escape(owned_by.tenant_id or "")


def titles_of(
    connection: Connection, generation: Generation, conversations: Iterable[UUID]
) -> Mapping[UUID, str | None]:
    """Return the titles of conversations, in the caller's transaction."""
    directory = generation.tables["directory"]
    query = select(directory.c.conversation_id, directory.c.title)
    query = query.where(directory.c.conversation_id.in_({*conversations}))
    return {row[0]: row[1] for row in connection.execute(query)}


def hits_of(
    store: EventStore,
    places: Sequence[FoundPlace],
    titles: Mapping[UUID, str | None],
    terms: Sequence[Term],
) -> list[SearchHit]:
    """Return the hits with their texts from the log, without those erased in the meantime."""
    hits = []
    for place in places:
        cid = place.conversation_id
        for event in store.read(cid, after=place.version - 1, limit=1):
            content = searched_text(event)
            pieces = [] if content is None else list(pieces_of(content[1]))
            if place.piece < len(pieces):
                found = snippet_of(pieces[place.piece], terms)
                hits.append(
                    SearchHit(
                        conversation_id=cid,
                        title=titles.get(cid),
                        version=place.version,
                        role=place.role,
                        snippet=found.text,
                        marks=found.marks,
                        rank=place.rank,
                    )
                )
    return hits
