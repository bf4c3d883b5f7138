"""Calls of the library that meet an error of the driver's at each of their statements in turn."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from eventstore.errors import EventStoreError, StatementRefused, StoreUnavailable
from projections.errors import ProjectionFailed
from tests.failures.injected import ERRORS, Fault, Faults

__all__ = ["public", "sweep_faults"]

_DRIVERS = (sqlite3.Error, psycopg.Error, SQLAlchemyError, OverflowError)
_NAMES_A_CAUSE = (StoreUnavailable, StatementRefused, ProjectionFailed)


def public(cls: type[Any]) -> set[str]:
    """Return the names of a class's public methods."""
    names = (name for name in dir(cls) if not name.startswith("_"))
    return {name for name in names if callable(getattr(cls, name))}


def sweep_faults(
    faults: Faults,
    database: str,
    call: Callable[[], object],
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
    first: int = 0,
    most: int = 25,
) -> None:
    """Have a call meet every kind of error, and an error at every statement, ``most`` in all.

    Whatever leaves is this project's error, with the driver's as its cause; no transaction stays
    open; and the same call then works.

    Args:
        faults: Those of this process.
        database: Whose errors, by the name of SQLAlchemy's dialect.
        call: What is called, as often as is needed.
        before: Called before each error, with none to be met.
        after: Called when the call has worked after an error.
        first: The place of the error to begin with, where not all are met.
        most: Errors that are met at most.
    """
    before()
    with faults.armed(None):
        call()
    steps = faults.count
    for fault, at in _met(ERRORS[database], steps, first, most):
        before()
        try:
            with faults.armed(fault, at):
                call()
        except Exception as error:
            if not _is_ours(error):
                where = f"{fault.name} at statement {at} of {steps}"
                raise AssertionError(f"{where}: {error!r}") from error
        assert [] == faults.still_open(), f"{fault.name} at statement {at} of {steps}"
        call()
        after()


def _met(kinds: list[Fault], steps: int, first: int, most: int) -> Iterator[tuple[Fault, int]]:
    if not steps:
        return
    for number in range(min(most, max(steps, len(kinds)))):
        # Statements are met from both ends, so that fewer than all are not the first ones alone.
        place = number % steps
        at = place // 2 + 1 if place % 2 == 0 else steps - place // 2
        yield kinds[(first + number + number // len(kinds)) % len(kinds)], at


def _is_ours(error: Exception) -> bool:
    """Whether an error is this project's, and tells its cause if it is to."""
    if not isinstance(error, EventStoreError):
        return False
    return not isinstance(error, _NAMES_A_CAUSE) or _has_cause(error)


def _has_cause(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, _DRIVERS):
            return True
        error = error.__cause__
    return False
