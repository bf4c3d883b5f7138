"""Which groups of messages a request holds: a pure choice by whole groups within a budget.

A group is what must stay together: an assistant message with the results of its calls, or any
other message alone. The mandatory groups are paid first; then the newest groups are taken, one
after the other, up to the first that does not fit. Nothing older is looked at, so the kept window
has no holes, a larger budget never keeps less, and the cost is that of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eventstore.errors import BudgetInfeasible
from eventstore.tokens import Count
from projections.context.rows import ContextRow

__all__ = ["Group", "Selection", "groups_of", "select"]


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together.

    Attributes:
        rows: In order; an assistant row comes before the rows of its results.
        tokens: Of all its messages within a request.
        label: What a mandatory group is, for errors and the ledger; empty for others.
    """

    rows: tuple[ContextRow, ...]
    tokens: Count
    label: str = ""

    @property
    def key(self) -> tuple[int, int]:
        """The place of its first row."""
        return self.rows[0].key


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen.

    Attributes:
        mandatory: The groups that had to be kept, as given.
        window: The other groups that are kept, oldest first.
        first_dropped: The newest group that did not fit; None if everything is kept.
        reason: Why it did not fit: ``max_tokens`` or ``max_messages``; empty if it did.
        tokens: Of everything kept, with what the request itself adds.
    """

    mandatory: tuple[Group, ...]
    window: tuple[Group, ...]
    first_dropped: Group | None
    reason: str
    tokens: Count


def groups_of(rows: Iterable[ContextRow]) -> Iterator[tuple[ContextRow, ...]]:
    """Yield whole groups, newest first, from rows in descending order of (version, part).

    Rows are taken one at a time, and none beyond the first row of the group after the last that
    the caller asks for. Results without their assistant message make no group.
    """
    results: list[ContextRow] = []
    for row in rows:
        if results and results[0].version != row.version:
            results = []
        if row.kind == "tool":
            results.append(row)
        else:
            yield (row, *reversed(results)) if row.kind == "assistant" else (row,)
            results = []


def select(
    mandatory: Sequence[Group],
    newest: Iterable[Group],
    *,
    overhead: Count,
    max_tokens: int | None = None,
    max_messages: int | None = None,
) -> Selection:
    """Choose what a request holds.

    Args:
        mandatory: Groups that must be kept.
        newest: All groups of the conversation, newest first, mandatory ones among them or not;
            it is read up to the first group that does not fit.
        overhead: What a request adds to the tokens of its messages.
        max_tokens: Upper limit for the tokens of the request; None for no limit.
        max_messages: Upper limit for its messages, mandatory ones included; None for no limit.

    Raises:
        BudgetInfeasible: The mandatory groups alone are over a limit.
    """
    paid = {group.key for group in mandatory}
    tokens = sum((group.tokens for group in mandatory), overhead)
    messages = sum(len(group.rows) for group in mandatory)
    _demand(mandatory, tokens, messages, overhead, max_tokens, max_messages)
    window: list[Group] = []
    for group in newest:
        if group.key in paid:
            continue
        reason = ""
        if max_tokens is not None and (tokens + group.tokens).tokens > max_tokens:
            reason = "max_tokens"
        elif max_messages is not None and messages + len(group.rows) > max_messages:
            reason = "max_messages"
        if reason:
            return Selection(tuple(mandatory), tuple(reversed(window)), group, reason, tokens)
        window.append(group)
        tokens += group.tokens
        messages += len(group.rows)
    return Selection(tuple(mandatory), tuple(reversed(window)), None, "", tokens)


def _demand(
    mandatory: Sequence[Group],
    tokens: Count,
    messages: int,
    overhead: Count,
    max_tokens: int | None,
    max_messages: int | None,
) -> None:
    if max_tokens is not None and tokens.tokens > max_tokens:
        sizes = {_name(group): group.tokens.tokens for group in mandatory}
        raise BudgetInfeasible(max_tokens, {**sizes, "request overhead": overhead.tokens})
    if max_messages is not None and messages > max_messages:
        counts = {_name(group): len(group.rows) for group in mandatory}
        error = BudgetInfeasible(max_messages, counts)
        # The class speaks of tokens; this limit is one of messages.
        need = f"the {messages} messages that must be sent ({', '.join(counts)})"
        error.args = (f"max_messages={max_messages} cannot hold {need}: raise it",)
        raise error


def _name(group: Group) -> str:
    return f"{group.label or group.rows[0].kind} (version {group.rows[0].version})"
