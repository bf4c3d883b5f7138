"""Checks of the log: its schema, its triggers, its hash chains, its feed."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from sqlalchemy import Connection, UniqueConstraint, func, inspect, select
from sqlalchemy import column as sql_column
from sqlalchemy import table as sql_table

from eventstore.checks import Check, Checker, postgresql_checks, sqlite_checks
from eventstore.erasure.purge import PERMANENT_TABLES
from eventstore.errors import ConversationNotFound
from eventstore.events.own import ENTRY_POINTS
from eventstore.security.hash_chain import Verification
from eventstore.sql.backend import backend_of
from eventstore.sql.feed import delayed_events
from eventstore.sql.migrate import REVISIONS, current_revision
from eventstore.sql.schema import derived_tables, metadata_for
from eventstore.store import EventStore

__all__ = ["chain", "feed", "keys", "of_database", "orphans", "schema", "tables", "triggers"]

_LONG_DELAY_S = 10.0
_OWN = {"sqlite": sqlite_checks, "postgresql": postgresql_checks}


def of_database(store: EventStore) -> tuple[tuple[str, Checker], ...]:
    """Return the checks specific to the store's database."""
    own: tuple[tuple[str, Checker], ...] = _OWN[store.engine.dialect.name].CHECKS
    on_nodes = postgresql_checks.ON_NODES if backend_of(store.engine).is_distributed else ()
    return own + on_nodes


def schema(store: EventStore) -> Check:
    """Whether the schema is at the latest revision that this code knows."""
    with store.reading() as connection:
        revision = current_revision(connection)
    latest = REVISIONS[-1]
    details = {"revision": revision, "latest": latest}
    if revision == latest:
        return Check("schema", "ok", f"revision {revision}, the latest", details=details)
    if revision is None:
        found, advice = "no schema", "create it: eventstore db upgrade"
    elif revision in REVISIONS:
        found, advice = f"revision {revision} is older than {latest}", "run: eventstore db upgrade"
    else:
        found, advice = f"this version does not know revision {revision}", "upgrade the package"
    return Check("schema", "problem", found, advice, details)


def tables(store: EventStore) -> Check:
    """Whether every table, column, index and constraint that the schema declares exists."""
    missing: list[str] = []
    with store.reading() as connection:
        found, columns = inspect(connection), _columns(connection)
        for table in metadata_for(connection.dialect.name).sorted_tables:
            if table.name not in columns:
                missing.append(table.name)
                continue
            lacking = [each.name for each in table.c if each.name not in columns[table.name]]
            missing += [f"{table.name}.{name}" for name in lacking]
            named = [*found.get_indexes(table.name), *found.get_unique_constraints(table.name)]
            there = {str(each["name"]) for each in named}
            wanted = {str(each.name) for each in table.indexes}
            for constraint in table.constraints:
                if isinstance(constraint, UniqueConstraint):
                    wanted.add(str(constraint.name))
            missing += wanted - there
    if not missing:
        return Check("tables", "ok", "every table, column and index exists")
    advice = "restore a backup, or create them as the migrations declare them"
    finding = f"missing: {', '.join(sorted(missing))}"
    return Check("tables", "problem", finding, advice, {"missing": sorted(missing)})


def _columns(connection: Connection) -> dict[str, set[str]]:
    """Return column names by table."""
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(_OWN[connection.dialect.name].COLUMNS):
        found.setdefault(table, set()).add(column)
    return found


def triggers(store: EventStore) -> Check:
    """Whether the triggers that keep events immutable exist as declared and always fire."""
    with store.reading() as connection:
        own = _OWN[connection.dialect.name]
        wrong = sorted(own.wrong_triggers(connection))
    if not wrong:
        return Check("triggers", "ok", "the database refuses to change events")
    advice = "recreate them as migrations/versions/0001_events.py does; verify with --all"
    finding = f"missing, changed or disabled: {', '.join(wrong)}"
    return Check("triggers", "problem", finding, advice, {"wrong": wrong})


