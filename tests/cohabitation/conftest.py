"""Databases that have the schema already, for tests of who may use it beside a product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from eventstore import EventStore
from projections import Views
from tests.contract.plain import PlainClient
from tests.postgres import fresh_database

PRODUCT = """
    CREATE TABLE conversations (id BIGINT PRIMARY KEY, topic TEXT);
    CREATE TABLE events (id BIGINT PRIMARY KEY, at TIMESTAMPTZ);
    CREATE TABLE erased_versions (id BIGINT PRIMARY KEY);
    INSERT INTO conversations VALUES (1, 'ours');
    INSERT INTO events VALUES (1, now())
"""


@pytest.fixture(scope="session")
def shared_database(postgres_server_url: str) -> Iterator[str]:
    """Name of a PostgreSQL database with a product's tables, and all of a store's in `agent`."""
    with fresh_database(postgres_server_url) as url:
        with PlainClient(url) as client:
            client.execute(PRODUCT)
        with EventStore.open(url, schema="agent") as store:
            Views(store)
        yield str(make_url(url).database)
