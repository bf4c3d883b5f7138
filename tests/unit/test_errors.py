"""The tree of errors: each can be handed from one process to another."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from uuid import UUID

import pytest

from agent_eventstore import errors
from eventstore.errors import CannotConnect, EventStoreError, StatementRefused, WrongExpectedVersion
from projections.errors import ProjectionFailed

CID = UUID(int=1)


def tree(kind: type[EventStoreError]) -> Iterator[type[EventStoreError]]:
    """Yield a class of errors and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


@pytest.mark.parametrize(
    "error",
    [
        CannotConnect("sqlite://", "gone", tried=2),
        StatementRefused("sqlite://", "54000", "too large"),
        WrongExpectedVersion(CID, 1, 2),
        ProjectionFailed("timeline", CID, 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_worker_process_reaches_its_parent(error: EventStoreError) -> None:
    """A rebuild in processes ended with a broken pool, and said nothing of a lost server."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (type(error), str(error), vars(error)) == (type(again), str(again), vars(again))


def test_every_class_can_be_pickled() -> None:
    """Whatever its initialiser asks for."""
    for kind in set(tree(EventStoreError)):
        error = kind.__new__(kind)
        error.args = ("said",)  # an OSError takes them in its initialiser only
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
        assert (kind, ("said",)) == (type(again), again.args)


def test_the_tree_is_listed() -> None:
    """What is raised can be imported from `agent_eventstore.errors`."""
    listed = {getattr(errors, name) for name in errors.__all__}
    own = ("eventstore.", "projections.", "agent_eventstore.")
    assert {kind for kind in tree(EventStoreError) if kind.__module__.startswith(own)} <= listed
