"""The reading commands: the list of conversations, and the views of one or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import get_args

import click
from rich.table import Table
from rich.text import Text

from agent_eventstore.cli import render
from agent_eventstore.cli.console import (
    cell,
    event_document,
    fixed,
    flexible,
    grid,
    note,
    number,
    print_document,
    say,
    stdout,
)
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import (
    Moment,
    Number,
    common,
    conversation_argument,
    find_conversation,
    json_option,
    limit_option,
)
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.target import Target
from eventstore import EventStore
from eventstore.events import EVENT_TYPES
from eventstore.events.own import is_own
from projections import SearchHit, Views
from projections.models.branches import BranchPoint
from projections.models.directory import DIRECTORY, ConversationStatus
from projections.models.tool_calls import TOOL_CALLS
from projections.models.totals import UsageBy
from projections.models.usage import USAGE
from projections.queries import TOOL_STATUSES
from projections.search.message_search import SEARCH
from projections.upkeep import Projection, find_live, noted

__all__ = ["events", "list_conversations", "search", "timeline", "tools", "usage"]


@click.command("list")
@click.option("--tenant-id", metavar="ID", help="Only this tenant's conversations.")
@click.option("--user-id", metavar="ID", help="Only this user's conversations.")
@click.option(
    "--status",
    type=click.Choice(get_args(ConversationStatus)),
    help="Only conversations with this status.",
)
@limit_option(50, "conversations")
@json_option
@common
def list_conversations(
    target: Target,
    tenant_id: str | None,
    user_id: str | None,
    status: ConversationStatus | None,
    limit: int,
    as_json: bool,
) -> None:
    """List conversations, most recently active first."""
    with target.open() as store:
        # One more than shown, to detect whether there are more.
        found = Views(store).conversations(
            tenant_id=tenant_id, user_id=user_id, status=status, limit=limit + 1
        )
        _tell_of_set_aside(store, DIRECTORY)
    if as_json:
        print_document(found[:limit])
        return
    stdout().print(render.conversations_table(found[:limit]))
    _tell_of_more(len(found), limit, "conversations")


class EventType(click.Choice[str]):
    """A built-in event type, or any name that could be a product's own type."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the type."""
        return value if is_own(value) else super().convert(value, param, ctx)


