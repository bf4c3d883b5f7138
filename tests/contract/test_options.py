"""Values that an option of a store cannot have: refused when it is opened, not taken for others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from eventstore import AsyncEventStore, EventStore


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("synchronous", "FUL", ValueError),
        ("synchronous", "full", ValueError),
        ("busy_timeout_ms", -1, ValueError),
        ("blob_threshold", -1, ValueError),
        ("max_event_bytes", 0, ValueError),
        ("memory_bytes", -1, ValueError),
        ("pool_size", 0, ValueError),
        ("clock", 5, TypeError),
        ("redact", "default", TypeError),
        ("keys", "directory", TypeError),
    ],
)
def test_a_value_that_is_none(tmp_path: Path, name: str, value: Any, kind: type[Exception]) -> None:
    """SQLite took ``FUL`` for NORMAL, so that a power cut undid what was acknowledged."""
    file = tmp_path / "store.db"
    with pytest.raises(kind, match=name):
        EventStore.open(f"sqlite:///{file}", **{name: value})
    assert not file.exists()


async def _open(url: str, **options: Any) -> None:
    await AsyncEventStore.open(url, **options)


def test_of_a_shared_engine_and_of_an_asynchronous_store(tmp_path: Path) -> None:
    """They take the same options."""
    wrong: Any = "NORMALL"
    url = f"sqlite:///{tmp_path / 'store.db'}"
    engine = create_engine(url)
    with pytest.raises(ValueError, match="choose from FULL, NORMAL, EXTRA, OFF"):
        EventStore.from_engine(engine, synchronous=wrong)
    engine.dispose()
    with pytest.raises(ValueError, match="choose from FULL, NORMAL, EXTRA, OFF"):
        asyncio.run(_open(url, synchronous=wrong))
