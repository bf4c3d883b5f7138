"""What mutants are let loose on: importers, streams, the Python API, and the command line.

Each function does one thing with hostile values, and returns what it was. What it raises is judged
by `tests.fuzz.runs`; a command that ends with a status of its own is judged here.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import click

from agent_eventstore.cli import cli
from agent_eventstore.cli.options import InputFile
from agent_eventstore.errors import ImportFailed
from agent_eventstore.machines.call_script import CallScript
from agent_eventstore.transcripts import FORMATS, Transcript, load, read_transcripts
from eventstore.events import Meta, TextPart
from tests.cli.program import run
from tests.fuzz.api import OPERATIONS
from tests.fuzz.mutation import Mutator
from tests.fuzz.world import World, documents
from tests.properties.splitting import SPLITTERS, Quirks, answer_from, put_together
from tests.properties.test_fuzz_importers import BY_LINE

__all__ = ["SURFACES", "Broken"]

_LOADED = 0.3
_ENDLESS = frozenset({"demo", "serve"})
_PROCESSES = frozenset({"workers", "verbose", "help"})
_STATUSES = (0, 1, 2)
_URLS = (
    *("", "::", "sqlite:////dev/null", "sqlite:////dev/zero", "sqlite:////", "sqlite://"),
    *("sqlite:///x?nonsense=1", "postgresql://h:999999/d", "postgresql://127.0.0.1:1/d?nonsense=1"),
    *(
        "mysql://h/d",
        "sqlite:///file:x?mode=nonsense&uri=true",
        "postgresql://u:p@ss@127.0.0.1:1/d",
    ),
)


class Broken(Exception):
    """A surface did what it should never do, though it raised nothing."""


def importers(world: World, mutator: Mutator) -> str:
    """Read a damaged file, and load what could be read of it."""
    name, document = mutator.one_of(documents())
    path = world.write("mutant", mutator.file(document, by_line=name in BY_LINE))
    format_name = mutator.one_of((None, name, name, mutator.one_of(FORMATS)))
    found = list(read_transcripts(path, format_name))
    if not all(isinstance(item, Transcript | ImportFailed) for item in found):
        raise Broken(f"neither transcripts nor failures: {found!r:.200}")
    if mutator.chance(_LOADED):
        load(world.store, iter(found))
    return f"{name} as {format_name}"


def api(world: World, mutator: Mutator) -> str:
    """Call a function of the library with values that nobody means."""
    operation = mutator.one_of(OPERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operation(world, mutator)
    return operation.__name__


def commands(world: World, mutator: Mutator) -> str:
    """Run a command with some of its parameters given badly."""
    path = mutator.one_of(_leaves())
    words = [*path, *_words(_find(path), world, mutator)]
    given = mutator.one_of(_URLS) if mutator.chance(0.05) else world.url
    try:
        done = run("--db", given, *words)
    except Exception as error:
        raise Broken(f"{words!r:.1000}") from error
    if done.status not in _STATUSES or "Traceback" in done.err:
        raise Broken(f"{words!r:.1000} ended with {done.status}: {done.err[-2_000:]}")
    lines = [line for line in done.err.splitlines() if not line.startswith("warning ")]
    if done.status == 2 and len(lines) != 1 and "Usage:" not in done.err:
        raise Broken(f"{words!r:.1000} said more than a line: {done.err[:2_000]}")
    return " ".join(path)


def streams(world: World, mutator: Mutator) -> str:
    """Feed a stream of pieces that servers send in their own ways, some of them lost.

    What each chunk adds is put together here without any parser: no text and no call may be lost,
    doubled, or given to another.
    """
    name = mutator.one_of(tuple(SPLITTERS))
    random, answer = mutator.random, answer_from(mutator.random)
    own = mutator.chance(0.6)
    quirks = Quirks(
        numbers=mutator.one_of(("own", "none") if own else ("zero", "rising")),
        repeats_names=own and mutator.chance(0.3),
        placeholders=mutator.chance(0.5),
        values=mutator.chance(0.3),
        repeats_whole=own and mutator.chance(0.3),
        interleaved=own and mutator.chance(0.5),
        numbers_from=mutator.one_of((0, 1, 5)),
    )
    sent = SPLITTERS[name](random, answer, quirks)
    if mutator.chance(0.3):
        # What only repeats or closes may be lost, and empty chunks may come anywhere.
        sent = [chunk for chunk in sent if chunk.needed or chunk.adds or mutator.chance(0.5)]
    whole = put_together(sent)
    if cut := mutator.chance(0.3):
        sent = sent[: random.randint(1, len(sent) - 1)]
    script = CallScript(Meta(), 0.0)
    for piece in _pieces(mutator, [chunk.value for chunk in sent]):
        script.feed(piece, 0.0)
    script.end(0.0)
    text, calls = put_together(sent)
    if script.message is not None and (text, calls) != whole:
        raise Broken(f"{name}, {quirks}: a part is an answer: {script.message!r:.500}")
    if script.message is not None:
        said = "".join(p.text for p in script.message.parts if isinstance(p, TextPart))
        found = [(call.name, call.arguments_text) for call in script.message.tool_calls]
    elif script.error is not None and cut:
        said = script.error.partial_text
        partial = script.error.partial_tool_calls
        found = [(call.name or "", call.arguments_text) for call in partial]
    else:
        raise Broken(f"{name}, {quirks}: {script.error!r:.500}")
    same = [one for one, _ in found] == [one for one, _ in calls] and all(
        _same(one, other) for (_, one), (_, other) in zip(found, calls, strict=True)
    )
    if said != text or not same:
        raise Broken(f"{name}, {quirks}: {(said, found)!r:.600} is not {(text, calls)!r:.600}")
    return f"stream of {name}"


def _same(found: str, expected: str) -> bool:
    """Whether arguments are the same, however they are formatted."""
    if found == expected or (found in ("", "{}") and expected in ("", "{}")):
        return True
    try:
        return bool(json.loads(found or "{}") == json.loads(expected or "{}"))
    except ValueError:
        return False


def _pieces(mutator: Mutator, chunks: list[Any]) -> list[Any]:
    """Return chunks as objects, as lines, or as bytes in any pieces."""
    match mutator.random.randrange(3):
        case 0:
            return chunks
        case 1:
            return ["data: " + json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    end = mutator.one_of(("\n", "\r\n", "\r"))
    sent = "\ufeff" * mutator.chance(0.3)
    for number, chunk in enumerate(chunks):
        sent += mutator.one_of(("", f": keep-alive{end}{end}", f"id: {number}{end}"))
        field = mutator.one_of(("data:", "data: "))
        sent += field + json.dumps(chunk, ensure_ascii=False) + end + end
    content, size = sent.encode(), mutator.random.randint(1, 80)
    return [content[at : at + size] for at in range(0, len(content), size)]


SURFACES = (
    *(importers, importers, importers),
    *(streams, streams, streams),
    *(api, api, api, api, api, api),
    commands,
)
"""Each in the share in which it is drawn."""


def _leaves() -> list[tuple[str, ...]]:
    return [path for path in _walk(cli, ()) if path[0] not in _ENDLESS]


def _walk(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    return [leaf for name in command.commands for leaf in _walk(_in(command, name), (*path, name))]


def _in(group: click.Group, name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def _find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = _in(command, name)
    return command


def _words(command: click.Command, world: World, mutator: Mutator) -> list[str]:
    words = ["--once"] if any(each.name == "once" for each in command.params) else []
    for parameter in command.params:
        wanted = parameter.required or isinstance(parameter, click.Argument)
        if parameter.name in _PROCESSES or parameter.name in ("db", "once", "watch"):
            continue
        if not mutator.chance(0.95 if wanted else 0.3):
            continue
        value = _value(parameter, world, mutator)
        if isinstance(parameter, click.Argument):
            words.append(value)
        else:
            words += [parameter.opts[0]] if _is_flag(parameter) else [parameter.opts[0], value]
    return words


def _is_flag(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.is_flag


def _value(parameter: click.Parameter, world: World, mutator: Mutator) -> str:
    kind: Any = parameter.type
    if isinstance(kind, InputFile):
        return str(_input(world, mutator))
    if isinstance(kind, click.Path):  # written to, or deleted from: nowhere but here
        return str(world.directory / mutator.one_of(("mutant", "new", "new/er", ".", "store.db/x")))
    if isinstance(kind, click.Choice) and mutator.chance(0.8):
        return str(mutator.one_of(tuple(kind.choices)))
    if parameter.name == "conversation" and mutator.chance(0.8):
        return str(mutator.one_of(world.ids))[: mutator.one_of((36, 36, 8, 1))]
    return str(mutator.number()) if mutator.chance(0.4) else mutator.text()


def _input(world: World, mutator: Mutator) -> Path | str:
    if mutator.chance(0.1):
        return mutator.one_of(("/dev/zero", "/dev/null", "/", "none", str(world.directory)))
    if mutator.chance(0.2):
        settings: dict[str, Any] = {"max_tokens": 1_000, "reserve": 10, "strategies": ["facts"]}
        return world.write("settings.json", mutator.file(settings, by_line=False))
    name, document = mutator.one_of(documents())
    return world.write("mutant", mutator.file(document, by_line=name in BY_LINE))
