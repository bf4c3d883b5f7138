"""Copies of a sealed database that were made before an erasure: write-ahead log, dumps, files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from uuid import UUID

from eventstore import DirectoryKeys, EventStore, Meta, NewEvent, new_id
from eventstore import events as e
from eventstore.events.base import Payload
from eventstore.events.values import VersionRange
from projections import Views
from tests.contract.facade import texts
from tests.postgres import PostgresServer
from tests.projections.support import read_all_views

CANARIES = [f"kanarienvogel-{number:02}-{number * 7919:06}" for number in range(50)]
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def fill(store: EventStore) -> UUID:
    """Append a conversation in which canaries sit wherever words or names can."""
    left = iter(CANARIES)

    def meta() -> Meta:
        return Meta(
            session_id=next(left), actor=next(left), agent_id=next(left), correlation_id=next(left)
        )

    def large() -> str:
        return f"{next(left)} and so on; " * 3_000

    call = e.ToolCallRequest(
        name=next(left), provider_id=next(left), arguments_text=f'{{"{next(left)}": 1}}'
    )
    said: list[Payload | e.UnknownEvent | NewEvent] = [
        e.ConversationStart(
            title=next(left), config={next(left): next(left)}, base_instructions=next(left)
        ),
        e.SystemInstruction(text=next(left)),
        e.UserMessage.text(next(left)),
        NewEvent(e.UserMessage.text(next(left)), meta=meta()),
        e.LlmRequest(llm_call_id=next(left), policy={next(left): [next(left)]}),
        e.AssistantChunk(llm_call_id=next(left), index=1, text=next(left)),
        e.AssistantMessage(
            parts=(e.ReasoningPart(text=next(left)), e.TextPart(text=next(left))),
            tool_calls=(call,),
            raw={next(left): [next(left)]},
        ),
        e.ToolResult(call_id="7.0", content=large(), preview=next(left)),
        e.UserMessage.text(large()),
        e.LlmError(kind="provider", message=next(left)),
        e.Summary(text=next(left), versions=(VersionRange(first=1, last=2),)),
        e.RunStart(run_id=next(left), workflow_id=next(left), directive=next(left)),
        e.Notebook(text=next(left), name=next(left)),
        NewEvent(e.UserMessage.text(next(left)), meta=meta()),
        e.UnknownEvent("notes", 1, {next(left): next(left)}),
    ]
    said += [e.UserMessage.text(canary) for canary in left]
    store.append(cid := new_id(), said, tenant_id="acme", user_id="ada")
    return cid


def found_in(*copies: bytes) -> list[str]:
    """Return the canaries that can be read in some of these bytes."""
    return [canary for canary in CANARIES if any(canary.encode() in copy for copy in copies)]


def documented_options() -> list[str]:
    """Return the options of the command with which the manual dumps a sealed store."""
    [command] = re.findall(r"^pg_dump (.*?)DATABASE$", PAGE.read_text("utf-8"), re.S | re.M)
    return shlex.split(command.replace("\\\n", " "))


def test_the_log_of_postgresql_and_a_dump(private_postgres: PostgresServer, tmp_path: Path) -> None:
    """Neither write-ahead log nor dump has a canary; restored, the dump reads as erased."""
    keys = DirectoryKeys(tmp_path / "keys")
    with EventStore.open(private_postgres.url(), keys=keys) as store:
        cid = fill(store)
        dump = private_postgres.dump("postgres")
        store.erase(cid, reason="the user asked for it")

    log = [path.read_bytes() for path in private_postgres.log_files()]
    assert b"user_message" in dump
    assert any(b"$sealed" in each for each in log)
    assert [] == found_in(dump, *log)
    with EventStore.open(private_postgres.restore("restored"), keys=keys) as restored:
        assert all(event.erased and event.meta == Meta() for event in restored.read(cid))
        assert restored.verify().ok
        read_all_views(Views(restored), cid)
        assert [] == found_in(private_postgres.dump("restored"))


def test_a_dump_without_the_read_models(private_postgres: PostgresServer, tmp_path: Path) -> None:
    """The command of the manual leaves out what is in the clear, and restores to a whole store."""
    keys = DirectoryKeys(tmp_path / "keys")
    with EventStore.open(private_postgres.url(), keys=keys) as store:
        cid = fill(store)
        seen = read_all_views(Views(store), cid)
        assert found_in(private_postgres.dump("postgres"))  # or this test would show nothing

        assert [] == found_in(private_postgres.dump("postgres", *documented_options()))

        with EventStore.open(private_postgres.restore("before"), keys=keys) as restored:
            assert seen == read_all_views(Views(restored), cid)
            restored.append(cid, e.UserMessage.text("it goes on"))
            assert ["it goes on"] == texts(restored.read(cid, after=restored.get(cid).version - 1))
        store.erase(cid, reason="the user asked for it")
    url = private_postgres.restore("after")
    with EventStore.open(url, keys=DirectoryKeys(tmp_path / "keys")) as restored:
        read_all_views(Views(restored), cid)
        assert [] == found_in(private_postgres.dump("after"))


def test_copies_of_a_sqlite_file(tmp_path: Path) -> None:
    """A copy of the file and of its write-ahead log has no canary, erased or not."""
    path = tmp_path / "store.db"
    with EventStore.open(f"sqlite:///{path}", keys=DirectoryKeys(tmp_path / "keys")) as store:
        cid = fill(store)
        copies = [file.read_bytes() for file in tmp_path.glob("store.db*")]
        assert [] == found_in(*copies)
        read_all_views(Views(store), cid)
        assert found_in(*(file.read_bytes() for file in tmp_path.glob("store.db*")))

        store.erase(cid, reason="the user asked for it")

        assert [] == found_in(*(file.read_bytes() for file in tmp_path.glob("store.db*")))
