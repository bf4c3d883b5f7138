"""``eventstore chat``: talk to a model, with every turn in the log (document 001).

The answer is streamed to stdout; tools and notes go to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import click

from agent_eventstore.agents import AgentSession, FunctionTool, JsonlHistorySink, TurnResult
from agent_eventstore.cli.console import count, note
from agent_eventstore.cli.context import settings_in
from agent_eventstore.cli.demo import DEMO_FILE, DEMO_TENANT
from agent_eventstore.cli.harmless import one_line, shown
from agent_eventstore.cli.options import (
    InputFile,
    Number,
    ServerUrl,
    TokenizerName,
    common,
    find_conversation,
)
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.target import Target
from agent_eventstore.demo.agent import DemoModel, demo_tools
from agent_eventstore.demo.scripted_model import MODEL
from eventstore import EventStore
from eventstore.errors import EventStoreError
from eventstore.events.values import MODES

__all__ = ["chat", "model_client"]

_HELP = """\
/status          this session: ids, model, mode, turns, tokens
/history         the messages so far
/mode [MODE]     show the mode, or switch to: chat, agent, run
/continue        continue a turn that was stopped before its answer
/fork            continue in a new conversation that shares this one's turns
/exit            end the session; so does Ctrl-D. Ctrl-C stops an answer"""
_LAST = 20  # messages that /history shows


@click.command()
@click.argument("question", required=False)
@click.option("--once", is_flag=True, help="Answer QUESTION and exit.")
@click.option(
    "--model", metavar="NAME", default=MODEL, show_default=True, help="The model to call."
)
@click.option(
    "--base-url",
    metavar="URL",
    type=ServerUrl(),
    envvar="OPENAI_BASE_URL",
    help="A server of OpenAI's API.  [env var: OPENAI_BASE_URL]",
)
@click.option(
    "--protocol",
    type=click.Choice(("tools", "react")),
    default="tools",
    show_default=True,
    help="How the model calls tools: through its API, or in tags.",
)
@click.option(
    "--files",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Let the model list and read the files of a directory.",
)
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("history"),
    show_default=True,
    help="Directory for the JSONL file of each session.",
)
@click.option("--settings", metavar="FILE", type=InputFile(), help="Settings for messages[].")
@click.option(
    "--max-prompt-tokens", metavar="N", type=Number(min=1), help="Reject longer requests."
)
@click.option(
    "--warn-prompt-tokens", metavar="N", type=Number(min=1), help="Warn about longer requests."
)
@click.option(
    "--tokenizer-model",
    metavar="NAME",
    type=TokenizerName(),
    help="Count tokens as for this model or encoding.",
)
@click.option("--resume", metavar="CID", help="Continue this conversation.")
@click.option("--demo", is_flag=True, help="Talk to a recorded model, which needs no key.")
@common
def chat(target: Target, /, question: str | None, once: bool, demo: bool, **given: Any) -> None:
    """Talk to a model; every turn is recorded as it happens.

    Without --once it prompts again after each answer; /help lists its commands. The model is one of
    OpenAI's, of a compatible server (--base-url), or of Anthropic's (claude-...), with the key in
    OPENAI_API_KEY or ANTHROPIC_API_KEY.
    """
    if once and not question:
        raise Failed("--once answers one question: give it, as in `eventstore chat --once 'Why?'`")
    with ExitStack() as stack:
        options = _options(given, demo, stack)
        if demo and not target.by_hand:
            target.named = f"sqlite:///{DEMO_FILE}"
        store = stack.enter_context(target.create())
        screen = _Screen()
        options["listener"] = screen.tell
        conversation = {"session_mode": "once" if once else "interactive"}
        owner = {"tenant_id": DEMO_TENANT} if demo else {}
        if given["resume"]:
            found = find_conversation(store, given["resume"])
            session = AgentSession.open(store, found, conversation=conversation, **options)
        else:
            new = {**conversation, **owner, "mode": "chat"}
            session = AgentSession.create(store, conversation=new, **options)
        talk = _Dialogue(store, session, options, screen, given["log_dir"])
        try:
            talk.hold(question, once=once)
        finally:
            talk.session.close()


def _options(given: dict[str, Any], demo: bool, stack: ExitStack) -> dict[str, Any]:
    """Return the options of the agent session."""
    tools: list[Any] = []
    if given["files"] is not None:
        tools += _file_tools(given["files"].resolve())
    if demo:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="eventstore-chat-"))
        tools = [*demo_tools(Path(folder))]
    names = ("protocol", "max_prompt_tokens", "warn_prompt_tokens", "tokenizer_model")
    return {
        **{name: given[name] for name in names},
        "settings": settings_in(given["settings"]),
        "model": DemoModel() if demo else model_client(given["model"], given["base_url"], stack),
        "model_name": MODEL if demo else given["model"],
        "tools": tools,
        "sinks": [JsonlHistorySink(given["log_dir"])],
        "config": {"cwd": str(Path.cwd())},
    }


def model_client(model: str, base_url: str | None, stack: ExitStack) -> Any:
    """Return the client of the model's provider.

    Raises:
        Failed: The API key is missing, or the SDK is not installed.
    """
    anthropic = model.startswith("claude") and base_url is None
    package = "anthropic" if anthropic else "openai"
    variable = f"{package.upper()}_API_KEY"
    key = os.environ.get(variable)
    if not key and base_url is None:
        raise Failed(
            f"there is no key for {model}: set {variable}, name a server with --base-url, or try "
            "`eventstore chat --demo`"
        )
    try:
        if anthropic:
            from anthropic import Anthropic

            return stack.enter_context(Anthropic(api_key=key, max_retries=0))
        from openai import OpenAI

        # The session retries by itself, and logs each attempt.
        return stack.enter_context(OpenAI(api_key=key or "none", base_url=base_url, max_retries=0))
    except ImportError as error:
        raise Failed(
            f"{package} is not installed: pip install 'agent-eventstore[{package}]', or try "
            "`eventstore chat --demo`"
        ) from error


def _file_tools(folder: Path) -> list[FunctionTool]:
    """Return tools that list and read the files of a folder, and no others."""

    def list_files() -> str:
        """List the files of the directory."""
        found = (path for path in folder.rglob("*") if path.is_file())
        names = (path.relative_to(folder) for path in found)
        return "\n".join(sorted(map(str, names)))

    def read_file(path: str) -> str:
        """Return the text of a file of the directory."""
        found = (folder / path).resolve()
        if not found.is_relative_to(folder):
            raise ValueError(f"{path} is outside of the directory")
        return found.read_text("utf-8", errors="replace")

    return [FunctionTool.of(each, idempotent=True) for each in (list_files, read_file)]


class _Screen:
    """Shows an answer as it streams, and the agent's other actions."""

    def __init__(self) -> None:
        self._open = ""
        self._interrupted = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Stop the block at Ctrl-C, or before its next text if Python ignored the exception.

        Python prints and discards an exception raised in a finalizer, including a
        `KeyboardInterrupt` that arrives while it runs.
        """
        self._interrupted = False
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        raise KeyboardInterrupt

    def tell(self, kind: str, text: str) -> None:
        """Show an action of the agent."""
        if kind in ("text", "thought"):
            if self._interrupted:
                raise KeyboardInterrupt
            if self._open not in ("", kind):
                self.end()
            self._open = kind
            content = shown(text)
            click.echo(click.style(content, dim=True) if kind == "thought" else content, nl=False)
            sys.stdout.flush()
            return
        self.end()
        if kind == "call":
            note(f"  → {one_line(text, 200)}", "yellow")
        elif kind != "said":
            note(f"  {one_line(text, 200)}", "red" if kind == "failed" else "dim")

    def end(self) -> None:
        """End the current line."""
        if self._open:
            click.echo()
        self._open = ""


@dataclass(slots=True)
class _Dialogue:
    """A conversation at the prompt."""

    store: EventStore
    session: AgentSession
    options: dict[str, Any]
    screen: _Screen
    folder: Path
    turns: int = 0
    over: bool = False
    _commands: dict[str, Callable[[str], None]] = field(default_factory=dict)

    def hold(self, question: str | None, *, once: bool) -> None:
        """Answer the first question, and then every line that is entered."""
        self._introduce()
        if question:
            result = self._answer(lambda: self.session.run_turn(question))
            if once and (result is None or result.status != "ok"):
                raise Failed("there was no answer: see above")
        if once:
            return
        self._commands = {
            "/exit": self._exit,
            "/help": lambda _: note(_HELP, ""),
            "/status": self._status,
            "/mode": self._mode,
            "/history": self._history,
            "/continue": self._continue,
            "/fork": self._fork,
        }
        for line in self._typed():
            name, _, rest = line.partition(" ")
            if name in self._commands:
                self._commands[name](rest.strip())
            elif line.startswith("/"):
                note(f"there is no command {name}: /help lists them", "red")
            elif line:
                self._answer(lambda content=line: self.session.run_turn(content))  # type: ignore[misc]
            if self.over:
                return

    def _introduce(self) -> None:
        note(f"session {self.session.session_id} of conversation {self.session.id}")

    def _typed(self) -> Iterator[str]:
        """Yield the lines entered by the user, until Ctrl-D."""
        if not sys.stdin.isatty():
            yield from (line.strip() for line in sys.stdin)
            return
        prompt = self._prompt()
        while True:
            try:
                yield prompt("> ").strip()
            except KeyboardInterrupt:
                note("/exit or Ctrl-D ends the session")
            except EOFError:
                return

    def _prompt(self) -> Callable[[str], str]:
        """Return what reads a line: with a history, if the extra ``chat`` is installed."""
        try:
            # Imported here because it takes a tenth of a second, and no other command needs it.
            from prompt_toolkit import PromptSession
            from prompt_toolkit.history import FileHistory
        except ImportError:
            note("line editing and history need the extra, pip install 'agent-eventstore[chat]'")
            return input
        self.folder.mkdir(parents=True, exist_ok=True)
        session: PromptSession[str] = PromptSession(
            history=FileHistory(str(self.folder / ".typed"))
        )
        return session.prompt

    def _answer(self, answer: Callable[[], TurnResult | None]) -> TurnResult | None:
        """Show an answer, or the error; Ctrl-C stops it."""
        try:
            with self.screen.interruptible():
                result = answer()
        except KeyboardInterrupt:
            self.screen.end()
            note("stopped: the partial answer is kept; /continue continues it")
            return None
        except EventStoreError as error:
            self.screen.end()
            note(str(error), "red")
            return None
        finally:
            self.screen.end()
        self.turns += 1
        if result is None:
            note("the last turn is already answered")
        elif result.status == "error":
            note(f"no answer: {result.error}", "red")
        elif result.status == "max_steps":
            note(f"no answer within {len(result.steps)} steps", "red")
        return result

    def _exit(self, _: str) -> None:
        self.over = True

    def _status(self, _: str) -> None:
        tokens = self.session.tokens
        prompt = count(tokens.prompt_tokens) if tokens else "0"
        completion = count(tokens.completion_tokens) if tokens else "0"
        self._introduce()
        note(
            f"model {self.options['model_name']}, mode {self.session.conversation.mode}, "
            f"{self.turns} turns, {prompt} prompt and {completion} completion tokens"
        )

    def _mode(self, mode: str) -> None:
        if not mode:
            note(f"mode {self.session.conversation.mode}")
        elif mode in MODES:
            self.session.conversation.switch_mode(mode)
            note(f"mode {mode} from here on")
        else:
            note(f"invalid mode {mode!r}: choose from {', '.join(MODES)}", "red")

    def _history(self, _: str) -> None:
        conversation = self.session.conversation
        view = conversation.views.context(conversation.id, mode=None)
        for message in list(view.messages)[-_LAST:]:
            calls = (each["function"]["name"] for each in message.get("tool_calls") or ())
            text = message.get("content") or ", ".join(calls)
            note(f"{message['role']:>9}  {one_line(str(text), 160)}", "")

    def _continue(self, _: str) -> None:
        self._answer(self.session.go_on)

    def _fork(self, _: str) -> None:
        source = self.session
        try:
            self.session = AgentSession.fork(self.store, source.id, **self.options)
        except EventStoreError as error:
            note(str(error), "red")
            return
        source.close("forked")
        self._introduce()
