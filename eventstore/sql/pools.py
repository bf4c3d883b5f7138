"""A store's pool of connections, which ends with the store.

SQLAlchemy's own, once disposed of, takes back what was in use meanwhile, and keeps it open for
nobody: a store that is closed while another thread reads would leave a connection behind.
"""

from __future__ import annotations

from sqlalchemy.pool import ConnectionPoolEntry, Pool, QueuePool
from sqlalchemy.util.queue import Empty

__all__ = ["ClosablePool", "close_pool", "is_closed"]


class ClosablePool(QueuePool):
    """A pool that keeps nothing from when it is closed: whoever comes then has a connection anew.

    A pool that is made of it is open, as in a child of a process that had closed its own.
    """

    closed = False

    def close(self) -> None:
        """Close what rests in it now, and what is given back from now on."""
        self.closed = True
        self._empty()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self.closed:
            self._empty()

    def _empty(self) -> None:
        while True:
            try:
                record = self._pool.get(block=False)
            except Empty:
                return
            try:
                record.close()
            finally:
                self._dec_overflow()


def close_pool(pool: Pool) -> None:
    """Close a pool of a store's own; one that lends a product's connections keeps none."""
    if isinstance(pool, ClosablePool):
        pool.close()


def is_closed(pool: Pool) -> bool:
    """Whether connections are no longer kept."""
    return isinstance(pool, ClosablePool) and pool.closed
