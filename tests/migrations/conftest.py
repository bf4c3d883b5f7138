"""Engines of the databases under test, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from eventstore.sql.engines import open_engine


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Give an engine on an empty database."""
    engine = open_engine(database_url)
    yield engine
    engine.dispose()
