"""``checkpoint``, and ``verify --against`` one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.program import run
from tests.cli.samples import conversation_with
from tests.contract.plain import PlainClient


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Give a key to sign with; its public key is beside it."""
    assert 0 == run("checkpoint", "--new-key", str(tmp_path / "key")).status
    return tmp_path / "key"


def delete(url: str, cid: str) -> None:
    """Delete a conversation with all its rows."""
    with PlainClient(url) as client:
        client.disarm()
        for table in ("events", "conversations"):
            client.execute(f"DELETE FROM {table} WHERE conversation_id = ?", cid)


def test_deleted_conversation(own_anywhere: str, key: Path, tmp_path: Path) -> None:
    """It is nowhere in the database, and named by what was kept outside."""
    file = str(tmp_path / "checkpoint")
    made = run("checkpoint", "--out", file, "--key", str(key), url=own_anywhere)
    assert (0, f"checkpoint of 2 conversations, 12 events: {file}\n", "") == (
        made.status,
        made.out,
        made.err,
    )
    options = ("--against", file, "--public-key", f"{key}.pub")
    well = run("verify", *options, url=own_anywhere)
    assert (0, "") == (well.status, well.err)
    cid = conversation_with(own_anywhere, "How is the weather")
    delete(own_anywhere, cid)
    assert 0 == run("verify", url=own_anywhere).status
    done = run("verify", *options, "--json", url=own_anywhere)
    assert (1, [(cid, "conversation_missing")]) == (
        done.status,
        [(each["conversation_id"], each["kind"]) for each in done.document["problems"]],
    )
    assert 1 == run("verify", cid, *options, url=own_anywhere).status


def test_on_stdout(imported: str, tmp_path: Path) -> None:
    """Without a file it goes to stdout; that nobody signed it is told beside it, both times."""
    made = run("--read-only", "checkpoint", url=imported)
    (tmp_path / "checkpoint").write_text(made.out)
    done = run("verify", "--against", str(tmp_path / "checkpoint"), url=imported)
    assert (0, 0, 4) == (made.status, done.status, len(made.out.splitlines()))
    assert "the checkpoint is not signed" in made.err
    assert "the checkpoint's signature was not checked" in done.err


def test_altered_checkpoint(imported: str, key: Path, tmp_path: Path) -> None:
    """It is refused in one line."""
    file = tmp_path / "checkpoint"
    run("checkpoint", "--out", str(file), "--key", str(key), url=imported)
    file.write_text(file.read_text().replace(",9,", ",8,"))
    done = run("verify", "--against", str(file), url=imported)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert f"checkpoint {file} refused" in done.err


def test_keys(key: Path) -> None:
    """The private one is for its owner alone, and neither is ever replaced."""
    before = key.read_bytes()
    assert 0o600 == stat.S_IMODE(key.stat().st_mode)
    assert 2 == run("checkpoint", "--new-key", str(key)).status
    Path(f"{key}.pub").unlink()
    assert 2 == run("checkpoint", "--new-key", str(key)).status
    assert before == key.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("checkpoint", "--key", "{none}"), "is not a private key in PEM"),
        (("checkpoint", "--out", "{none}"), "File exists"),
        (("checkpoint", "--new-key", "x", "--out", "y"), "use it without other options"),
        (("verify", "--public-key", "{none}"), "give it with --against"),
        (("verify", "--against", "{none}"), "it is not a checkpoint"),
        (("verify", "--against", "{none}", "--public-key", "{none}"), "is not a public key"),
    ],
)
def test_wrong_use(imported: str, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    """Each is told in one line, and nothing is written over."""
    none = tmp_path / "none"
    none.write_text("none")
    done = run(*(word.format(none=none) for word in words), url=imported)
    assert (2, 1, "none") == (done.status, len(done.err.splitlines()), none.read_text())
    assert said in done.err
