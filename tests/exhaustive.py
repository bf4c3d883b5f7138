"""What `make test` leaves to `make test-exhaustive`: sweeps, of which it has a representative part.

Each test function keeps a part in `make test`, which ends with an error otherwise. Four ways lead
to the marker ``exhaustive``:

- it stands at a value of ``parametrize``, as `partly` puts it;
- ``exhaustive_when("postgresql")`` puts it on those of a test, or of a file, with that parameter:
  for what is above the statements of a database, and the same on both;
- of two tests in a folder of `_ABOVE` that differ in the database alone, one is quick, which is on
  SQLite for about half of them;
- tests that are made for each database and for each of the twins, ``sync`` and ``async``, are
  quick for the blocking one on SQLite and the asynchronous one on PostgreSQL.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

__all__ = ["mark_exhaustive", "partly"]

_LEFT = ({"sync", "postgresql"}, {"async", "sqlite"})
"""Of four ways to a store two are quick: each twin is tried, and so is each database."""
_ABOVE = {"agents", "integration", "integrations", "projections", "scheduling"}
"""Folders of tests of what is above the statements, which the other folders try on each."""
_DATABASES = re.compile("sqlite|postgresql")


def partly(values: Iterable[Any], quick: int = 1, every: int = 0) -> list[Any]:
    """Return values for ``parametrize``, all but some of them marked exhaustive.

    Args:
        values: The values.
        quick: How many of the first ones `make test` has.
        every: It has each third value, if this is 3, in place of the first ones.
    """
    return [
        value
        if (number % every == 0 if every else number < quick)
        else pytest.param(value, marks=pytest.mark.exhaustive)
        for number, value in enumerate(values)
    ]


def mark_exhaustive(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their parameters, before those with the marker are left out."""
    left: set[str] = set()
    kept: set[str] = set()
    alike: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        values = {each for each in given if isinstance(each, str)}
        when = {value for mark in item.iter_markers("exhaustive_when") for value in mark.args}
        if when & values or any(pair <= values for pair in _LEFT):
            item.add_marker(pytest.mark.exhaustive)
        quick = item.get_closest_marker("exhaustive") is None
        (kept if quick else left).add(item.nodeid.partition("[")[0])
        place = os.path.relpath(item.path, config.rootpath)
        if quick and not _ABOVE.isdisjoint(Path(place).parts):
            alike[_DATABASES.sub("", item.nodeid)].append(item)
    for name, pair in alike.items():
        if len(pair) == 2:
            pair[crc32(name.encode()) % 2].add_marker(pytest.mark.exhaustive)
    if config.option.markexpr == "not exhaustive" and (forgotten := left - kept):
        names = "\n".join(sorted(forgotten))
        raise pytest.UsageError(f"nothing is left of these, run `make test-exhaustive`:\n{names}")
