"""The index of a search, caught up bit by bit, is the index that is made at once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventStore, new_id
from eventstore.events import Payload
from projections import Views
from projections.context import CONTEXT
from projections.context.recall_search import SqlSearch
from projections.context.search_tables import search_in_memory
from projections.context.source import SqlRowSource
from projections.context_reading import bring_up
from projections.engine.generations import find_live
from tests.properties.histories import payloads

_pages = st.lists(st.lists(payloads(), min_size=1, max_size=8), min_size=1, max_size=5)
_INTENT = "line x search write success a b no result withdrawn"


@given(pages=_pages)
def test_catch_up_bit_by_bit_is_one_index(pages: Sequence[Sequence[Payload]]) -> None:
    """After any events in any order, a search scores as one over the visible rows does."""
    with EventStore.open("sqlite://") as store:
        Views(store)
        cid = new_id()
        for page in pages:
            store.append(cid, list(page), allow_empty=True)
            bring_up(store, cid)
            with store.reading() as connection:
                generation = find_live(connection, CONTEXT)
                assert generation is not None
                table = generation.tables["context_messages"]
                rows = list(SqlRowSource(connection, table, cid).newest(100))
                expected = search_in_memory(rows, _INTENT, 100)
                found = SqlSearch(connection, cid).scores(_INTENT, 100)
                assert list(expected.items()) == list(found.items())
                (count,) = connection.exec_driver_sql("SELECT count(*) FROM search_rows").one()
                assert len({row.key for row in rows if row.kind != "tool"}) == count
