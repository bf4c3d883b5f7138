"""A store's pool of connections, which ends with the store.

SQLAlchemy's own, once disposed of, takes back what was in use meanwhile, and keeps it open for
nobody: a store that is closed while another thread reads would leave a connection behind.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.pool import ConnectionPoolEntry, Pool, QueuePool
from sqlalchemy.util.queue import Empty

from eventstore.sql.backend import backend_named

__all__ = ["ClosablePool", "close_pool", "is_closed", "may_fork"]


def _in_one_line(record: logging.LogRecord) -> bool:
    """Say what became of a connection without what the driver says, which may quote a payload."""
    if record.exc_info and (error := record.exc_info[1]) is not None:
        said = f"{record.getMessage()}: the connection is given up ({type(error).__name__})"
        record.msg, record.args, record.exc_info = said, (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


# SQLAlchemy tells of a connection that was lost, in the midst of an append, with the traceback.
logging.getLogger(f"{__name__}.ClosablePool").addFilter(_in_one_line)

_THREADS = Path("/proc/self/task")
_OPEN_FILES = Path("/proc/self/fd")


class ClosablePool(QueuePool):
    """A pool that keeps nothing from when it is closed: whoever comes then has a connection anew.

    A pool that is made of it is open, as in a child of a process that had closed its own.
    """

    closed = False

    def close(self) -> None:
        """Close what rests in it now, and what is given back from now on."""
        self.closed = True
        self.close_idle()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self.closed:
            self.close_idle()

    def close_idle(self) -> None:
        """Close what rests in it now; whoever comes then has a connection anew."""
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


def may_fork(engine: Engine) -> bool:
    """Whether a child may be forked now: of this process's own store, with all connections closed.

    Those that rest in the pool are closed. SQLite must have its file open nowhere in the process,
    since a child would inherit locks that it does not hold; and no thread may hold a lock that the
    child would wait for. Known on Linux alone.
    """
    pool, database = engine.pool, engine.url.database
    if not isinstance(pool, ClosablePool) or not database or not _THREADS.is_dir():
        return False
    pool.close_idle()
    if pool.checkedout() or len(os.listdir(_THREADS)) > 1:
        return False
    if not backend_named(engine.dialect.name).locks_all:
        return True
    return os.path.exists(database) and not _is_open(database)


def _is_open(path: str) -> bool:
    file = os.stat(path)
    for descriptor in os.listdir(_OPEN_FILES):
        with suppress(OSError):  # that of the folder is closed by now
            if os.path.samestat(file, os.fstat(int(descriptor))):
                return True
    return False
