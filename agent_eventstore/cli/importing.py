"""Imports of the command: an interrupt ends them quietly, and no garbage is collected meanwhile."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERRUPTED", "importing"]

INTERRUPTED = 130
"""Exit status: as a shell tells of a program that an interrupt has ended."""


@contextmanager
def importing() -> Iterator[None]:
    """Let an interrupt end the process quietly during the block, which only imports.

    Whoever runs it in the background may have interrupts ignored, and they stay so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.disable()  # nearly all that is imported stays: collections took a sixth of the time
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if signal.getsignal(signal.SIGINT) is _leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: object) -> None:
    # An exception could be swallowed by what is being imported; nothing was opened or written yet.
    os._exit(INTERRUPTED)
