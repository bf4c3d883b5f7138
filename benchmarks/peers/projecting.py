"""The package ``eventsourcing``: its projection runner, which feeds a view from PostgreSQL.

Only recorders on PostgreSQL support subscriptions. The view writes one row for each event, in the
transaction that records the event's position, as in the package's documentation.
"""

from __future__ import annotations

import time
from functools import singledispatchmethod
from typing import Any

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from eventsourcing.domain import event as event_method
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from psycopg.sql import SQL
from sqlalchemy import make_url

__all__ = ["projection_s"]


class _Conversation(Aggregate):
    @event_method("Said")
    def say(self, text: str) -> None:
        """Record a message."""


class _Messages(PostgresTrackingRecorder):
    """A table of messages."""

    def __init__(self, datastore: Any, **options: Any) -> None:
        super().__init__(datastore, **options)
        self.sql_create_statements.append(
            SQL("CREATE TABLE IF NOT EXISTS messages (id bigint PRIMARY KEY, body text)").format()
        )

    def write(self, text: str, tracking: Tracking) -> None:
        """Write a message and record that it has been processed."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            row = (tracking.notification_id, text)
            cursor.execute("INSERT INTO messages VALUES (%s, %s)", row, prepare=True)


class _Writing(Projection[_Messages]):
    name = "writing"

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Write the message; the event that begins an aggregate has none."""
        self.view.write(getattr(domain_event, "text", ""), tracking)


def projection_s(url: str, texts: list[str]) -> float:
    """Return how long a projection of this many events takes from the beginning, in seconds."""
    parsed = make_url(url)
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(parsed.database),
        "POSTGRES_HOST": str(parsed.host or parsed.query.get("host", "")),
        "POSTGRES_PORT": str(parsed.port or 5432),
        "POSTGRES_USER": str(parsed.username),
        "POSTGRES_PASSWORD": str(parsed.password or ""),
    }
    application: Any = Application(env)
    for start in range(0, len(texts), 100):
        conversation = _Conversation()
        # The first event of an aggregate is its creation.
        for text in texts[start + 1 : start + 100]:
            conversation.say(text)
        application.save(conversation)
    last = application.recorder.max_notification_id()
    started = time.perf_counter()
    with ProjectionRunner(
        application_class=Application, projection_class=_Writing, view_class=_Messages, env=env
    ) as runner:
        runner.wait(last, timeout=600)
        seconds = time.perf_counter() - started
    application.close()
    return seconds
