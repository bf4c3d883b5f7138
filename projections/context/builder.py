"""The messages of one request: reads the rows that it needs, plans, and writes them in a format.

Pure but for the row source: the same rows, injections, tools, settings and model give the same
bytes, now and in a year. What is sent is the system part, what is told besides, and of the history
what `projections.context.planning` chose.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_not
from typing import Any

from projections.context import detail
from projections.context.compression.llm_summary import LlmSummary, SummaryRequest
from projections.context.compression.monitor import ContextUsage, usage_of
from projections.context.compression.strategy import Strategy, options_of, strategy_of
from projections.context.counting import ENCODING
from projections.context.detail import shortened, without_result
from projections.context.formats import Wire, writer_of
from projections.context.formats.base import compacted_for, native_for
from projections.context.levels import lower
from projections.context.limits import chars_of, within
from projections.context.plan_cache import PlanMemo
from projections.context.planning import LookForLevels, Plan, Planned, plan
from projections.context.plans import COMPACTED, ERROR, Budget, Group, groups_of, without_path
from projections.context.recall import recall_for
from projections.context.rows import ContextRow
from projections.context.settings import DEFAULTS, ContextSettings
from projections.context.source import ContextHead, RowSource
from projections.context.system_part import Injection
from projections.context.view import Account, ContextView, digest_row
from projections.errors import BudgetInfeasible
from projections.tokens import Count, Tokenizer, count_messages, count_tools, tokenizer_for
from projections.tokens import counts as token_counts

__all__ = ["build"]

_PAGE = 64
_NATIVE_MARGIN = 0.3  # much of what only its maker can read is encrypted


def build(
    source: RowSource,
    *,
    max_tokens: int | None = None,
    max_messages: int | None = None,
    model: str = "gpt-4o",
    injections: Sequence[Injection] = (),
    tools: Collection[Any] = (),
    settings: ContextSettings | None = None,
    strategy: Strategy | None = None,
    format: str = "openai_chat",
    provider: str | None = None,
    paths: bool = True,
    memo: PlanMemo | None = None,
    look_for_levels: LookForLevels = lambda rows: None,
) -> ContextView:
    """Build the messages of a request; costs what the window costs, however long the history.

    Args:
        source: The rows of the conversation.
        max_tokens: Upper limit for the prompt's tokens, by this project's own count; by default
            that of the settings.
        max_messages: Upper limit for the messages, those of the system part included.
        model: Decides how tokens are counted; stored counts serve all models of their encoding.
        injections: What stands before the conversation's own system part, or behind it if it was
            made of events; in this order, and mandatory as that is.
        tools: The tool declarations that are sent along.
        settings: All other choices.
        strategy: What loses detail first, instead of the strategy that the settings name.
        format: The provider's format.
        provider: Who will be asked: gets back what it made for itself.
        paths: Whether the paths of outputs that are not shown whole are told.
        memo: Where the plans of steps are remembered between two reads.
        look_for_levels: See `projections.context.planning.plan`.

    Raises:
        BudgetInfeasible: What must be sent is over a limit; it names the items and their sizes.
        EncodingNotBundled: The model needs an encoding that is not carried along.
        UnknownStrategy: No strategy of that name is registered.
        ValueError: There is no such format.
    """
    settings = settings or DEFAULTS
    limit = settings.budget() if max_tokens is None else max_tokens
    builder = _Builder(
        source,
        Budget(
            max_tokens=limit,
            max_messages=settings.max_messages if max_messages is None else max_messages,
            max_chars=settings.max_chars,
            thresholds=settings.thresholds if settings.steps else None,
        ),
        model,
        tokenizer_for(settings.tokenizer or model),
        strategy or strategy_of(settings.strategy, **settings.strategy_options),
        settings.include_tool_results,
        format,
        provider,
        settings.system_notes,
        paths,
        memo,
        look_for_levels,
    )
    return builder.view(tuple(injections), tools, settings)


class _Builder:
    """One request in the making; see `build` for what it is made of."""

    def __init__(
        self,
        source: RowSource,
        budget: Budget,
        model: str,
        tokenizer: Tokenizer,
        strategy: Strategy,
        with_results: bool,
        format: str,
        provider: str | None,
        system_notes: bool,
        paths: bool,
        memo: PlanMemo | None,
        look_for_levels: LookForLevels,
    ) -> None:
        self._compacted, self._holds_compaction = False, True
        self._paths = paths
        self._pathless = False  # whether that has left one out
        self._memo = memo if isinstance(strategy, Hashable) else None
        self._look_for_levels = look_for_levels
        self._source = source
        self._model = model
        self._budget = budget
        self._tokenizer = tokenizer
        self._strategy = strategy
        self._with_results = with_results
        self._format, self._provider = format, provider
        self._write, added = writer_of(format, provider, system_notes)
        self._noted = added.notes
        self._note = _tokens_of(added.note, tokenizer.name)
        self._reserved = sum(_tokens_of(text, tokenizer.name) for text in added.once)
        # With the limits, all that a plan of the same rows depends on.
        self._memo_key = (
            *(strategy, tokenizer.name, with_results, format, provider, system_notes),
        )
        self._recall = recall_for(strategy, source, self._group)

    def view(
        self,
        injections: Sequence[Injection],
        tools: Collection[Any],
        settings: ContextSettings,
    ) -> ContextView:
        head = self._source.head()
        front = self._front(head, injections)
        mandatory = self._user_messages(head)
        summaries = [self._group((row,)) for row in head.summaries]
        declared = count_tools(tools, self._tokenizer) if tools else Count(0)
        overhead = count_messages((), self._tokenizer) + declared
        standing = (*front, *mandatory[:1], *summaries)
        fixed = overhead.tokens + self._reserved + sum(group.tokens for group in standing)
        # What a request without any message is told is known only once it is written: then it is
        # planned again with that much less.
        extra, limit = self._reserved, self._budget.max_tokens
        while True:
            chosen, ended = self._plan(front, mandatory, summaries, overhead.tokens + extra)
            rows = self._rows(front, chosen)
            wire = self._write(rows, provider=self._provider)
            tokens = self._count(rows, wire, overhead)
            if limit is None or tokens.tokens <= limit:
                break
            extra += tokens.tokens - limit
        return ContextView(
            messages=wire.messages,
            system=wire.system,
            tokens=tokens,
            usage=self._usage(tokens, fixed, chosen, settings),
            encoding=self._tokenizer.name,
            complete=not chosen.trimmed and not ended,
            versions=tuple(sorted({v for row in rows for v in row.source_versions})),
            account=Account(tuple(front), chosen, tuple(ended)),
            policy=self._policy(settings, injections),
            format=self._format,
            tools=tuple(tools),
            due=self._due(chosen),
        )

    def _due(self, chosen: Plan) -> SummaryRequest | None:
        if not isinstance(self._strategy, LlmSummary) or not chosen.trimmed:
            return None
        items = [each.item for each in chosen.groups if each.item is not None]
        levels = [each.level for each in chosen.groups if each.item is not None]
        return self._strategy.due(items, levels)

    def _policy(self, settings: ContextSettings, injections: Sequence[Injection]) -> dict[str, Any]:
        chosen = dict(settings.recorded)
        named = settings.strategy == self._strategy.name
        if options := options_of(self._strategy, settings.strategy_options if named else {}):
            chosen["strategy_options"] = options
        policy: dict[str, Any] = {
            "name": self._strategy.name,
            "version": self._strategy.version,
            "model": self._model,
            "max_tokens": self._budget.max_tokens,
        }
        optional = {
            "max_messages": self._budget.max_messages,
            "settings": chosen,
            "format": None if self._format == "openai_chat" else self._format,
            "provider": self._provider,
            "without_paths": self._pathless,
            # What was composed from files is nowhere else in the log.
            "system": [[each.label, each.text] for each in injections if not each.versions],
        }
        return policy | {name: value for name, value in optional.items() if value}

    def _plan(
        self,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
    ) -> tuple[Plan, list[str]]:
        self._compacted = False
        rows = self._since_compaction(self._source.newest(_PAGE))
        if not self._with_results:
            rows = map(without_result, rows)
        if self._tokenizer.name != ENCODING:
            rows = detail.ahead(rows, self._tokenizer, _PAGE)
        fixed = overhead + sum(group.tokens for group in front)
        window = within(
            (self._group(each) for each in groups_of(rows)),
            front,
            mandatory,
            self._budget,
            fixed=fixed,
            shorten=self._shorter,
            summaries=summaries,
            error=self._error(),
        )
        try:
            chosen = plan(
                window.groups,
                mandatory,
                self._budget,
                fixed=fixed,
                strategy=self._strategy,
                tokenizer=self._tokenizer,
                summaries=window.summaries,
                error=window.error,
                form=window.form,
                recall=self._recall,
                memo=self._memo,
                memo_key=self._memo_key,
                look_for_levels=self._look_for_levels,
            )
        except BudgetInfeasible as error:
            if any(label.startswith(COMPACTED) for label in error.mandatory):
                self._holds_compaction = False  # sooner without it than not at all
                return self._plan(front, mandatory, summaries, overhead)
            sizes = {f"{group.label} (version {group.key[0]})": group.tokens for group in front}
            held = {name: size for name, size in error.mandatory.items() if name != "fixed part"}
            sizes |= held | {"tools and request overhead": overhead}
            raise BudgetInfeasible(error.max_tokens, sizes) from None
        ended = [*window.ended, *([COMPACTED] if self._compacted else ())]
        return self._in_chars(front, chosen), ended

    def _since_compaction(self, rows: Iterator[ContextRow]) -> Iterator[ContextRow]:
        """Yield rows, newest first, down to the answer in which their maker compacted the rest."""
        for row in rows:
            yield row
            if self._compacts(row):
                self._compacted = next(rows, None) is not None
                return

    def _in_chars(self, front: Sequence[Group], chosen: Plan) -> Plan:
        """Return a plan without a digest that has more characters than what it stands for."""
        most = self._budget.max_chars
        if most is None or all(each.level != "facts" for each in chosen.groups):
            return chosen
        if sum(chars_of(row.message) for row in self._rows(front, chosen)) <= most:
            return chosen
        told = "no room for its facts within max_chars"
        groups = (
            Planned.dropped(each.group, told) if each.level == "facts" else each
            for each in chosen.groups
        )
        return replace(chosen, groups=tuple(groups))

    def _rows(self, front: Sequence[Group], chosen: Plan) -> list[ContextRow]:
        rows = [row for group in front for row in group.rows]
        digest = told = digest_row(chosen, self._tokenizer, paths=self._paths)
        for planned in chosen.groups:
            if planned.level == "facts" and digest is not None:
                rows.append(digest)
                digest = None
            elif planned.level == "full":
                rows += planned.group.rows
            elif planned.level == "shortened":
                rows += map(shortened, planned.group.rows)
        if self._paths:
            return rows
        bare = [without_path(row, self._tokenizer) for row in rows]
        self._pathless = told is not None or any(map(is_not, bare, rows))
        return bare

    def _count(self, rows: Sequence[ContextRow], wire: Wire, overhead: Count) -> Count:
        total = detail.added(rows, self._tokenizer, overhead)
        if native := sum(self._native(rows)):
            total += Count(native, exact=False, margin=_NATIVE_MARGIN)
        added = (token_counts.count_text(text, self._tokenizer) for text in wire.added)
        return sum(added, total)

    def _usage(
        self, tokens: Count, fixed: int, chosen: Plan, settings: ContextSettings
    ) -> ContextUsage | None:
        if self._budget.max_tokens is None:
            return None
        return usage_of(
            tokens.tokens,
            self._budget.max_tokens,
            fixed=fixed,
            thresholds=settings.thresholds,
            warn_tokens=settings.warn_prompt_tokens,
            compressed=chosen.trimmed,
        )

    def _front(self, head: ContextHead, injections: Sequence[Injection]) -> list[Group]:
        own = [self._group((row,), "system part") for row in head.system]
        if head.notebook:
            own.append(self._group((head.notebook,), "notebook"))
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
            message=message,
            tokens=count.tokens,
            tokens_exact=count.exact,
            tokens_margin=count.margin,
            encoding=self._tokenizer.name,
            source_versions=list(injection.versions),
        )
        return Group((row,), count.tokens, injection.label)

    def _user_messages(self, head: ContextHead) -> list[Group]:
        first, latest = head.first_user, self._source.latest_user()
        groups = [] if first is None else [self._group((first,), "first user message")]
        if latest and (first is None or latest.key != first.key):
            groups.append(self._group((latest,), "latest user message"))
        return groups

    def _error(self) -> Group | None:
        row = self._source.latest_error()
        return None if row is None else replace(self._group((row,), ERROR), yields=True)

    def _shorter(self, group: Group) -> Group | None:
        if all(lower(row).shortened is None for row in group.rows):
            return None
        return self._group(tuple(map(shortened, group.rows)))

    def _group(self, rows: tuple[ContextRow, ...], label: str = "") -> Group:
        tokens = detail.total(rows, self._tokenizer)
        if self._noted:
            tokens += sum(self._note for row in rows if row.kind in self._noted)
        native = self._native(rows)
        if not label and self._holds_compaction and self._compacts(rows[0]):
            label = COMPACTED
        return Group(rows, tokens + sum(native), label, native)

    def _native(self, rows: Sequence[ContextRow]) -> tuple[int, ...]:
        """Return what each row's ``native`` adds; nothing if none does, as in most requests."""
        for row in rows:  # A loop, since every group that is looked at comes through.
            if row.native_tokens:
                break
        else:
            return ()
        return tuple(row.native_tokens if self._carries(row) else 0 for row in rows)

    def _compacts(self, row: ContextRow) -> bool:
        return compacted_for(row, self._format, self._provider)

    def _carries(self, row: ContextRow) -> bool:
        if row.native is None:
            return False
        if "specification" not in row.native:
            return self._format != "openai_chat"
        return native_for(row, self._format, self._provider) is not None


@lru_cache(maxsize=64)
def _tokens_of(text: str, encoding: str) -> int:
    return tokenizer_for(encoding).count(text).tokens
