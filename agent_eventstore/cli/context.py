"""``eventstore context``: the messages[] of the next model call, or of an earlier one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from agent_eventstore.cli import render_context
from agent_eventstore.cli.console import print_document, say, stdout
from agent_eventstore.cli.harmless import one_line
from agent_eventstore.cli.options import (
    InputFile,
    Number,
    common,
    conversation_argument,
    find_conversation,
    json_option,
)
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.render import brief
from agent_eventstore.cli.target import Target
from agent_eventstore.transcripts.record_source import StrictDecoder
from eventstore import EventStore
from eventstore.errors import EventStoreError
from projections import Views
from projections.context import ContextSettings, ContextView
from projections.providers.request_formats import FORMATS
from projections.tokens import count_messages, count_tools, tokenizer_for

__all__ = ["context", "settings_in", "show_budget"]

_WITH_OF = frozenset(
    {"conversation", "of", "about", "explain", "full", "as_json", "db", "read_only", "verbose"}
)
_FILE = InputFile()
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_AT_LEAST_1 = Number(min=1)


@click.command()
@conversation_argument
@click.option(
    "--max-tokens", metavar="N", type=_AT_LEAST_1, help="The token limit of the whole call."
)
@click.option(
    "--reserve",
    metavar="N",
    type=Number(min=0),
    help="How many of these tokens are reserved for the response.",
)
@click.option("--max-messages", metavar="N", type=_AT_LEAST_1, help="The most messages.")
@click.option(
    "--model",
    metavar="NAME",
    default="gpt-4o",
    show_default=True,
    help="The model for token counts.",
)
@click.option(
    "--mode",
    metavar="NAME",
    help="Compose the system part for this mode; by default for the conversation's own.",
)
@click.option("--no-mode", is_flag=True, help="Compose no system part.")
@click.option(
    "--agent", metavar="NAME", help="Include this agent's persona, in agent and run mode."
)
@click.option("--run", metavar="RUN", help="Describe this run instead of the active one.")
@click.option("--no-run", is_flag=True, help="Describe no run.")
@click.option(
    "--format",
    type=click.Choice(tuple(FORMATS)),
    default="openai_chat",
    show_default=True,
    help="The provider's format.",
)
@click.option(
    "--strategy", metavar="NAME", help="The strategy that decides what loses detail first."
)
@click.option(
    "--steps/--no-steps",
    default=None,
    help="Trim in steps, so that the prefix stays the same, or at every request.",
)
@click.option("--prompts", metavar="DIR", type=_FOLDER, help="The texts of the system part.")
@click.option("--tools", metavar="FILE", type=_FILE, help="JSON list of tool declarations.")
@click.option("--settings", metavar="FILE", type=_FILE, help="Settings, as JSON or TOML.")
@click.option("--at", metavar="VERSION", type=Number(min=0), help="As of this version.")
@click.option("--of", metavar="VERSION", type=_AT_LEAST_1, help="As sent with this llm_request.")
@click.option(
    "--about", metavar="VERSION", type=_AT_LEAST_1, help="Say only why this event is in it or not."
)
@click.option("--explain", is_flag=True, help="Show what became of each message, and why.")
@click.option("--full", is_flag=True, help="Show full contents instead of their beginnings.")
@json_option
@common
def context(
    target: Target,
    /,
    conversation: str,
    of: int | None,
    about: int | None,
    explain: bool,
    full: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Show the messages[] of the next model call.

    The budget is --max-tokens minus --reserve. The system part, the first and the latest user
    message are always included; older messages lose detail first. Exit status 2 if the mandatory
    messages exceed the budget: the error lists their sizes.
    """
    if of is not None:
        _refuse_others(click.get_current_context())
    with target.open() as store:
        stream = find_conversation(store, conversation)
        settings = _settings(chosen)
        tools = _tools(chosen["tools"])
        try:
            if of is None:
                view = Views(store).context(
                    stream, settings=settings, tools=tools, **_arguments(chosen)
                )
            else:
                view = Views(store).context_of(stream, of)
        except ValueError as error:
            if isinstance(error, EventStoreError):
                raise
            raise Failed(str(error)) from error
        if about is not None:
            why = view.why(about)
            print_document({"version": about, "why": why}) if as_json else click.echo(why)
            return
        if as_json:
            print_document(view.document)
            return
        console = stdout()
        console.print(render_context.messages_table(view, full=full))
        if explain:
            first_words = _first_words(store, stream, view)
            console.print()
            console.print(render_context.ledger_table(view, first_words))
            console.print(Text(render_context.EXPLAINED, style="dim"))
            console.print()
            show_budget(console, view)
        say(render_context.context_summary(view))


