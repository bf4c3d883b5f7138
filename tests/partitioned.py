"""Databases of tests whose large tables are divided, if the environment says so."""

from __future__ import annotations

import os

from eventstore import EventStore
from eventstore.database import partition, schema_lock
from tests.shim import SHARDS, distribute_on_shim

__all__ = ["upgrade"]

VARIABLE = "EVENTSTORE_TEST_PARTITIONS"


def upgrade(url: str) -> None:
    """Create the schema in a PostgreSQL database, divided as the environment says."""
    count = int(os.environ.get(VARIABLE, "0"))
    with EventStore.open(url) as store:
        if count:
            with schema_lock(store.engine) as connection:
                partition(connection, count)
        if SHARDS:
            distribute_on_shim(store, SHARDS)
