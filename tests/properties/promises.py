"""What DESIGN section 8 promises of a messages[] view, one judge for each promise.

The judges look at what is sent, and at the rows that it was made of; they share no code with the
builder. A `Request` is one question that is asked of rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import pytest

from eventstore.sql.read import END
from projections.context import ContextRow, ContextSettings, ContextView, build
from projections.context.builder import LAST_FORMS, LEAST_ENDS
from projections.context.compression import strategies, strategy_of
from projections.context.levels import ends_of, lower
from projections.context.payload_messages import is_blank
from projections.context.prompts import BROKEN_OFF, DIGEST_HEADER, RECALLED
from projections.context.table_rows import tabled_rows
from projections.context.view import LedgerEntry
from projections.errors import BudgetInfeasible
from projections.providers.request_formats import FORMATS
from projections.tokens import count_messages, tokenizer_for
from tests.checkers import CHECKERS
from tests.list_row_source import ListRowSource

__all__ = [
    "FORMATS",
    "STRATEGIES",
    "Request",
    "ask",
    "assert_accounted",
    "assert_first_four",
    "assert_never_less",
    "assert_users_are_told",
    "assert_within_budget",
    "refused",
    "text_of",
    "tokens_of",
]

STRATEGIES = strategies()
LEVELS = ("dropped", "facts", "shortened", "full")
_LINE_END = 1
_FIELDS = {
    "openai_responses": ("instructions", "input"),
    "anthropic_messages": ("system", "messages"),
}
_NEUTRAL = ["role", "kind", "versions", "name", "parts", "calls", "results", "native"]


@dataclass(frozen=True, slots=True)
class Request:
    """One question: everything that a request's messages depend on beside the rows."""

    strategy: str = "level_of_detail"
    format: str = "openai_chat"
    steps: bool = False
    model: str = "gpt-4o"
    max_tokens: int | None = None
    sections: tuple[tuple[str, int | float], ...] = ()

    def build(self, rows: Sequence[ContextRow]) -> ContextView:
        """Return the view of the rows."""
        return build(
            ListRowSource(rows),
            max_tokens=self.max_tokens,
            model=self.model,
            settings=ContextSettings(steps=self.steps, section_budgets=dict(self.sections)),
            strategy=strategy_of(self.strategy),
            format=self.format,
        )


def ask(rows: Sequence[ContextRow], request: Request) -> ContextView | None:
    """Return the view, or None if the budget is refused with a sum that is over it (2)."""
    try:
        return request.build(rows)
    except BudgetInfeasible as error:
        refusal = error
    assert refusal.mandatory
    assert sum(refusal.mandatory.values()) > refusal.max_tokens
    return None


def assert_first_four(rows: Sequence[ContextRow], request: Request) -> ContextView | None:
    """Check promises 1 to 4, and return the view, None if the budget is refused."""
    view = ask(rows, request)
    if view is not None:
        assert [] == refused(view)
        assert_within_budget(request, view)
        assert_users_are_told(rows, view)
        assert_accounted(rows, view)
    return view


def assert_never_less(rows: Sequence[ContextRow], request: Request, budgets: Iterable[int]) -> None:
    """Check that no budget keeps less than a smaller one (6), of levels and of facts.

    Of budgets that can hold each group beside what must be sent, and twice each: in others, a group
    that a smaller budget could not hold takes the room of others.
    """
    levels: dict[tuple[int, int], int] | None = None
    facts: set[str] = set()
    shortened, whole = _ordinary(rows, request)
    for budget in sorted(each for each in budgets if each >= shortened):
        view = ask(rows, replace(request, max_tokens=budget))
        if view is None:
            assert levels is None
            continue
        if budget < whole and not any(map(_is_shortened_task, view.ledger)):
            continue
        before, levels = levels or {}, levels_of(view)
        assert all(level <= levels.get(key, 0) for key, level in before.items())
        if request.format == "openai_chat":
            assert facts <= (facts := facts_in(rows, view))


