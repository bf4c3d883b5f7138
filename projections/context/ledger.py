"""The account of a request: what became of each message, why, and where the whole of it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from projections.compression.items import Level
from projections.context.budget import Group
from projections.context.planning import Plan, Planned

__all__ = ["Account", "Action", "LedgerEntry"]

Action = Literal["kept", "shortened", "summarised", "dropped"]

_ACTIONS: dict[Level, Action] = {
    "live": "kept",
    "summary": "shortened",
    "gist": "summarised",
    "dropped": "dropped",
}


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What became of one group of messages, or of all that nobody has looked at.

    Attributes:
        version: The version that the group stands at; None for all that is older.
        kind: Kind of the group's first message; ``older`` for all that is older.
        action: ``kept`` as it is; ``shortened`` to less detail; ``summarised`` to its facts, in
            the digest; or ``dropped``.
        tokens_before: In full; None where nobody has looked.
        tokens_after: In the request.
        reason: Why, in a few words.
        source_versions: The events that it was made of: there, the full text is.
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


@dataclass(frozen=True, slots=True)
class Account:
    """What became of everything that a request could have held.

    Attributes:
        front: The groups of the system part.
        history: What became of the history.
        ended: The limits on messages and characters that nothing older has passed.
    """

    front: tuple[Group, ...]
    history: Plan
    ended: tuple[str, ...]

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the account in words.

        What nobody has looked at comes first, as it is older: one entry for all of it. Then the
        system part, then the history, each in the order of the request.
        """
        account = [_entry(Planned.whole(group)) for group in self.front]
        recalled = self.history.recalled
        account += [_entry(each, each.group.key in recalled) for each in self.history.groups]
        if self.history.all_read and not self.ended:
            return tuple(account)
        groups = (each.group for each in self.history.groups)
        oldest = next((g for g in groups if not g.label and g.key not in recalled), None)
        until = "what must be sent" if oldest is None else f"version {oldest.key[0]}"
        limit = f"over {self.ended[0]}" if self.ended else "does not fit whole"
        reason = f"older than {until}: {limit}"
        return (LedgerEntry(None, "older", "dropped", None, 0, reason), *account)


def _entry(planned: Planned, recalled: bool = False) -> LedgerEntry:
    group = planned.group
    whole = group.whole or group
    action, reason = _ACTIONS[planned.level], planned.why
    if action == "kept" and whole is not group:
        action, reason = "shortened", group.why
    if reason and group.label and action != "dropped":
        reason = f"mandatory: {group.label}; {reason}"
    kept = "retrieved: answers the latest user message" if recalled else _why_kept(group)
    return LedgerEntry(
        version=group.key[0],
        kind=group.kind,
        action=action,
        tokens_before=whole.tokens,
        tokens_after=planned.tokens,
        reason=reason or kept,
        source_versions=group.source_versions,
        full_aliases=tuple(_aliases(group)),
    )


def _why_kept(group: Group) -> str:
    if group.label:
        return f"mandatory: {group.label}"
    return "fits; large outputs as their previews" if any(_aliases(group)) else "fits whole"


def _aliases(group: Group) -> Iterable[str]:
    return (row.full_alias for row in group.rows if row.full_alias)
