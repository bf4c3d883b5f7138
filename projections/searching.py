"""Reads that search: tried as they are, and once more when the index has been brought up.

A read must not write, and an embedding may take seconds: so a read that finds the index behind
gives up, the index is brought up in short transactions with the embedding between them, and the
read is made again. What was appended meanwhile, or a database that is busy or read-only, is
searched without the index, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from eventstore import EventStore
from eventstore.erasure import erasure_count, erasure_lock
from eventstore.errors import DatabaseBusy
from projections.compression.strategy import Strategy
from projections.compression.vector_search import Embedding, embedded
from projections.context import CONTEXT, search_index, search_tables
from projections.context.budget import groups_of
from projections.context.recall import embedding_of
from projections.context.search import SearchBehind
from projections.context.search_memory import item_to_search
from projections.context.search_terms import fingerprint
from projections.context.search_vectors import lacking, store_vectors
from projections.context.sql_source import SqlRowSource
from projections.engine import PATIENCE_MS, Begin, CatchUp, in_pieces
from projections.generations import Generation, GenerationGone, find_live, gone

__all__ = ["bring_up", "searched"]

T = TypeVar("T")

_EMBEDDED = 64  # texts at a time


def searched(
    store: EventStore,
    conversation_id: UUID,
    strategy: Strategy,
    read: Callable[[bool], T],
) -> T:
    """Return what a read answers, with the index brought up if it asks for that.

    Args:
        store: The store.
        conversation_id: What is read.
        strategy: What the read is made with.
        read: Told whether to do without an index that is behind; else raises `SearchBehind`.
    """
    if store.read_only:
        return read(True)
    with suppress(SearchBehind):
        return read(False)
    with suppress(DatabaseBusy):
        bring_up(store, conversation_id, embedding_of(strategy))
    return read(True)


def bring_up(store: EventStore, conversation_id: UUID, embedding: Embedding | None = None) -> None:
    """Index what the conversation's index lacks, and embed what was never embedded.

    Transactions of its own, none of which is open while texts are embedded; one that is
    interrupted goes on where it stopped.
    """
    with store.reading() as connection:
        made = search_tables.are_there(connection)
        generation = find_live(connection, CONTEXT)
    if not made:
        search_tables.create(store, patience_ms=PATIENCE_MS)
    if generation is None:
        return
    writing = partial(store.writing, durable=False, patience_ms=PATIENCE_MS)
    with suppress(GenerationGone), gone():
        in_pieces([CatchUp([generation], conversation_id)], Begin(store.reading, writing))
    with store.reading() as connection:
        # A cut-over may have come since.
        generation = find_live(connection, CONTEXT)
    if generation is None:
        return
    index = search_index.IndexCatchUp(generation, conversation_id)
    with suppress(GenerationGone), gone():
        while not index.done:
            with store.reading(snapshot=True) as connection:
                index.look(connection)
            if not index.done:
                with writing() as connection:
                    index.save(connection)
    if index.done and embedding is not None:
        _embed(store, generation, conversation_id, embedding)


def _embed(
    store: EventStore, generation: Generation, conversation_id: UUID, embedding: Embedding
) -> None:
    while True:
        with store.reading(snapshot=True) as connection:
            erasures = erasure_count(connection, [conversation_id])
            texts = _lacking_texts(connection, generation, conversation_id, embedding.name)
        if not texts:
            return
        vectors = embedded(list(texts.values()), embedding.embed)
        with store.writing(durable=False, patience_ms=PATIENCE_MS) as connection:
            erasure_lock(connection, conversation_id)
            # What was erased since it was read must leave nothing.
            if erasure_count(connection, [conversation_id]) != erasures:
                return
            found = dict(zip(texts, vectors, strict=True))
            store_vectors(connection, conversation_id, embedding.name, found)


def _lacking_texts(
    connection: Connection, generation: Generation, conversation_id: UUID, name: str
) -> dict[bytes, str]:
    """Return texts by their fingerprints, a page of those that have no vector."""
    places = lacking(connection, conversation_id, name, _EMBEDDED)
    table = generation.tables["context_messages"]
    source = SqlRowSource(connection, table, conversation_id)
    rows = source.rows_at(sorted({version for version, _ in places}))
    found: dict[bytes, str] = {}
    for group in groups_of(rows):
        item = item_to_search(group)
        # A group that has changed since it was indexed is embedded when it is indexed again.
        if places.get(item.key) == (mark := fingerprint(conversation_id, item.text)):
            found[mark] = item.text
    return found
