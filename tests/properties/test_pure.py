"""Folds are pure: they count no tokens, and ask no database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from eventstore.events import RecordedEvent
from projections.catalogue import PROJECTIONS
from projections.engine.projection import Projection
from projections.tokens import Tokenizer, counts
from tests.properties.histories import histories
from tests.unit.projections.history import fold


@pytest.fixture(autouse=True, scope="module")
def no_counting() -> Iterator[None]:
    """Have everything that counts tokens or digests them for counting raise."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a fold counts tokens")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tokenizer, "count", refuse)
        for name in ("count", "count_all", "count_text", "recall", "count_message"):
            patched.setattr(counts, name, refuse)
        yield


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda each: each.name)
@given(events=histories())
def test_a_fold_counts_nothing(projection: Projection, events: list[RecordedEvent]) -> None:
    """Whatever the history: the engine counts before it writes, a request what it needs."""
    fold(projection, events)
