"""The demo's agent, killed in a process of its own; and what the demo claims of its recovery."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path

import pytest
from sqlalchemy import make_url

from agent_eventstore.cli import demo
from agent_eventstore.conversation import Conversation
from agent_eventstore.demo import killing, script
from agent_eventstore.demo.killing import STOPPED, AgentProcess, Killed, Order, parse_report
from agent_eventstore.recovery import recover
from eventstore import EventStore
from eventstore import events as e
from eventstore.errors import ConversationNotFound
from projections import Views
from tests.cli.once import once
from tests.cli.program import run


def ordered(url: str, folder: Path) -> Order:
    """Begin a conversation; return the order to die in it, in the middle of a stream."""
    with EventStore.open(url) as store, Conversation.start(store, mode="agent") as conversation:
        return Order(url, str(conversation.id), str(folder), "stream", 0.0)


@pytest.fixture
def order(sqlite_url: str, tmp_path: Path) -> Order:
    """Give an order to die in a conversation that has just begun."""
    return ordered(sqlite_url, tmp_path)


def killed_by(order: Order) -> tuple[Killed, list[str]]:
    """Have a process carry out an order and kill it; return also the kinds of what it told."""
    kinds: list[str] = []
    with AgentProcess() as agent:
        killed = agent.run_and_kill(order, lambda kind, text: kinds.append(kind))
    return killed, kinds


def events_of(url: str, order: Order) -> list[e.RecordedEvent]:
    """Return the events of the order's conversation."""
    with EventStore.open(url) as store:
        return list(store.read(order.conversation_id))


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was killed while its model answered, with the database as it left it."""

    order: Order
    signal: int
    shown: str
    is_running: bool


@pytest.fixture(scope="session")
def death(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Death]:
    """Give a process that was killed in its stream, once for all workers; only to be read."""
    with once(tmp_path_factory, "death", _die) as told:
        found = json.loads(told)
        yield Death(Order(**found.pop("order")), **found)


def _die(directory: Path) -> str:
    order = ordered(f"sqlite:///{directory / 'store.db'}", directory)
    killed, _ = killed_by(order)
    return json.dumps(
        asdict(Death(order, killed.signal, killed.shown, is_running=is_running(killed.pid)))
    )


@pytest.fixture
def left(death: Death, tmp_path: Path) -> str:
    """URL of a copy of what the killed process left, journal and all."""
    for file in Path(str(make_url(death.order.url).database)).parent.glob("store.db*"):
        shutil.copy(file, tmp_path)
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_killed_in_its_stream(death: Death, left: str) -> None:
    """The log has the beginning of what was on the screen, and no end of the call."""
    events = events_of(left, death.order)
    kept = "".join(each.data.text for each in events if isinstance(each.data, e.AssistantChunk))
    assert kept
    assert death.shown.startswith(kept)
    assert death.shown in script.DEATHS["stream"].replies[0].text
    assert "assistant_chunk" == events[-1].type


def test_killed_behind_the_effect(order: Order, tmp_path: Path) -> None:
    """The file is written, and the log ends with the call that did it."""
    _, kinds = killed_by(replace(order, death="tool"))
    assert "call" == kinds[-1]
    assert 1 == len((tmp_path / script.CHANGELOG).read_text(encoding="utf-8").splitlines())
    assert "tool_call" == events_of(order.url, order)[-1].type


def test_only_sealing_follows(death: Death, left: str) -> None:
    """Nothing of the dead process lands once recovery has sealed what it left."""
    with EventStore.open(left) as store:
        sealed = recover(store, Views(store), death.order.conversation_id)
    ended = [each.type for each in events_of(left, death.order)[-3:]]
    assert ["llm_error", "turn_end", "session_end"] == ended
    assert 3 == len(sealed.sealed)


def test_killed_with_sigkill(death: Death) -> None:
    """The process had no chance to tidy up, and is gone."""
    assert (9, False) == (death.signal, death.is_running)


def test_nothing_is_left_running() -> None:
    """A process that was never given its order is ended too."""
    with AgentProcess() as agent:
        pid = agent._process.pid
    assert not is_running(pid)


def test_process_that_fails_is_an_error(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process that ends before it is killed is not taken for a killed one."""
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho the reason >&2\nexit 1\n", encoding="utf-8")
    failing.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(failing))
    with pytest.raises(ChildProcessError, match="ended unexpectedly, with status 1"):
        killed_by(order)
    assert "the reason" in capfd.readouterr().err


