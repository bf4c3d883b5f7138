"""Makes groups of rows, each with the tokens that it takes in one request's format.

Provider-specific content counts only in requests to its provider. A note includes the tokens of the
text around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from projections.context import detail
from projections.context.detail import shortened
from projections.context.formats.base import compacted_for, native_for
from projections.context.formats.chat import gives_back
from projections.context.levels import ends_of, lower
from projections.context.output_paths import READ_OUTPUT, message_alias
from projections.context.plans import COMPACTED, Group, Plan
from projections.context.rows import ContextRow, counted
from projections.context.source import ContextHead, RowSource
from projections.context.system_part import Injection, declared_name
from projections.context.table_rows import tabled_rows
from projections.tokens import Tokenizer, counts, tokenizer_for

__all__ = ["LAST_FORMS", "LEAST_ENDS", "Grouping", "tokens_of"]

LAST_FORMS = (3_600, 900)
"""The bytes that stay of a group's texts; the last form takes a few hundred tokens."""

LEAST_ENDS = 90
"""The bytes that stay of each text at least."""


class Grouping:
    """Makes the groups of one request.

    Args:
        tokenizer: Counts tokens.
        format: The provider's format.
        provider: The provider that will be called.
        noted: The kinds of rows whose texts are sent as notes.
        note: The text that a note adds to a row's text.
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
        """Whether an answer in which its provider compacted the history must be sent."""
        return self._how[-1]

    def let_compaction_go(self) -> None:
        """Treat such an answer as optional in all groups made from now on."""
        self._how = (*self._how[:-1], False)

    def group(self, rows: tuple[ContextRow, ...], label: str = "") -> Group:
        """Return the group of these rows, with results as tables if tables are enabled.

        A group without a label is cached at its first row.
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
        """Return the groups of the first and latest user message; one if they are the same."""
        groups = [] if first is None else [self.group((first,), "first user message")]
        if latest and (first is None or latest.key != first.key):
            groups.append(self.group((latest,), "latest user message"))
        return groups

    def shorter(self, group: Group) -> Group | None:
        """Return a group in its shorter form, or None if it has none."""
        if all(lower(row).shortened is None for row in group.rows):
            return None
        return self._group(tuple(map(shortened, group.rows)))

    def ends(self, group: Group) -> Iterator[Group]:
        """Yield a group as the two ends of each of its texts, as long as that is less.

        All results of an answer share the bytes, so that a group of many calls is small too.
        """
        for most in LAST_FORMS:
            most = max(most // max(len(group.rows) - 1, 1), LEAST_ENDS)
            made = self._group(tuple(ends_of(row, most) for row in group.rows))
            if made.tokens < group.tokens:
                yield made

    def shorter_task(
        self, mandatory: Sequence[Group], source: RowSource, tools: Collection[Any]
    ) -> Group | None:
        """Return the first user message in its shorter form.

        If the tool ``read_output`` is declared, the text includes the alias of the whole message.

        Returns None if there is no shorter form, if the message is already shortened, or if it has
        not been answered yet: a message that no model has read is never silently shortened.
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
        """Return the tokens that each row's ``native`` adds; () if no row has any, as is usual."""
        for row in rows:  # A loop is fastest, and this runs for every group.
            if row.native_tokens:
                break
        else:
            return ()
        return tuple(row.native_tokens if self._carries(row) else 0 for row in rows)

    def compacts(self, row: ContextRow) -> bool:
        """Whether a row is a compaction that replaces all earlier rows for the provider."""
        return compacted_for(row, self._format, self._provider)

    def is_compacted(self, chosen: Plan, source: RowSource, page: int) -> bool:
        """Whether a plan contains a compaction that replaces older rows of the source."""
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
        if self._format == "openai_chat":
            return gives_back(row.native, self._provider)
        return native_for(row, self._format, self._provider) is not None


@lru_cache(maxsize=64)
def tokens_of(text: str, encoding: str) -> int:
    """Return the tokens of a text that many requests contain."""
    return tokenizer_for(encoding).count(text).tokens if text else 0
