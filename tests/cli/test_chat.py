"""``eventstore chat``: at a terminal, in a pipe, and against a server on the loopback interface."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent_eventstore import EventStore
from agent_eventstore.cli.chat import _Screen
from eventstore.events import LlmError, LlmRequest, SessionStart, TurnEnd
from tests.cli.program import ENVIRONMENT, run
from tests.integration.replay_server import ReplayServer, Spoken, Streamed
from tests.warm import Programs, Started

PATIENCE_S = 60.0
PROMPT = "\x1b[?2004h"
"""What tells the terminal that a line is to be typed."""

# The terminal has to be the one that Ctrl-C comes from. It has to come in the middle of an answer,
# so that the recorded model says " me" again and again until it does.
_STARTED = """
import fcntl, os, sys, termios, time
os.setsid()
os.dup2(1, 0)
os.dup2(1, 2)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.stdin, sys.stderr = open(0), open(2, "w")

from agent_eventstore.cli import main
from agent_eventstore.demo.scripted_model import ScriptedModel, text_of

stream = ScriptedModel.stream

def until_interrupted(self, messages):
    for chunk in stream(self, messages):
        yield chunk
        while text_of(chunk) == " me":
            time.sleep(0.01)
            yield chunk

ScriptedModel.stream = until_interrupted
main()
"""
_PIPED = """
import os, sys
reading, writing = os.pipe()
os.write(writing, sys.argv.pop(1).encode())
os.close(writing)
os.dup2(reading, 0)
sys.stdin = open(0)

from agent_eventstore.cli import main