def test_process_fails_without_its_conversation(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that cannot be carried out is an error of the process."""
    lost = replace(order, conversation_id="00000000-0000-7000-8000-000000000000")
    monkeypatch.setattr("sys.stdin", StringIO(lost.line()))
    with pytest.raises(ConversationNotFound):
        killing.main()


def test_process_ends_with_whoever_started_it(
    order: Order, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that nobody kills any more ends by itself: its stdin has come to an end."""
    monkeypatch.setattr("sys.stdin", StringIO(order.line()))
    with pytest.raises(SystemExit, match="the process that started this one"):
        killing.main()
    assert STOPPED in [parse_report(line)[0] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def brief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty current directory, and a demo that says little before somebody dies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "DELAY_S", 0.0)
    monkeypatch.setattr(script, "USER", script.USER[-1:])
    monkeypatch.setattr(script, "REPLIES", script.REPLIES[-1:])
    return tmp_path


def let_die(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the demo die in one way alone."""
    monkeypatch.setattr(script, "DEATHS", {name: script.DEATHS[name]})


def test_demo_dies_on_postgresql(
    brief: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--db`` the demo runs on a server too, and its processes reach the server."""
    let_die(monkeypatch, "tool")
    done = run("demo", url=postgres_url)
    assert (0, 1) == (done.status, done.out.count('✓ "continue" ran to the end'))
    assert 1 == len(run("list", "--json", url=postgres_url).document)


def leave_behind(order: Order, *ends: e.Payload) -> None:
    """Write the beginning of a turn, as a process that is killed leaves it."""
    begun = (e.TurnStart(), e.UserMessage.text(script.DEATHS[order.death].user))
    with EventStore.open(order.url) as store:
        store.append(order.conversation_id, (*begun, *ends), meta=e.Meta(turn=2, step=0))


def show_something_else(agent: object, order: Order, tell: object) -> Killed:
    """Claim that the screen had shown what it had not."""
    leave_behind(
        order,
        e.LlmRequest(llm_call_id="a"),
        e.AssistantChunk(llm_call_id="a", index=0, text="Because"),
    )
    return Killed(0, 9, "Another answer")


def take_effect_twice(agent: object, order: Order, tell: object) -> Killed:
    """Have a tool without a result write its line twice."""
    leave_behind(order, e.ToolCall(call_id="a", name="append_line"))
    Path(order.folder, script.CHANGELOG).write_text("- once\n- once more\n", encoding="utf-8")
    return Killed(0, 9, "")


@pytest.mark.parametrize(
    ("name", "die", "claim"),
    [
        ("stream", show_something_else, "of 14 characters shown, the log kept 7 "),
        ("tool", take_effect_twice, "the effect happened once: CHANGELOG.md has 2 lines"),
    ],
    ids=["stream", "tool"],
)
def test_demo_fails_with_a_broken_claim(
    brief: Path, monkeypatch: pytest.MonkeyPatch, name: str, die: object, claim: str
) -> None:
    """A text that the log does not have, or an effect that happened twice, ends in status 1."""
    let_die(monkeypatch, name)
    monkeypatch.setattr(AgentProcess, "__enter__", lambda agent: agent)
    monkeypatch.setattr(AgentProcess, "__exit__", lambda agent, *_: None)
    monkeypatch.setattr(AgentProcess, "run_and_kill", die)
    done = run("demo")
    assert 1 == done.status
    assert f"        ✗ {claim}" in done.out
    assert "        ✓ " in done.out
