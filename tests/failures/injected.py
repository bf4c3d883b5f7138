"""Errors of the drivers, raised at a chosen statement of a call, on a real database.

`Faults` wraps what the drivers connect with: while it is armed it counts connections, statements
and commits, and at the chosen one raises an error. PostgreSQL's errors are raised by the server,
so that the transaction is as broken as it would be; SQLite's are made, with their result codes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

import psycopg
import sqlalchemy.exc
from psycopg import errors
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, event

__all__ = ["ERRORS", "Fault", "Faults"]


@dataclass(frozen=True)
class Fault:
    """An error; ``sql`` has the server raise it, ``cut`` ends the connection instead."""

    name: str
    make: Callable[[], BaseException]
    sql: str = ""
    cut: bool = False


def _sqlite(name: str, kind: type[sqlite3.Error], said: str, code: int = 0) -> Fault:
    def make() -> BaseException:
        error = kind(said)
        if code:
            error.sqlite_errorcode, error.sqlite_errorname = code, f"SQLITE_{name.upper()}"
        return error

    return Fault(name, make)


def _server(kind: type[psycopg.Error]) -> Fault:
    raised = f"DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '{kind.sqlstate}'; END $$"
    return Fault(kind.__name__, partial(kind, "injected"), raised)


_OURS = [
    Fault(kind.__name__, partial(kind, "injected"))
    for kind in (
        sqlalchemy.exc.TimeoutError,
        sqlalchemy.exc.ResourceClosedError,
        sqlalchemy.exc.PendingRollbackError,
    )
]
ERRORS = {
    "sqlite": [
        _sqlite("busy", sqlite3.OperationalError, "database is locked", sqlite3.SQLITE_BUSY),
        _sqlite("locked", sqlite3.OperationalError, "table is locked", sqlite3.SQLITE_LOCKED),
        _sqlite("readonly", sqlite3.OperationalError, "readonly", sqlite3.SQLITE_READONLY),
        _sqlite("full", sqlite3.OperationalError, "disk is full", sqlite3.SQLITE_FULL),
        _sqlite("ioerr", sqlite3.OperationalError, "disk I/O", sqlite3.SQLITE_IOERR_READ),
        _sqlite("corrupt", sqlite3.DatabaseError, "malformed", sqlite3.SQLITE_CORRUPT),
        _sqlite("notadb", sqlite3.DatabaseError, "not a database", sqlite3.SQLITE_NOTADB),
        _sqlite("interrupt", sqlite3.OperationalError, "interrupted", sqlite3.SQLITE_INTERRUPT),
        _sqlite("error", sqlite3.OperationalError, "no such table: x", sqlite3.SQLITE_ERROR),
        _sqlite("constraint", sqlite3.IntegrityError, "UNIQUE", sqlite3.SQLITE_CONSTRAINT_UNIQUE),
        _sqlite("toobig", sqlite3.DataError, "too big", sqlite3.SQLITE_TOOBIG),
        _sqlite("misuse", sqlite3.InterfaceError, "bad parameter", sqlite3.SQLITE_MISUSE),
        _sqlite("closed", sqlite3.ProgrammingError, "Cannot operate on a closed database."),
        _sqlite("binding", sqlite3.ProgrammingError, "type 'x' is not supported"),
        _sqlite("no text", sqlite3.OperationalError, "Could not decode to UTF-8 column 'x'"),
        Fault("overflow", lambda: OverflowError("int too large to convert to SQLite INTEGER")),
        *_OURS,
    ],
    "postgresql": [
        Fault("lost", lambda: psycopg.OperationalError("the connection is closed"), cut=True),
        Fault("interface", lambda: psycopg.InterfaceError("the cursor is closed")),
        Fault("client", lambda: psycopg.ProgrammingError("no result available")),
        Fault("shut down", errors.AdminShutdown, "SELECT pg_terminate_backend(pg_backend_pid())"),
        *(
            _server(kind)
            for kind in (
                errors.UndefinedTable,
                errors.UndefinedColumn,
                errors.DeadlockDetected,
                errors.SerializationFailure,
                errors.LockNotAvailable,
                errors.QueryCanceled,
                errors.InsufficientPrivilege,
                errors.UniqueViolation,
                errors.DataCorrupted,
                errors.OutOfMemory,
                errors.DiskFull,
                errors.TooManyConnections,
                errors.ReadOnlySqlTransaction,
                errors.InvalidTextRepresentation,
                errors.InternalError_,
                errors.IoError,
                errors.DuplicatePreparedStatement,
                errors.IdleInTransactionSessionTimeout,
            )
        ),
        *_OURS,
    ],
}


class Faults:
    """What is to be raised in this process, and when; made ready by `installed`."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.at = 0
        self.count = 0
        self.connections: WeakSet[Any] = WeakSet()

    @contextmanager
    def armed(self, fault: Fault | None, at: int = 0) -> Iterator[None]:
        """Raise the fault at the ``at``-th step within the block, counting from 1; or count."""
        self.fault, self.at, self.count = fault, at, 0
        try:
            yield
        finally:
            self.fault = None

    def due(self) -> Fault | None:
        """Return the fault if this step is the chosen one."""
        self.count += 1
        fault = self.fault if self.count == self.at else None
        if fault is not None:
            self.fault = None
        return fault

    def still_open(self) -> list[Any]:
        """Return the connections that are in a transaction, which nobody has ended."""
        return [each for each in self.connections if _in_transaction(each)]

    @contextmanager
    def installed(self) -> Iterator[Faults]:
        """Have every engine of the process connect through this."""

        def connect(dialect: Any, _: Any, cargs: Any, cparams: dict[str, Any]) -> Any:
            sqlite = dialect.name == "sqlite"
            if (fault := self.due()) is not None:
                raise fault.make()
            if sqlite:
                cparams["factory"] = _sqlite_connection(self)
                made = dialect.connect(*cargs, **cparams)
            else:
                made = _psycopg_connection(self).connect(
                    *cargs, cursor_factory=_psycopg_cursor(self), **cparams
                )
            self.connections.add(made)
            return made

        event.listen(Engine, "do_connect", connect)
        try:
            yield self
        finally:
            event.remove(Engine, "do_connect", connect)


