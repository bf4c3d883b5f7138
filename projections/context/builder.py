"""Builds the messages of one request: reads rows, plans what fits, and writes it in a format.

Pure except for the row source: the same rows, injections, tools, settings and model give the same
bytes, now and in a year. A request contains the system part, injected messages, and the part of the
history that `projections.context.planning` chose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import is_not
from typing import Any

from projections.context import detail
from projections.context.breakpoints import with_parameters
from projections.context.compression.monitor import usage_of
from projections.context.compression.strategy import Strategy, options_of
from projections.context.counting import ENCODING
from projections.context.detail import shortened, without_result
from projections.context.failed_calls import SettledSource
from projections.context.groups import groups_of, since_compaction
from projections.context.levels import ends_of, lower
from projections.context.limits import chars_of, within
from projections.context.output_paths import READ_OUTPUT, message_alias, without_path
from projections.context.planning import plan
from projections.context.plans import COMPACTED, ERROR, Budget, Group, Plan, Planned
from projections.context.prompts import Injection, declared_name
from projections.context.recall import adds_block, recall_for
from projections.context.recalled_block import (
    RecalledBlock,
    block_of,
    is_talk,
    lacks_best,
    missing,
    reserve,
    tools_room,
)
from projections.context.row_cache import PlanMemo, is_key
from projections.context.rows import ContextRow, counted
from projections.context.section_budgets import (
    OVERHEAD,
    beside_shorter,
    infeasible,
    require_front,
    section_budgets,
    uses,
    within_margin,
)
from projections.context.settings import DEFAULTS, ContextSettings, strategy_for
from projections.context.source import ContextHead, RowSource
from projections.context.table_rows import tabled_rows
from projections.context.view import Account, ContextView, digest_rows, due_of
from projections.errors import BudgetInfeasible
from projections.providers.openai_chat.write import gives_back
from projections.providers.request_base import compacted_for, native_for
from projections.providers.request_formats import Wire, writer_of
from projections.tokens import Count, Tokenizer, count_messages, count_tools, counts, tokenizer_for
from projections.tokens import counts as token_counts

__all__ = ["LAST_FORMS", "LEAST_ENDS", "Grouping", "as_it_is", "build", "dimmer", "tokens_of"]


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
            measured = counted(message, count, self._tokenizer.name)
            short = short.with_(**measured, full_alias=alias)
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


_INPUTS = ("user", "tool")


_PAGE = 64


def as_it_is(row: ContextRow) -> ContextRow:
    """Return the row unchanged."""
    return row


def dimmer(strategy: Strategy, source: RowSource) -> Callable[[ContextRow], ContextRow]:
    """Return the function that sets each row's initial detail; `as_it_is` for most strategies."""
    if not getattr(strategy, "live_only_newest", False):
        return as_it_is
    inputs = (row.key for row in source.newest(_PAGE) if row.kind in _INPUTS)
    newest = next(inputs, None)

    def dim(row: ContextRow) -> ContextRow:
        written = row.kind in _INPUTS and row.given is not None
        return shortened(row) if written and row.key != newest else row

    return dim


_NATIVE_MARGIN = 0.3  # much of the provider-specific content is encrypted


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
) -> ContextView:
    """Build the messages of a request; the cost depends on the budget, not on the history's length.

    Args:
        source: The rows of the conversation.
        max_tokens: Upper limit for the prompt's tokens, by this project's own count; by default
            the settings' limit.
        max_messages: Upper limit for the number of messages, including the system part.
        model: Decides how tokens are counted; stored counts serve all models of their encoding.
        injections: Messages to send in addition to the conversation's own system part: after it if
            they were made from events, otherwise before it; in this order. They are mandatory too.
        tools: The tool declarations to send.
        settings: All other choices.
        strategy: The strategy to use instead of the one that the settings name.
        format: The provider's format.
        provider: The provider that will be called: gets back the content made for its own use.
        paths: Whether to show the paths of outputs that are not sent whole.
        memo: The cache of step plans between two reads.

    Raises:
        BudgetInfeasible: The mandatory messages exceed a limit; the error lists them with sizes.
        EncodingNotBundled: The model needs an encoding that is not bundled.
        UnknownStrategy: No strategy of that name is registered.
        ValueError: The format does not exist.
    """
    settings = settings or DEFAULTS
    limit = settings.budget() if max_tokens is None else max_tokens
    tokenizer = tokenizer_for(settings.tokenizer or model)
    margin = tokenizer.margin if settings.count_margin is None else settings.count_margin
    least = None if limit is None else within_margin(limit, margin)
    builder = _Builder(
        source,
        Budget(
            max_tokens=least,
            max_messages=settings.max_messages if max_messages is None else max_messages,
            max_chars=settings.max_chars,
            thresholds=settings.thresholds if settings.steps else None,
            sections=section_budgets(settings.section_budgets, least),
        ),
        model,
        tokenizer,
        strategy_for(strategy, settings),
        settings,
        format,
        provider,
        paths,
        memo,
    )
    try:
        view = builder.view(tuple(injections), tools, limit)
    except BudgetInfeasible as error:
        raise infeasible(error, limit, margin) from None
    return with_parameters(view, settings, lambda each: builder.written(view.account.front, each))


