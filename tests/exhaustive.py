"""What `make test` leaves to `make test-exhaustive`: sweeps, of which it has a representative part.

Each test function keeps a part in `make test`, which ends with an error otherwise. Three ways lead
to the marker ``exhaustive``:

- it stands at a value of ``parametrize``, as `partly` puts it;
- ``exhaustive_when("postgresql")`` puts it on those of a test, or of a file, with that parameter:
  for what is above the statements of a database, and the same on both;
- tests that are made for each database and for each of the twins, ``sync`` and ``async``, are
  quick for the blocking one on SQLite and the asynchronous one on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["mark_exhaustive", "partly"]

_LEFT = ({"sync", "postgresql"}, {"async", "sqlite"})
"""Of four ways to a store two are quick: each twin is tried, and so is each database."""


def partly(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Return values for ``parametrize``, all but the first ``quick`` ones marked exhaustive."""
    return [
        value if number < quick else pytest.param(value, marks=pytest.mark.exhaustive)
        for number, value in enumerate(values)
    ]


def mark_exhaustive(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their parameters, before those with the marker are left out."""
    left: set[str] = set()
    kept: set[str] = set()
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        values = {each for each in given if isinstance(each, str)}
        when = {value for mark in item.iter_markers("exhaustive_when") for value in mark.args}
        if when & values or any(pair <= values for pair in _LEFT):
            item.add_marker(pytest.mark.exhaustive)
        found = left if item.get_closest_marker("exhaustive") else kept
        found.add(item.nodeid.partition("[")[0])
    if config.option.markexpr == "not exhaustive" and (forgotten := left - kept):
        names = "\n".join(sorted(forgotten))
        raise pytest.UsageError(f"nothing is left of these, run `make test-exhaustive`:\n{names}")