def _in_transaction(connection: Any) -> bool:
    if isinstance(connection, sqlite3.Connection):
        try:
            return connection.in_transaction
        except sqlite3.ProgrammingError:
            return False
    idle = TransactionStatus.IDLE, TransactionStatus.UNKNOWN
    return connection.info.transaction_status not in idle


def _sqlite_connection(faults: Faults) -> type[sqlite3.Connection]:
    def step() -> None:
        if (fault := faults.due()) is not None:
            raise fault.make()

    class Cursor(sqlite3.Cursor):
        def execute(self, *args: Any) -> Any:
            step()
            return super().execute(*args)

        def executemany(self, *args: Any) -> Any:
            step()
            return super().executemany(*args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, *args: Any) -> Any:
            return self.cursor().execute(*args)

        def commit(self) -> None:
            if self.in_transaction:
                step()
            super().commit()

    return Connection


def _raised(fault: Fault, connection: Any, run: Callable[[str], Any]) -> None:
    """Have the server raise a fault; in a pipeline, that is later."""
    if fault.cut:
        connection.close()
    elif fault.sql:
        run(fault.sql)
    else:
        raise fault.make()


def _psycopg_cursor(faults: Faults) -> type[psycopg.Cursor[Any]]:
    class Cursor(psycopg.Cursor[Any]):
        def _step(self) -> None:
            if (fault := faults.due()) is not None:
                _raised(fault, self.connection, super().execute)

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            self._step()
            return super().execute(*args, **kwargs)

        def executemany(self, *args: Any, **kwargs: Any) -> Any:
            self._step()
            return super().executemany(*args, **kwargs)

        def copy(self, *args: Any, **kwargs: Any) -> Any:
            self._step()
            return super().copy(*args, **kwargs)

    return Cursor


def _psycopg_connection(faults: Faults) -> type[psycopg.Connection[Any]]:
    class Connection(psycopg.Connection[Any]):
        def commit(self) -> None:
            if self.info.transaction_status not in (TransactionStatus.IDLE,):
                fault = faults.due()
                if fault is not None:
                    with psycopg.Cursor(self) as cursor:
                        _raised(fault, self, cursor.execute)
            super().commit()

    return Connection
