"""Forms groups of rows, with the tokens that they take in one request's format.

Content for one provider only counts if the request goes to that provider; a note's tokens include
the text around it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from projections.context import detail
from projections.context.detail import shortened
from projections.context.formats.base import compacted_for, native_for
from projections.context.levels import lower
from projections.context.output_paths import READ_OUTPUT, message_alias
from projections.context.plans import COMPACTED, Group, Plan
from projections.context.rows import ContextRow, counted
from projections.context.source import ContextHead, RowSource
from projections.context.system_part import Injection, declared_name
from projections.context.table_rows import tabled_rows
from projections.tokens import Tokenizer, counts, tokenizer_for

__all__ = ["Grouping", "tokens_of"]


class Grouping:
    """Makes the groups of one request.

    Args:
        tokenizer: Counts tokens.
        format: The provider's format.
        provider: The provider that will be called.
        noted: The kinds of rows whose texts are wrapped in a note.
        note: What a note adds to its text.
        tables: Whether JSON results of tools are sent as tables.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        format: str,
        provider: str | None,
        noted: Collection[str],
        note: str,
        *,
        tables: bool = False,
    ) -> None:
        self._tokenizer, self.tables = tokenizer, tables
        self._format, self._provider = format, provider
        self._noted, self._note = noted, tokens_of(note, tokenizer.name)
        self._how = (tokenizer, format, provider, frozenset(noted), self._note, tables, True)

    @property
    def holds_compaction(self) -> bool:
        """Whether an answer with its provider's compaction of earlier rows must be sent."""
        return self._how[-1]

    def let_compaction_go(self) -> None:
        """Stop making such an answer mandatory, for groups made from now on."""
        self._how = (*self._how[:-1], False)

    def group(self, rows: tuple[ContextRow, ...], label: str = "") -> Group:
        """Return the group of these rows, with results as tables if requested.

        A group without a label is cached with its rows.
        """
        if label:
            return self._made(rows, label)
        noted = rows[0].grouped
        if noted is None or noted[0] != self._how or noted[1] != rows:
            noted = self._how, rows, self._made(rows)
            rows[0].note("grouped", noted)
        group: Group = noted[2]
        return group

    def _made(self, rows: tuple[ContextRow, ...], label: str = "") -> Group:
        tables = tabled_rows(rows) if self.tables else rows
        came = 0 if tables is rows else self._group(rows, label).tokens
        return self._group(tables, label, came)

    def _group(self, rows: tuple[ContextRow, ...], label: str = "", came: int = 0) -> Group:
        tokens = detail.total(rows, self._tokenizer)
        if self._noted:
            tokens += sum(self._note for row in rows if row.kind in self._noted)
        native = self.native(rows)
        if native and not label and self.holds_compaction and self.compacts(rows[0]):
            label = COMPACTED
        return Group(rows, tokens + sum(native), label, native, came=came)

    def front(self, head: ContextHead, injections: Sequence[Injection]) -> list[Group]:
        """Return the groups of the system part, in the order in which they are sent."""
        own = [self.group((row,), "system part") for row in head.system]
        if head.notebook:
            own.append(self.group((head.notebook,), "notebook"))
        composed = [self._injected(n, each) for n, each in enumerate(injections)]
        before = [group for group in composed if not group.source_versions]
        return [*before, *own, *(group for group in composed if group.source_versions)]

    def _injected(self, place: int, injection: Injection) -> Group:
        message = {"role": "system", "content": injection.text}
        count = detail.composed(injection.text, self._tokenizer)
        row = ContextRow(
            version=0,
            part=place,
            role="system",
            kind="system",
            source_versions=list(injection.versions),
            **counted(message, count, self._tokenizer.name),
        )
        return Group((row,), count.tokens, injection.label)

    def users(self, first: ContextRow | None, latest: ContextRow | None) -> list[Group]:
        """Return the first and the latest user message; one group if they are the same."""
        groups = [] if first is None else [self.group((first,), "first user message")]
        if latest and (first is None or latest.key != first.key):
            groups.append(self.group((latest,), "latest user message"))
        return groups

    def shorter(self, group: Group) -> Group | None:
        """Return a group in its shorter form; None if it has none."""
        if all(lower(row).shortened is None for row in group.rows):
            return None
        return self._group(tuple(map(shortened, group.rows)))

    def shorter_task(
        self, mandatory: Sequence[Group], source: RowSource, tools: Collection[Any]
    ) -> Group | None:
        """Return the first user message in its shorter form, with its alias if that can be read.

        None if it has no shorter form, is already shortened, or has not been answered yet: an
        unread message is not shortened silently.
        """
        newest = next(source.newest(1), None)
        if not mandatory or mandatory[0].whole or not newest or newest.key == mandatory[0].key:
            return None
        task, readable = mandatory[0], READ_OUTPUT in map(declared_name, tools)
        [row] = task.rows
        if lower(row).shortened is None:
            return None
        short = shortened(row)
        text = short.message.get("content")
        if readable and isinstance(text, str):
            alias = message_alias(row.version)
            message = {**short.message, "content": f"{text}\nFull message: {alias}"}
            count = counts.count(message, self._tokenizer)
            told = counted(message, count, self._tokenizer.name)
            short = short.with_(**told, full_alias=alias)
        group = self.group((short,), task.label)
        why = "the budget cannot hold it whole"
        return replace(group, whole=task, why=why) if group.tokens < task.tokens else None

    def native(self, rows: Sequence[ContextRow]) -> tuple[int, ...]:
        """Return what each row's ``native`` adds; empty if none adds any, as in most requests."""
        for row in rows:  # A loop, because every group passes here.
            if row.native_tokens:
                break
        else:
            return ()
        return tuple(row.native_tokens if self._carries(row) else 0 for row in rows)

    def compacts(self, row: ContextRow) -> bool:
        """Whether a row holds this provider's compaction of everything before it."""
        return compacted_for(row, self._format, self._provider)

    def is_compacted(self, chosen: Plan, source: RowSource, page: int) -> bool:
        """Whether a plan begins at such a row while older rows exist."""
        for each in chosen.groups:
            group = each.group.whole or each.group
            if group.native and group.key not in chosen.recalled and self.compacts(group.rows[0]):
                return any(row.key < group.key for row in source.newest(page))
        return False

    def _carries(self, row: ContextRow) -> bool:
        if row.native is None:
            return False
        if "specification" not in row.native:
            return self._format != "openai_chat"
        return native_for(row, self._format, self._provider) is not None


@lru_cache(maxsize=64)
def tokens_of(text: str, encoding: str) -> int:
    """Return the tokens of a text that many requests contain."""
    return tokenizer_for(encoding).count(text).tokens if text else 0
