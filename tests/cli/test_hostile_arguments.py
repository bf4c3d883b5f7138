"""Every parameter of every command, with values that nobody means: one clear line, no traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.program import ENVIRONMENT, ROOT, Run, run
from tests.cli.samples import conversation_with
from tests.cli.test_reference import COMMANDS, find
from tests.exhaustive import partly
from tests.warm import Programs

NUMBERS = ["9" * 19, "-1", "0", str(2**63), str(2**64), "9" * 4_400, "1e400", "nan", "inf", "", "x"]
TEXTS = ["", " ", "\0", "a\0b", "\udcff", "\u202e\x1b[31m", "9" * 5_000, "--", "../../..", "%s{}"]
URLS = [
    "", "::", "\0", "sqlite:////dev/null", "sqlite:////dev/zero", "sqlite:////proc/self/mem",
    "sqlite:////", "sqlite:///\udcff", "sqlite:///a\0b", f"sqlite:///{'d' * 5_000}",
    "sqlite:///file:x?mode=nonsense&uri=true", "sqlite:///x?nonsense=1", "sqlite://",
    "postgresql://h:999999/d", "postgresql://127.0.0.1:1/d?connect_timeout=x",
    "postgresql://127.0.0.1:1/d?nonsense=1", "postgresql://u:p@ss@127.0.0.1:1/d",
    "postgresql+asyncpg://127.0.0.1:1/d", "mysql://h/d",
]  # fmt: skip
STATUSES = (0, 1, 2)
ENDLESS = frozenset({"demo", "serve"})
"""Commands that do their work with any value that they take: tried with those they refuse."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[str]]:
    """Give names of files that are none, or hold what none of these files should."""
    holds: dict[str, bytes] = {
        "empty": b"",
        "nul": b"\0" * 100,
        "latin": b'[{"role": "user", "content": "caf\xe9"}]',
        "half": b'[{"role": "user", "content": "x"',
        "deep": b"[" * 100_000,
        "nan": b'[{"role": "user", "content": NaN}]',
        "twice": b'{"max_tokens": 1, "max_tokens": 2}',
        "number": b"[" + b"9" * 5_000 + b"]",
        "huge.json": b'{"max_tokens": 1' + b"0" * 400 + b"}",
        "wrong.toml": b"= \xff",
    }
    for name, content in holds.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    locked = tmp_path / "locked"
    locked.write_bytes(b"[]")
    locked.chmod(0)
    special = [
        "/dev/zero",
        "/dev/null",
        "/proc/self/mem",
        "/",
        str(tmp_path),
        "-",
        "none",
        "\udcff",
    ]
    yield [*(str(tmp_path / name) for name in (*holds, "fifo", "loop", "locked")), *special]
    locked.chmod(0o600)


def hostile(parameter: click.Parameter, files: list[str]) -> list[str]:
    """Return values for a parameter that fit its type badly."""
    if parameter.name in ("db", "url"):
        return URLS
    if isinstance(parameter.type, click.Path):
        # What is written to a pipe waits for its reader, as with any program.
        names = files if parameter.name != "output" else [f for f in files if "fifo" not in f]
        return [*names, *TEXTS]
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        return NUMBERS
    return [*TEXTS, *NUMBERS[:6]]


def given(path: tuple[str, ...], own: str, transcripts: Path, cid: str) -> list[str]:
    """Return what a command needs besides the parameter that is tried."""
    needed = {
        "conversation": cid,
        "files": str(transcripts),
        "format_name": "openai",
        "reason": "r",
    }
    words = ["--db", own, *path]
    for parameter in find(path).params:
        if not parameter.required and parameter.name != "once":
            continue
        value = needed.get(str(parameter.name), "")
        if isinstance(parameter, click.Option):
            words += [parameter.opts[0]] if parameter.is_flag else [parameter.opts[0], value]
        else:
            words.append(value)
    return words


def well_ended(done: Run) -> bool:
    """Whether a command said in a line what is wrong, or did what it was asked for."""
    if done.status not in STATUSES or "Traceback" in done.err:
        return False
    return done.status != 2 or 1 == len(done.err.splitlines()) or done.err.startswith("Usage:")


LEAVES = [path for path in COMMANDS if not isinstance(find(path), click.Group)]


