"""How long a catch-up makes SQLite's other writers wait: the times of its write transactions.

``python -m benchmarks.held [MEGABYTES]`` prints the longest and the median
of ten, for texts of different kinds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from eventstore import EventStore, events, new_id
from projections import Views, worker
from projections.context_reading import bring_up

__all__ = ["main"]

_TIMES = 10
_TEXTS = {
    "prose": "The order W2378156 was shipped to Mrs Ólafsdóttir on 2024-05-20 and is late. ",
    "one letter": "a",
    "escaped": 'a "b" \\ \n\t\x00 ',
    "Chinese": "订单已发货",
}


class _Timed(EventStore):
    """A store that records the duration of each write transaction, once it has begun."""

    held_ms: list[float]

    @contextmanager
    def writing(self, **options: Any) -> Iterator[Any]:
        """Time the transaction."""
        with super().writing(**options) as connection:
            started = time.perf_counter()
            yield connection
        self.held_ms.append((time.perf_counter() - started) * 1_000)

    @contextmanager
    def _driver_transaction(self, **options: Any) -> Iterator[Any]:
        """Time the transaction, if it writes."""
        with super()._driver_transaction(**options) as connection:
            started = time.perf_counter()
            yield connection
        if options.get("write"):
            self.held_ms.append((time.perf_counter() - started) * 1_000)


def main(megabytes: float) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        for name, piece in _TEXTS.items():
            text = piece * (int(megabytes * 1e6) // len(piece.encode()))
            caught_up, indexed = [], []
            with _Timed.open(f"sqlite:///{Path(folder) / name.replace(' ', '-')}.db") as store:
                store.held_ms = []
                Views(store)
                cid = new_id()
                store.append(cid, [events.UserMessage.text("a")])
                bring_up(store, cid)
                for _ in range(_TIMES):
                    cid = new_id()
                    store.append(cid, [events.UserMessage.text(text)])
                    store.held_ms = []
                    worker.run(store, once=True)
                    caught_up.append(max(store.held_ms))
                    store.held_ms = []
                    bring_up(store, cid)
                    indexed.append(max(store.held_ms))
            for what, found in (("catch-up", caught_up), ("index", indexed)):
                told = f"median {median(found):6.1f} ms, longest {max(found):6.1f} ms"
                print(f"{name:12} {what:10} {told}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