def show_budget(console: Console, view: ContextView) -> None:
    """Print the budget of a request as a bar."""
    render_context.show_budget(console, view, _thresholds(view))


def _refuse_others(called: click.Context) -> None:
    given = [
        f"--{parameter.name.replace('_', '-')}"
        for parameter in called.command.params
        if parameter.name
        and parameter.name not in _WITH_OF
        and called.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"--of shows a request as it was sent, so it cannot be used with {', '.join(given)}"
        )


def _arguments(chosen: dict[str, Any]) -> dict[str, Any]:
    if chosen["run"] is not None and chosen["no_run"]:
        raise click.UsageError("--run and --no-run contradict each other")
    if chosen["mode"] is not None and chosen["no_mode"]:
        raise click.UsageError("--mode and --no-mode contradict each other")
    names = ("max_tokens", "max_messages", "model", "agent", "format", "strategy", "at")
    return {
        **{name: chosen[name] for name in names},
        "mode": None if chosen["no_mode"] else chosen["mode"] or "active",
        "reserve_for_response": chosen["reserve"],
        "run": False if chosen["no_run"] else chosen["run"],
    }


def settings_in(path: Path | None) -> ContextSettings:
    """Return the settings in a JSON or TOML file; the defaults without a file."""
    if path is None:
        return ContextSettings()
    found = _parsed(path)
    if not isinstance(found, dict):
        raise Failed(f"{path} contains no settings: they are one object of names and values")
    return ContextSettings.from_mapping(found)


def _settings(chosen: dict[str, Any]) -> ContextSettings:
    settings = settings_in(chosen["settings"])
    given = ((name, chosen[name]) for name in ("steps", "prompts"))
    changes = {name: value for name, value in given if value is not None}
    return settings.with_(**changes) if changes else settings


def _tools(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    found = _parsed(path)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Failed(f"{path} contains no tool declarations: they are one list of objects")
    return found


def _parsed(path: Path) -> Any:
    """Return the content of a JSON file, or of a TOML file according to its suffix."""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else StrictDecoder().decode(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise Failed(f"{path} is not {kind}: {error}") from error


def _first_words(store: EventStore, stream: UUID, view: ContextView) -> dict[int, str]:
    """Return the first words of the events in the ledger, by version."""
    wanted = {render_context.spoken_version(entry) for entry in view.ledger}
    versions = sorted(version for version in wanted if version)
    if not versions:
        return {}
    count = versions[-1] - versions[0] + 1
    recorded = store.read(stream, after=versions[0] - 1, limit=count)
    return {each.version: one_line(brief(each), 200) for each in recorded if each.version in wanted}


def _thresholds(view: ContextView) -> tuple[int, int] | None:
    """Return the tokens above which the history is trimmed, and to how many; None without steps."""
    chosen = ContextSettings.from_mapping(view.policy.get("settings", {}))
    if view.usage is None or not chosen.steps:
        return None
    tokenizer = tokenizer_for(view.encoding)
    overhead = count_messages((), tokenizer) + count_tools(view.tools, tokenizer)
    fixed = overhead.tokens + render_context.fixed_tokens(view.ledger)
    thresholds = chosen.thresholds
    budget = view.usage.budget
    return thresholds.trigger_tokens(fixed, budget), thresholds.target_tokens(fixed, budget)
