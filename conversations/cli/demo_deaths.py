"""The part of the demo in which the agent's process is killed, and the conversation goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from rich.console import Console
from rich.table import Table

from conversations.batching import BATCH_CHARS
from conversations.cli.console import say
from conversations.cli.demo_narrator import Narrator, heading
from conversations.cli.recovery import _table as sealed_table
from conversations.cli.tables import cell, fixed, flexible, grid
from conversations.cli.text import one_line, plural
from conversations.conversation import Conversation
from conversations.demo import script
from conversations.demo.agent import Agent
from conversations.demo.killing import Killed, run_and_kill
from conversations.demo.model import ScriptedModel
from conversations.demo.tools import Workspace
from conversations.recovery import Recovery
from eventstore import EventStore
from eventstore.events import AssistantMessage, ToolResult, TurnEnd
from projections import Views

__all__ = ["Claim", "Scene", "show_deaths"]

Claim = tuple[str, bool]
"""What the recovery promises, in words, and whether it was kept."""

_GO_ON = "continue"


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the deaths happen: a conversation that nobody has open, and what its tools work on.

    ``delay_s`` is how long the model takes for a piece of its answer, in seconds.
    """

    store: EventStore
    url: str
    conversation_id: UUID
    workspace: Workspace
    delay_s: float


def show_deaths(console: Console, scene: Scene) -> bool:
    """Kill the agent at each point of the script, and go on; return whether all was as promised."""
    heading(console, "2. Killed, twice", "the agent in a process of its own, ended with SIGKILL")
    kept = [_die_and_go_on(console, scene, name) for name in script.DEATHS]
    return all(kept)


def _die_and_go_on(console: Console, scene: Scene, name: str) -> bool:
    narrator, death = Narrator(console), script.DEATHS[name]
    killed = run_and_kill(
        scene.url,
        scene.conversation_id,
        scene.workspace.folder,
        name,
        tell=narrator.tell,
        delay_s=scene.delay_s,
    )
    narrator.cut_short(f"✗ process {killed.pid} killed (signal {killed.signal}) {death.when}")
    with Conversation.open(scene.store, scene.conversation_id) as conversation:
        recovery = conversation.recovery
        assert recovery is not None  # noqa: S101 - opened, not started
        _show_recovery(console, recovery, conversation)
        model = ScriptedModel(death.then, delay_s=scene.delay_s)
        Agent(conversation, model, scene.workspace, narrator.tell).turn(_GO_ON)
    claims = [*_claims_of(scene, name, killed, recovery), _completed(scene)]
    for claim, kept in claims:
        say(f"        {'✓' if kept else '✗'} {claim}", "green" if kept else "red")
    return all(kept for _, kept in claims)


def _show_recovery(console: Console, recovery: Recovery, conversation: Conversation) -> None:
    say(f"Conversation.open found and sealed, with {plural(len(recovery.sealed), 'event')}:")
    console.print(sealed_table(recovery))
    console.print(_told(conversation))


def _told(conversation: Conversation) -> Table:
    """Return the end of the messages[] view: the model's last words, and what became of them."""
    table = grid(fixed("role"), flexible("the last messages[] that the model is told", fold=True))
    messages = conversation.views.context(conversation.id).messages
    for message in messages[-2:]:
        table.add_row(cell(message["role"]), cell(one_line(str(message.get("content") or ""))))
    return table


def _claims_of(scene: Scene, name: str, killed: Killed, recovery: Recovery) -> Iterator[Claim]:
    if name == "stream":
        kept = recovery.found.model_calls[0].text if recovery.found.model_calls else ""
        lost = len(killed.shown) - len(kept)
        yield (
            f"of {len(killed.shown)} characters on the screen the log has kept {len(kept)}: at "
            "most one batch is lost",
            bool(kept) and killed.shown.startswith(kept) and lost <= BATCH_CHARS,
        )
    else:
        outcomes = [each.data.status for each in recovery.sealed if isinstance(each.data, ToolResult)]
        yield "the log does not pretend to know the outcome", ["outcome_unknown"] == outcomes
        written = (scene.workspace.folder / script.CHANGELOG).read_text(encoding="utf-8")
        yield f"the effect happened once: {script.CHANGELOG} has one line", written.count("\n") == 1


def _completed(scene: Scene) -> Claim:
    last = list(scene.store.read(scene.conversation_id, backward=True, limit=3))
    ended = any(isinstance(each.data, TurnEnd) and each.data.status == "ok" for each in last)
    answered = any(isinstance(each.data, AssistantMessage) and each.data.final for each in last)
    left = Views(scene.store).loose_ends(scene.conversation_id).any
    return f'"{_GO_ON}" went on to the end, and nothing is open', ended and answered and not left
