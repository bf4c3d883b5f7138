"""Checks of the read models: lag, generations, tables, and conversations that cannot be folded."""

from __future__ import annotations

import re
from functools import partial

from sqlalchemy import inspect

from eventstore import EventStore
from eventstore.checks import Check, Checker
from eventstore.events.codec import loads
from projections.catalogue import PROJECTIONS, ProjectionSet
from projections.engine.generations import registered
from projections.upkeep import status

__all__ = ["checks_of"]

_LATE_S = 60.0


def lag(store: EventStore, projections: ProjectionSet = PROJECTIONS) -> Check:
    """How far the live generations are behind the log."""
    found = status(store, projections)
    details = {each.name: {"behind": each.behind, "lag": each.lag} for each in found}
    if not any(each.generation for each in found):
        return Check("lag", "ok", "not read yet; the first read folds", details=details)
    worst = max(found, key=lambda each: (each.lag.seconds, each.lag.events))
    if not worst.lag.events:
        return Check("lag", "ok", "every event is folded", details=details)
    message = (
        f"{worst.name} lacks {worst.lag.events:,} events, the oldest for {worst.lag.seconds:,.1f} s"
    )
    if worst.lag.seconds < _LATE_S:
        return Check("lag", "ok", message, details=details)
    advice = "reads catch up what they need; for plain SQL run: eventstore projections run"
    return Check("lag", "warning", message, advice, details)


def set_aside(store: EventStore, projections: ProjectionSet = PROJECTIONS) -> Check:
    """Which conversations cannot be folded."""
    failures = [failure for each in status(store, projections) for failure in each.set_aside]
    if not failures:
        return Check("set aside", "ok", "no conversation is set aside")
    first = failures[0]
    count = len({failure.conversation_id for failure in failures})
    message = f"{count:,} conversations, first {first.conversation_id} at version {first.version}"
    advice = "see why: eventstore projections status, eventstore verify CID"
    return Check("set aside", "problem", message, advice, {"set_aside": failures})


def generations(store: EventStore, projections: ProjectionSet = PROJECTIONS) -> Check:
    """Whether every projection is live, and whether dead or half-built generations remain."""
    with store.reading() as connection:
        rows = registered(connection)
    left = [f"{row['name']} {row['generation']}" for row in rows if row["status"] == "dead"]
    details = {"dead": left, "building": _named(rows, "building"), "live": _named(rows, "live")}
    if left:
        message = f"dead, with their tables: {', '.join(left)}"
        advice = "the end of the next rebuild drops them: eventstore projections rebuild"
        return Check("generations", "warning", message, advice, details)
    if details["building"]:
        message = f"unfinished: {', '.join(details['building'])}"
        advice = "if no rebuild is running, resume it: eventstore projections rebuild"
        return Check("generations", "warning", message, advice, details)
    lacking = [each for each in projections if not _is_live(rows, each.name, each.version)]
    if lacking:
        message = f"not created yet: {', '.join(each.name for each in lacking)}"
        return Check("generations", "ok", f"{message}; the first read does it", details=details)
    return Check("generations", "ok", f"{len(projections)} projections are live", details=details)


def _named(rows: list[dict[str, object]], wanted: str) -> list[str]:
    return [f"{row['name']} {row['generation']}" for row in rows if row["status"] == wanted]


def _is_live(rows: list[dict[str, object]], name: str, version: int) -> bool:
    return any(
        (row["name"], row["version"], row["status"]) == (name, version, "live") for row in rows
    )


def tables(store: EventStore, projections: ProjectionSet = PROJECTIONS) -> Check:
    """Whether generations have their tables and views, and every table its generation."""
    with store.reading() as connection:
        rows = registered(connection)
        found = inspect(connection)
        there, views = set(found.get_table_names()), set(found.get_view_names())
    wanted = {name for row in rows for name in loads(row["tables"])}
    live = {row["name"] for row in rows if row["status"] == "live"}
    shown = {table.name for each in projections if each.name in live for table in each.tables}
    missing = sorted((wanted - there) | (shown - views))
    if missing:
        message = f"missing: {', '.join(missing)}"
        advice = "recreate them: eventstore projections rebuild"
        return Check("projection tables", "problem", message, advice, {"missing": missing})
    ours = "|".join(re.escape(table.name) for each in projections for table in each.tables)
    pattern = re.compile(rf"({ours})_g\d+")
    orphaned = sorted(name for name in there - wanted if pattern.fullmatch(name))
    if orphaned:
        message = f"not part of any generation: {', '.join(orphaned)}"
        details = {"orphaned": orphaned}
        return Check("projection tables", "warning", message, "drop them: DROP TABLE", details)
    return Check("projection tables", "ok", f"{len(wanted)} tables, matching the registry")


def checks_of(projections: ProjectionSet = PROJECTIONS) -> tuple[tuple[str, Checker], ...]:
    """Return the checks of the read models, by name."""
    return (
        ("generations", partial(generations, projections=projections)),
        ("projection tables", partial(tables, projections=projections)),
        ("lag", partial(lag, projections=projections)),
        ("set aside", partial(set_aside, projections=projections)),
    )
