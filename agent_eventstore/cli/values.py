"""Types of arguments that take no value which would end in an error of Python or a driver."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

__all__ = ["InputFile", "Number", "Seconds", "Versions"]

_MOST = 2**53
"""Neither a version nor a limit is above it, and both databases can count further."""


class Number(click.IntRange):
    """An integer that is no larger than any that there is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        number = int(super().convert(value, param, ctx))
        if abs(number) > _MOST:
            self.fail(f"the number is out of range: at most {_MOST:,}", param, ctx)
        return number


class Versions(click.ParamType):  # type: ignore[type-arg] # click 8.1 takes no argument
    """A version, or versions from one to another, both included, as in ``5-9``."""

    name = "versions"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Return the versions."""
        if isinstance(value, range):
            return value
        first, dash, last = str(value).partition("-")
        bounds = [
            Number(min=1).convert(each, param, ctx) for each in (first, last if dash else first)
        ]
        if bounds[0] > bounds[1]:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return range(bounds[0], bounds[1] + 1)


class Seconds(click.FloatRange):
    """A time in seconds that ends."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no time in seconds", param, ctx)
        return seconds


class InputFile(click.Path):
    """A file that is there and ends: no pipe, which can be read only once, and no device."""

    def __init__(self, *, folders: bool = False) -> None:
        super().__init__(exists=True, dir_okay=folders, readable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the file's path."""
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if not path.is_file() and not path.is_dir():
            self.fail(f"{path} is no file: save what it gives to one", param, ctx)
        return path
