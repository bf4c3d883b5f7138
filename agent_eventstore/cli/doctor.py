"""``eventstore doctor``: whether a database is well, what is wrong with it, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import click

from agent_eventstore.cli.console import say, stdout
from agent_eventstore.cli.documents import print_document
from agent_eventstore.cli.options import Target, common, json_option, with_target
from agent_eventstore.cli.own_projections import projections_option
from agent_eventstore.cli.program import found_something
from agent_eventstore.cli.tables import cell, fixed, flexible, grid
from agent_eventstore.cli.text import one_line, plural
from agent_eventstore.cli.values import Number
from eventstore import EventStore
from eventstore.checks import Check, log, postgresql, run, sqlite
from eventstore.sql.engines import open_engine
from projections import PROJECTIONS, ProjectionSet
from projections.checks import checks_of

__all__ = ["doctor", "examine"]

_OF_THE_SCHEMA = ("epoch",)
_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option(
    "--sample",
    metavar="N",
    type=Number(min=0),
    default=20,
    show_default=True,
    help="How many conversations' hash chains are verified, taken at random.",
)
@click.option("--all", "verify_all", is_flag=True, help="Verify every conversation's hash chain.")
@projections_option
@json_option
@common
@with_target
def doctor(
    target: Target, sample: int, verify_all: bool, projection_set: ProjectionSet, as_json: bool
) -> None:
    """Check a database, and say what to do.

    Schema, triggers, hash chains, the feed and who holds it back, projections and their lag, files
    or server. Writes nothing. The exit status is 1 if there is a problem; warnings leave it at 0.
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
    """Yield what every check finds; without the right schema only those that need none.

    Args:
        store: The store, which may be read-only and of any schema.
        sample: How many conversations' chains are verified; all of them for None.
        projections: Which there are.

    Raises:
        CannotConnect: The server cannot be reached.
    """
    [schema] = run([("schema", log.schema)], store)
    yield schema
    own = sqlite.CHECKS if store.engine.dialect.name == "sqlite" else postgresql.CHECKS
    if schema.status == "ok":
        of_the_log = (
            ("tables", log.tables),
            ("triggers", log.triggers),
            ("chain", partial(log.chain, sample=sample)),
            ("feed", log.feed),
            ("keys", log.keys),
        )
        yield from run((*of_the_log, *checks_of(projections)), store)
    else:
        own = tuple(each for each in own if each[0] not in _OF_THE_SCHEMA)
    yield from run(own, store)


def _show(found: list[Check]) -> None:
    table = grid(fixed("check"), fixed("status"), flexible("found", fold=True))
    for check in found:
        said = f"{check.found}\n→ {check.advice}" if check.advice else check.found
        status = cell(check.status, _STYLES[check.status])
        table.add_row(cell(check.name), status, cell("\n".join(map(one_line, said.splitlines()))))
    stdout().print(table)
