"""Run and ``kill -9`` processes at chosen places, for the tables of docs/integrations.md.

Each run is its own process, forked from one that has no store and no event loop yet.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from multiprocessing import get_context
from typing import Any

__all__ = ["chosen", "die", "until_killed", "where"]

Run = Callable[..., Coroutine[Any, Any, None]]
_place = ""


def chosen(places: dict[str, str]) -> dict[str, str]:
    """Return the places named on the command line, or all; exit with an error if one is unknown."""
    if wrong := [name for name in sys.argv[1:] if name not in places]:
        sys.exit(f"{wrong[0]!r} is not a place to kill at: choose {', '.join(places)}")
    return {name: places[name] for name in sys.argv[1:] or places}


def where() -> str:
    """Return the place at which this process is to be killed; empty in the observing process."""
    return _place


def die(place: str) -> None:
    """Kill this process with SIGKILL if it is to be killed here."""
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)


def until_killed(place: str, run: Run, *given: str) -> None:
    """Run a coroutine in a process that is to be killed at a place.

    Raises:
        SystemExit: The process was not killed.
    """
    process = get_context("fork").Process(target=_live, args=(place, run, given))
    process.start()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        raise SystemExit(f"{(place, *given)} was not killed: {process.exitcode}")


def _live(place: str, run: Run, given: tuple[str, ...]) -> None:
    global _place
    _place = place
    asyncio.run(run(*given))
