"""The feed's epochs on PostgreSQL: one for each cluster that the log has lived in.

Transaction ids, by which the feed is ordered, begin anew in another cluster. Whichever connection
is the first to find the log in one, after a dump and restore, begins an epoch before anything can
be appended through it; so it is looked at on each new connection, of every store.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg

__all__ = ["renew_epoch"]

_MOVED = """
    SELECT last.epoch + 1, now.system_identifier::text
    FROM pg_control_system() AS now,
        (SELECT epoch, system_identifier FROM store_epochs ORDER BY epoch DESC LIMIT 1) AS last
    WHERE last.system_identifier <> now.system_identifier::text
        AND current_setting('transaction_read_only') = 'off'
"""
_BEGIN = """
    INSERT INTO store_epochs (epoch, system_identifier, started_at) VALUES (%s, %s, %s)
    ON CONFLICT (epoch) DO NOTHING
"""


def renew_epoch(connection: psycopg.Connection[Any]) -> None:
    """Begin a new epoch if the log is now in another cluster; commits.

    A connection that may only read leaves it to the first that writes: until then nothing is
    appended, and the feed hands out nothing that it cannot place.
    """
    try:
        moved = connection.execute(_MOVED).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
        connection.rollback()  # There is no log yet, or none that this login can append to.
        return
    if moved is not None:
        connection.execute(_BEGIN, (*moved, datetime.now(UTC)))
    connection.commit()
