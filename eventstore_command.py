"""The entry point of the command ``eventstore``: an interrupt ends it quietly while it imports.

This module stands by itself, as what it guards is the import of all packages there are: it takes a
second, in which an interrupt would come out as a traceback from the midst of some module.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

__all__ = ["guard", "main"]

INTERRUPTED = 130
"""Exit status: as a shell tells of a program that an interrupt has ended."""


def main() -> None:
    """Run the command and exit with its status."""
    guarded = guard()
    # Nearly all that is imported stays; to look for garbage among it took a sixth of the time.
    gc.disable()
    from agent_eventstore.cli import main as run

    gc.freeze()
    gc.enable()
    try:
        if guarded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def guard() -> bool:
    """Let an interrupt end the process quietly from now on, and return whether it does.

    Whoever runs it in the background may have interrupts ignored, and they stay so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    return signal.getsignal(signal.SIGINT) is _leave


def _leave(number: int, frame: object) -> None:
    # An exception could be swallowed by what is being imported; nothing was opened or written yet.
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
