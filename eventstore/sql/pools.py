"""A store's connection pool, which closes with the store.

A disposed SQLAlchemy pool takes back connections that were in use and keeps them open: a store that
is closed while another thread reads would leak a connection.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.pool import ConnectionPoolEntry, Pool, QueuePool
from sqlalchemy.util.queue import Empty

from eventstore.sql.backend import backend_of

__all__ = ["ClosablePool", "close_pool", "is_closed", "may_fork"]


def _in_one_line(record: logging.LogRecord) -> bool:
    """Log a lost connection without the driver's message, which may quote a payload."""
    if record.exc_info and (error := record.exc_info[1]) is not None:
        message = f"{record.getMessage()}: the connection is discarded ({type(error).__name__})"
        record.msg, record.args, record.exc_info = message, (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


# SQLAlchemy logs a connection that is lost during an append with the traceback.
logging.getLogger(f"{__name__}.ClosablePool").addFilter(_in_one_line)

_THREADS = Path("/proc/self/task")
_OPEN_FILES = Path("/proc/self/fd")


class ClosablePool(QueuePool):
    """A pool that keeps no connections once it is closed; later callers get fresh ones.

    A pool recreated from it is open, for example in the child of a process that had closed its own.
    """

    closed = False

    def close(self) -> None:
        """Close idle connections now, and others when they are returned."""
        self.closed = True
        self.close_idle()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self.closed:
            self.close_idle()

    def close_idle(self) -> None:
        """Close idle connections; later callers get fresh ones."""
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
    """Close a store's own pool; a pool that lends a product's connections keeps none."""
    if isinstance(pool, ClosablePool):
        pool.close()


def is_closed(pool: Pool) -> bool:
    """Whether the pool no longer keeps connections."""
    return isinstance(pool, ClosablePool) and pool.closed


def may_fork(engine: Engine) -> bool:
    """Whether this process can be forked now, with all connections of its own store closed.

    Closes idle connections. The process must not have SQLite's file open anywhere, since a child
    would inherit locks that it does not hold; and it must have no other thread, which could hold a
    lock that the child would wait for. Only known on Linux.
    """
    pool, database = engine.pool, engine.url.database
    if not isinstance(pool, ClosablePool) or not database or not _THREADS.is_dir():
        return False
    pool.close_idle()
    if pool.checkedout() or len(os.listdir(_THREADS)) > 1:
        return False
    if not backend_of(engine).locks_all:
        return True
    return os.path.exists(database) and not _is_open(database)


def _is_open(path: str) -> bool:
    file = os.stat(path)
    for descriptor in os.listdir(_OPEN_FILES):
        with suppress(OSError):  # the directory's own descriptor is closed by now
            if os.path.samestat(file, os.fstat(int(descriptor))):
                return True
    return False
