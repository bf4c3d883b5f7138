"""The demo's agent, killed in a process of its own; and what the demo claims of its recovery."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conversations.cli import demo
from conversations.conversation import Conversation
from conversations.demo import script
from conversations.demo.child import STOPPED, Order, read_told
from conversations.demo.killing import AgentProcess, Killed
from conversations.recovery import recover
from eventstore import EventStore
from eventstore.events import AssistantChunk, RecordedEvent
from projections import Views
from tests.cli.program import ROOT, run


@pytest.fixture
def store(sqlite_url: str) -> Iterator[EventStore]:
    """Give a store."""
    with EventStore.open(sqlite_url) as opened:
        yield opened


@pytest.fixture
def order(store: EventStore, sqlite_url: str, tmp_path: Path) -> Order:
    """Give an order to die in a conversation that has just begun."""
    with Conversation.start(store, mode="agent") as conversation:
        pass
    return Order(sqlite_url, str(conversation.id), str(tmp_path), "stream", 0.0)


def killed_by(order: Order) -> tuple[Killed, list[str]]:
    """Have a process carry out an order and kill it; return also the kinds of what it told."""
    kinds: list[str] = []
    with AgentProcess() as agent:
        killed = agent.run_and_kill(order, lambda kind, text: kinds.append(kind))
    return killed, kinds


def events_of(store: EventStore, order: Order) -> list[RecordedEvent]:
    """Return the events of the order's conversation."""
    return list(store.read(order.conversation_id))


def test_killed_in_its_stream(store: EventStore, order: Order) -> None:
    """The log has the beginning of what was on the screen, and no end of the call."""
    killed, _ = killed_by(order)
    events = events_of(store, order)
    kept = "".join(each.data.text for each in events if isinstance(each.data, AssistantChunk))
    assert kept
    assert killed.shown.startswith(kept)
    assert killed.shown in script.DEATHS["stream"].replies[0].text
    assert "assistant_chunk" == events[-1].type


def test_killed_behind_the_effect(store: EventStore, order: Order, tmp_path: Path) -> None:
    """The file is written, and the log ends with the call that did it."""
    _, kinds = killed_by(replace(order, death="tool"))
    assert "call" == kinds[-1]
    assert 1 == len((tmp_path / script.CHANGELOG).read_text(encoding="utf-8").splitlines())
    assert "tool_call" == events_of(store, order)[-1].type


def test_only_sealing_follows(store: EventStore, order: Order) -> None:
    """Nothing of the dead process lands once recovery has sealed what it left."""
    killed_by(order)
    sealed = recover(store, Views(store), order.conversation_id)
    ended = [each.type for each in events_of(store, order)[-3:]]
    assert ["llm_error", "turn_end", "session_end"] == ended
    assert 3 == len(sealed.sealed)


def test_killed_with_sigkill(order: Order) -> None:
    """The process had no chance to tidy up, and is gone."""
    killed, _ = killed_by(order)
    assert 9 == killed.signal
    with pytest.raises(ProcessLookupError):
        os.kill(killed.pid, 0)


def test_nothing_is_left_running() -> None:
    """A process that was never given its order is ended too."""
    with AgentProcess() as agent:
        pid = agent._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_process_that_fails_is_an_error(order: Order, capfd: pytest.CaptureFixture[str]) -> None:
    """A process that ends before it is killed is not taken for a killed one."""
    lost = replace(order, conversation_id="00000000-0000-7000-8000-000000000000")
    with pytest.raises(ChildProcessError, match="ended by itself: 1"):
        killed_by(lost)
    assert "ConversationNotFound" in capfd.readouterr().err


def test_process_ends_with_whoever_started_it(order: Order) -> None:
    """A process that nobody kills any more ends by itself."""
    command = [sys.executable, "-m", "conversations.demo.child"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(order.line())
        process.stdin.flush()
        assert any(STOPPED == read_told(line)[0] for line in process.stdout)
        _, err = process.communicate(timeout=60)
    assert 1 == process.returncode
    assert "nobody is there" in err


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty current directory, and a model that takes no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "DELAY_S", 0.0)
    return tmp_path


def test_demo_on_any_database(fast: Path, database_url: str, transcripts: Path) -> None:
    """With ``--db`` the demo runs on any database, deaths and all, and adds to it."""
    run("import", str(transcripts), url=database_url)
    done = run("demo", url=database_url)
    assert (0, 2) == (done.status, done.out.count('✓ "continue" went on to the end'))
    assert 3 == len(run("list", "--json", url=database_url).document)


def stream_that_shows_something_else(agent: AgentProcess, order: Order, tell: object) -> Killed:
    """Kill, and claim that the screen had shown what it had not."""
    return replace(RUN_AND_KILL(agent, order, lambda kind, text: None), shown="Another answer")


def effect_that_happens_twice(agent: AgentProcess, order: Order, tell: object) -> Killed:
    """Kill, and write the tool's line once more."""
    killed = RUN_AND_KILL(agent, order, lambda kind, text: None)
    with (Path(order.folder) / script.CHANGELOG).open("a", encoding="utf-8") as file:
        file.write("- once more\n")
    return killed


RUN_AND_KILL = AgentProcess.run_and_kill


@pytest.mark.parametrize("wrong", [stream_that_shows_something_else, effect_that_happens_twice])
def test_demo_fails_with_a_broken_claim(
    fast: Path, monkeypatch: pytest.MonkeyPatch, wrong: object
) -> None:
    """A text that the log does not have, or an effect that happened twice, ends in status 1."""
    monkeypatch.setattr(AgentProcess, "run_and_kill", wrong)
    done = run("demo")
    assert 1 == done.status
    assert "        ✗ " in done.out
