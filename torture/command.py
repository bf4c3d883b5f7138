"""``python -m torture``: kills writers, cuts connections, and reports what was lost."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.table import Table

from agent_eventstore.cli.console import (
    cell,
    fixed,
    flexible,
    grid,
    note,
    number,
    print_document,
    progress_bar,
    say,
    stdout,
)
from agent_eventstore.cli.options import Number, Seconds, common, json_option
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.target import Target
from eventstore import EventStore
from eventstore.sql.urls import is_in_memory
from torture import COUNTS, SCENARIOS, PostgresUnavailable, Report, Torture, lacks, others_in, run

__all__ = ["torture"]

_DONE = {
    "acknowledged": "events that the store acknowledged to their writers",
    "stored": "events stored; more if a commit's outcome was unknown, or its writer killed",
}
_FOUND = {
    "missed": "acknowledged but not stored, or not received by a reader",
    "duplicated": "stored twice, or received twice by a reader",
    "out_of_order": "stored at another version than acknowledged, or received out of order",
    "torn": "appends of which only a part is stored",
    "chain": "problems of the hash chain",
    "views": "differences between a view and a fresh fold",
    "misnamed": "reported as lost by a recorder, but stored or never acknowledged",
    "failed": "processes that exited with an error, or did not exit",
    "leases": "leases left without a session",
    "unanswered": "users whose next post was not answered",
}


_ALL = "all"


@click.command()
@click.option(
    "--scenario",
    "names",
    metavar="NAME",
    type=click.Choice([*SCENARIOS, _ALL]),
    multiple=True,
    default=("kills",),
    show_default=True,
    help=f"What happens to the processes and the database: {', '.join(SCENARIOS)}, or all of "
    "them, one after the other. May be repeated.",
)
@click.option(
    "--writers",
    metavar="N",
    type=Number(1, 64),
    default=4,
    show_default=True,
    help="The number of writing processes; in the scenario reloads, of 50 clients each.",
)
@click.option(
    "--events",
    metavar="N",
    type=Number(min=1),
    help="Events to acknowledge in each scenario.  [default: 10000, without --seconds]",
)
@click.option(
    "--seconds",
    metavar="S",
    type=Seconds(min=0.1),
    help="The longest time to write in each scenario.",
)
@click.option(
    "--every",
    metavar="S",
    type=Seconds(min=0.02),
    default=0.4,
    show_default=True,
    help="Average time between two kills, cuts, stops or setbacks; 20 times that between two "
    "restarts.",
)
@click.option(
    "--seed",
    metavar="N",
    type=Number(min=0),
    default=1,
    show_default=True,
    help="The seed of the random choices.",
)
@click.option("--yes", is_flag=True, help="Run even if the database has other conversations.")
@json_option
@common
def torture(
    target: Target,
    names: tuple[str, ...],
    writers: int,
    events: int | None,
    seconds: float | None,
    every: float,
    seed: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Kill writers, cut connections, and count what was lost.

    Uses its own conversations, which remain in the database. Takes all the power of the machine and
    the server, and rebuilds the views of all conversations: do not run it on a database in use.
    Failover, restore and reloads use their own database, of the same kind, which is deleted. The
    exit status is 1 if anything was lost, duplicated or out of order.
    """
    if events is None and seconds is None:
        events = 10_000
    with target.open_to_write() as store:
        _refuse_unfit(store, yes)
        reports = []
        for name in _chosen(store, names):
            chosen = Torture(writers, events, seconds, every, seed, name)
            reports.append(_run(store, chosen))
            if not as_json:
                stdout().print(_table(reports[-1]))
                say(_sentence(reports[-1]), "green" if reports[-1].ok else "red")
    ok = all(report.ok for report in reports)
    if as_json:
        print_document({"ok": ok, "scenarios": [asdict(report) for report in reports]})
    if not ok:
        found_something()


def _chosen(store: EventStore, names: tuple[str, ...]) -> list[str]:
    """Return the scenarios to run; for `all`, those that can run here."""
    found = []
    for name in dict.fromkeys(SCENARIOS if _ALL in names else names):
        reason = lacks(store, name)
        if reason is None:
            found.append(name)
        elif _ALL in names:
            note(f"{name} is skipped: {reason}")
        else:
            raise Failed(f"{name} cannot run: {reason}")
    return found


def _run(store: EventStore, torture: Torture) -> Report:
    try:
        with progress_bar(torture.scenario) as meter:
            return run(store, torture, on_progress=meter.update, on_phase=note)
    except PostgresUnavailable as error:
        raise Failed(str(error)) from error


def _refuse_unfit(store: EventStore, yes: bool) -> None:
    if is_in_memory(store.engine.url):
        raise Failed("torture needs a database that outlives a process: name a file with --db")
    if not yes and others_in(store):
        raise Failed(
            "this database contains other conversations: use an empty one, or --yes to torture it "
            "anyway; other conversations are not changed"
        )


def _table(report: Report) -> Table:
    table = grid(fixed(report.scenario), number("count"), flexible("meaning", fold=True))
    for name, meaning in _DONE.items():
        table.add_row(cell(name), cell(f"{getattr(report, name):,}"), cell(meaning, "dim"))
    for name, count in report.counts.items():
        told = cell(COUNTS[name], "dim")
        table.add_row(cell(name.replace("_", " ")), cell(f"{count:,}"), told)
    for index, count in enumerate(report.delivered, start=1):
        told = cell("events received by a tailing reader", "dim")
        table.add_row(cell(f"reader {index}"), cell(f"{count:,}"), told)
    for name, meaning in _FOUND.items():
        count = getattr(report.findings, name)
        style = "bold red" if count else "green"
        told = cell(meaning, "dim")
        table.add_row(cell(name.replace("_", " ")), cell(f"{count:,}", style), told)
    return table


def _sentence(report: Report) -> str:
    rate = report.acknowledged / report.seconds if report.seconds else 0
    spent = f"{report.seconds:.1f} s, {rate:,.0f} events/s"
    if report.ok:
        lost = report.counts.get("lost", 0)
        nothing = f"nothing but the {lost:,} events that recorders named" if lost else "nothing"
        return f"{nothing} lost: {report.acknowledged:,} events in {spent}"
    if report.findings.ok:
        return f"nothing was acknowledged in {spent}, so nothing could be lost"
    return f"FAILED: {report.acknowledged:,} events in {spent}; seed {report.seed}"
