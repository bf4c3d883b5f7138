"""``eventstore recover``: ends work that processes left open when they died."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
from rich.table import Table

from agent_eventstore.cli.console import (
    call,
    cell,
    fixed,
    flexible,
    grid,
    place,
    plural,
    print_document,
    progress_bar,
    say,
    status_cell,
    stdout,
)
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import common, find_conversation, json_option
from agent_eventstore.cli.program import Failed, found_something
from agent_eventstore.cli.target import Target
from agent_eventstore.recovery import Recovery, recover_all
from agent_eventstore.recovery import recover as recover_one
from eventstore.errors import ConversationInUse
from eventstore.events import LlmError, NewEvent, SessionEnd, ToolResult, TurnEnd
from eventstore.events.codec import encode
from projections import Views
from projections.models.open_items import OpenWork

__all__ = ["recover", "sealed_table"]


@click.command()
@click.argument("conversation", metavar="[CID]", required=False)
@click.option(
    "--dry-run", is_flag=True, help="Change nothing; exit with status 1 if anything is open."
)
@click.option("--take-over", is_flag=True, help="Also end the work of live sessions.")
@json_option
@common
def recover(
    target: Target, conversation: str | None, dry_run: bool, take_over: bool, as_json: bool
) -> None:
    """End the work that a crash left open.

    Model calls, tool calls, turns and the session that a dead process left open are ended with
    their actual state: interrupted, never started, or of unknown outcome. No tool runs. Without CID
    every conversation with open work is recovered. The work of a live process is left to it, unless
    it is taken over, which locks that process out. A conversation that cannot be recovered is
    reported, the others are recovered, and the exit status is 1.
    """
    found: Sequence[Recovery]
    in_use, failed = False, dict[UUID, Exception]()
    with target.open() if dry_run else target.open_to_write() as store:
        views = Views(store)
        if conversation is None:
            with progress_bar("recovering") as meter:
                outcome = recover_all(
                    store, views, meter.update, dry_run=dry_run, take_over=take_over
                )
            found, failed, in_use = outcome.recovered, outcome.failed, bool(outcome.in_use)
        else:
            stream = find_conversation(store, conversation)
            try:
                found = [recover_one(store, views, stream, dry_run=dry_run, take_over=take_over)]
            except ConversationInUse as error:
                raise Failed(
                    f"conversation {stream} is in use by {error.who} since "
                    f"{error.since:%Y-%m-%d %H:%M:%S} UTC: wait until it is closed, or end its "
                    "open work with --take-over"
                ) from error
    found = [each for each in found if each.sealed]
    if as_json:
        unrecovered = [{"conversation_id": cid, "error": str(failed[cid])} for cid in failed]
        print_document([*map(_document, found), *unrecovered])
    else:
        if found or not failed:
            _show(found, dry_run, in_use=in_use)
        for cid, why in failed.items():
            say(f"conversation {cid} cannot be recovered: {one_line(str(why))}", "red")
    if failed or (dry_run and found):
        found_something()


def _show(found: Sequence[Recovery], dry_run: bool, *, in_use: bool) -> None:
    if not found:
        message = "nothing to end: all open work is in use" if in_use else "nothing was left open"
        say(message, "green")
    for recovery in found:
        sealed = plural(len(recovery.sealed), "event")
        done = f"would be ended by {sealed}" if dry_run else f"ended by {sealed}"
        say(f"{recovery.conversation_id} at version {recovery.version_before}: {done}")
        stdout().print(sealed_table(recovery))
        for each in recovery.re_executable:
            key = f" under the key {each.idempotency_key}" if each.idempotency_key else ""
            say(f"call {each.call_id} was declared idempotent: it may be executed again{key}")
        if recovery.found.tasks:
            waiting = plural(len(recovery.found.tasks), "task")
            say(f"{waiting} in the queue: a Scheduler that opens it again continues them")


def sealed_table(recovery: Recovery) -> Table:
    """Return a table of the events with which a recovery ended open work."""
    table = grid(fixed("turn"), fixed("left open"), flexible("what"), fixed("ended as"))
    for event in recovery.sealed:
        kind, what, status = _row(recovery.found, event)
        turn = place(event.meta.turn, event.meta.step)
        table.add_row(cell(turn, "dim"), cell(kind), cell(what), status_cell(status))
    return table


def _row(found: OpenWork, event: NewEvent) -> tuple[str, str, str]:
    match event.data:
        case LlmError() as error:
            calls = ", ".join(f"{each.name or '?'}(…" for each in error.partial_tool_calls)
            content = error.partial_text or calls or error.partial_reasoning
            return "model call", one_line(content or "(nothing had arrived)"), error.kind
        case ToolResult() as result:
            arguments = {each.call_id: each.arguments for each in found.tool_calls}
            called = call(result.name, arguments.get(result.call_id))
            return "tool call", one_line(called), result.status
        case TurnEnd() as turn:
            return "turn", plural(turn.step_count or 0, "step"), turn.status
        case SessionEnd() as session:
            return "session", plural(session.turn_count or 0, "turn"), session.reason or ""
    return event.data.type, "", ""


def _document(recovery: Recovery) -> dict[str, Any]:
    return {
        "conversation_id": recovery.conversation_id,
        "version_before": recovery.version_before,
        "version_after": recovery.version_after,
        "sealed": [
            {
                "event_id": event.event_id,
                "type": event.data.type,
                "data": json.loads(encode(event.data)),
                "meta": event.meta.model_dump(mode="json", exclude_none=True),
            }
            for event in recovery.sealed
        ],
        "re_executable": [
            {
                "call_id": each.call_id,
                "name": each.name,
                "arguments": each.arguments,
                "idempotency_key": each.idempotency_key,
            }
            for each in recovery.re_executable
        ],
    }
