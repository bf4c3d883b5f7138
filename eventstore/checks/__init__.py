"""Checks of a database: the type of a check, and how checks are run.

A check writes nothing, works on a replica or a read-only file too, and says what to do. The checks
of the log are in `eventstore.checks.event_log`; those of one database in the module named after
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eventstore.errors import CannotConnect, NotWritable, StatementRefused, StoreUnavailable
from eventstore.store import EventStore

__all__ = ["Check", "Checker", "Status", "name_of", "run"]

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found and what to do about it; ``details`` holds its figures."""

    name: str
    status: Status
    found: str
    advice: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


Checker = Callable[[EventStore], Check]


def run(checks: Iterable[tuple[str, Checker]], store: EventStore) -> Iterator[Check]:
    """Run checks by name; a check that the database does not answer is reported as a problem.

    Raises:
        CannotConnect: The server cannot be reached.
    """
    for name, check in checks:
        try:
            yield check(store)
        except CannotConnect:
            raise
        except (StoreUnavailable, StatementRefused) as error:
            cause = error.__cause__ if isinstance(error, StatementRefused) else error
            reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
            advice = "look at the server's or the system's log; restore a backup if needed"
            if isinstance(error, NotWritable):
                advice = "check as the owner; see the server's or system's log for a failing disk"
            yield Check(name, "problem", f"cannot be checked: {reason}", advice)


def name_of(statement: str) -> str:
    """Return the name of the trigger or function that a statement of the migrations creates."""
    found = re.search(r"CREATE (?:TRIGGER|FUNCTION) (\w+)", statement)
    assert found is not None  # noqa: S101 - a constant of the migration
    return found[1]