@pytest.mark.parametrize(
    ("path", "store"),
    [(path, "own") for path in LEAVES]
    # Where texts and numbers go into queries, of which the server has its own opinion.
    + [((name,), "_own_on_postgresql") for name in ("list", "tools")],
)
@pytest.mark.parametrize("every", partly([3, 1]))
def test_every_parameter(
    path: tuple[str, ...],
    store: str,
    every: int,
    transcripts: Path,
    files: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Whatever is given to it, a command ends with its own status and in its own words.

    `make test` gives it a third of the values, another third from one parameter to the next.
    """
    own = str(request.getfixturevalue(store))
    inner = tmp_path / "a" / "b" / "c"  # "../../.." is a place of this test's own
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    cid = conversation_with(own, "How is")
    wrong: list[tuple[str, str, object]] = []
    for number, parameter in enumerate(find(path).params, LEAVES.index(path)):
        if isinstance(parameter, click.Option) and parameter.is_flag:
            continue
        for value in hostile(parameter, files)[number % every :: every]:
            words = tried(path, parameter, value, given(path, own, transcripts, cid))
            try:
                done = run(*words)
            except Exception as error:
                wrong.append((str(parameter.name), ascii(value)[:60], repr(error)[:300]))
            else:
                if not well_ended(done):
                    wrong.append((str(parameter.name), ascii(value)[:60], done))
    assert [] == wrong


def tried(
    path: tuple[str, ...], parameter: click.Parameter, value: str, words: list[str]
) -> list[str]:
    """Return a command's words with this value for one of its parameters."""
    if path[0] in ENDLESS and (path[0] == "serve" or parameter.name != "db"):
        words = [*words, "--nonsense"]
    if isinstance(parameter, click.Option):
        return [*words, parameter.opts[0], value]
    if parameter.required:
        place = 2 + len(path)  # after --db URL and the command's own name
        return [*words[:place], value, *words[place + 1 :]]
    return [*words, value]


CLOSED = """
import os, runpy, sys
closed, *sys.argv[1:] = sys.argv[1:]
if closed == ">/dev/full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
else:
    number = "<>2".index(closed[0])
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python begins without it
runpy.run_module("agent_eventstore.cli", run_name="__main__", alter_sys=True)
"""


STREAMS = [
    (">&-", 2, "stdout is closed"),
    ("2>&-", 0, ""),
    ("<&-", 0, ""),
    (">/dev/full", 2, "eventstore: No space left"),
]


@pytest.mark.parametrize(("closed", "status", "said"), STREAMS)
def test_closed_streams(
    own: str, tmp_path: Path, programs: Programs, closed: str, status: int, said: str
) -> None:
    """A stream that the caller has closed, or that is full, is told in one line."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    others = [["list", "--json"], ["verify"]] if said else []  # what is written elsewhere is alike
    for command in (["--help"], ["list"], *others):
        given = ("-c", CLOSED, closed, "--db", own, *command)
        done = programs.run(*given, directory=tmp_path, environment=environment)
        assert (status, status // 2) == (done.returncode, len(done.stderr.splitlines())), command
        assert said in done.stderr


@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [STREAMS[0], *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in STREAMS[1:])],
)
def test_closed_streams_of_a_shell(
    own: str, tmp_path: Path, closed: str, status: int, said: str
) -> None:
    """So it is in a process that begins without the stream."""
    words = shlex.join([sys.executable, "-m", "agent_eventstore.cli", "--db", own, "list"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} {closed}"],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (status, status // 2) == (done.returncode, len(done.stderr.splitlines()))
    assert said in done.stderr


def test_argument_that_is_no_text(own: str, tmp_path: Path) -> None:
    """Bytes that are not UTF-8, as a shell hands them over, are told; a file may be called so."""
    name = os.fsdecode(b"caf\xe9.json")
    (tmp_path / name).write_text('[{"role": "user", "content": "x"}]')
    assert 0 == run("import", str(tmp_path / name), url=own).status
    done = run("list", "--user-id", name, url=own)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert r"argument 5 is not text in UTF-8: 'caf\udce9.json'" in done.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"role": "user", "role": "tool", "content": "x"}]', "'role' occurs twice"),
        ('[{"role": "user", "content": "x", "score": NaN}]', "NaN is not a JSON value"),
        ('[{"role": "user", "content": "x", "score": -Infinity}]', "-Infinity is not a JSON value"),
    ],
)
def test_import_names_what_is_no_json(own: str, tmp_path: Path, content: str, said: str) -> None:
    """A name that stands twice, of which one would be lost in silence, and NaN are named."""
    path = tmp_path / "messages.json"
    path.write_text(content)
    done = run("import", str(path), "--format", "openai", url=own)
    assert 1 == done.status
    assert f"{path}:1: " in done.err
    assert said in done.err


def test_settings_that_stand_twice(own: str, tmp_path: Path) -> None:
    """They are read as strictly as what is imported."""
    path = tmp_path / "settings.json"
    path.write_text('{"max_tokens": 1000, "max_tokens": 2000}')
    cid = conversation_with(own, "How is")
    done = run("context", cid, "--settings", str(path), url=own)
    assert (2, True) == (done.status, "'max_tokens' occurs twice" in done.err)
