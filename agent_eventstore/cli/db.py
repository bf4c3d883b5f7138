"""``eventstore db``, ``doctor`` and ``keys``: the schema, checks of a database, encryption keys.

``doctor`` reports what is wrong with a database, and the remedy; ``keys`` manages the keys of a
store that encrypts its events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import click

from agent_eventstore.cli.console import (
    cell,
    fixed,
    flexible,
    grid,
    plural,
    print_document,
    say,
    stdout,
)
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import Number, common, json_option
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.projections import projections_option
from agent_eventstore.cli.target import Target
from eventstore import EventStore
from eventstore.checks import Check, event_log, run
from eventstore.database import (
    DEFAULT_SHARDS,
    MOST_PARTITIONS,
    MOST_SHARDS,
    REVISIONS,
    current_revision,
    distribute,
    grant,
    open_engine,
    partition,
    relations,
    schema_lock,
    secure,
    translated,
    unsecure,
)
from eventstore.telemetry.log import masked
from projections import PROJECTIONS, ProjectionSet
from projections.checks import checks_of
from projections.context import search_tables
from projections.upkeep import install_all

__all__ = ["db", "doctor", "examine", "keys"]

_OF_THE_SCHEMA = ("epoch", "row security")
_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.group()
def db() -> None:
    """Create, upgrade and inspect the database."""


@db.command("upgrade")
@projections_option
@common
def upgrade(target: Target, projection_set: ProjectionSet) -> None:
    """Create the database, or upgrade its schema.

    Creates the log's tables in one transaction, then missing tables of read models, so that a login
    that may only change rows finds every table it needs. Current tables are left unchanged.
    """
    with target.create() as store:
        install_all(store, projection_set)
        search_tables.create(store)
        say(f"{store.url} is at revision {REVISIONS[-1]}")


@db.command("grant")
@click.argument("role")
@common
def grant_rights(target: Target, role: str) -> None:
    """Permit a PostgreSQL role to use the store.

    The role may change rows: append, read, project and erase. Only the owner can upgrade and
    rebuild, and the role gets the same rights on tables created later. Run `eventstore db upgrade`
    first.
    """
    with target.open_to_write() as store, schema_lock(store.engine) as connection:
        grant(connection, role)
    say(f"{role} may use {store.url}")


@db.command("secure")
@common
def secure_rows(target: Target) -> None:
    """Turn on row-level security: a login sees only one owner's rows.

    A login of `eventstore db grant` sees only rows of the tenant and user that its transaction
    names, as the transactions of store.for_owner() do. The tables' owner and roles with BYPASSRLS
    see all rows: use these for maintenance. Restart the product's processes afterwards.
    """
    with target.open_to_write() as store, schema_lock(store.engine) as connection:
        secure(connection, [name for names in relations(connection) for name in names])
    say(f"{store.url} shows each login only its owner's rows")


@db.command("unsecure")
@common
def unsecure_rows(target: Target) -> None:
    """Turn row-level security off."""
    with target.open_to_write() as store, schema_lock(store.engine) as connection:
        unsecure(connection, [name for names in relations(connection) for name in names])
    say(f"{store.url} shows every login all rows")


@db.command("partition")
@click.option(
    "--partitions",
    "count",
    type=Number(min=0, max=MOST_PARTITIONS),
    default=16,
    show_default=True,
    help="How many for each table; 0 makes the tables whole again.",
)
@common
def divide(target: Target, count: int) -> None:
    """Divide large tables into partitions, by conversation.

    For stores with many millions of events on one PostgreSQL server, 17 or later: each conversation
    is in one partition of the events and one of the blobs. All rows are copied, which needs as much
    space again, and the store cannot be used meanwhile. Only the tables' owner can do this.
    """
    with target.open_to_write() as store, schema_lock(store.engine, patience_ms=0) as connection:
        partition(connection, count)
    done = plural(count, "partition") if count else "no partitions"
    say(f"the large tables of {store.url} have {done}")


@db.command("distribute")
@click.option(
    "--shards",
    type=Number(min=1, max=MOST_SHARDS),
    default=DEFAULT_SHARDS,
    show_default=True,
    help="Into how many shards each table is divided.",
)
@common
def spread(target: Target, shards: int) -> None:
    """Spread the store over the servers of Citus.

    For stores that one PostgreSQL server cannot hold: each conversation is on one of the servers.
    Run it through the coordinator, once the extension citus is created and its nodes are added.
    All rows are copied, and the store cannot be used meanwhile; restart the product's processes
    afterwards. Only the tables' owner can do this.
    """
    with target.open_to_write() as store:
        distribute(store.engine, shards)
    say(f"the tables of {store.url} are spread over its servers in {plural(shards, 'shard')}")


@db.command("current")
@json_option
@common
def current(target: Target, as_json: bool) -> None:
    """Show the schema's revision, and whether it is the latest."""
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
    elif revision is None or revision in REVISIONS:
        state = f"{revision or 'no schema'} (the latest is {latest}: run `eventstore db upgrade`)"
        say(state)
    else:
        say(f"{revision} (newer than {latest}, the latest of this version: upgrade the package)")


