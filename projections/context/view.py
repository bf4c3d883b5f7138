"""The result of building a request: `ContextView`, with the messages and the ledger.

The ledger says at which level each message is sent, why, and where its full text is. The digest is
the message with the facts of earlier messages, one line for each.
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
from projections.context.older_digest import Older
from projections.context.output_paths import in_part
from projections.context.plans import COMPACTED, Group, Plan, Planned
from projections.context.prompts import DIGEST_HEADER, DIGEST_TITLE
from projections.context.recalled_block import RecalledBlock
from projections.context.rows import ContextRow
from projections.tokens import Count, Tokenizer

__all__ = [
    "Account",
    "ContextView",
    "LedgerEntry",
    "digest_of",
    "digest_rows",
    "due_of",
    "next_needed",
]

_SOON = 8
"""How many groups have their levels computed ahead; most requests add one or two groups."""


def digest_rows(
    plan: Plan, tokenizer: Tokenizer, *, paths: bool = True
) -> dict[tuple[int, int], ContextRow]:
    """Return the rows of the digests, by the key of the group that each of them precedes.

    With ``paths``, they explain the paths of whole outputs.
    """
    header = DIGEST_HEADER if paths else DIGEST_TITLE
    made = plan.digests.get((tokenizer, header))
    if made is None:
        made = plan.digests[tokenizer, header] = tuple(
            _digest_row(groups, None if number else plan.older, tokenizer, header)
            for number, groups in enumerate(plan.digested)
        )
    rows: dict[tuple[int, int], ContextRow] = {}
    for row, groups in zip(made, plan.digested, strict=True):
        places = [each.group.key for each in groups[:1]]
        if plan.older is not None and not rows:
            newer = (each.group.key for each in plan.groups)
            places += islice((key for key in newer if key > (plan.older.versions[-1],)), 1)
        rows[min(places)] = row
    return rows


def _digest_row(
    groups: Sequence[Planned], older: Older | None, tokenizer: Tokenizer, header: str
) -> ContextRow:
    before = () if older is None else older.lines
    lines = (digest_line(each.item, each.facts) for each in groups if each.item is not None)
    text = "\n".join((header, *before, *lines))
    count = detail.digest(text, tokenizer)
    place = (older.versions[0], 0) if older else groups[0].group.key
    versions = set[int]().union(
        *[row.source_versions for each in groups for row in each.group.rows]
    )
    versions.update(() if older is None else older.versions)
    return detail.made_row(text, count, tokenizer, place, versions)


def next_needed(view: ContextView) -> Iterator[ContextRow]:
    """Yield the newest rows of a view, whose lower levels the next step will need.

    Yields nothing before the first step while at most half of the budget is used.
    """
    usage = view.usage
    if usage is not None and (view.step is not None or 2 * usage.used > usage.budget):
        for each in view.account.history.groups[-_SOON:]:
            yield from each.group.rows


def due_of(strategy: Strategy, chosen: Plan) -> SummaryRequest | None:
    """Return the request for a summary of what a plan dropped; None without ``llm_summary``."""
    if not isinstance(strategy, LlmSummary) or not chosen.trimmed:
        return None
    items = [each.item for each in chosen.groups if each.item is not None]
    levels = [each.level for each in chosen.groups if each.item is not None]
    return strategy.due(items, levels)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The ledger's entry for one group of messages, or for all older messages that were not read.

    Attributes:
        version: The group's version; None for the entry ``older``; for ``recalled``, the version of
            the message that the block answers.
        kind: The kind of the group's first message; ``older`` for all older messages; ``recalled``
            for the block of recalled messages.
        level: The level of detail: ``full``, ``shortened``, its ``facts`` in the digest, or
            ``dropped``.
        tokens_before: The tokens in full; None if the messages were not read.
        tokens_after: The tokens in the request.
        reason: The reason for the level, in a few words.
        source_versions: The versions of the events that contain the full text.
        full_aliases: The paths of outputs that are not shown whole.
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
    """The data of the ledger: everything that a request could have contained.

    Attributes:
        front: The groups of the system part.
        history: The plan of the history.
        ended: The names of the limits that ended the history, or `COMPACTED`.
        block: The block of recalled messages, if there is one.
        breakpoints: Whether the request has breakpoints for the provider's prompt cache.
    """

    front: tuple[Group, ...]
    history: Plan
    ended: tuple[str, ...]
    block: RecalledBlock | None = None
    breakpoints: bool = False

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return the entries of the ledger.

        One entry for all older messages that were not read comes first. Then come the system part
        and the history, each in the order of the request.
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
            explanation = f"{reason}; the digest tells what users named and ruled there"
            entry = LedgerEntry(
                None, "older", "facts", None, older.tokens, explanation, older.versions
            )
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
    explanation = "retrieved: answers the latest user message" if recalled else _why_sent(group)
    return LedgerEntry(
        version=group.key[0],
        kind=group.kind,
        level=level,
        tokens_before=whole.tokens,
        tokens_after=planned.tokens,
        reason=reason or explanation,
        source_versions=group.source_versions,
        full_aliases=tuple(_aliases(group)),
    )


def _with_breakpoints(
    account: Sequence[LedgerEntry], front: int, step: tuple[int, int] | None
) -> list[LedgerEntry]:
    """Return the entries, with the cache breakpoints added to the reasons."""
    sent = [n for n, entry in enumerate(account) if entry.level in ("full", "shortened")]
    frozen = [n for n in sent if step is not None and (account[n].version or 0) <= step[0]]
    ends = {*range(front)[-1:], *frozen[-1:], *sent[-1:]}
    return [
        replace(entry, reason=f"{entry.reason}; cache breakpoint") if n in ends else entry
        for n, entry in enumerate(account)
    ]


def _recalled(block: RecalledBlock) -> LedgerEntry:
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


def _why_sent(group: Group) -> str:
    why = "fits; large outputs as their previews" if any(_aliases(group)) else "fits whole"
    if group.label:
        why = f"mandatory: {group.label}"
    return f"{why}; results as tables, {group.came} tokens as they came" if group.came else why


def _aliases(group: Group) -> Iterable[str]:
    return (row.full_alias for row in group.rows if row.full_alias)


@dataclass(frozen=True)
class ContextView:
    """The messages of one request, and how they were chosen.

    Attributes:
        messages: The messages in the requested format, ready to send.
        system: The system part, for formats that send it separately; None if it is in ``messages``.
        tokens: The tokens of the whole request, including tool declarations, by this project's own
            count.
        usage: How much of the budget is used; None without a budget.
        encoding: The encoding that was used to count.
        complete: Whether all visible messages are sent in full.
        versions: The versions of the events that the messages were made from, ascending.
        account: The data of the ``ledger``.
        policy: How the messages were chosen, as an ``llm_request`` records it: from it and the
            earlier events, the same bytes can be built again.
        format: The provider's format.
        tools: The tool declarations to send: those that the tool policy permits.
        sections: The used tokens and the budget of each section that has a budget.
        due: With the strategy ``llm_summary``, the request for a summary of the dropped part.
        notes: Problems with what was asked for, such as an embedding that failed.
        parameters: Other arguments of the call, such as those for prompt caches.
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
        """The level of each group of messages, with the reason; computed when first read."""
        return self.account.entries()

    def why(self, version: int) -> str:
        """Return in one line whether and in which form an event is in the request, and why not."""
        for entry in self.ledger:
            if version != entry.version and version not in entry.source_versions:
                continue
            form = "digest" if entry.level == "facts" else entry.level
            statement = "not sent" if form == "dropped" else f"sent: {form}"
            before = "" if entry.tokens_before is None else f" of {entry.tokens_before}"
            return (
                f"version {version}: {statement}, {entry.tokens_after}{before} tokens "
                f"({entry.kind}): {entry.reason}"
            )
        groups = [each.group for each in self.account.history.groups]
        oldest = min((group.key[0] for group in groups if not group.label), default=0)
        older = next((entry for entry in self.ledger if entry.version is None), None)
        if older is not None and version < oldest:
            reason = older.reason.partition(";")[0]
            return (
                f"version {version}: not sent: {reason}; of messages so old, only lasting "
                "statements and identifiers of users stay, as far as there is room"
            )
        return (
            f"version {version}: not sent: no message of this request's history (withdrawn, "
            "summarised, kept out of the context, a failure that nothing continues, newer than the "
            "request, or no message at all)"
        )

    @property
    def in_part(self) -> tuple[tuple[str, int, bool], ...]:
        """The tool results that are not shown whole; see `projections.context.output_paths`."""
        block = self.account.block
        return tuple(in_part(self.account.history, () if block is None else block.recalled))

    @property
    def step(self) -> tuple[int, int] | None:
        """The key of the newest message that the last step covers; None without a step."""
        return self.account.history.step

    @property
    def document(self) -> dict[str, Any]:
        """The view's attributes as one object, for JSON."""
        fields = ("messages", "system", "ledger", "tokens", "usage", "sections", "encoding")
        more = ("complete", "versions", "step", "policy", "format", "digest", "tools", "notes")
        return {name: getattr(self, name) for name in (*fields, *more)}

    @property
    def prompt(self) -> Any:
        """The value that ``digest`` covers: the messages, and the system part if separate."""
        listed = list(self.messages)
        return listed if self.system is None else {"system": self.system, "messages": listed}

    @property
    def digest(self) -> str:
        """The SHA-256 of the prompt's JSON, as an ``llm_request`` records it."""
        return digest_of(self.prompt)


def digest_of(prompt: Any) -> str:
    """Return the SHA-256 of a prompt's JSON text, with keys in the order in which they are sent."""
    return hashlib.sha256(dumps(prompt).encode()).hexdigest()
