"""Databases for races and for many writers begin with the schema."""

from __future__ import annotations

import pytest

from tests.conftest import Beginning


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return "upgraded"


@pytest.fixture
def postgres_url(fresh_postgres_url: str) -> str:
    """URL of a PostgreSQL database whose sessions are those of the test."""
    return fresh_postgres_url
