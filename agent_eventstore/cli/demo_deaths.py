"""The part of the demo in which the agent's process is killed and the conversation continues.

`Narrator` is the screen of the whole demo: the agent's actions as they happen, and the headings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from rich.console import Console
from rich.text import Text

from agent_eventstore.batching import BATCH_CHARS
from agent_eventstore.cli.console import cell, plural, say
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.recovery_command import sealed_table
from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import script
from agent_eventstore.demo.agent import DemoAgent
from agent_eventstore.demo.killing import AgentProcess, Killed, Order
from agent_eventstore.demo.scripted_model import DEFINITIONS, ScriptedModel, Workspace
from agent_eventstore.recovery import Recovery
from eventstore import EventStore
from eventstore.events import AssistantMessage, ToolResult, TurnEnd
from projections import Views

__all__ = ["Narrator", "Scene", "heading", "show_deaths", "waiting_agents"]

_Claim = tuple[str, bool]
"""A promise of the recovery, in words, and whether it was kept."""

_GO_ON = "continue"
_LAST = 2  # messages: the interrupted answer or call, and the note on it
_SHORT = 260  # characters


class Narrator:
    """Writes each action on a line; answers and calls when they are complete or cut short."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._who, self._text = "", ""

    def tell(self, kind: str, text: str) -> None:
        """Show an action of the agent; see `agent_eventstore.demo.agent.Listener`."""
        if kind == "text":
            self._who, self._text = "model", self._text + text
        elif kind == "user":
            self.line("you", text, "bold")
        elif kind == "call":
            self._who, self._text = "tool", f"{one_line(text, 40)} → "
        elif kind == "result":
            style = "yellow" if text.startswith("success") else "red"
            self.line("tool", one_line(self._text + text, self._console.width - 9), style)
            self._text = ""
        else:
            self._end("cyan")
            if kind == "error":
                self.line("", f"({text}; the call is retried)", "red")

    def cut_short(self, why: str) -> None:
        """Show the incomplete text, and why it ended."""
        self._end("cyan" if self._who == "model" else "yellow")
        self.line("", why, "red")

    def _end(self, style: str) -> None:
        if self._text:
            self.line(self._who, self._text, style)
        self._text = ""

    def line(self, who: str, text: str, style: str = "") -> None:
        """Show a text and its speaker; a long text wraps."""
        shown = cell(text, style)
        shown.overflow = "fold"
        for number, line in enumerate(shown.wrap(self._console, self._console.width - 8)):
            self._console.print(Text(f"{who if number == 0 else '':>6}  ", style="dim") + line)


def heading(console: Console, title: str, why: str) -> None:
    """Begin a part of the demo."""
    console.print()
    console.print(Text.assemble((title, "bold underline"), (f"  {why}", "dim")))


@dataclass(frozen=True, slots=True)
class Scene:
    """The setting of the kills: a conversation that no process has open, and the tools' folder.

    ``delay_s`` is the model's delay before each piece of its answer, in seconds.
    """

    store: EventStore
    url: str = field(repr=False)
    conversation_id: UUID
    workspace: Workspace
    delay_s: float

    def order(self, death: str) -> Order:
        """Return the order to an agent's process."""
        folder = str(self.workspace.folder)
        return Order(self.url, str(self.conversation_id), folder, death, self.delay_s)


@contextmanager
def waiting_agents() -> Iterator[Mapping[str, AgentProcess]]:
    """Start a process for each death of the script in advance, because starting takes a second."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(AgentProcess()) for name in script.DEATHS}


def show_deaths(console: Console, scene: Scene, agents: Mapping[str, AgentProcess]) -> bool:
    """Kill the agent at each point of the script and continue; return whether all claims held."""
    heading(console, "2. Killed, twice", "the agent in its own process, killed with SIGKILL")
    all_hold = True
    for name, agent in agents.items():
        narrator = Narrator(console)
        killed = agent.run_and_kill(scene.order(name), narrator.tell)
        all_hold &= _go_on(console, narrator, scene, name, killed)
    return all_hold


def _go_on(console: Console, narrator: Narrator, scene: Scene, name: str, killed: Killed) -> bool:
    death = script.DEATHS[name]
    narrator.cut_short(f"✗ process {killed.pid} killed (signal {killed.signal}) {death.when}")
    with Conversation.open(scene.store, scene.conversation_id) as conversation:
        recovery = conversation.recovery
        assert recovery is not None  # noqa: S101 - opened, not started
        _show_recovery(console, narrator, conversation, recovery)
        model = ScriptedModel(death.then, delay_s=scene.delay_s, tools=DEFINITIONS)
        DemoAgent(conversation, model, scene.workspace, narrator.tell).turn(_GO_ON)
    claims = [*_claims_of(scene, name, killed, recovery), _completed(scene)]
    for claim, holds in claims:
        say(f"        {'✓' if holds else '✗'} {claim}", "green" if holds else "red")
    return all(holds for _, holds in claims)


def _show_recovery(
    console: Console, narrator: Narrator, opened: Conversation, recovery: Recovery
) -> None:
    say(f"Conversation.open found this, and sealed it in {plural(len(recovery.sealed), 'event')}:")
    console.print(sealed_table(recovery))
    say("and messages[] now ends with:")
    for message in opened.views.context(opened.id).messages[-_LAST:]:
        calls = [f"→ {each['function']['name']}" for each in message.get("tool_calls", ())]
        words = " ".join(filter(None, (str(message.get("content") or ""), *calls)))
        narrator.line("", f"{message['role']}: {_end_of(words)}", "magenta")


def _end_of(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _SHORT else f"… {text[-_SHORT:].partition(' ')[2]}"


def _claims_of(scene: Scene, name: str, killed: Killed, recovery: Recovery) -> Iterator[_Claim]:
    if name == "stream":
        partial_text = recovery.found.model_calls[0].text if recovery.found.model_calls else ""
        shown = killed.shown
        claim = (
            f"of {len(shown)} characters shown, the log kept {len(partial_text)} "
            "(a batch may be lost)"
        )
        whole = bool(partial_text) and shown.startswith(partial_text)
        yield claim, whole and len(shown) - len(partial_text) <= BATCH_CHARS
    else:
        outcomes = [
            each.data.status for each in recovery.sealed if isinstance(each.data, ToolResult)
        ]
        yield "the log says that the outcome is unknown", ["outcome_unknown"] == outcomes
        lines = _lines_of(scene.workspace.folder / script.CHANGELOG)
        yield (
            f"the effect happened once: {script.CHANGELOG} has {plural(lines, 'line')}",
            lines == 1,
        )


def _lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def _completed(scene: Scene) -> _Claim:
    last = list(scene.store.read(scene.conversation_id, backward=True, limit=3))
    ended = any(isinstance(each.data, TurnEnd) and each.data.status == "ok" for each in last)
    answered = any(isinstance(each.data, AssistantMessage) and each.data.final for each in last)
    left = Views(scene.store).open_work(scene.conversation_id).any
    return f'"{_GO_ON}" ran to the end, and no work is left open', ended and answered and not left
