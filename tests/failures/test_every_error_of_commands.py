"""Whatever the driver raises: a command ends with one line and a status that is documented."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import pytest

from agent_eventstore.cli import cli
from eventstore import EventStore, new_id
from eventstore import events as e
from projections import Views
from tests.cli.program import run
from tests.cli.samples import WEATHER, write_transcripts
from tests.exhaustive import partly
from tests.failures.injected import ERRORS, Faults
from tests.projections.support import turn

STATUSES = (0, 1, 2)
ARCHIVED = new_id()  # before the other, so that it is archived first
CID = new_id()
COMMANDS: dict[str, tuple[str, ...]] = {
    "archive list": (),
    "archive restore": ("{archived}",),
    "archive run": ("{directory}/archive", "--days", "36000"),
    "archive verify": (),
    "checkpoint": ("--out", "{directory}/checkpoint"),
    "context": ("{cid}",),
    "db current": (),
    "db upgrade": (),
    "doctor": (),
    "erase": ("{cid}", "--version", "2", "--reason", "asked for", "--yes"),
    "events": ("{cid}",),
    "follow": ("--once",),
    "export": ("{cid}", "--format", "session-jsonl"),
    "import": ("{directory}/transcripts.jsonl",),
    "list": (),
    "projections rebuild": ("usage",),
    "projections run": ("--once",),
    "projections status": (),
    "purge": ("{cid}", "--reason", "asked for", "--yes"),
    "recover": (),
    "search": ("words",),
    "timeline": ("{cid}",),
    "tools": (),
    "usage": (),
    "verify": (),
}
ELSEWHERE = {
    *("chat", "db distribute", "db grant", "db partition", "db secure", "db unsecure"),
    *("demo", "keys rewrap", "serve"),
}
"""These have no database, or one of their own; rights and partitions are PostgreSQL's alone
(`test_rights`, `test_partitions`); a chat is recorded as any conversation (`test_chat`)."""


def leaves(group: click.Group, *path: str) -> Iterator[str]:
    """Yield the commands that do something, by their words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with a transcript."""
    directory = tmp_path_factory.mktemp("commands")
    write_transcripts(directory, WEATHER).rename(directory / "transcripts.jsonl")
    return directory


def archive(store: EventStore, directory: Path) -> None:
    """Have the first conversation be in the archive."""
    if ARCHIVED not in {each.conversation_id for each in store.archived()}:
        store.archive(directory / "archive", inactive_for=timedelta(microseconds=1), limit=1)


@pytest.fixture(scope="module")
def told(module_store: EventStore, directory: Path) -> EventStore:
    """Give a store with a conversation that commands can be asked about, and an archived one."""
    module_store.append(ARCHIVED, [e.ConversationStart(mode="chat")])
    archive(module_store, directory)
    module_store.append(CID, [e.ConversationStart(mode="chat"), *turn(1, "begun")])
    Views(module_store).timeline(CID)
    return module_store


def test_no_command_is_forgotten() -> None:
    """A new one needs a line here."""
    assert set(leaves(cli)) == COMMANDS.keys() | ELSEWHERE


@pytest.mark.parametrize("few", partly([3, 5]))
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_of_commands(
    name: str, few: int, told: EventStore, module_url: str, faults: Faults, directory: Path
) -> None:
    """Errors at the beginning, in the midst and at the end of what a command asks."""
    cid = new_id() if name == "purge" else CID  # What was purged is gone.
    told.append(cid, [e.UserMessage.text("new")])

    def command() -> tuple[int, str]:
        (directory / "checkpoint").unlink(missing_ok=True)
        given = [
            word.format(cid=cid, archived=ARCHIVED, directory=directory) for word in COMMANDS[name]
        ]
        done = run(*name.split(), *given, url=module_url)
        return done.status, done.err

    archive(told, directory)
    with faults.armed(None):
        assert 2 != command()[0]
    archive(told, directory)
    steps, kinds = faults.count, ERRORS[told.engine.dialect.name]
    begin = sorted(COMMANDS).index(name) * few
    for number in range(few):
        fault, at = kinds[(begin + number) % len(kinds)], 1 + number * (steps - 1) // (few - 1)
        told.append(cid, [e.UserMessage.text("new")])
        archive(told, directory)
        with faults.armed(fault, at):
            status, said = command()
        lines = [line for line in said.splitlines() if line.startswith("eventstore: ")]
        where = f"{fault.name} at statement {at} of {steps}: status {status}, {said}"
        assert status in STATUSES, where
        assert "Traceback" not in said, where
        assert len(lines) == (status == 2), where