def _ordinary(rows: Sequence[ContextRow], request: Request) -> tuple[int, int]:
    """Return a budget that can hold each group beside what must be sent, and is twice as large.

    First where the task is sent in its shorter form, then where it is whole. A task that has one is
    a group that a budget may not hold, as any other.
    """
    with pytest.raises(BudgetInfeasible) as refusal:
        replace(request, max_tokens=0).build(rows)
    must = refusal.value.mandatory
    ledger = replace(request, max_tokens=None).build(rows).ledger
    sizes = [0], [0]
    saved = 0
    for entry in ledger:
        size = entry.tokens_before or 0
        if not entry.reason.startswith("mandatory"):
            sizes[0].append(size)
        elif size > must.get(f"first user message (version {entry.version})", size):
            saved = size - must[f"first user message (version {entry.version})"]
            sizes[1].append(size)
    margin = tokenizer_for(request.model).margin
    largest = ceil((1 + margin) * max(sizes[0]))
    twice = ceil((1 + margin) * 2 * (max(map(max, sizes)) + 2 * header_tokens()))
    shortened = sum(must.values()) + largest
    return max(shortened, twice), max(shortened + ceil((1 + margin) * saved), twice)


def _is_shortened_task(entry: LedgerEntry) -> bool:
    mandatory = entry.reason.startswith("mandatory: first user message")
    return mandatory and entry.level == "shortened"


def header_tokens() -> int:
    """Return the tokens of a request with nothing but the digest's header."""
    header = {"role": "system", "content": DIGEST_HEADER}
    return count_messages([header], tokenizer_for("gpt-4o")).tokens


def tokens_of(rows: Sequence[ContextRow]) -> int:
    """Return the tokens of a request with everything, in OpenAI's chat format."""
    return count_messages((), tokenizer_for("gpt-4o")).tokens + sum(r.tokens for r in shown(rows))


def refused(view: ContextView) -> list[str]:
    """Return what the provider would refuse (1)."""
    if view.format == "neutral":
        return neutral(view.messages)
    apart, listed = _FIELDS.get(view.format, ("system", "messages"))
    front = {} if view.system is None else {apart: view.system}
    return CHECKERS[view.format]({**front, listed: list(view.messages)})


