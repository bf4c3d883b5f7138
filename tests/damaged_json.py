"""JSON values with one thing wrong, as a broken server sends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["damaged_values"]

_ODD: tuple[Any, ...] = (5, "x", None, [], {}, [5])


def damaged_values(value: Any) -> Iterator[Any]:
    """Return a value with one thing in it removed or replaced, for each thing in it.

    The type of an object is only replaced in a list, with the whole object.
    """
    for place, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        inner = damaged_values(each) if isinstance(each, list | dict) else ()
        if isinstance(value, list) or place != "type":
            for other in (*_ODD, *inner):
                found = value.copy()
                found[place] = other
                yield found
        found = value.copy()
        del found[place]
        yield found
