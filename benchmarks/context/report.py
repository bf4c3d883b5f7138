"""The figures as tables: on the terminal, and as a page of Markdown."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.context.contenders import DEFAULT, Kept
from benchmarks.context.front import Point, picture
from benchmarks.context.measures import Cache, Grounding
from benchmarks.context.retrieval import Found
from benchmarks.context.varied_facts import Corrected

__all__ = [
    "Sheet",
    "agents_sheet",
    "cache_sheet",
    "corrected_sheet",
    "grounding_sheet",
    "held_sheet",
    "machine",
    "markdown",
    "overview_sheet",
    "planted_sheet",
    "print_sheet",
    "retrieval_sheet",
    "varied_sheet",
]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of figures: the first column has names, the others have numbers.

    Attributes:
        title: What was measured.
        note: How to read it.
        headings: One for each column.
        rows: Cells as text.
        picture: A chart shown below the table, if any.
    """

    title: str
    note: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    picture: str = ""


def grounding_sheet(
    title: str, shares: Sequence[float], found: Sequence[tuple[str, Sequence[Grounding]]]
) -> Sheet:
    """Return the table of grounding: a row for each candidate, a column for each budget."""
    counted = found[0][1][0]
    headings = ("context", *(f"{share:.0%}" for share in shares))
    return Sheet(
        title,
        f"{counted.calls} tool calls, {counted.values} values. Values kept / calls with all of "
        "theirs, in percent, by budget as a share of the full prefix; then contexts that were over "
        "the budget (o) or refused (i), whose values count as lost, and contexts with half a tool "
        "call (h), which a provider rejects.",
        headings,
        tuple((name, *(_grounded(result) for result in results)) for name, results in found),
    )


def cache_sheet(found: Sequence[tuple[str, Cache]]) -> Sheet:
    """Return the table of cache: a row for each candidate."""
    return Sheet(
        "Cache: prompt tokens shared with the call before, at half the conversation's length",
        "A prompt over its budget counts as missing, and the next shares nothing. Under pressure: "
        "only calls whose whole history is over the budget, without the leading system message.",
        ("context", "shared %", "under pressure %", "calls", "over", "refused"),
        tuple((name, *_cached(each)) for name, each in found),
    )


def held_sheet(
    shares: Sequence[float],
    found: Sequence[tuple[str, Sequence[tuple[Grounding, Cache]]]],
    whole: float,
) -> Sheet:
    """Return the table of both at one budget for all calls; ``whole``: cost of all messages."""
    each = ("values", "calls", "cached", "cost", "fill")
    return Sheet(
        "One budget for all calls: the system message and a share of the rest of the conversation",
        "As products set it. Values kept / calls with all of theirs, of the tool calls above, in "
        "percent; for the prompts whose whole history is over the budget, without the system "
        "message, the share that the cache reads again, and how full they are; and the cost of all "
        "prompts, if the cache reads at a tenth of the price, with the whole history as 1. Below, "
        f"calls by cost at {shares[0]:.0%}; a step goes down to the share in brackets.",
        ("context", *(f"{share:.0%} {name}" for share in shares for name in each)),
        tuple(
            (name, *(cell for both in held for cell in _held(*both, whole))) for name, held in found
        ),
        picture([_point(name, *held[0], whole) for name, held in found]),
    )


def overview_sheet(found: Mapping[str, Kept], whole: float) -> Sheet:
    """Return the table of all measures: a column for each way; ``whole``: cost of all messages."""
    rows: dict[str, Callable[[Kept], Sequence[float]]] = {
        "values of the next tool calls, at 50 / 30 %": lambda each: [
            one.values_share for one, _ in each.held
        ],
        "tool calls with all of theirs, at 50 / 30 %": lambda each: [
            one.calls_share for one, _ in each.held
        ],
        "read from the cache under pressure, at 50 / 30 %": lambda each: [
            one.pressed_share for _, one in each.held
        ],
        "cost, with the whole history as 100, at 50 / 30 %": lambda each: [
            one.cost / whole for _, one in each.held
        ],
        "questions, histories with tools, at 10 / 25 / 50 %": lambda each: [
            one.share for one in each.tools
        ],
        "questions, talk alone, at 10 / 25 / 50 %": lambda each: [one.share for one in each.talk],
        "facts asked for, at 10 / 50 / 90 %": lambda each: [one.share for one, _ in each.varied],
        "facts nobody asks for, at 10 / 50 / 90 %": lambda each: [
            one.share for _, one in each.varied
        ],
        "corrections: the newer value": lambda each: [each.corrected.newer_share],
        "corrections: the older alone": lambda each: [each.corrected.older_share],
    }
    points = [
        Point(name, each.held[0][1].cost / whole, _kept_of_all(each), name == DEFAULT)
        for name, each in found.items()
    ]
    return Sheet(
        "All in one: what each way keeps",
        "Percent, from the measures below, where each is explained; budgets are shares of the "
        "history. Drawn: the mean of the shares that are kept (tool calls at 50%; questions, facts "
        "and corrections over all budgets) by the cost at 50%.",
        ("what is kept", *found),
        tuple(
            (
                name,
                *(" / ".join(f"{100 * one:.0f}" for one in cells(each)) for each in found.values()),
            )
            for name, cells in rows.items()
        ),
        picture(points, "kept"),
    )


def _kept_of_all(each: Kept) -> float:
    asked, unasked = zip(*each.varied, strict=True)
    answered = (
        fmean(one.share for one in group) for group in (each.tools, each.talk, asked, unasked)
    )
    return fmean([each.held[0][0].calls_share, *answered, each.corrected.newer_share])


