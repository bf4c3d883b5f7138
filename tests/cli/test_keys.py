"""Sealed stores on the command line: keys are named by option or variable, and looked after."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_eventstore.cli.program import FOUND, WRONG_USE
from eventstore import EventStore, new_id
from eventstore.errors import KeyUnavailable
from eventstore.events import UserMessage
from tests.cli.program import Run, run
from tests.cli.samples import WEATHER, write_transcripts
from tests.contract.test_sealing import Failing

SAID = "How is the weather in Oslo"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a sealed store that the command has made."""
    found = f"sqlite:///{tmp_path / 'store.db'}"
    path = write_transcripts(tmp_path, WEATHER)
    (tmp_path / "old").write_text("00" * 32)
    done = sealed(found, "import", str(path), "--user-id", "ada", files=("old",))
    assert 0 == done.status, done.err
    return found


def sealed(url: str, *arguments: str, files: tuple[str, ...] = ("old",)) -> Run:
    """Run a command with the keys beside the database, and these files with wrapping keys."""
    directory = Path(url.removeprefix("sqlite:///")).parent
    named = [part for name in files for part in ("--key-file", str(directory / name))]
    return run("--keys", str(directory / "keys"), *named, *arguments, url=url)


def test_commands_read_what_is_sealed(url: str, tmp_path: Path) -> None:
    """With the keys all is as ever; the file does not have a word of it before it is read."""
    assert SAID.encode() not in (tmp_path / "store.db").read_bytes()
    [listed] = sealed(url, "list", "--json").document
    assert "ada" == listed["user_id"]
    assert SAID in sealed(url, "timeline", listed["conversation_id"]).out
    assert 0 == sealed(url, "doctor").status


def test_keys_are_named_by_variables_as_well(url: str, tmp_path: Path) -> None:
    """`EVENTSTORE_KEYS` and `EVENTSTORE_KEY_FILE` stand for the options."""
    environment = {
        "EVENTSTORE_KEYS": str(tmp_path / "keys"),
        "EVENTSTORE_KEY_FILE": str(tmp_path / "old"),
    }
    assert 0 == run("list", url=url, environment=environment).status


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "opened without keys"),
        (("--keys", "{}/nowhere"), "does not exist (--keys"),
        (("--key-file", "{}/old"), "--keys or EVENTSTORE_KEYS, the directory of the keys"),
        (("--keys", "{}/keys"), "which is not given"),
        (("--keys", "{}/keys", "--key-file", "{}/store.db"), "a wrapping key has 32 bytes"),
    ],
)
def test_wrong_keys(url: str, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    """One line says what is missing, and the status is that of wrong use."""
    with EventStore.open(url) as store:
        cid = str(store.list()[0].conversation_id)
    done = run(*(each.format(tmp_path) for each in options), "events", cid, url=url)
    assert (WRONG_USE, 1) == (done.status, done.err.count("\n"))
    assert said in done.err


def test_rewrap(url: str, tmp_path: Path) -> None:
    """After it the new wrapping key is enough, and the old one opens nothing."""
    (tmp_path / "new").write_text("11" * 32)
    assert "give its file too" in sealed(url, "keys", "rewrap", files=("new",)).err
    done = sealed(url, "keys", "rewrap", files=("new", "old"))

    assert (0, True) == (done.status, "1 key rewrapped" in done.out)
    assert 0 == sealed(url, "list", files=("new",)).status
    assert "0 keys" in sealed(url, "keys", "rewrap", files=("new",)).out
    assert WRONG_USE == run("keys", "rewrap", url=url).status


def test_doctor_finds_a_key_that_is_not_destroyed(tmp_path: Path) -> None:
    """An erasure whose key stayed is a problem until a store is opened with the keys."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with EventStore.open(url, keys=Failing(tmp_path / "keys")) as store:
        store.append(cid := new_id(), UserMessage.text("hello"))
        with pytest.raises(KeyUnavailable):
            store.erase(cid, reason="test")
    found = sealed(url, "doctor", files=())
    assert FOUND == found.status
    assert "keys of erased conversations not destroyed yet: 1" in " ".join(found.out.split())

    assert 0 == sealed(url, "list", files=()).status

    assert 0 == sealed(url, "doctor", files=()).status
    assert [".gone"] == [path.suffix for path in (tmp_path / "keys").glob("??/*")]


def test_what_seals_is_not_installed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named in one line; it was a traceback."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for command in ("list", "doctor"):
        done = sealed(url, command)
        assert (WRONG_USE, 1) == (done.status, done.err.count("\n"))
        assert "agent-eventstore[encryption]" in done.err