def chain(store: EventStore, sample: int | None) -> Check:
    """Whether hash chains are unbroken: those of a random sample, or all of them.

    ``sample`` is a number of conversations; None checks all.
    """
    unregistered: Counter[str] = Counter()
    if store._is_limited():
        finding = "not verified: row-level security shows this login the rows of one owner at most"
        advice = "check as the tables' owner or as a role with BYPASSRLS"
        return Check("chain", "warning", finding, advice)
    if sample is None:
        found = store.verify()
        conversations, events, problems = found.conversations, found.events, found.problems
        unregistered.update(found.unregistered)
    else:
        with store.reading() as connection:
            ids = metadata_for(connection.dialect.name).tables["conversations"].c.conversation_id
            query = select(ids).order_by(func.random()).limit(sample)
            chosen = connection.execute(query).scalars().all()
        results: list[Verification] = []
        for each in chosen:
            with suppress(ConversationNotFound):  # It was purged in the meantime.
                results.append(store.verify(each))
        conversations, events = len(results), sum(each.events for each in results)
        problems = tuple(problem for each in results for problem in each.problems)
        for result in results:
            unregistered.update(result.unregistered)
    which = "all" if sample is None else "a sample"
    seen = f"conversations: {conversations:,} ({which}), events: {events:,}"
    details = {
        "conversations": conversations,
        "events": events,
        "problems": problems,
        "unregistered": unregistered,
    }
    if not problems and unregistered:
        counts = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(unregistered.items()))
        finding = f"{seen}; as written, some with types that are not registered here: {counts}"
        advice = f"declare their classes in the entry points {ENTRY_POINTS}, or upgrade the package"
        return Check("chain", "warning", finding, advice, details)
    if not problems:
        return Check("chain", "ok", f"{seen}; all as written", details=details)
    first = problems[0]
    finding = (
        f"{seen}; not as written: {len(problems):,}, the first is "
        f"{first.conversation_id} at version {first.version} ({first.kind})"
    )
    return Check("chain", "problem", finding, "list them all: eventstore verify", details)


def orphans(store: EventStore) -> Check:
    """Whether any table holds rows of a conversation that has no row of its own."""
    found: dict[str, int] = {}
    with store.reading() as connection:
        streams = sql_table("conversations", sql_column("conversation_id"))
        declared = metadata_for(connection.dialect.name).tables
        names = [name for name, each in declared.items() if "conversation_id" in each.c]
        names += derived_tables(connection)
        for name in sorted({*names} - PERMANENT_TABLES - {"conversations"}):
            rows = sql_table(name, sql_column("conversation_id"))
            own = select(streams.c.conversation_id).where(
                streams.c.conversation_id == rows.c.conversation_id
            )
            query = select(func.count()).select_from(rows).where(~own.exists())
            if count := connection.execute(query).scalar():
                found[name] = count
    if not found:
        return Check("orphans", "ok", "every row belongs to a conversation")
    finding = ", ".join(f"{name} ({count:,})" for name, count in found.items())
    advice = (
        "a purge by an older version under row-level security, or someone with the database, left "
        "them: `eventstore verify` names their conversations; purge these as the tables' owner"
    )
    return Check(
        "orphans", "problem", f"rows of no conversation: {finding}", advice, {"rows": found}
    )


def feed(store: EventStore) -> Check:
    """Whether an open transaction holds back events of the feed, and which one."""
    with store.reading() as connection:
        delayed = delayed_events(connection)
    longest = max(delayed.seconds, delayed.holder.seconds if delayed.holder else 0.0)
    details = {"held_back": delayed}
    if longest < _LONG_DELAY_S:
        return Check("feed", "ok", delayed.description, details=details)
    finding = delayed.description
    if not delayed.events and delayed.holder is not None:
        finding = (
            f"nothing is held back yet, but new events will be, by {delayed.holder.description}"
        )
    advice = "end that transaction: SELECT pg_terminate_backend(pid), or ROLLBACK PREPARED"
    return Check("feed", "warning", finding, advice, details)


def keys(store: EventStore) -> Check:
    """Whether the keys of erased conversations are destroyed."""
    with store.reading() as connection:
        declared = metadata_for(connection.dialect.name).tables
        retired, streams = declared["retired_keys"], declared["conversations"]
        left = connection.scalar(select(func.count()).select_from(retired)) or 0
        query = select(streams.c.conversation_id).where(streams.c.key_id.is_not(None)).limit(1)
        sealed = connection.execute(query).first() is not None
    if left:
        finding = f"keys of erased conversations not destroyed yet: {left}"
        advice = "open the store with its keys, which destroys them: --keys DIR"
        return Check("keys", "problem", finding, advice, {"left": left})
    finding = "conversations are sealed; the keys of erased ones are destroyed"
    return Check("keys", "ok", finding if sealed else "no conversation is sealed")
