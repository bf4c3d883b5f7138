"""``eventstore demo``: runs a conversation, and shows everything that can be read from it."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from uuid import UUID

import click
from rich.console import Console
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from agent_eventstore.cli import render, render_context
from agent_eventstore.cli.console import progress_bar, say, stdout
from agent_eventstore.cli.context import show_budget
from agent_eventstore.cli.demo_deaths import Narrator, Scene, heading, show_deaths, waiting_agents
from agent_eventstore.cli.integrity import summary_line
from agent_eventstore.cli.options import common
from agent_eventstore.cli.program import NAME, Failed, found_something
from agent_eventstore.cli.projections import compared, rebuilt
from agent_eventstore.cli.target import URL_VARIABLE, Target
from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.agent import DemoAgent
from agent_eventstore.demo.scripted_model import DEFINITIONS, MODEL, ScriptedModel, Workspace
from eventstore import EventStore
from eventstore.database import is_in_memory
from eventstore.errors import NotADatabase, SchemaOutdated, SchemaTooNew
from eventstore.telemetry.log import masked
from projections import Views
from projections.models.timeline_items import TimelineItem
from projections.upkeep import compare, rebuild

__all__ = ["DELAY_S", "DEMO_FILE", "DEMO_TENANT", "demo"]

DEMO_FILE = "eventstore-demo.db"
DELAY_S = 0.004
"""The model's delay before each piece of its answer, in seconds."""

DEMO_TENANT = "eventstore-demo"
_USER = "ada"
_MANY = 10_000
_FRAME = frozenset({"conversation", "session", "turn"})
_SMALL_BUDGET = 1_300  # tokens: about half of the whole request


@click.command()
@click.option("--keep", is_flag=True, help=f"Add to {DEMO_FILE} instead of replacing it.")
@common
def demo(target: Target, keep: bool) -> None:
    """Run a scripted conversation and show it.

    Without --db, the database is the file eventstore-demo.db in the current directory, which is
    replaced. The model is simulated; the tools, the events and everything derived from them are
    real.
    """
    if not target.by_hand:
        # The demo does not use the database named by the environment.
        target.named = f"sqlite:///{DEMO_FILE}"
        _require_demo(Path(DEMO_FILE))
        if not keep:
            _discard(Path(DEMO_FILE))
    _require_disk(target.url)
    with target.create() as store:
        conversation_id, recovered = _hold(store, target.url)
        good = _show(store, conversation_id) and recovered
        _tell_where_to_go(target.url, conversation_id)
    if not good:
        found_something()


def _require_demo(path: Path) -> None:
    """Reject a file that contains anything other than conversations of this demo."""
    if not path.exists():
        return
    refusal = Failed(f"{path} contains something other than a demo: move it away, or use --db")
    try:
        with EventStore.open(f"sqlite:///{path}", read_only=True) as store:
            owners = {info.tenant_id for info in store.list(limit=_MANY)}
    except (NotADatabase, SchemaOutdated, SchemaTooNew) as error:
        raise refusal from error
    if owners - {DEMO_TENANT}:
        raise refusal


def _require_disk(url: str) -> None:
    """Reject an in-memory database, to which the killed process could not write."""
    try:
        named = make_url(url)
    except (ArgumentError, ValueError):
        return
    if is_in_memory(named):
        raise Failed("the demo needs a database that outlives a process: name a file with --db")


def _discard(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def _hold(store: EventStore, url: str) -> tuple[UUID, bool]:
    """Run the conversation and the kills; return its id, and whether nothing was lost."""
    console = stdout()
    heading(console, "1. A conversation", "held by a scripted agent, recorded event by event")
    with (
        tempfile.TemporaryDirectory(prefix="eventstore-demo-") as name,
        waiting_agents() as agents,
    ):
        folder = Path(name)
        workspace = Workspace(folder, script.PROJECT)
        model = ScriptedModel(script.REPLIES, delay_s=DELAY_S, tools=DEFINITIONS)
        with Conversation.start(
            store,
            mode="agent",
            title=script.TITLE,
            base_instructions=script.INSTRUCTIONS,
            tenant_id=DEMO_TENANT,
            user_id=_USER,
            session_config={"model": MODEL},
        ) as conversation:
            agent = DemoAgent(conversation, model, workspace, Narrator(console).tell)
            for text in script.USER:
                agent.turn(text)
        scene = Scene(store, url, conversation.id, workspace, DELAY_S)
        return conversation.id, show_deaths(console, scene, agents)


def _show(store: EventStore, conversation_id: UUID) -> bool:
    console, views = stdout(), Views(store)
    heading(console, "3. Timeline", "what a user interface shows, here of the last turns")
    items = [item for item in views.timeline(conversation_id) if _wanted(item)]
    console.print(render.timeline_table(items))
    _show_context(console, views, conversation_id)
    heading(console, "5. Usage", "tokens as reported, cost from the price list, by turn")
    totals = views.usage(by="turn", conversation_id=conversation_id)
    console.print(render.usage_table(totals, "turn"))
    heading(console, "6. Tool audit", "every call, the newest first, with what came of it")
    calls = views.tool_calls(conversation_id=conversation_id)
    console.print(render.tools_table(calls, one_conversation=True))
    return _prove(console, store)


def _wanted(item: TimelineItem) -> bool:
    return item.kind not in _FRAME and (item.turn or 0) > len(script.USER)


def _show_context(console: Console, views: Views, conversation_id: UUID) -> None:
    title = "what the next request would hold, within a small budget, and why"
    heading(console, "4. messages[]", title)
    view = views.context(conversation_id, mode="agent", tools=DEFINITIONS, max_tokens=_SMALL_BUDGET)
    console.print(render_context.messages_table(view))
    console.print()
    console.print(render_context.runs_table(view.ledger))
    show_budget(console, view)


def _prove(console: Console, store: EventStore) -> bool:
    heading(
        console, "7. Rebuild, compare, verify", "views are folds of the events, and can prove it"
    )
    with progress_bar("rebuilding", console=console) as meter:
        report = rebuild(store, on_progress=meter.update)
    say(rebuilt(report))
    differences = compare(store)
    if not differences.ok:
        console.print(render.differences_table(differences.differences))
    say(f"diff: {compared(differences)}", _colour(differences.ok))
    found = store.verify()
    if not found.ok:
        console.print(render.problems_table(found.problems))
    say(f"verify: {summary_line(found)}", _colour(found.ok))
    return differences.ok and found.ok


def _colour(good: bool) -> str:
    return "green" if good else "red"


def _tell_where_to_go(url: str, conversation_id: UUID) -> None:
    console = stdout()
    heading(console, "Explore it further", "the conversation stays where it is")
    safe_url = masked(url)
    program = _program()
    for command in (
        f"export {URL_VARIABLE}={shlex.quote(safe_url)}",
        f"{program} timeline {conversation_id} --full",
        f"{program} events {conversation_id} --json",
        f"{program} context {conversation_id} --max-tokens 800 --explain",
        f"{program} export {conversation_id} --format openai",
        f"{program} tools --status outcome_unknown",
        f"{program} --help",
    ):
        say(f"  {command}")


def _program() -> str:
    """Return the command that runs this program again."""
    started = Path(sys.argv[0])
    if started.name != NAME:
        return f"{shlex.quote(sys.executable)} -m agent_eventstore.cli"
    found = shutil.which(NAME)
    on_path = found is not None and Path(found).resolve() == started.resolve()
    return NAME if on_path else shlex.quote(str(started))