main()
"""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, ours: int, process: Started) -> None:
        self._ours, self.process = ours, process
        self.shown = ""
        self._seen = 0

    def until(self, text: str) -> str:
        """Read until a text is shown, behind what was looked for before; return all up to it."""
        while text not in self.shown[self._seen :]:
            try:
                waiting = select.select([self._ours], [], [], PATIENCE_S)[0]
                piece = os.read(self._ours, 65_536) if waiting else b""
            except OSError:  # Linux ends a terminal so
                piece = b""
            if not piece:
                pytest.fail(f"{text!r} was not shown, but {self.shown[self._seen :]!r}")
            self.shown += piece.decode(errors="replace")
        end = self.shown.index(text, self._seen) + len(text)
        found, self._seen = self.shown[self._seen : end], end
        return found

    def type(self, keys: str) -> None:
        """Type."""
        os.write(self._ours, keys.encode())


@contextmanager
def terminal(
    programs: Programs, folder: Path, *arguments: str, before: str = ""
) -> Iterator[Terminal]:
    """Start the command on a terminal, and end it with the block."""
    ours, theirs = pty.openpty()
    told = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    environment = {**os.environ, **ENVIRONMENT, **told}
    given = ("-c", f"{before}{_STARTED}", *arguments)
    with programs.start(
        *given, stdout=theirs, directory=folder, environment=environment
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            os.close(ours)


def test_a_talk_without_the_extra(programs: Programs, tmp_path: Path) -> None:
    """Lines are read all the same, and a note says what would read them better."""
    before = "import sys; sys.modules['prompt_toolkit'] = None; "
    with terminal(programs, tmp_path, "chat", "--demo", before=before) as screen:
        screen.until("pip install 'agent-eventstore[chat]'")
        screen.until("> ")
        screen.type("Do the tests pass?\r")
        screen.until("that would say otherwise.")
        screen.until("> ")
        screen.type("/exit\r")
        assert 0 == screen.process.wait(PATIENCE_S)


def test_a_talk_at_a_terminal(programs: Programs, tmp_path: Path) -> None:
    """A turn with a tool call, an answer that Ctrl-C stops, the status, and the end."""
    with terminal(programs, tmp_path, "chat", "--demo") as screen:
        screen.until("session ")
        screen.until(PROMPT)
        screen.type("Do the tests pass?\r")
        screen.until("→ run_tests {}")
        screen.until("exit status 1")
        screen.until("that would say otherwise.")
        screen.until(PROMPT)
        screen.type("Please fix it.\r")
        screen.until("Let me")
        screen.type("\x03")
        screen.until("stopped: the partial answer is kept")
        screen.until(PROMPT)
        screen.type("/status\r")
        screen.until("model gpt-4o, mode chat, 1 turns, ")
        screen.until(PROMPT)
        screen.type("/exit\r")
        assert 0 == screen.process.wait(PATIENCE_S)

    with EventStore.open(f"sqlite:///{tmp_path / 'eventstore-demo.db'}") as store:
        [conversation] = store.list()
        events = list(store.read(conversation.conversation_id))
    [error] = [e.data for e in events if isinstance(e.data, LlmError)]
    assert ["ok", "cancelled"] == [e.data.status for e in events if isinstance(e.data, TurnEnd)]
    assert ("cancelled", True) == (error.kind, error.partial_text.startswith("Let"))
    assert "session_end" == events[-1].type
    session_id = events[-1].meta.session_id
    lines = (tmp_path / "history" / f"{session_id}.jsonl").read_text("utf-8").splitlines()
    assert ["turn_end", "session_end"] == [json.loads(line)["type"] for line in lines[-2:]]


def test_ctrl_c_that_python_ignores_stops_the_answer_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A finalizer swallows it: the answer ends before its next text."""

    class Finalized:
        def __del__(self) -> None:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    before, screen = signal.getsignal(signal.SIGINT), _Screen()
    with suppress(KeyboardInterrupt), screen.interruptible():
        screen.tell("text", "said, ")
        Finalized()
        screen.tell("text", "not said")
    with screen.interruptible():
        screen.tell("text", "said again")

    assert "said, said again" == capsys.readouterr().out
    assert before == signal.getsignal(signal.SIGINT)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory of one's own, without any key."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_one_question_to_a_server(sqlite_url: str, here: Path) -> None:
    """The answer of a server of OpenAI's API is on stdout, streamed; all else is beside it."""
    with ReplayServer() as server:
        server.will(Spoken("It is sunny."))
        told = run(
            *("chat", "How is it?", "--once", "--model", "some-model"),
            *("--base-url", f"{server.url}/v1", "--log-dir", "logs"),
            url=sqlite_url,
        )

    assert (0, "It is sunny.\n") == (told.status, told.out)
    assert ("some-model", True) == (
        server.asked[0].body["model"],
        server.asked[0].body["stream"],
    )
    [log] = (here / "logs").glob("*.jsonl")
    with EventStore.open(sqlite_url) as store:
        [conversation] = store.list()
        starts = [
            event.data
            for event in store.read(conversation.conversation_id)
            if isinstance(event.data, SessionStart)
        ]
    assert ["once"] == [start.mode for start in starts]
    assert 5 == len(log.read_text("utf-8").splitlines())


def test_a_talk_streams_at_a_terminal(programs: Programs, tmp_path: Path) -> None:
    """The beginning of an answer is shown while its end has not been sent."""
    with ReplayServer() as server:
        server.will(Streamed("openai-chat-text", "pause", after=30))
        arguments = ("chat", "Invent a holiday.", "--base-url", f"{server.url}/v1")
        with terminal(programs, tmp_path, *arguments) as screen:
            screen.until("**Holiday")
            server.released.set()
            screen.until(PROMPT)
            screen.type("/exit\r")
            assert 0 == screen.process.wait(PATIENCE_S)


def test_a_tokenizer_that_nobody_knows_is_wrong_usage(sqlite_url: str) -> None:
    """It is refused with the option's name, before anything is recorded."""
    done = run("chat", "--once", "hi", "--demo", "--tokenizer-model", "\x1b[31m", url=sqlite_url)
    assert (2, True) == (done.status, "'--tokenizer-model'" in done.err)
    assert "neither an encoding nor a known model" in done.err
    assert "\x1b" not in done.err


