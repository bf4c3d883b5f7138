"""Which parts of divided tables an operation touches, by the server's own count."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from eventstore import EventStore
from projections import Views
from tests.contract.plain import PlainClient

__all__ = ["touched_parts"]

_SCANS = (
    "SELECT relname, seq_scan + coalesce(idx_scan, 0) + n_tup_ins "
    "FROM pg_stat_user_tables WHERE relname ~ ?"
)
_OTHERS = """
    SELECT FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """


def touched_parts(
    url: str, pattern: str, operation: Callable[[EventStore, UUID], object]
) -> set[str]:
    """Return the tables that an operation on ada's conversation reads or writes.

    Args:
        url: A store that nobody else uses.
        pattern: A regular expression for the names of the tables in question.
        operation: Gets a store and the id of the conversation.
    """
    with PlainClient(url) as client:
        client.execute("SET stats_fetch_consistency = none")
        [(cid,)] = client.execute("SELECT conversation_id FROM conversations WHERE user_id = 'ada'")

        def scans() -> dict[str, int]:
            while client.execute(_OTHERS):  # until everybody has hung up
                time.sleep(0.01)
            return dict(client.execute(_SCANS, pattern))

        with EventStore.open(url) as store:  # which reads what belongs to no conversation
            Views(store)
        before = scans()
        with EventStore.open(url) as store:
            operation(store, cid)
        until = time.monotonic() + 10
        while scans() == before and time.monotonic() < until:
            time.sleep(0.1)  # until the server has counted
        time.sleep(0.1)
        after = scans()
    assert before != after
    return {part for part in after if after[part] > before[part]}
