"""Alembic's environment: the store passes its connection, the command line its URL."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Connection

from eventstore.sql.engines import open_engine
from eventstore.sql.migrate import VERSION_TABLE, create_schema, schema_lock
from eventstore.sql.schema import metadata_for


def run(connection: Connection) -> None:
    """Run the migrations in the connection's transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata_for(connection.dialect.name),
        version_table=VERSION_TABLE,
    )
    context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    run(connection)
else:
    url = os.environ.get("EVENTSTORE_URL") or context.config.get_main_option("sqlalchemy.url", "")
    engine = open_engine(url)
    with schema_lock(engine) as own:
        create_schema(own)
        run(own)
    engine.dispose()