def neutral(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in what messages are not of the shape that the neutral form documents."""
    problems: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        calls = [call["id"] for call in message["calls"]]
        results = [result["call_id"] for result in message["results"]]
        for wrong, problem in (
            (list(message) != _NEUTRAL, "has other fields"),
            (message["role"] not in ("system", "user", "assistant", "tool"), "has a strange role"),
            (sorted(set(message["versions"])) != message["versions"], "has versions out of order"),
            (results != waiting, "does not answer the calls before it"),
            ((message["role"] == "tool") != bool(results), "has results, or lacks them"),
            (bool(calls) and message["role"] != "assistant", "calls without being an assistant"),
            (not seen.isdisjoint(calls) or len({*calls}) != len(calls), "uses an id again"),
        ):
            problems += [f"message {place} {problem}"] if wrong else []
        seen.update(calls)
        waiting = calls
    json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    return problems + (["the last calls have no results"] if waiting else [])


def assert_within_budget(request: Request, view: ContextView) -> None:
    """Check what is sent against the limit, counted afresh where that is possible (2)."""
    if view.format == "openai_chat":
        counted = count_messages(view.messages, tokenizer_for(request.model))
        assert (counted.tokens, counted.exact) == (view.tokens.tokens, view.tokens.exact)
    if request.max_tokens is not None:
        assert view.tokens.tokens <= request.max_tokens
        assert view.usage is not None
        assert view.tokens.tokens == view.usage.used


def assert_users_are_told(rows: Sequence[ContextRow], view: ContextView) -> None:
    """Check that the task and the latest user message are in the request, to the letter (3).

    A task that the budget cannot hold may be shortened, and the ledger says so.
    """
    users = [row for row in rows if row.kind == "user" and row.hidden is None]
    told = text_of(view.messages)
    for row in users[:1] + users[-1:]:
        assert set(row.source_versions) <= set(view.versions)
        if any((row.version, "shortened") == (each.version, each.level) for each in view.ledger):
            assert row is users[0]
            continue
        content = row.message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        for part in parts:
            assert part.get("text", "").strip() in told


def assert_accounted(rows: Sequence[ContextRow], view: ContextView) -> None:
    """Check that the ledger has each message once, and tells what is really sent (4)."""
    ledger = [entry for entry in view.ledger if entry.kind != "recalled"]
    older = [entry for entry in ledger if entry.version is None]
    told = Counter((entry.version, entry.kind) for entry in ledger if entry.version is not None)
    there = Counter((row.version, row.kind) for row in shown(rows) if row.kind != "tool")
    assert not told - there
    assert len(older) <= 1
    assert older or not there - told
    for entry in ledger:
        assert entry.reason
        assert (entry.level == "dropped") == (entry.tokens_after == 0)
        if entry.level == "full":
            assert entry.tokens_before == entry.tokens_after
    if view.format == "openai_chat":
        assert _told_by_ledger(rows, view) == [_plain(message) for message in view.messages]
        assert _added_up(view) == view.tokens.tokens


def _added_up(view: ContextView) -> int:
    """Return the tokens of the ledger's entries, the digest, and the request itself."""
    tokenizer = tokenizer_for(view.policy["model"])
    overhead = count_messages((), tokenizer).tokens
    digest = [message for message in view.messages if is_digest(message)]
    whole = sum(each.tokens_after for each in view.ledger if each.level != "facts")
    lines = sum(each.tokens_after for each in view.ledger if each.level == "facts")
    told = count_messages(digest, tokenizer).tokens - overhead
    assert bool(lines) == bool(digest)
    header = [{"role": "system", "content": DIGEST_HEADER}] * len(digest)
    assert told <= lines + count_messages(header, tokenizer).tokens + _LINE_END * len(digest)
    return overhead + whole + told


def _settled(rows: Sequence[ContextRow]) -> Iterator[ContextRow]:
    """Yield rows, of failed calls and empty answers only what requests contain of them."""
    visible = [row for row in rows if row.hidden is None]
    errors = [row for row in visible if row.kind == "error" and row.summarised_by is None]
    error = errors[-1].key if errors else None
    users = [row.key for row in visible if row.kind == "user"]
    until = min((key for key in users if error and key > error), default=(END, 0))
    answered = any(
        row.kind == "assistant" and row.summarised_by is None and error < row.key < until
        for row in visible
        if error
    )
    if error is not None and (answered or (len(users) > 1 and error < users[-2])):
        error = None
    for row in rows:
        if row.kind == "error" and row in errors and row.key != error:
            if length := (row.given or {}).get("partial"):
                content = f"{row.message['content'][:length]}\n\n{BROKEN_OFF}"
                message = {**row.message, "content": content}
                yield row.with_(kind="assistant", message=message, given=None)
        elif not (row.kind == "assistant" and row.native is None and _is_nothing(row.message)):
            yield row


def _is_nothing(message: Mapping[str, Any]) -> bool:
    return not (message["content"] or "").strip() and message.keys() <= {"role", "content", "name"}


def shown(rows: Sequence[ContextRow]) -> list[ContextRow]:
    """Return the rows that a request may show: of any, those that nothing hides."""
    visible = [row for row in _settled(rows) if row.hidden is None]
    users = [row.key for row in visible if row.kind == "user"]
    lasting = {*users[:1], *users[-1:]}
    return [
        row
        for row in visible
        if row.summarised_by is None or row.key in lasting or row.kind in ("system", "notebook")
    ]


def _told_by_ledger(rows: Sequence[ContextRow], view: ContextView) -> list[Any]:
    """Return the messages, without ids, that the ledger says are sent."""
    held: dict[tuple[int | None, str], list[ContextRow]] = {}
    for row in shown(rows):
        held.setdefault((row.version, "assistant" if row.kind == "tool" else row.kind), []).append(
            row
        )
    said: list[Any] = []
    digests = [message for message in view.messages if is_digest(message)]
    older = max((max(e.source_versions) for e in view.ledger if _tells_older(e)), default=None)
    for entry in view.ledger:
        if _tells_older(entry):
            continue
        if older is not None and (entry.version or 0) > older and not any(map(is_digest, said)):
            said.append(_plain(digests.pop(0)))
        group = held.get((entry.version, entry.kind), [])
        if entry.kind == "recalled":
            said += [_plain(message) for message in view.messages if is_recalled(message)]
        if entry.kind == "summary":
            group = [row for row in group if tuple(row.source_versions) == entry.source_versions]
        if entry.kind == "assistant":
            came, group = group, [*tabled_rows(tuple(group))]
            if entry.level == "full" and not entry.reason.startswith("retrieved"):
                assert (came != group) == ("results as tables" in entry.reason)
        if entry.level == "full":
            said += [_plain({"role": row.role, **row.message}) for row in group]
        elif entry.level == "shortened":
            sent = [_plain(message) for message in view.messages[len(said) :][: len(group)]]
            forms = [*_shorter_forms(group)]
            said += sent if sent in forms else forms[0]
        elif entry.level == "facts" and digests and _names(digests[0], entry.version):
            said.append(_plain(digests.pop(0)))
    return said


def _shorter_forms(group: Sequence[ContextRow]) -> Iterator[list[Any]]:
    """Yield the shorter forms of a group: what strategies shorten it to, then its two ends."""
    yield [_plain({"role": row.role, **(lower(row).shortened or row.message)}) for row in group]
    for most in LAST_FORMS:
        most = max(most // max(len(group) - 1, 1), LEAST_ENDS)
        yield [_plain({"role": row.role, **ends_of(row, most).message}) for row in group]


def _names(digest: Mapping[str, Any], version: int | None) -> bool:
    """Whether a digest has a line of the message at a version."""
    return any(line.startswith(f"{version} ") for line in digest["content"].splitlines())


def _tells_older(entry: LedgerEntry) -> bool:
    """Whether an entry is of all that is older, and the digest tells of it, in its first lines."""
    return entry.version is None and entry.level == "facts"


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    rest = {key: message[key] for key in message.keys() - {"tool_calls", "tool_call_id"}}
    if message["role"] == "assistant" and is_blank(message["content"]):
        rest["content"] = None  # Beside calls, some servers refuse a blank text.
    return {**rest, "calls": calls}


def is_digest(message: Mapping[str, Any]) -> bool:
    """Whether a message of OpenAI's chat format is the digest."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(DIGEST_HEADER)


def is_recalled(message: Mapping[str, Any]) -> bool:
    """Whether a message of OpenAI's chat format is the block of what is recalled."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(RECALLED)


def levels_of(view: ContextView) -> dict[tuple[int, int], int]:
    """Return how much detail is left of each group of the history, by its place."""
    return {each.group.key: LEVELS.index(each.level) for each in view.account.history.groups}


def facts_in(rows: Sequence[ContextRow], view: ContextView) -> set[str]:
    """Return the facts of the conversation that the request tells."""
    told = text_of(view.messages)
    known = {fact.text for row in rows for fact in lower(row).facts}
    return {fact for fact in known if fact in told or json.dumps(fact)[1:-1] in told}


def text_of(messages: Any) -> str:
    """Return all texts of messages in any format, a line each."""
    return "\n".join(_strings(messages))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _strings(held)
    elif isinstance(value, Sequence):
        for held in value:
            yield from _strings(held)
