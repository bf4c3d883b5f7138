"""The result of building a request: `ContextView`, with its messages and an account of them.

The account says what became of each message, why, and where its full text is. The digest is the
message with the facts that earlier messages named, one line for each message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from eventstore.events.codec import dumps
from projections.context import detail
from projections.context.compression.items import Level
from projections.context.compression.llm_summary import LlmSummary, SummaryRequest
from projections.context.compression.monitor import ContextUsage
from projections.context.compression.reduction import digest_line
from projections.context.compression.strategy import Strategy
from projections.context.older import Older
from projections.context.output_paths import in_part
from projections.context.planning import Plan, Planned
from projections.context.plans import COMPACTED, Group
from projections.context.prompts import DIGEST_HEADER, DIGEST_TITLE
from projections.context.recalled import Block
from projections.context.rows import ContextRow
from projections.tokens import Count, Tokenizer

__all__ = [
    "Account",
    "ContextView",
    "LedgerEntry",
    "digest_of",
    "digest_rows",
    "due_of",
    "newest_rows",
    "soon_asked",
]

_SOON = 8
"""Groups whose levels are computed in advance; most requests find one or two new ones."""


def digest_rows(
    plan: Plan, tokenizer: Tokenizer, *, paths: bool = True
) -> dict[tuple[int, int], ContextRow]:
    """Return the rows of the digests, each by the place of the group that it precedes.

    With ``paths`` they include the paths of full outputs.
    """
    header = DIGEST_HEADER if paths else DIGEST_TITLE
    made = plan.digests.get((tokenizer, header))
    if made is None:
        made = plan.digests[tokenizer, header] = tuple(
            _digest_row(told, None if number else plan.older, tokenizer, header)
            for number, told in enumerate(plan.told)
        )
    rows: dict[tuple[int, int], ContextRow] = {}
    for row, told in zip(made, plan.told, strict=True):
        places = [each.group.key for each in told[:1]]
        if plan.older is not None and not rows:
            newer = (each.group.key for each in plan.groups)
            places += islice((key for key in newer if key > (plan.older.versions[-1],)), 1)
        rows[min(places)] = row
    return rows


def _digest_row(
    told: Sequence[Planned], older: Older | None, tokenizer: Tokenizer, header: str
) -> ContextRow:
    before = () if older is None else older.lines
    lines = (digest_line(each.item, each.facts) for each in told if each.item is not None)
    text = "\n".join((header, *before, *lines))
    count = detail.digest(text, tokenizer)
    place = (older.versions[0], 0) if older else told[0].group.key
    versions = set[int]().union(*[row.source_versions for each in told for row in each.group.rows])
    versions.update(() if older is None else older.versions)
    return detail.made_row(text, count, tokenizer, place, versions)


def soon_asked(view: ContextView) -> Iterator[ContextRow]:
    """Yield the newest rows of a view whose lower levels the next step will need.

    None while the budget is far: before the first step, up to half of it.
    """
    usage = view.usage
    if usage is not None and (view.step is not None or 2 * usage.used > usage.budget):
        yield from newest_rows(view, _SOON)


def newest_rows(view: ContextView, groups: int) -> Iterator[ContextRow]:
    """Yield the rows of the newest groups in a view, at most ``groups`` of them."""
    for each in view.account.history.groups[-groups:]:
        yield from each.group.rows


def due_of(strategy: Strategy, chosen: Plan) -> SummaryRequest | None:
    """Return the summary that is due for the dropped part of a plan, with ``llm_summary``."""
    if not isinstance(strategy, LlmSummary) or not chosen.trimmed:
        return None
    items = [each.item for each in chosen.groups if each.item is not None]
    levels = [each.level for each in chosen.groups if each.item is not None]
    return strategy.due(items, levels)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What became of one group of messages, or of everything that was not considered.

    Attributes:
        version: The version of the group; None for everything older; for the recalled block, that
            of the message that it answers.
        kind: The kind of the group's first message; ``older`` for everything older; ``recalled``
            for the recalled block.
        level: The level of detail: ``full``, ``shortened``, its ``facts`` in the digest, or
            ``dropped``.
        tokens_before: The tokens in full; None if not considered.
        tokens_after: The tokens in the request.
        reason: The reason, in a few words.
        source_versions: The events that it was made of, which have the full text.
        full_aliases: The paths of the outputs that it shows shortened.
    """

    version: int | None
    kind: str
    level: Level
    tokens_before: int | None
    tokens_after: int
    reason: str
    source_versions: tuple[int, ...] = ()
    full_aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """What became of everything that a request could have contained.

    Attributes:
        front: The groups of the system part.
        history: The plan of the history.
        ended: The limits on messages and characters that ended the history, or the provider's
            compaction.
        block: The recalled block.
        breakpoints: Whether cache breakpoints are set.
    """

    front: tuple[Group, ...]
    history: Plan
    ended: tuple[str, ...]
    block: Block | None = None
    breakpoints: bool = False

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the account in words.

        First comes one entry for everything older that was not considered, then the system part,
        then the history, each in the order of the request.
        """
        account = [_entry(Planned.whole(group)) for group in self.front]
        recalled = self.history.recalled
        for each in self.history.groups:
            if self.block is not None and each.group.key == self.block.before:
                account.append(_recalled(self.block))
            account.append(_entry(each, each.group.key in recalled))
        if self.breakpoints:
            account = _with_breakpoints(account, len(self.front), self.history.step)
        older = self.history.older
        if self.history.all_read and not self.ended and older is None:
            return tuple(account)
        groups = (each.group for each in self.history.groups)
        oldest = next((g for g in groups if not g.label and g.key not in recalled), None)
        until = "what must be sent" if oldest is None else f"version {oldest.key[0]}"
        limit = f"over {self.ended[0]}" if self.ended else "does not fit whole"
        limit = COMPACTED if self.ended[:1] == (COMPACTED,) else limit
        reason = f"older than {until}: {limit}"
        if older is not None:
            told = f"{reason}; the digest tells what users named and ruled there"
            entry = LedgerEntry(None, "older", "facts", None, older.tokens, told, older.versions)
        else:
            entry = LedgerEntry(None, "older", "dropped", None, 0, reason)
        return (entry, *account)


def _entry(planned: Planned, recalled: bool = False) -> LedgerEntry:
    group = planned.group
    whole = group.whole or group
    level, reason = planned.level, planned.why
    if level == "full" and whole is not group:
        level, reason = "shortened", group.why
    if reason and group.label and level != "dropped":
        reason = f"mandatory: {group.label}; {reason}"
    kept = "retrieved: answers the latest user message" if recalled else _why_kept(group)
    return LedgerEntry(
        version=group.key[0],
        kind=group.kind,
        level=level,
        tokens_before=whole.tokens,
        tokens_after=planned.tokens,
        reason=reason or kept,
        source_versions=group.source_versions,
        full_aliases=tuple(_aliases(group)),
    )


def _with_breakpoints(
    account: Sequence[LedgerEntry], front: int, step: tuple[int, int] | None
) -> list[LedgerEntry]:
    """Return the account with a note on the entries that have a cache breakpoint after them."""
    sent = [n for n, entry in enumerate(account) if entry.level in ("full", "shortened")]
    frozen = [n for n in sent if step is not None and (account[n].version or 0) <= step[0]]
    ends = {*range(front)[-1:], *frozen[-1:], *sent[-1:]}
    return [
        replace(entry, reason=f"{entry.reason}; cache breakpoint") if n in ends else entry
        for n, entry in enumerate(account)
    ]


def _recalled(block: Block) -> LedgerEntry:
    return LedgerEntry(
        version=block.before[0],
        kind="recalled",
        level="full",
        tokens_before=block.group.tokens,
        tokens_after=block.group.tokens,
        reason=f"retrieved: {len(block.recalled)} groups for the latest user message",
        source_versions=block.group.source_versions,
        full_aliases=tuple(alias for each in block.recalled for alias in _aliases(each)),
    )


def _why_kept(group: Group) -> str:
    why = "fits; large outputs as their previews" if any(_aliases(group)) else "fits whole"
    if group.label:
        why = f"mandatory: {group.label}"
    return f"{why}; results as tables, {group.came} tokens as they came" if group.came else why


def _aliases(group: Group) -> Iterable[str]:
    return (row.full_alias for row in group.rows if row.full_alias)


@dataclass(frozen=True)
class ContextView:
    """The messages of one request, and the account of how they were chosen.

    Attributes:
        messages: In the requested format, ready to be sent.
        system: The system part, for formats with a separate one; None if it is in ``messages``.
        tokens: The tokens of the whole request, including tool declarations, by this project's
            count.
        usage: How much of the budget is used; None without a budget.
        encoding: The encoding used for counting.
        complete: Whether nothing visible lost detail.
        versions: The events that the messages were made of, ascending.
        account: What became of each group of messages; ``ledger`` has it in words.
        policy: How they were chosen, as an ``llm_request`` records it; together with the earlier
            events, it gives the same bytes again.
        format: The provider's format.
        tools: The tool declarations to send: those permitted by the tool policy.
        sections: For each section with a budget, its tokens and its budget.
        due: With the strategy ``llm_summary``, the summary that is due for the dropped part.
        notes: Requests that could not be fulfilled, such as an embedding that failed.
    """

    messages: tuple[dict[str, Any], ...]
    system: str | None
    tokens: Count
    usage: ContextUsage | None
    encoding: str
    complete: bool
    versions: tuple[int, ...]
    account: Account
    policy: dict[str, Any]
    format: str
    tools: tuple[Any, ...] = ()
    sections: dict[str, tuple[int, int]] = field(default_factory=dict)
    due: SummaryRequest | None = None
    notes: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What became of each group of messages; computed on first use."""
        return self.account.entries()

    @property
    def in_part(self) -> tuple[tuple[str, int, bool], ...]:
        """Call id and version of results included only in part, and whether in the digest."""
        block = self.account.block
        return tuple(in_part(self.account.history, () if block is None else block.recalled))

    @property
    def step(self) -> tuple[int, int] | None:
        """The place of the newest message before the last step; None if no step occurred."""
        return self.account.history.step

    @property
    def document(self) -> dict[str, Any]:
        """The view as one JSON object."""
        told = ("messages", "system", "ledger", "tokens", "usage", "sections", "encoding")
        more = ("complete", "versions", "step", "policy", "format", "digest", "tools", "notes")
        return {name: getattr(self, name) for name in (*told, *more)}

    @property
    def prompt(self) -> Any:
        """The digested value: the messages, with the system part if that is separate."""
        listed = list(self.messages)
        return listed if self.system is None else {"system": self.system, "messages": listed}

    @property
    def digest(self) -> str:
        """The SHA-256 of the prompt's JSON, as an ``llm_request`` records it."""
        return digest_of(self.prompt)


def digest_of(prompt: Any) -> str:
    """Return the SHA-256 of a prompt's JSON text, with keys in the order in which they are sent."""
    return hashlib.sha256(dumps(prompt).encode()).hexdigest()