@dataclass(frozen=True, slots=True)
class _TurnRecall:
    """What the requests of a turn recall, and the tokens that their plan leaves for it in talk."""

    reserved: int
    block: RecalledBlock | None


class _Builder:
    """Builds one request; see `build` for the arguments."""

    def __init__(
        self,
        source: RowSource,
        budget: Budget,
        model: str,
        tokenizer: Tokenizer,
        strategy: Strategy,
        settings: ContextSettings,
        format: str,
        provider: str | None,
        paths: bool,
        memo: PlanMemo | None,
    ) -> None:
        self._paths, self._pathless = paths, False  # whether a path was left out
        settled = SettledSource(source, failed_turns=settings.include_failed_turns)
        source = settled
        self._dimmer = dimmer(strategy, source)
        self._memo = memo if is_key(strategy) and self._dimmer is as_it_is else None
        self._source, self._budget = source, budget
        self._model, self._format, self._provider = model, format, provider
        self._tokenizer, self._strategy, self._settings = tokenizer, strategy, settings
        self._write, added = writer_of(format, provider, settings.system_notes)
        self._grouping = Grouping(
            tokenizer, format, provider, added.notes, added.note, tables=settings.tool_tables
        )
        self._reserved = sum(tokens_of(text, tokenizer.name) for text in added.once)
        # Together with the limits, everything that a plan of the same rows depends on.
        chosen = (settings.include_tool_results, settings.tool_tables, settings.system_notes)
        sent = (settings.include_failed_turns, settled.pending)
        self._memo_key = (strategy, tokenizer.name, format, provider, *chosen, *sent)
        self._recall = recall_for(strategy, source, self._recalled)
        self._adds_block = adds_block(strategy)
        limited = budget.max_messages or budget.max_chars
        self._plans_hits = not (self._adds_block and (budget.thresholds or limited))

    def view(
        self, injections: Sequence[Injection], tools: Collection[Any], requested_tokens: int | None
    ) -> ContextView:
        head = self._source.head()
        front = self._grouping.front(head, injections)
        require_front(front, self._budget.sections)
        first, latest = head.first_user, self._source.latest_user()
        mandatory = self._grouping.users(
            first and self._dimmer(first), latest and self._dimmer(latest)
        )
        summaries = [self._grouping.group((row,)) for row in head.summaries]
        declared = count_tools(tools, self._tokenizer) if tools else Count(0)
        overhead = count_messages((), self._tokenizer) + declared
        fixed_groups = (*front, *mandatory[:1], *summaries)
        fixed = overhead.tokens + self._reserved + sum(group.tokens for group in fixed_groups)
        # A format may add texts, which are known only once the request is written. If these exceed
        # the limit, plan again with that many tokens less.
        extra, limit = self._reserved, self._budget.max_tokens
        while True:
            try:
                chosen, ended, block = self._plan_with_block(
                    front, mandatory, summaries, overhead.tokens + extra
                )
            except BudgetInfeasible as error:
                task = self._grouping.shorter_task(mandatory, self._source, tools)
                if task is None:
                    raise
                newest = self._grouping.group(next(groups_of(self._source.newest(_PAGE))))
                self._budget = beside_shorter(task, newest, self._budget, error)
                mandatory = [task, *mandatory[1:]]
                continue
            rows = self._rows(front, chosen, block)
            wire = self._write(rows, provider=self._provider)
            tokens = self._count(rows, wire, overhead)
            if limit is None or tokens.tokens <= limit:
                break
            extra += tokens.tokens - limit
        return ContextView(
            messages=wire.messages,
            system=wire.system,
            tokens=tokens,
            usage=None
            if limit is None
            else usage_of(
                tokens.tokens,
                limit,
                fixed=fixed,
                thresholds=self._settings.thresholds,
                warn_tokens=self._settings.warn_prompt_tokens,
                compressed=chosen.trimmed,
            ),
            encoding=self._tokenizer.name,
            complete=not chosen.trimmed and not ended,
            versions=tuple(sorted(set().union(*[row.source_versions for row in rows]))),
            account=Account(tuple(front), chosen, tuple(ended), block),
            sections=uses(self._budget.sections, front, chosen, block, self._tokenizer),
            policy=self._policy(injections, requested_tokens),
            format=self._format,
            tools=tuple(tools),
            due=due_of(self._strategy, chosen),
        )

    def _policy(
        self, injections: Sequence[Injection], requested_tokens: int | None
    ) -> dict[str, Any]:
        settings, chosen = self._settings, dict(self._settings.recorded)
        given = settings.strategy_options if settings.strategy == self._strategy.name else {}
        if options := options_of(self._strategy, given):
            chosen["strategy_options"] = options
        policy: dict[str, Any] = {
            "name": self._strategy.name,
            "version": self._strategy.version,
            "model": self._model,
            "max_tokens": requested_tokens,
        }
        optional = {
            "max_messages": self._budget.max_messages,
            "settings": chosen,
            "format": None if self._format == "openai_chat" else self._format,
            "provider": self._provider,
            "without_paths": self._pathless,
            # The log has no other record of texts composed from files.
            "system": [[each.label, each.text] for each in injections if not each.versions],
        }
        return policy | {name: value for name, value in optional.items() if value}

    def _plan_with_block(
        self,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
    ) -> tuple[Plan, list[str], RecalledBlock | None]:
        """Return the plan, the limits that ended it, and the block of recalled messages.

        The block is None unless the strategy retrieves and trims in steps. It is also None while
        everything fits, and once the turn itself needs the block's room.
        """
        if self._adds_block and self._budget.thresholds:
            return self._with_recalled(front, mandatory, summaries, overhead)
        budget = self._budget
        limit, limited = budget.max_tokens, budget.max_messages or budget.max_chars
        found = None
        searches = self._recall is not None and budget.thresholds and mandatory[1:]
        if limit is not None and searches and not limited:
            fixed = overhead + sum(group.tokens for group in (*front, mandatory[0]))
            reserved = reserve(limit, fixed, dict(budget.sections).get("recalled"))
            less = replace(budget, max_tokens=limit - reserved)
            found = self._beside_block(front, mandatory, summaries, overhead, reserved, less)
        # Without a block, plan with the whole budget: otherwise the unused room would be returned
        # later within the turn, and the prefix would change.
        return found or (*self._plan(front, mandatory, summaries, overhead, budget), None)

    def _with_recalled(
        self,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
    ) -> tuple[Plan, list[str], RecalledBlock | None]:
        """Return the same for a strategy whose plan does not depend on what is recalled.

        In talk, the block may take up to six tenths of the room, and the plan the rest. Where tools
        are used, it gets at most a tenth, and only of what the plan leaves free: a plan without the
        results of tools is worse than one without the block.
        """
        budget = self._budget
        chosen, ended = self._plan(front, mandatory, summaries, overhead, budget)
        limit = budget.max_tokens
        if limit is None or budget.max_messages or budget.max_chars or not mandatory[1:]:
            return chosen, ended, None
        if not chosen.trimmed:
            return chosen, ended, None
        found = self._of_turn(chosen, front, mandatory, summaries, overhead)
        if found.block is None:
            return chosen, ended, None
        if found.reserved:
            less = replace(budget, max_tokens=limit - found.reserved, block=found.reserved)
            fixed = overhead + sum(group.tokens for group in (*front, mandatory[0]))
            room = limit - fixed
            if self._is_divided(mandatory[1], room, room - found.reserved):
                with suppress(BudgetInfeasible):
                    planned = self._plan(front, mandatory, summaries, overhead, less)
                    return *planned, found.block
            return chosen, ended, None
        size = overhead + detail.total(self._rows(front, chosen), self._tokenizer)
        fits = size + found.block.group.tokens <= limit
        return chosen, ended, found.block if fits else None

    def _of_turn(
        self,
        chosen: Plan,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
    ) -> _TurnRecall:
        """Return what a turn's requests recall; computed for the first of them, and cached."""
        latest = mandatory[1]
        fixed = overhead + sum(group.tokens for group in front)
        task = tuple((group.tokens, group.rows[0].full_alias) for group in mandatory[:1])
        texts = tuple(str(row.message.get("content")) for group in front for row in group.rows)
        key = ("turn", self._budget, fixed, self._memo_key, latest.key, task, self._paths, texts)
        if self._memo is None:
            return self._recalled_in(chosen, front, mandatory, summaries, overhead)
        found: _TurnRecall | None = self._memo.get(key)
        if found is None:
            found = self._recalled_in(chosen, front, mandatory, summaries, overhead)
            groups = 1 + (0 if found.block is None else len(found.block.recalled))
            self._memo.put_until(latest.key[0], key, found, groups)
        return found

    def _recalled_in(
        self,
        chosen: Plan,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
    ) -> _TurnRecall:
        budget, latest, nothing = self._budget, mandatory[1], _TurnRecall(0, None)
        limit = budget.max_tokens
        assert limit is not None  # noqa: S101 - the caller checks it
        then = self._first_of_turn(chosen, front, mandatory, summaries, overhead, budget)
        if not then.trimmed:
            return nothing
        fixed = overhead + sum(group.tokens for group in (*front, mandatory[0]))
        most = dict(budget.sections).get("recalled")
        if is_talk(then):
            reserved = reserve(limit, fixed, most)
            if not reserved:
                return nothing
            less = replace(budget, max_tokens=limit - reserved, block=reserved)
            try:
                then, _ = self._plan(front, mandatory, summaries, overhead, less, latest.key)
                return _TurnRecall(reserved, self._block(latest, then, reserved))
            except BudgetInfeasible:
                return nothing
        rows = self._rows(front, then)
        sought = missing(latest.rows[0], rows)
        free = limit - overhead - detail.total(rows, self._tokenizer)
        if not tools_room(limit, fixed, free, most):
            return nothing
        assert self._recall is not None  # noqa: S101 - the strategy retrieves
        lacking = not sought and lacks_best(self._recall, latest, then)
        if not sought and not lacking:
            return nothing
        room = tools_room(limit, fixed, free, most, lacking=lacking)
        return _TurnRecall(0, self._block(latest, then, room, " ".join(sought) or None))

    def _beside_block(
        self,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
        reserved: int,
        less: Budget,
    ) -> tuple[Plan, list[str], RecalledBlock] | None:
        """Return a plan within ``less``, and a block in the room that it leaves; None without."""
        limit, latest = self._budget.max_tokens, mandatory[1]
        assert limit is not None  # noqa: S101 - the caller checks it
        fixed = overhead + sum(group.tokens for group in (*front, mandatory[0]))
        if not reserved or not self._is_divided(latest, limit - fixed, limit - fixed - reserved):
            return None
        try:
            chosen, ended = self._plan(front, mandatory, summaries, overhead, less)
            then = self._first_of_turn(chosen, front, mandatory, summaries, overhead, less)
            block = self._block(latest, then, reserved)
        except BudgetInfeasible:
            return None
        return None if block is None else (chosen, ended, block)

    def _first_of_turn(
        self,
        chosen: Plan,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
        budget: Budget,
    ) -> Plan:
        """Return the plan of the turn's first request, which ends with the user's message."""
        latest = mandatory[1]
        if chosen.groups[-1].group.key == latest.key:
            return chosen
        then, _ = self._plan(front, mandatory, summaries, overhead, budget, latest.key)
        return then

    def _block(
        self, latest: Group, then: Plan, room: int, intent: str | None = None
    ) -> RecalledBlock | None:
        assert self._recall is not None  # noqa: S101 - the strategy retrieves
        return block_of(
            self._recall,
            latest,
            then,
            room,
            self._tokenizer,
            paths=self._paths,
            intent=intent,
        )

    def _is_divided(self, latest: Group, room: int, rest: int) -> bool:
        """Whether the history exceeds ``room``, and the current turn fits into ``rest``."""
        size = 0
        for rows in groups_of(self._source.newest(_PAGE)):
            size += self._grouping.group(rows).tokens
            if size > rest and rows[0].key >= latest.key:
                return False
            if size > room:
                return True
        return False

    def _plan(
        self,
        front: Sequence[Group],
        mandatory: Sequence[Group],
        summaries: Sequence[Group],
        overhead: int,
        budget: Budget,
        until: tuple[int, int] | None = None,
    ) -> tuple[Plan, list[str]]:
        """Return the plan within a budget, and the limits that ended it.

        With ``until``, ignore all rows after that key.
        """
        row, rows = self._source.latest_error(), self._source.newest(_PAGE)
        error = None if row is None else replace(self._grouping.group((row,), ERROR), yields=True)
        rows = since_compaction(rows, self._grouping.compacts, _PAGE, tables=self._grouping.tables)
        if until is not None:
            rows = (row for row in rows if row.key <= until)
            error = None if error is None or error.key > until else error
        if not self._settings.include_tool_results:
            rows = map(without_result, rows)
        rows = rows if self._dimmer is as_it_is else map(self._dimmer, rows)
        if self._tokenizer.name != ENCODING:
            rows = detail.ahead(rows, self._tokenizer, _PAGE)
        fixed = overhead + sum(group.tokens for group in front)
        # Later messages decide too whether the task is sent whole and a compaction is held.
        task = tuple((group.tokens, group.rows[0].full_alias) for group in mandatory[:1])
        window = within(
            (self._grouping.group(each) for each in groups_of(rows)),
            front,
            mandatory,
            budget,
            fixed=fixed,
            shorten=self._grouping.shorter,
            ends=self._grouping.ends,
            summaries=summaries,
            error=error,
        )
        try:
            chosen = plan(
                window.groups,
                mandatory,
                budget,
                fixed=fixed,
                strategy=self._strategy,
                tokenizer=self._tokenizer,
                summaries=window.summaries,
                error=window.error,
                form=window.form,
                ends=self._grouping.ends,
                recall=self._recall if self._plans_hits and budget is self._budget else None,
                lasting=self._source.lasting,
                memo=self._memo,
                memo_key=(*self._memo_key, until, task, self._grouping.holds_compaction),
            )
        except BudgetInfeasible as error:
            if any(label.startswith(COMPACTED) for label in error.mandatory):
                self._grouping.let_compaction_go()  # better without it than no request at all
                return self._plan(front, mandatory, summaries, overhead, budget, until)
            sizes = {f"{group.label} (version {group.key[0]})": group.tokens for group in front}
            mandatory_sizes = {
                name: size for name, size in error.mandatory.items() if name != "fixed part"
            }
            sizes |= mandatory_sizes | {OVERHEAD: overhead}
            raise BudgetInfeasible(error.max_tokens, sizes) from None
        compacted = self._grouping.is_compacted(chosen, self._source, _PAGE)
        ended = [*window.ended, *([COMPACTED] if compacted else ())]
        return self._in_chars(front, chosen), ended

    def _in_chars(self, front: Sequence[Group], chosen: Plan) -> Plan:
        """Return the plan, without its digests if they would exceed ``max_chars``."""
        most = self._budget.max_chars
        if most is None or all(each.level != "facts" for each in chosen.groups):
            return chosen
        if sum(chars_of(row.message) for row in self._rows(front, chosen)) <= most:
            return chosen
        why, groups = "no room for its facts in max_chars", chosen.groups
        none = (Planned.dropped(n.group, why) if n.level == "facts" else n for n in groups)
        return replace(chosen, groups=tuple(none))

    def _rows(
        self, front: Sequence[Group], chosen: Plan, block: RecalledBlock | None = None
    ) -> list[ContextRow]:
        rows = [row for group in front for row in group.rows]
        digests = digest_rows(chosen, self._tokenizer, paths=self._paths)
        for planned in chosen.groups:
            if block is not None and planned.group.key == block.before:
                rows += block.group.rows
            if (digest := digests.get(planned.group.key)) is not None:
                rows.append(digest)
            if planned.level == "full":
                rows += planned.group.rows
            elif planned.level == "shortened":
                rows += map(shortened, planned.group.rows)
        if self._paths:
            return rows
        bare = [without_path(row, self._tokenizer) for row in rows]
        self._pathless = bool(digests or block) or any(map(is_not, bare, rows))
        return bare

    def written(self, front: Sequence[Group], chosen: Plan) -> Wire:
        """Return a plan after a system part in the format of the request."""
        return self._write(self._rows(front, chosen), provider=self._provider)

    def _count(self, rows: Sequence[ContextRow], wire: Wire, overhead: Count) -> Count:
        total = detail.added(rows, self._tokenizer, overhead)
        if native := sum(self._grouping.native(rows)):
            total += Count(native, exact=False, margin=_NATIVE_MARGIN)
        return sum((token_counts.count_text(each, self._tokenizer) for each in wire.added), total)

    def _recalled(self, rows: tuple[ContextRow, ...]) -> Group:
        rows = rows if self._settings.include_tool_results else tuple(map(without_result, rows))
        return self._grouping.group(rows)
