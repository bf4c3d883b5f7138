"""Checks of arguments: unknown options, wrong limits, and objects that are not a store.

A function that accepts ``**options`` accepts any name and would silently ignore a ``tenat_id``.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

__all__ = ["at_most", "meant", "require_known", "require_several", "require_store", "require_text"]

Limit = TypeVar("Limit", int, int | None)

_MOST_ROWS = 2**31 - 2  # one more is a number that both databases accept as a limit
_LOOKED_AT = 100  # characters of a name, which may come from outside


def require_known(options: Mapping[str, Any], kind: type) -> None:
    """Refuse options that a ``TypedDict`` does not define.

    Raises:
        TypeError: An option is unknown.
    """
    for name in options.keys() - kind.__annotations__.keys():
        raise TypeError(f"unknown option {name!r}: {meant(name, kind.__annotations__)}")


def meant(name: str, known: Iterable[str]) -> str:
    """Suggest the known name closest to a misspelt one, or list them all.

    >>> meant("tenat_id", ["tenant_id", "user_id"])
    "did you mean 'tenant_id'?"
    """
    names = list(known)
    near = get_close_matches(name[:_LOOKED_AT], names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"


def at_most(limit: Limit, *, needed: bool = False) -> Limit:
    """Return the limit after checking it; None means all rows, unless a number is needed.

    Raises:
        ValueError: The limit is negative: SQLite would return all rows, PostgreSQL would fail. Or
            it is not a number of rows.
    """
    if limit is None and not needed:
        return None
    if not isinstance(limit, int):
        raise ValueError(f"limit must be a number of rows, not {limit!r}")
    if limit < 0:
        raise ValueError(f"limit must not be negative: {limit}")
    return min(limit, _MOST_ROWS)


def require_text(**arguments: object) -> None:
    """Refuse arguments that are neither text nor None.

    Raises:
        TypeError: One of them is something else.
    """
    for name, value in arguments.items():
        if not isinstance(value, str | None):
            raise TypeError(f"{name} must be a string, not {value!r:.80}")


def require_several(**arguments: object) -> None:
    """Refuse one text where several ids or names are expected: its characters would be taken.

    >>> require_several(thread_ids="12")
    Traceback (most recent call last):
    ...
    TypeError: thread_ids must be several, such as a list, not the text '12'

    Raises:
        TypeError: One of the arguments is a text or bytes.
    """
    for name, value in arguments.items():
        if isinstance(value, str | bytes | bytearray | memoryview):
            raise TypeError(f"{name} must be several, such as a list, not the text {value!r:.80}")


def require_store(store: object, kind: type[Any]) -> None:
    """Refuse anything that is not a store of this kind, such as a store of the other kind.

    Raises:
        TypeError: The object is not such a store.
    """
    if isinstance(store, kind):
        return
    what = type(store).__name__
    if isinstance(store, Coroutine):
        store.close()
        what = "a coroutine: write `await` before the call that opens it"
    raise TypeError(f"the store must be an {kind.__name__}, not {what}")
