"""A product that was there before the store.

``program.py migrate URL LOGIN`` makes the product's own tables, as their owner;
``program.py converse URL`` writes to them and to the store in one transaction, as the login;
``program.py go_on URL`` goes on, another time;
``program.py compare URL`` prints what autogenerate finds.
"""

import sys
from collections.abc import Callable

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import produce_migrations
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.orm import Session
from tables import METADATA, PREFIX, Appointment, Topic

from agent_eventstore import EventStore, Views, events
from agent_eventstore.autogenerate import include_object

SCHEMA = None if PREFIX else "agent"
CONVERSATION = "5d0f7a3c-6f0e-4c58-9f6b-0d7c5a1e2b34"


def migrate(url: str, login: str) -> None:
    """Upgrade the product's tables, and let the login change their rows."""
    with sa.create_engine(url).begin() as connection:
        config = Config()
        config.set_main_option("script_location", "migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if SCHEMA:
            connection.execute(sa.text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {login}"))
            connection.execute(sa.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))


def converse(url: str) -> None:
    """Append within the product's session, on one connection for product and store."""
    engine = sa.create_engine(url, pool_size=1, max_overflow=0)
    store = EventStore.from_engine(engine, schema=SCHEMA)
    message = events.UserMessage.text("Lunch at one?")
    with Session(engine) as session:
        topic = Topic(id=1, title="Lunch")
        session.add(topic)
        session.flush()
        store.append(CONVERSATION, message, connection=session.connection())
        session.add(Appointment(id=1, topic_id=1, place="the usual"))
        session.commit()
        store.append(CONVERSATION, message, connection=session.connection())
        session.add(Appointment(id=2, topic_id=1, place="nowhere"))
        session.rollback()
        assert ["the usual"] == session.scalars(sa.select(Appointment.place)).all()
    assert ["Lunch at one?"] == said(store)


def go_on(url: str) -> None:
    """Append and read what a rebuild of the owner's has left."""
    with EventStore.open(url, schema=SCHEMA) as store:
        store.append(CONVERSATION, events.UserMessage.text("Or at two?"))
        assert ["Lunch at one?", "Or at two?"] == said(store)


def said(store: EventStore) -> list[str | None]:
    """Return what the timeline tells."""
    return [item.text for item in Views(store).timeline(CONVERSATION)]


def compare(url: str) -> None:
    """Print what autogenerate finds in all schemas, once the product declares another column."""
    METADATA.tables[Topic.__tablename__].append_column(sa.Column("note", sa.Text))
    with sa.create_engine(url).connect() as connection:
        options = {"include_object": include_object, "include_schemas": True}
        context = MigrationContext.configure(connection, opts=options)
        found = produce_migrations(context, METADATA).upgrade_ops
        for table in found.ops if found else ():
            for step in getattr(table, "ops", [table]):
                sys.stdout.write(f"{step.to_diff_tuple()[:2]}\n")


COMMANDS: dict[str, Callable[..., None]] = {
    "migrate": migrate,
    "converse": converse,
    "go_on": go_on,
    "compare": compare,
}
COMMANDS[sys.argv[1]](*sys.argv[2:])
