"""`EventStore` and `AsyncEventStore` are twins: who knows one knows the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from eventstore import AsyncEventStore, EventStore

SYNCHRONOUS = {
    "reading",
    "stream",
    "resolve_owner",
    "writing",
}
"""What readers and the asynchronous store itself are made of, or belongs to one thread."""


def public(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    """Return the public methods of a class."""
    return {
        name: getattr(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and callable(getattr(cls, name))
    }


BOTH = sorted(public(EventStore).keys() - SYNCHRONOUS)
AT_ONCE = {"for_owner"}
"""What asks no database, so that there is nothing to await."""


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return names, kinds, defaults and annotations of what a method takes."""
    return [
        each.replace(annotation=str(each.annotation).replace(" | AsyncConnection", ""))
        for each in inspect.signature(method).parameters.values()
    ]


def test_public_names_are_the_same() -> None:
    """A method of one store is a method of the other."""
    assert BOTH == sorted(public(AsyncEventStore))


def test_exceptions_exist() -> None:
    """The list of exceptions names nothing that is gone."""
    assert public(EventStore).keys() >= SYNCHRONOUS


@pytest.mark.parametrize("name", BOTH)
def test_parameters_are_the_same(name: str) -> None:
    """Names, order, kinds, defaults and types of parameters do not differ."""
    sync, twin = parameters(public(EventStore)[name]), parameters(public(AsyncEventStore)[name])
    if name == "from_engine":  # The one takes SQLAlchemy's asynchronous kind as well.
        engine = sync.pop(0)
        assert engine == twin.pop(0).replace(annotation=engine.annotation)

    assert sync == twin


@pytest.mark.parametrize("name", BOTH)
def test_results_are_the_same(name: str) -> None:
    """What one returns, the other returns to ``await``, or yields to ``async for``."""
    sync, twin = (
        str(inspect.signature(public(cls)[name]).return_annotation)
        for cls in (EventStore, AsyncEventStore)
    )

    # One module may name a class through its module; that is no difference.
    assert sync.rpartition(".")[2] == twin.removeprefix("Async").rpartition(".")[2]


@pytest.mark.parametrize("name", sorted({*BOTH} - AT_ONCE))
def test_twin_is_awaited(name: str) -> None:
    """Each method of the asynchronous store is one that a loop can go on beside."""
    method = public(AsyncEventStore)[name]

    assert inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(inspect.unwrap(method))


@pytest.mark.parametrize("cls", [EventStore, AsyncEventStore])
@pytest.mark.parametrize("name", BOTH)
def test_method_is_documented(cls: type[Any], name: str) -> None:
    """Every public method has a docstring of its own."""
    assert inspect.getdoc(public(cls)[name])
