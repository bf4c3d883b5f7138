"""The messages[] view for people: its messages, its budget as a bar, and its ledger as a table.

All information is in words and characters; colours only repeat it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent_eventstore.cli.console import (
    ROLES,
    cell,
    count,
    fixed,
    flexible,
    grid,
    number,
    plural,
    status_cell,
)
from agent_eventstore.cli.harmless import one_line, shown
from projections.context import ContextView, LedgerEntry
from projections.context.compression import ContextUsage

__all__ = [
    "EXPLAINED",
    "context_summary",
    "fixed_tokens",
    "ledger_table",
    "messages_table",
    "runs_table",
    "show_budget",
    "spoken_version",
]

_STATUSES = {"normal": "green", "warning": "yellow", "compressing": "magenta"}
_LEVELS = ("full", "shortened", "facts", "dropped")
_LONGEST_BAR = 60  # cells
_FRONT = ("system", "notebook")
EXPLAINED = (
    "An entry is one message, or an answer of the model with the results of its tool calls. The "
    "digest is one message with the facts of all entries of which nothing else is left. The full "
    "texts are in the events of the first column: `eventstore events CID --json`."
)
"""Explains the ledger's terms."""


def messages_table(view: ContextView, *, full: bool = False) -> Table:
    """Return the messages of a request in any format; contents are shortened unless ``full``."""
    table = grid(number("#"), fixed("role"), flexible("content", fold=full))
    apart = [] if view.system is None else [{"role": "system", "content": view.system}]
    for place, message in enumerate((*apart, *view.messages), start=1 - len(apart)):
        role = str(message.get("role") or message.get("type"))
        lines = [
            cell(content if full else one_line(content), style)
            for content, style in _texts_and_styles(message)
            if content
        ]
        table.add_row(cell(place or "-"), cell(role, ROLES.get(role, "")), Text("\n").join(lines))
    return table


