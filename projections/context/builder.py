"""The messages of one request: reads the rows that it needs, chooses, and puts them in order.

Pure but for the row source. The plain policy: system part, what is injected behind it, first and
latest user message always; beside them the newest whole groups that fit. The same rows, injections,
budget and model give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eventstore.tokens import Count, Tokenizer, count_message, count_messages, tokenizer_for
from projections.context.budget import Group, Selection, groups_of, select
from projections.context.ledger import LedgerEntry, entries
from projections.context.rows import ContextRow
from projections.context.source import Head, RowSource
from projections.context.wire import openai_chat

__all__ = ["POLICY", "ContextView", "Injection", "build"]

POLICY = {"name": "newest_groups", "version": 1}
"""What an ``llm_request`` records of how its messages were chosen."""

_PAGE = 64


@dataclass(frozen=True, slots=True)
class Injection:
    """A system message that is made for one request, and stored nowhere.

    Attributes:
        label: What it is, for errors and the ledger.
        text: Its content.
        versions: The events that it was made of. In the ledger it stands before all events, at 0.
    """

    label: str
    text: str
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContextView:
    """The messages of one request, and the account of how they were chosen.

    Attributes:
        messages: In OpenAI's chat format, ready to be sent.
        ledger: What became of each group of messages.
        tokens: Of the whole request, as ``eventstore.tokens.count_messages`` counts it.
        encoding: The encoding that was counted with.
        complete: Whether nothing visible was dropped.
        versions: The events that the messages were made of, ascending.
    """

    messages: tuple[dict[str, Any], ...]
    ledger: tuple[LedgerEntry, ...]
    tokens: Count
    encoding: str
    complete: bool
    versions: tuple[int, ...]


def build(
    source: RowSource,
    *,
    max_tokens: int | None = None,
    max_messages: int | None = None,
    model: str = "gpt-4o",
    injections: Sequence[Injection] = (),
) -> ContextView:
    """Build the messages of a request; costs what the window costs, however long the history.

    Args:
        source: The rows of the conversation.
        max_tokens: Upper limit for the prompt's tokens, by this project's own count.
        max_messages: Upper limit for the messages, those of the system part included.
        model: Decides how tokens are counted; stored counts serve all models of their encoding.
        injections: What follows the system part, in this order; mandatory as that is.

    Raises:
        BudgetInfeasible: What must be sent is over a limit; it names the items and their sizes.
        EncodingNotBundled: The model needs an encoding that is not carried along.
    """
    tokenizer = tokenizer_for(model)
    head = source.head()
    front = [
        *(_group((row,), tokenizer, "system part") for row in _system_part(head)),
        *(_injected(place, each, tokenizer) for place, each in enumerate(injections)),
    ]
    mandatory = front + _user_messages(head, source.latest_user(), tokenizer)
    newest = (_group(rows, tokenizer) for rows in groups_of(source.newest(_PAGE)))
    selection = select(
        mandatory,
        newest,
        overhead=count_messages((), tokenizer),
        max_tokens=max_tokens,
        max_messages=max_messages,
    )
    kept = _in_order(selection, len(front))
    rows = [row for group in kept for row in group.rows]
    return ContextView(
        messages=openai_chat(rows),
        ledger=entries(selection, kept),
        tokens=selection.tokens,
        encoding=tokenizer.name,
        complete=selection.first_dropped is None,
        versions=tuple(sorted({version for row in rows for version in row.source_versions})),
    )


def _system_part(head: Head) -> tuple[ContextRow, ...]:
    return (*head.system, head.notebook) if head.notebook else head.system


def _in_order(selection: Selection, in_front: int) -> tuple[Group, ...]:
    rest = sorted(selection.mandatory[in_front:] + selection.window, key=lambda group: group.key)
    return (*selection.mandatory[:in_front], *rest)


def _injected(place: int, injection: Injection, tokenizer: Tokenizer) -> Group:
    message = {"role": "system", "content": injection.text}
    count = count_message(message, tokenizer)
    row = ContextRow(
        version=0,
        part=place,
        role="system",
        kind="system",
        message=message,
        tokens=count.tokens,
        tokens_exact=count.exact,
        tokens_margin=count.margin,
        encoding=tokenizer.name,
        source_versions=list(injection.versions),
    )
    return Group((row,), count, injection.label)


def _user_messages(head: Head, latest: ContextRow | None, tokenizer: Tokenizer) -> list[Group]:
    groups: list[Group] = []
    if head.first_user:
        groups.append(_group((head.first_user,), tokenizer, "first user message"))
    if latest and (head.first_user is None or latest.key != head.first_user.key):
        groups.append(_group((latest,), tokenizer, "latest user message"))
    return groups


def _group(rows: tuple[ContextRow, ...], tokenizer: Tokenizer, label: str = "") -> Group:
    return Group(rows, sum((_tokens(row, tokenizer) for row in rows), Count(0)), label)


def _tokens(row: ContextRow, tokenizer: Tokenizer) -> Count:
    if row.encoding == tokenizer.name:
        return tokenizer.widen(row.count)
    return count_message(row.message, tokenizer)
