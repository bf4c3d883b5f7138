"""Options by name: one that does not exist is refused, with the one that was perhaps meant.

A function that takes ``**options`` takes any name, and would ignore a ``tenat_id`` in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

__all__ = ["meant", "require_known"]

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
