"""Alembic's environment of a product that shares its database with the store."""

from alembic import context
from tables import METADATA

from agent_eventstore.autogenerate import include_object

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    include_object=include_object,
)
with context.begin_transaction():
    context.run_migrations()
