"""Public names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["exports"]


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's ``__getattr__``, and let ``dir`` list the names.

    Args:
        package: The package's ``__name__``.
        homes: The full name of the module that defines each public name, or that is it.
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(homes[name])
        value = module if homes[name].endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    module = sys.modules[package]
    vars(module)["__dir__"] = lambda: sorted({*vars(module), *homes})
    return find
