"""``eventstore db``: the schema of the database."""

from __future__ import annotations

import click

from agent_eventstore.cli.console import say
from agent_eventstore.cli.documents import print_document
from agent_eventstore.cli.options import Target, common, json_option, with_target
from eventstore.masking import masked
from eventstore.sql.engines import open_engine
from eventstore.sql.failures import translated
from eventstore.sql.migrate import REVISIONS, current_revision

__all__ = ["db"]


@click.group()
def db() -> None:
    """Make, upgrade and inspect the database."""


@db.command("upgrade")
@common
@with_target
def upgrade(target: Target) -> None:
    """Create the database, or bring its schema up to date.

    In one transaction. A schema that is current is left alone.
    """
    with target.create() as store:
        say(f"{store.url} is at revision {REVISIONS[-1]}")


@db.command("current")
@json_option
@common
@with_target
def current(target: Target, as_json: bool) -> None:
    """Show which revision the schema is at, and whether it is the latest."""
    target.require_file()
    engine = open_engine(target.url, read_only=True)
    url = masked(engine.url)
    try:
        with translated(url), engine.connect() as connection:
            revision = current_revision(connection)
    finally:
        engine.dispose()
    latest = REVISIONS[-1]
    if as_json:
        document = {"revision": revision, "latest": latest, "is_latest": revision == latest}
        print_document(document)
    elif revision == latest:
        say(f"{revision} (the latest)")
    else:
        said = f"{revision or 'no schema'} (the latest is {latest}: run `eventstore db upgrade`)"
        say(said)
