"""Databases for races and for many writers begin with the schema."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def begin_upgraded() -> bool:
    """Have databases begin with the schema, which the tests here do not ask about."""
    return True
