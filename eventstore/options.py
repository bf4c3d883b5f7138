"""What a caller hands in that cannot be meant: an unknown option, something else than a store.

A function that takes ``**options`` takes any name, and would ignore a ``tenat_id`` in silence.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

__all__ = ["meant", "require_known", "require_store"]

_LOOKED_AT = 100  # characters of a name, which somebody else may have made


def require_known(options: Mapping[str, Any], kind: type) -> None:
    """Refuse options that a ``TypedDict`` does not have.

    Raises:
        TypeError: There are some.
    """
    for name in options.keys() - kind.__annotations__.keys():
        raise TypeError(f"there is no option {name!r}: {meant(name, kind.__annotations__)}")


def meant(name: str, known: Iterable[str]) -> str:
    """Return which of the known names was perhaps meant, or all of them.

    >>> meant("tenat_id", ["tenant_id", "user_id"])
    "did you mean 'tenant_id'?"
    """
    names = list(known)
    near = get_close_matches(name[:_LOOKED_AT], names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"


def require_store(store: object, kind: type[Any]) -> None:
    """Raise if something else stands in the place of a store, such as the other kind of one.

    Raises:
        TypeError: It does.
    """
    if isinstance(store, kind):
        return
    what = type(store).__name__
    if isinstance(store, Coroutine):
        store.close()
        what = "a coroutine: write `await` before the call that opens it"
    raise TypeError(f"the store has to be an {kind.__name__}, and is {what}")