@click.command()
@conversation_argument
@click.option(
    "--after", metavar="VERSION", type=Number(min=0), default=0, help="Only later events."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=EventType([each.type for each in EVENT_TYPES]),
    metavar="TYPE",
    help="Only events of this type; may be repeated.",
)
@limit_option(None, "events")
@json_option
@common
def events(
    target: Target,
    conversation: str,
    after: int,
    types: tuple[str, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """List the events of a conversation, as recorded.

    With --json, each event includes its whole payload and envelope.
    """
    with target.open() as store:
        recorded = store.read(find_conversation(store, conversation), after=after)
        wanted = (event for event in recorded if not types or event.type in types)
        found = list(islice(wanted, limit))
    if as_json:
        print_document([event_document(event) for event in found])
    else:
        stdout().print(render.events_table(found))
        _tell_of_more(len(found), None, "events")


@click.command()
@conversation_argument
@click.option(
    "--after",
    metavar="VERSION",
    type=Number(min=0),
    default=0,
    help="Only items that began or changed later.",
)
@click.option("--at", metavar="VERSION", type=Number(min=1), help="As of this version.")
@click.option("--full", is_flag=True, help="Show full texts instead of their beginnings.")
@limit_option(None, "items")
@json_option
@common
def timeline(
    target: Target,
    conversation: str,
    after: int,
    at: int | None,
    full: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show a conversation as a user interface would.

    Messages, answers, tool calls and errors of the active branch, in order; long texts are
    shortened. Below, the alternatives are listed, with the one that is shown.
    """
    with target.open() as store:
        stream = find_conversation(store, conversation)
        version = store.get(stream).version
        if at is not None and at > version:
            raise Failed(f"the conversation has {version:,} versions: --at {at} does not exist yet")
        items = Views(store).timeline(stream, after=after, limit=limit, at=at)
        points = Views(store).branches(stream, at=at)
    if as_json:
        print_document(items)
        return
    stdout().print(render.timeline_table(items, full=full))
    _tell_of_more(len(items), None, "items")
    for point in points:
        say(_alternatives(point))


def _alternatives(point: BranchPoint) -> str:
    """Return a sentence about a point's alternatives, by version."""
    shown_at = [at for at, each in enumerate(point.alternatives, start=1) if each.active]
    named = ", ".join(
        f"[{each.version}]" if each.active else str(each.version) for each in point.alternatives
    )
    position = f"{shown_at[0] if shown_at else 'none'} of {len(point.alternatives)}"
    return f"{point.kind} after version {point.after}: {position} is shown, of {named}"


@click.command()
@click.argument("text")
@click.option("--tenant-id", metavar="ID", help="Only in this tenant's conversations.")
@click.option("--user-id", metavar="ID", help="Only in this user's conversations.")
@limit_option(20, "messages")
@json_option
@common
def search(
    target: Target,
    text: str,
    tenant_id: str | None,
    user_id: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find messages in all conversations, best first.

    A message must contain all words of TEXT, and those in "quotes" in this order; be* matches words
    that begin with be.
    """
    with target.open() as store:
        # One more than shown, to detect whether there are more.
        found = Views(store).search(text, tenant_id=tenant_id, user_id=user_id, limit=limit + 1)
        _tell_of_set_aside(store, SEARCH)
    if as_json:
        print_document(found[:limit])
        return
    stdout().print(_search_table(found[:limit]))
    _tell_of_more(len(found), limit, "messages")


@click.command()
@click.option(
    "--by",
    type=click.Choice(get_args(UsageBy)),
    default="model",
    show_default=True,
    help="The grouping of the totals.",
)
@click.option("--conversation", metavar="CID", help="Only this conversation.")
@click.option("--tenant-id", metavar="ID", help="Only this tenant's conversations.")
@click.option("--user-id", metavar="ID", help="Only this user's conversations.")
@click.option(
    "--since", metavar="TIME", type=Moment(), help="Only calls that began then or later, in UTC."
)
@click.option("--until", metavar="TIME", type=Moment(), help="Only calls that began before.")
@json_option
@common
def usage(
    target: Target,
    by: UsageBy,
    conversation: str | None,
    tenant_id: str | None,
    user_id: str | None,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Show totals of tokens, cost, latency and errors.

    Tokens are as reported by the provider; a ~ marks estimates if it reported none. Prompts that
    were both counted before sending and reported are compared below, with the error.
    """
    with target.open() as store:
        stream = None if conversation is None else find_conversation(store, conversation)
        totals = Views(store).usage(
            by=by,
            conversation_id=stream,
            tenant_id=tenant_id,
            user_id=user_id,
            since=since,
            until=until,
        )
        if stream is None:
            _tell_of_set_aside(store, USAGE)
    if as_json:
        print_document(totals)
        return
    stdout().print(render.usage_table(totals, by))
    _tell_of_more(len(totals), None, "model calls")
    compared = render.estimates_table(totals, by)
    if compared is not None:
        say("Prompt tokens, estimated and reported:")
        stdout().print(compared)


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option(
    "--status",
    type=click.Choice(TOOL_STATUSES),
    metavar="STATUS",
    help="Only calls with this status.",
)
@limit_option(100, "calls")
@json_option
@common
def tools(
    target: Target,
    conversation: str | None,
    tool: str | None,
    status: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Audit tool calls, newest first.

    With the arguments, outcome and duration of each. A status is requested, running, success,
    failed, skipped, denied, not_started or outcome_unknown.
    """
    with target.open() as store:
        stream = None if conversation is None else find_conversation(store, conversation)
        found = Views(store).tool_calls(
            conversation_id=stream, tool=tool, status=status, limit=limit + 1
        )
        if stream is None:
            _tell_of_set_aside(store, TOOL_CALLS)
    if as_json:
        print_document(found[:limit])
        return
    stdout().print(render.tools_table(found[:limit], one_conversation=stream is not None))
    _tell_of_more(len(found), limit, "calls")


def _tell_of_set_aside(store: EventStore, projection: Projection) -> None:
    """Warn about conversations whose newest events are missing from a projection."""
    with store.reading() as connection:
        failed = noted(connection, [find_live(connection, projection)])
    if count := len({each.conversation_id for each in failed}):
        subject = "1 conversation is" if count == 1 else f"{count:,} conversations are"
        note(f"{subject} set aside, and may be missing here: eventstore projections status")


def _tell_of_more(found: int, limit: int | None, what: str) -> None:
    if not found:
        note(f"no {what} found")
    elif limit is not None and found > limit:
        note(f"there are more {what}: raise --limit")


_ID_CELLS = 36


def _search_table(hits: Sequence[SearchHit]) -> Table:
    """Return a table of messages, each below its conversation's full id, which can be copied."""
    found = flexible("conversation and message")
    found.min_width = _ID_CELLS
    table = grid(found, fixed("role"), number("#"))
    for hit in hits:
        title = cell(one_line(hit.title or "(untitled)"), "bold")
        shown = Text("\n").join((title, cell(hit.conversation_id, "dim"), _marked(hit)))
        table.add_row(shown, cell(hit.role), cell(hit.version))
    return table


def _marked(hit: SearchHit) -> Text:
    parts, end = [], 0
    for first, last in hit.marks:
        parts += [cell(one_line(hit.snippet[end:first])), cell(hit.snippet[first:last], "bold red")]
        end = last
    return Text(" ").join([part for part in [*parts, cell(one_line(hit.snippet[end:]))] if part])