def retrieval_sheet(
    where: str, shares: Sequence[float], found: Sequence[tuple[str, Sequence[Found]]]
) -> Sheet:
    """Return the table of retrieval: a row for each reader, a column for each budget."""
    return Sheet(
        f"Retrieval: is what a question is about in the request? {where}",
        f"{found[0][1][0].asked} questions, asked at the end of conversations of some 600 messages "
        "each, about sentences said at least 100 messages before. Percent of questions with all "
        "their sentences in the request, by budget as a share of the history; then requests "
        "that were over the budget or refused (o).",
        ("context", *(f"{share:.0%}" for share in shares)),
        tuple((name, *(_answered(result) for result in results)) for name, results in found),
    )


def planted_sheet(shares: Sequence[float], found: Sequence[tuple[str, Sequence[Found]]]) -> Sheet:
    """Return the table of planted facts: a row for each reader, a column for each budget."""
    return Sheet(
        "Planted facts: is what was said once still in the request?",
        f"{found[0][1][0].asked} account numbers and rules, each said once by a user, evenly "
        "over a long conversation of the transcripts. Percent that the request at its end "
        "contains verbatim, by budget as a share of the history.",
        ("context", *(f"{share:.0%}" for share in shares)),
        tuple((name, *(_answered(result) for result in results)) for name, results in found),
    )


def varied_sheet(
    shares: Sequence[float], found: Sequence[tuple[str, Sequence[tuple[Found, Found]]]]
) -> Sheet:
    """Return the table of facts in varied words: asked for / not, a column for each budget."""
    return Sheet(
        "Facts of sixteen kinds in three languages: are they in the request at the end?",
        f"{found[0][1][0][0].asked} facts, each stated once in 1,000 turns of other talk. Percent "
        "that the request contains if the latest message asks for it / if it does not, by budget "
        "as a share of the history.",
        ("context", *(f"{share:.0%}" for share in shares)),
        tuple(
            (name, *(f"{100 * asked.share:.0f} / {100 * other.share:.0f}" for asked, other in each))
            for name, each in found
        ),
    )


def corrected_sheet(found: Sequence[tuple[str, Corrected]]) -> Sheet:
    """Return the table of corrections."""
    return Sheet(
        "Corrections: which value stands in the request 300 turns later?",
        "A statement, its correction ten turns later, and 300 turns, within 1,500 and 3,000 "
        "tokens. Requests that contain the newer value, both, or the older one alone.",
        ("context", "newer", "both", "older alone", "of"),
        tuple(
            (name, str(each.newer), str(each.both), str(each.older_alone), str(each.requests))
            for name, each in found
        ),
    )


def agents_sheet(budgets: Sequence[int], found: Sequence[tuple[str, Sequence[str]]]) -> Sheet:
    """Return the table of tool agents: a column for each budget."""
    return Sheet(
        "Tool agents: is the newest result in the next request, and what users said?",
        "One conversation with 30 results of 1 to 200 KB. Percent of results whose tool, status, "
        "head, tail and path are in the next request, unless it has them whole; and of users' "
        "messages, over all requests, by budget in tokens.",
        ("what", *(f"{budget:,}" for budget in budgets)),
        tuple((name, *cells) for name, cells in found),
    )


def machine() -> str:
    """Return the environment of the figures, in a sentence."""
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite "
        f"{sqlite3.sqlite_version}, tiktoken {version('tiktoken')}"
    )


def print_sheet(console: Console, sheet: Sheet) -> None:
    """Print a table with its note."""
    table = Table(
        title=sheet.title, title_justify="left", caption=sheet.note, caption_justify="left"
    )
    for number, heading in enumerate(sheet.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in sheet.rows:
        table.add_row(*row)
    console.print(table)
    if sheet.picture:
        console.print(sheet.picture, highlight=False, markup=False, soft_wrap=True)


def markdown(sheet: Sheet) -> str:
    """Return a table as a section of Markdown."""
    lines = [
        f"## {sheet.title}",
        "",
        sheet.note,
        "",
        _line(sheet.headings),
        _line(("---", *("---:" for _ in sheet.headings[1:]))),
        *(_line(row) for row in sheet.rows),
    ]
    if sheet.picture:
        lines += ["", "```", sheet.picture, "```"]
    return "\n".join(lines) + "\n"


def _point(name: str, kept: Grounding, prompts: Cache, whole: float) -> Point:
    return Point(name, prompts.cost / whole, kept.calls_share, name.startswith("messages[]"))


def _held(kept: Grounding, prompts: Cache, whole: float) -> tuple[str, ...]:
    refused = "" if not prompts.over + prompts.infeasible else " (o)"
    return (
        f"{kept.values_share * 100:.1f}",
        f"{kept.calls_share * 100:.1f}",
        f"{prompts.pressed_share * 100:.1f}{refused}",
        f"{prompts.cost / whole:.3f}",
        f"{prompts.fill * 100:.0f}",
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _grounded(found: Grounding) -> str:
    notes = [
        f"{count}{letter}"
        for count, letter in ((found.over, "o"), (found.infeasible, "i"), (found.broken, "h"))
        if count
    ]
    shares = f"{found.values_share:.1%} / {found.calls_share:.1%}".replace("%", "")
    return f"{shares} ({' '.join(notes)})" if notes else shares


def _answered(found: Found) -> str:
    return f"{100 * found.share:.1f}" + (f" ({found.failed}o)" if found.failed else "")


def _cached(found: Cache) -> tuple[str, ...]:
    return (
        f"{100 * found.share:.1f}",
        f"{100 * found.pressed_share:.1f}",
        f"{found.calls}",
        f"{found.over}",
        f"{found.infeasible}",
    )