@click.command()
@click.option(
    "--sample",
    metavar="N",
    type=Number(min=0),
    default=20,
    show_default=True,
    help="How many randomly chosen conversations' hash chains to verify.",
)
@click.option("--all", "verify_all", is_flag=True, help="Verify every conversation's hash chain.")
@projections_option
@json_option
@common
def doctor(
    target: Target, sample: int, verify_all: bool, projection_set: ProjectionSet, as_json: bool
) -> None:
    """Check a database, and suggest remedies.

    Checks schema, triggers, hash chains, the feed and what holds it back, projections and their
    lag, files or server. Writes nothing. The exit status is 1 if there is a problem, and 0 if there
    are only warnings.
    """
    target.require_file()
    engine = open_engine(target.url, read_only=True)
    with EventStore(engine, read_only=True, keys=target.keys()) as store:
        found = list(examine(store, None if verify_all else sample, projection_set))
    counts = Counter(check.status for check in found)
    if as_json:
        print_document({"ok": not counts["problem"], "checks": found})
    else:
        _show(found)
        style = next(_STYLES[each] for each in ("problem", "warning", "ok") if counts[each])
        problems, warnings = (plural(counts[each], each) for each in ("problem", "warning"))
        say(f"{plural(len(found), 'check')}: {problems}, {warnings}", style)
    if counts["problem"]:
        found_something()


def examine(
    store: EventStore, sample: int | None, projections: ProjectionSet = PROJECTIONS
) -> Iterator[Check]:
    """Yield the result of each check; without the right schema, only of checks that need none.

    Args:
        store: The store, which may be read-only and of any schema.
        sample: How many conversations' chains to verify; None for all.
        projections: The projections to check.

    Raises:
        CannotConnect: The server cannot be reached.
    """
    [schema] = run([("schema", event_log.schema)], store)
    yield schema
    own = event_log.of_database(store)
    if schema.status == "ok":
        of_the_log = (
            ("tables", event_log.tables),
            ("triggers", event_log.triggers),
            ("chain", partial(event_log.chain, sample=sample)),
            ("orphans", event_log.orphans),
            ("feed", event_log.feed),
            ("keys", event_log.keys),
        )
        yield from run((*of_the_log, *checks_of(projections)), store)
    else:
        own = tuple(each for each in own if each[0] not in _OF_THE_SCHEMA)
    yield from run(own, store)


def _show(found: list[Check]) -> None:
    table = grid(fixed("check"), fixed("status"), flexible("found", fold=True))
    first: dict[str, str] = {}
    for check in found:
        if (same := first.setdefault(check.found, check.name)) != check.name:
            check = replace(check, found=f"as {same}: the same cause", advice="")
        line = f"{check.found}\n→ {check.advice}" if check.advice else check.found
        status = cell(check.status, _STYLES[check.status])
        table.add_row(cell(check.name), status, cell("\n".join(map(one_line, line.splitlines()))))
    stdout().print(table)


@click.group()
def keys() -> None:
    """Manage the keys of sealed conversations."""


@keys.command("rewrap")
@common
def rewrap(target: Target) -> None:
    """Wrap every key with the first --key-file.

    Give the new file first and the old one after it. Processes that have both files can keep
    running. The command can be interrupted and repeated.
    """
    found = target.keys()
    if found is None:
        raise Failed("name the directory of the keys with --keys or EVENTSTORE_KEYS")
    if not target.key_files:
        raise Failed("name the new wrapping key with --key-file, then the old one if there was any")
    try:
        done = found.rewrap()
    except LookupError as error:
        raise Failed(f"{error}: give its file too, after the new one") from error
    say(f"{plural(done, 'key')} rewrapped")
