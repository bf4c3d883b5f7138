"""What each connection to PostgreSQL sets, whatever defaults the role or the database has.

Correctness rests on some settings (isolation, durable commits, how values are written as text), and
on others that one stopped process harms nobody else (how long a lock is waited for, how long a
transaction may rest). They are set once for a connection. Behind a pooler that gives each
transaction another server's session, as PgBouncer does in transaction mode, they are set for each
transaction instead, statements are not prepared, and nothing is left behind in a session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import URL

__all__ = ["BRIEF", "NAMES", "Session", "problem_of"]

LOCK_TIMEOUT_MS = 5_000
IDLE_TIMEOUT_MS = 300_000
"""How long any transaction may rest, also that in which a product's own code or a fold runs."""

_COMMITS = ("on", "remote_apply", "remote_write", "local", "off")
_POOLERS = ("auto", "transaction", "none")
_LOCK, _IDLE = "lock_timeout", "idle_in_transaction_session_timeout"
_COMMIT, _POOLER = "synchronous_commit", "pooler"
NAMES = frozenset((_LOCK, _IDLE, _COMMIT, _POOLER))
"""The options of a URL that are this project's own, and not the driver's."""

_DURATION = re.compile(r"(\d{1,9}) ?(ms|s|min|h)?")
_MS = {None: 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}
_MOST_MS = 2**31 - 1  # of PostgreSQL

_LIMITS: dict[str, str | int] = {
    # A server that is gone, or a network that swallows everything, is noticed within a minute.
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_FIXED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
}


BRIEF = (
    "set_config('idle_in_transaction_session_timeout', CASE "
    "current_setting('idle_in_transaction_session_timeout') WHEN '5min' THEN '30s' "
    "ELSE current_setting('idle_in_transaction_session_timeout') END, true)"
)
"""Of a transaction that runs statements alone: it rests for moments, unless its process stops."""


def problem_of(query: Mapping[str, Any]) -> str | None:
    """Return what is wrong with this project's own options of a URL, if anything is."""
    for name in NAMES.intersection(query):
        value = query[name]
        if not isinstance(value, str):
            return f"the option {name!r} is given more than once"
        allowed = {_COMMIT: _COMMITS, _POOLER: _POOLERS}.get(name)
        if allowed is None and _milliseconds(value) is None:
            return f"the option {name!r} is a number of ms, or one with its unit: 5s, 2min; 0: none"
        if allowed is not None and value not in allowed:
            return f"the option {name!r} is one of {', '.join(allowed)}"
    return None


def _milliseconds(value: str) -> int | None:
    found = _DURATION.fullmatch(value)
    if found is None:
        return None
    duration = int(found[1]) * _MS[found[2]]
    return duration if duration <= _MOST_MS else None


@dataclass(frozen=True, slots=True)
class Session:
    """What a URL asks of its connections.

    Durations are in milliseconds, None where the URL has none; 0 is without a limit.
    """

    lock_timeout_ms: int | None
    idle_timeout_ms: int | None
    synchronous_commit: str | None
    pooler: str
    given: frozenset[str]

    @classmethod
    def of(cls, url: URL) -> Session:
        """Read it from a URL that `problem_of` has nothing to say about."""
        query = url.query
        lock, idle = query.get(_LOCK), query.get(_IDLE)
        commit = query.get(_COMMIT)
        return cls(
            None if lock is None else _milliseconds(str(lock)),
            None if idle is None else _milliseconds(str(idle)),
            None if commit is None else str(commit),
            str(query.get(_POOLER, "auto")),
            frozenset(query),
        )

    @property
    def patience_ms(self) -> int:
        """How long a lock is waited for, as far as the URL tells; 0 is without a limit."""
        return LOCK_TIMEOUT_MS if self.lock_timeout_ms is None else self.lock_timeout_ms

    def arguments(self, application: str) -> dict[str, str | int]:
        """Return what the driver connects with, beside what the URL says."""
        limits = {
            name: value
            for name, value in _LIMITS.items()
            if name not in self.given and f"PG{name.upper()}" not in os.environ
        }
        encoding = {} if "client_encoding" in self.given else {"client_encoding": "utf8"}
        return {"fallback_application_name": application, **encoding, **limits}

    def begin(self, connection: psycopg.Connection[Any], *, read_only: bool) -> bytes | None:
        """Set up a new connection; return what each transaction must execute first, if anything.

        That is so behind a pooler. Whether there is one shows in the process id: that of the
        server's own process is another one than the pooler has told.
        """
        connection.read_only = True if read_only else None
        settings = self._settings()
        pooled = {"none": "false", "transaction": "true"}.get(
            self.pooler, f"pg_backend_pid() <> {connection.info.backend_pid}"
        )
        defaults = {"default_transaction_isolation": "'read committed'"}
        if read_only:
            defaults["default_transaction_read_only"] = "'on'"
        connection.autocommit = True
        found = connection.execute(_select(settings | defaults, pooled, pooled)).fetchone()
        connection.autocommit = False
        if found is None or not found[0]:
            return None
        connection.prepare_threshold = None
        return _select(settings, "true")

    def _settings(self) -> dict[str, str]:
        """Return the value of each setting, as an expression of SQL."""
        settings = {name: f"'{value}'" for name, value in _FIXED.items()}
        settings[_LOCK] = _timeout(_LOCK, self.lock_timeout_ms, LOCK_TIMEOUT_MS)
        settings[_IDLE] = _timeout(_IDLE, self.idle_timeout_ms, IDLE_TIMEOUT_MS)
        # What an administrator has made stronger stays so; what is weaker is for the URL to say.
        settings[_COMMIT] = (
            f"CASE current_setting('{_COMMIT}') WHEN 'remote_apply' THEN 'remote_apply' "
            "ELSE 'on' END"
            if self.synchronous_commit is None
            else f"'{self.synchronous_commit}'"
        )
        return settings


def _timeout(name: str, asked_ms: int | None, usual_ms: int) -> str:
    """Return the expression of a limit; one that the role or the database has is kept."""
    if asked_ms is not None:
        return f"'{asked_ms}'"
    current = f"current_setting('{name}')"
    return f"CASE {current} WHEN '0' THEN '{usual_ms}' ELSE {current} END"


def _select(settings: Mapping[str, str], is_local: str, *first: str) -> bytes:
    sets = [f"set_config('{name}', {value}, {is_local})" for name, value in settings.items()]
    return f"SELECT {', '.join([*first, *sets])}".encode()
