"""`Views` and `AsyncViews` are twins: who knows one knows the other."""

from __future__ import annotations

import inspect

import pytest

from projections import AsyncViews, Views
from tests.unit.test_parity import parameters, public

AT_ONCE = {"for_owner"}
BOTH = sorted(public(Views))


def test_public_names_are_the_same() -> None:
    """A view of one is a view of the other; `AsyncViews.run` is for what has no method."""
    assert BOTH == sorted(public(AsyncViews).keys() - {"run"})


@pytest.mark.parametrize("name", BOTH)
def test_parameters_are_the_same(name: str) -> None:
    """Names, order, kinds, defaults and types of parameters do not differ."""
    assert parameters(public(Views)[name]) == parameters(public(AsyncViews)[name])


@pytest.mark.parametrize("name", sorted({*BOTH} - AT_ONCE))
def test_twin_is_awaited(name: str) -> None:
    """Each is one that a loop can go on beside, and is documented."""
    twin = public(AsyncViews)[name]
    assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)
    assert inspect.getdoc(twin)
