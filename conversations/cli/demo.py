"""``eventstore demo``: a conversation is held, and everything that can be read from it is shown."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from uuid import UUID

import click
from rich.console import Console
from rich.text import Text
from sqlalchemy import make_url

from conversations.cli import render
from conversations.cli.console import say, stdout
from conversations.cli.integrity import said
from conversations.cli.options import URL_VARIABLE, Target, common, with_target
from conversations.cli.program import NAME, Failed, found_something
from conversations.cli.progress import progress_bar
from conversations.cli.projections import compared, rebuilt
from conversations.cli.tables import cell
from conversations.cli.text import one_line
from conversations.demo import script
from conversations.demo.agent import Agent
from conversations.demo.model import ScriptedModel
from conversations.demo.tools import Workspace
from eventstore import EventStore
from eventstore.errors import NotADatabase, SchemaOutdated, SchemaTooNew
from projections import Views
from projections.diff import compare
from projections.rebuild import rebuild

__all__ = ["DELAY_S", "DEMO_FILE", "demo"]

DEMO_FILE = "eventstore-demo.db"
DELAY_S = 0.004
"""How long the model takes for a piece of its answer, in seconds."""

_TENANT = "eventstore-demo"
_USER = "ada"
_MANY = 10_000
_FRAME = frozenset({"conversation", "session", "turn"})
_SMALL_BUDGET = 400  # tokens: about half of the conversation


@click.command()
@click.option("--keep", is_flag=True, help=f"Add to {DEMO_FILE} instead of replacing it.")
@common
@with_target
def demo(target: Target, keep: bool) -> None:
    """Hold a scripted conversation and show it.

    Without --db it is kept in the file eventstore-demo.db of this directory, which is made anew. A
    stand-in plays the model; the tools, the events and all that is made of them are real.
    """
    if not target.by_hand:
        # A demo has no business in the database that the environment names.
        target.named = f"sqlite:///{DEMO_FILE}"
        _require_demo(Path(DEMO_FILE))
        if not keep:
            _discard(Path(DEMO_FILE))
    with target.create() as store:
        conversation_id = _hold(store)
        good = _show(store, conversation_id)
        _tell_where_to_go(target.url, conversation_id)
    if not good:
        found_something()


def _require_demo(path: Path) -> None:
    """Refuse a file that holds anything else than conversations of this demo."""
    if not path.exists():
        return
    refusal = Failed(f"{path} holds something else than a demo: move it away, or use --db")
    try:
        with EventStore.open(f"sqlite:///{path}", read_only=True) as store:
            owners = {info.tenant_id for info in store.list(limit=_MANY)}
    except (NotADatabase, SchemaOutdated, SchemaTooNew) as error:
        raise refusal from error
    if owners - {_TENANT}:
        raise refusal


def _discard(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)


def _hold(store: EventStore) -> UUID:
    console = stdout()
    _heading(console, "1. A conversation", "held by a scripted agent, recorded event by event")
    with tempfile.TemporaryDirectory(prefix="eventstore-demo-") as folder:
        agent = Agent(
            store,
            ScriptedModel(script.REPLIES, delay_s=DELAY_S),
            Workspace(Path(folder), script.PROJECT),
            tell=_Narrator(console).tell,
            tenant_id=_TENANT,
            user_id=_USER,
        )
        agent.open(script.TITLE, script.INSTRUCTIONS)
        for text in script.USER:
            agent.turn(text)
        agent.close()
    return agent.conversation_id


class _Narrator:
    """Writes what happens, a line each; answers when they are complete."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""

    def tell(self, kind: str, text: str) -> None:
        if kind == "text":
            self._text += text
        elif kind == "user":
            self._line("you", text, "bold")
        elif kind == "call":
            self._text = f"{one_line(text, 40)} → "
        elif kind == "result":
            style = "yellow" if text.startswith("success") else "red"
            self._line("tool", one_line(self._text + text, self._console.width - 9), style)
            self._text = ""
        else:
            if self._text:
                self._line("model", self._text, "cyan")
            if kind == "error":
                self._line("", f"({text}; the call is made again)", "red")
            self._text = ""

    def _line(self, who: str, text: str, style: str) -> None:
        shown = cell(text, style)
        shown.overflow = "fold"
        for number, line in enumerate(shown.wrap(self._console, self._console.width - 8)):
            self._console.print(Text(f"{who if number == 0 else '':>6}  ", style="dim") + line)


def _show(store: EventStore, conversation_id: UUID) -> bool:
    console, views = stdout(), Views(store)
    _heading(console, "2. Timeline", "what a user interface shows; # is the event's version")
    items = [item for item in views.timeline(conversation_id) if item.kind not in _FRAME]
    console.print(render.timeline_table(items))
    _show_context(console, views, conversation_id)
    _heading(console, "4. Usage", "tokens as reported, cost from the price list, by turn")
    totals = views.usage(by="turn", conversation_id=conversation_id)
    console.print(render.usage_table(totals, "turn"))
    _heading(console, "5. Tool audit", "every call, the newest first, with what came of it")
    calls = views.tool_calls(conversation_id=conversation_id)
    console.print(render.tools_table(calls, one_conversation=True))
    return _prove(console, store)


def _show_context(console: Console, views: Views, conversation_id: UUID) -> None:
    whole = views.context(conversation_id)
    small = views.context(conversation_id, max_tokens=_SMALL_BUDGET)
    _heading(console, "3. messages[]", "what a model would be sent next, and within a small budget")
    say(f"whole: {render.context_summary(whole)}")
    say(f"small: {render.context_summary(small, _SMALL_BUDGET)}")
    console.print(render.messages_table(small.messages))
    say("and the account of it, with what was dropped and why:")
    console.print(render.ledger_table(small.ledger))


def _prove(console: Console, store: EventStore) -> bool:
    _heading(
        console, "6. Rebuild, compare, verify", "views are folds of the events, and can prove it"
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
    say(f"verify: {said(found)}", _colour(found.ok))
    return differences.ok and found.ok


def _colour(good: bool) -> str:
    return "green" if good else "red"


def _tell_where_to_go(url: str, conversation_id: UUID) -> None:
    console = stdout()
    _heading(console, "Explore it further", "the conversation stays where it is")
    safe_url = make_url(url).render_as_string(hide_password=True)
    program = _program()
    for command in (
        f"export {URL_VARIABLE}={shlex.quote(safe_url)}",
        f"{program} timeline {conversation_id} --full",
        f"{program} events {conversation_id} --json",
        f"{program} context {conversation_id} --max-tokens 800 --explain",
        f"{program} export {conversation_id} --format openai",
        f"{program} tools --status failed",
        f"{program} --help",
    ):
        say(f"  {command}")


def _program() -> str:
    """Return what to type to run this program again."""
    started = Path(sys.argv[0])
    if started.name != NAME:
        return f"{shlex.quote(sys.executable)} -m conversations.cli"
    found = shutil.which(NAME)
    on_path = found is not None and Path(found).resolve() == started.resolve()
    return NAME if on_path else shlex.quote(str(started))


def _heading(console: Console, title: str, why: str) -> None:
    console.print()
    console.print(Text.assemble((title, "bold underline"), (f"  {why}", "dim")))
