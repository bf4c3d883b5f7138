"""Statements that SQLAlchemy compiles once for all tests of a process, and not for each engine.

Nearly every test has an engine of its own, which would compile the same statements again: that was
an eighth of the tests' time. Engines of one kind of database compile them to the same.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

__all__ = ["share_compiled_statements"]

_MOST = 5_000
"""Statements, a hundred of which take a megabyte or two."""


class _Shared(dict[Any, Any]):
    """What engines take for their own cache; SQLAlchemy's keys begin with an engine's dialect."""

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a compiled statement, whichever engine it was compiled for."""
        return super().get(_of_any_engine(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        """Keep a compiled statement."""
        if len(self) >= _MOST:
            self.clear()
        super().__setitem__(_of_any_engine(key), compiled)


def _of_any_engine(key: Any) -> Any:
    dialect, *others = key
    return (type(dialect), dialect.server_version_info, dialect.paramstyle, *others)


def share_compiled_statements() -> None:
    """Have all engines of this process share what they compile."""
    shared = _Shared()
    # An engine sets its own as it is made, which is left aside.
    Engine._compiled_cache = property(lambda _: shared, lambda *_: None)  # type: ignore[assignment]