def _texts_and_styles(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a message's content, each with its style."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        yield content, ""
    elif isinstance(content, list):
        for part in content:
            yield from _part(part)
    for each in message.get("tool_calls") or message.get("calls") or ():
        function = each.get("function", each)
        arguments = function.get("arguments_text", function["arguments"])
        yield f"→ {function['name']} {arguments}", "yellow"
    for result in message.get("results") or ():
        yield from _texts_and_styles({"role": "tool", "content": result["parts"]})
    if "role" not in message:
        yield from _part(message)


def _part(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a content part, or an item of a format without roles."""
    match part.get("type"):
        case "tool_use" | "function_call":
            given = part.get("arguments", part.get("input"))
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            yield f"→ {part['name']} {text}", "yellow"
        case "tool_result" | "function_call_output":
            yield from _texts_and_styles(
                {"role": "tool", "content": part.get("content", part.get("output"))}
            )
        case _:
            known = part.get("text") or part.get("refusal") or part.get("thinking")
            yield str(known or f"[{part.get('type')}]"), ""


def context_summary(view: ContextView) -> str:
    """Return a line on the size of a request, and one on how much of the history it includes."""
    tokens = plural(view.tokens.tokens, "token")
    if view.usage is not None:
        tokens = f"{tokens} of at most {count(view.usage.budget)}"
    how = "exact" if view.tokens.exact else f"counted to within {ceil(100 * view.tokens.margin)}%"
    size = f"{plural(len(view.messages), 'message')}, {tokens} ({view.encoding}, {how})"
    if view.complete:
        previews = any(entry.full_aliases for entry in view.ledger)
        description = "large tool outputs as previews, the rest in full" if previews else "in full"
        return f"{size}\neverything is included, {description}"
    found: Counter[str] = Counter(entry.level for entry in view.ledger if entry.version is not None)
    description = ", ".join(f"{found[level]} {level}" for level in _LEVELS if found[level])
    older = any(entry.version is None for entry in view.ledger)
    return f"{size}\n{description}" + ("; messages beyond the limit were not read" if older else "")


def ledger_table(view: ContextView, first_words: Mapping[int, str]) -> Table:
    """Return the ledger of a request: each entry's level, the reason, and the events of its text.

    Args:
        view: The request.
        first_words: The first words of events, by version; see `spoken_version`.
    """
    columns = (number("event"), flexible("message", fold=True), fixed("level"), number("tokens"))
    table = grid(*columns)
    composed = iter(view.policy.get("system", ()))
    for entry in view.ledger:
        words = first_words.get(spoken_version(entry) or 0, "")
        if entry.version == 0 and not entry.source_versions:
            words = one_line(next(composed, ("", ""))[1])
        table.add_row(
            cell(_events(entry)),
            _entry(entry, words),
            status_cell(entry.level),
            cell(_tokens(entry)),
        )
    rest = view.tokens.tokens - sum(entry.tokens_after for entry in view.ledger)
    if rest > 0:
        heading = any(entry.level == "facts" for entry in view.ledger)
        named = "tools, request overhead" + ", heading of the digest" * heading
        table.add_row(cell("-"), cell(named, "dim"), cell(""), cell(count(rest)))
    return table


def runs_table(ledger: Sequence[LedgerEntry]) -> Table:
    """Return the ledger in short, without scores: one row for adjacent entries of one level."""
    columns = (number("entries"), flexible("why", fold=True), fixed("level"), number("tokens"))
    table = grid(*columns)
    for level, entries in groupby(ledger, key=lambda entry: entry.level):
        run = list(entries)
        whole = (entry.reason.removeprefix("mandatory: ") for entry in run)
        reasons = dict.fromkeys(reason.partition(", score ")[0] for reason in whole)
        before = sum(entry.tokens_before or 0 for entry in run)
        after = sum(entry.tokens_after for entry in run)
        tokens = count(before) if level == "full" else f"{count(before)} → {count(after)}"
        table.add_row(
            cell(len(run)), cell("; ".join(reasons), "dim"), status_cell(level), cell(tokens)
        )
    return table


def _entry(entry: LedgerEntry, words: str) -> RenderableType:
    kind = "everything older" if entry.version is None else entry.kind
    first = Text.assemble((kind, ROLES.get(entry.kind, "")), f"  {shown(words)}" if words else "")
    first.no_wrap, first.overflow = True, "ellipsis"
    reason = "" if entry.level == "full" and entry.reason == "fits whole" else entry.reason
    details = "; ".join(filter(None, (reason, *entry.full_aliases)))
    return Group(first, cell(details, "dim")) if details else first


def _events(entry: LedgerEntry) -> str:
    """Return the range of events that hold an entry's full text."""
    versions = entry.source_versions
    if not versions:
        return "-"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


def _tokens(entry: LedgerEntry) -> str:
    before = "?" if entry.tokens_before is None else count(entry.tokens_before)
    return before if entry.level == "full" else f"{before} → {count(entry.tokens_after)}"


def spoken_version(entry: LedgerEntry) -> int | None:
    """Return the event that holds an entry's first words, or None if no single event does."""
    if entry.version is None:
        return None  # It stands for many messages.
    if entry.version in entry.source_versions or not entry.source_versions:
        return entry.version
    return entry.source_versions[-1]


def fixed_tokens(ledger: Sequence[LedgerEntry]) -> int:
    """Return the tokens in every request: of the system part and the first user message."""
    front = sum(entry.tokens_after for entry in ledger if entry.kind in _FRONT)
    users = (entry.tokens_after for entry in ledger if entry.kind == "user")
    return front + next(users, 0)


def show_budget(console: Console, view: ContextView, thresholds: tuple[int, int] | None) -> None:
    """Print the budget as a bar, with its marks, and its status in words.

    Args:
        console: The console to print on.
        view: The request.
        thresholds: The tokens above which the history is trimmed, and to how many; None if it is
            trimmed at every request.
    """
    usage = view.usage
    if usage is None:
        console.print(Text("budget  none: give one with --max-tokens"))
        return
    head = f"budget  {plural(usage.budget, 'token')}, of which {count(usage.used)} are used"
    console.print(Text(f"{head} ({usage.percent:g} %) and {count(usage.remaining)} are left"))
    width = min(_LONGEST_BAR, console.width - 10)
    filled = min(width, _cells(usage.used, usage.budget, width))
    style = _STATUSES[usage.status]
    bar = Text.assemble(("█" * filled, style), ("░" * (width - filled), "dim"))
    console.print(Text("        ") + bar)
    if thresholds is not None:
        trigger, target = thresholds
        places = {_cells(each, usage.budget, width) for each in thresholds}
        marks = "".join("▲" if place in places else " " for place in range(1, width + 1))
        console.print(Text(f"        {marks.rstrip()}"))
        note = f"▲ when over {count(trigger)}, the history is trimmed to {count(target)}"
        if view.step is not None:
            note += f"; last at event {view.step[0]}"
        console.print(Text(f"        {note}"))
    if view.sections:
        taken = (f"{name} {count(n)} of {count(most)}" for name, (n, most) in view.sections.items())
        console.print(Text(f"sections  {', '.join(taken)}"))
    status = _status(usage, view.complete)
    console.print(Text.assemble("status  ", (usage.status, style), f": {status}"))


def _cells(tokens: int, budget: int, width: int) -> int:
    return max(1, min(width, round(width * tokens / budget))) if budget else width


def _status(usage: ContextUsage, complete: bool) -> str:
    if usage.status == "normal":
        return "no message has lost detail"
    if usage.status == "warning":
        return "little room is left: older messages will soon lose detail"
    if complete:
        return "little room is left: older messages lose detail next"
    return "the whole history is too large: older messages lost detail"
