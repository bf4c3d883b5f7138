"""A product that was there before the store: upgrade, converse, and look for what is to migrate."""

import sys

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import produce_migrations
from alembic.config import Config
from alembic.migration import MigrationContext
from tables import METADATA, ORDERS

from eventstore import EventStore, events, new_id
from eventstore.autogenerate import include_object
from projections import Views

url = sys.argv[1]
store = EventStore.open(url)
with store.transaction() as connection:
    config = Config()
    config.set_main_option("script_location", "migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")

conversation = new_id()
with store.transaction() as connection:
    connection.execute(sa.insert(ORDERS).values(number=1).returning(ORDERS.c.number))
    store.append(conversation, [events.UserMessage.text("Order 1, please.")], connection=connection)
assert ["Order 1, please."] == [item.text for item in Views(store).timeline(conversation)]

with store.reading() as connection:
    context = MigrationContext.configure(connection, opts={"include_object": include_object})
    found = produce_migrations(context, METADATA).upgrade_ops
    for table in found.ops if found else ():
        for step in getattr(table, "ops", [table]):
            sys.stdout.write(f"{step.to_diff_tuple()[0]}\n")
store.close()
