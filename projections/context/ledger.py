"""The account of a request: what became of each message, why, and where the whole of it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from projections.context.budget import Group, Selection

__all__ = ["LedgerEntry", "entries"]

Action = Literal["kept", "dropped"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What became of one group of messages, or of all that is older than the window.

    Attributes:
        version: The version that the group stands at; None for all that is older.
        kind: Kind of the group's first row; ``older`` for all that is older.
        action: Whether the request holds it.
        tokens_before: In full; None where nobody has looked.
        tokens_after: In the request.
        reason: Why, in a few words.
        source_versions: The events that it was made of.
        full_aliases: Paths of the outputs that it shows shortened.
    """

    version: int | None
    kind: str
    action: Action
    tokens_before: int | None
    tokens_after: int
    reason: str
    source_versions: tuple[int, ...] = ()
    full_aliases: tuple[str, ...] = ()


def entries(selection: Selection, kept: tuple[Group, ...]) -> tuple[LedgerEntry, ...]:
    """Return the account of a selection.

    What was dropped comes first, as it is older: one entry for all that nobody has looked at, one
    for the group that did not fit. Then what is kept, in the order of the request.
    """
    account = [_entry(group, "kept", group.tokens.tokens, _why(group)) for group in kept]
    dropped = selection.first_dropped
    if dropped is None:
        return tuple(account)
    older = LedgerEntry(
        version=None,
        kind="older",
        action="dropped",
        tokens_before=None,
        tokens_after=0,
        reason=f"older than version {dropped.rows[0].version}, which did not fit",
    )
    return (older, _entry(dropped, "dropped", 0, f"over {selection.reason}"), *account)


def _why(group: Group) -> str:
    return f"mandatory: {group.label}" if group.label else "within the window"


def _entry(group: Group, action: Action, tokens_after: int, reason: str) -> LedgerEntry:
    first = group.rows[0]
    return LedgerEntry(
        version=first.version,
        kind=first.kind,
        action=action,
        tokens_before=group.tokens.tokens,
        tokens_after=tokens_after,
        reason=reason,
        source_versions=tuple(sorted({v for row in group.rows for v in row.source_versions})),
        full_aliases=tuple(row.full_alias for row in group.rows if row.full_alias),
    )