def test_a_conversation_goes_on(sqlite_url: str, here: Path) -> None:
    """``--resume`` takes the beginning of an id, and the model is told what was said before."""
    with ReplayServer() as server:
        server.will(Spoken("Ada."), Spoken("You said so."))
        told = ("--base-url", f"{server.url}/v1", "--once")
        run("chat", "I am Ada. Who am I?", *told, url=sqlite_url)
        with EventStore.open(sqlite_url) as store:
            [conversation] = store.list()
        cid = str(conversation.conversation_id)
        second = run("chat", "Sure?", "--resume", cid[:13], *told, url=sqlite_url)

    assert "You said so.\n" == second.out
    assert ["I am Ada. Who am I?", "Ada.", "Sure?"] == [
        message["content"] for message in server.asked[1].body["messages"][-3:]
    ]


def test_lines_of_a_pipe_are_turns_and_commands(
    programs: Programs, sqlite_url: str, here: Path
) -> None:
    """What is no terminal may talk as well, and every command answers."""
    said = "\n".join(("Hello?", "/history", "/mode agent", "/mode x", "/nothing", "/fork", "/help"))
    given = ("-c", _PIPED, said, "--db", sqlite_url, "chat", "--demo")
    environment = {**os.environ, **ENVIRONMENT}
    told = programs.run(*given, directory=here, environment=environment)

    assert 0 == told.returncode
    assert "No. One of the two tests fails" in told.stdout
    for shown in (
        *("     user  Hello?", "mode agent from here on", "invalid mode 'x'"),
        *("there is no command /nothing", "/exit            end the session"),
    ):
        assert shown in told.stderr
    assert 2 == told.stderr.count("of conversation")


def test_without_a_key_or_a_question_it_says_so(sqlite_url: str, here: Path) -> None:
    """One line that names the next step; nothing is written."""
    assert (
        "eventstore: there is no key for gpt-4o: set OPENAI_API_KEY, name a server with "
        "--base-url, or try `eventstore chat --demo`\n"
    ) == run("chat", "Hello?", url=sqlite_url).err
    assert "set ANTHROPIC_API_KEY" in run("chat", "--model", "claude-x", url=sqlite_url).err
    assert "--once answers one question" in run("chat", "--once", url=sqlite_url).err


def test_a_server_that_is_not_there_is_named(sqlite_url: str, here: Path) -> None:
    """The status says that there was no answer, and the log why."""
    told = run(*("chat", "Hello?", "--once", "--base-url", "http://127.0.0.1:9/v1"), url=sqlite_url)

    assert 2 == told.status
    assert "no answer: APIConnectionError" in told.err


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host/v1", "http://[::1", "http://"])
def test_what_is_not_the_address_of_a_server_is_refused(
    url: str, sqlite_url: str, here: Path
) -> None:
    """One line that shows what an address is, before anything is written."""
    told = run("chat", "Hello?", "--once", "--base-url", url, url=sqlite_url)

    assert 2 == told.status
    assert f"{url!r} is not the address of a server: http(s)://HOST/PATH" in told.err
    assert 1 == told.err.count("\n")
    assert not here.joinpath("history").exists()


def test_a_request_over_the_limit_is_refused(sqlite_url: str, here: Path) -> None:
    """Nothing is sent, and the limit is named."""
    told = run("chat", "Hello?", "--once", "--demo", "--max-prompt-tokens", "50", url=sqlite_url)

    assert 2 == told.status
    assert "at most 50 are allowed" in told.err


def test_settings_of_contexts_come_from_a_file(sqlite_url: str, tmp_path: Path, here: Path) -> None:
    """As `eventstore context` takes them, and they are recorded with each request."""
    file = tmp_path / "settings.toml"
    file.write_text("max_tokens = 9000\n[section_budgets]\ntools = 0.3\n")
    run("chat", "Hello?", "--once", "--demo", "--settings", str(file), url=sqlite_url)
    with EventStore.open(sqlite_url) as store:
        policies = [e.data.policy for e in store.read_all() if isinstance(e.data, LlmRequest)]
    assert policies
    assert {"tools": 0.3} == policies[0]["settings"]["section_budgets"]

    file.write_text("[section_budgets]\ntool = 0.3\n")
    told = run("chat", "Hello?", "--once", "--demo", "--settings", str(file), url=sqlite_url)
    assert 2 == told.status
    assert "unknown section 'tool': did you mean 'tools'?" in told.err
