"""Logs of Inspect: archives, whole logs and samples, each sample a conversation."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pytest

from agent_eventstore import Views
from agent_eventstore.transcripts import detect, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, payloads

DIGEST = "0123456789abcdef0123456789abcdef"
ABOUT = {"task": "ctf", "model": "openai/gpt-4o", "run_id": "r1", "eval_id": "e1"}


def sample(number: int) -> dict[str, Any]:
    """Return a sample with a call, of which a long result stands among the attachments."""
    call = {"id": "c1", "type": "function", "function": "bash", "arguments": {"cmd": "cat a"}}
    return {
        "id": number,
        "epoch": 1,
        "input": "Find it.",
        "target": "flag",
        "messages": [
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "source": "input", "content": "Find it."},
            {"role": "assistant", "source": "generate", "content": "", "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": "c1",
                "function": "bash",
                "content": f"attachment://{DIGEST}",
            },
            {"role": "assistant", "content": "The flag."},
        ],
        "scores": {"match": {"value": "C"}},
        "events": [{"event": "state"}, {"event": "model"}],
        "attachments": {DIGEST: "a long text"},
        "store": {},
    }


def archive(path: Path, **members: Any) -> Path:
    """Write an archive as Inspect does, and give its path."""
    with ZipFile(path, "w", ZIP_DEFLATED) as made:
        for name, content in members.items():
            text = content if isinstance(content, str) else json.dumps(content)
            made.writestr(name.replace("__", "/") + ".json", text)
    return path


def _samples(path: Path) -> list[list[Any]]:
    transcripts, failures = found(path)
    assert [] == failures
    return [payloads(each) for each in transcripts]


@pytest.mark.parametrize("shape", ["eval", "log", "sample"])
def test_samples_are_conversations(write: Write, tmp_path: Path, shape: str) -> None:
    """Calls have names, results their texts, whatever the samples stand in."""
    log = {"version": 2, "status": "success", "eval": ABOUT}
    path = {
        "eval": lambda: archive(tmp_path / "a.eval", header=log, samples__1_epoch_1=sample(1)),
        "log": lambda: write({**log, "samples": [sample(1)]}),
        "sample": lambda: write(sample(1)),
    }[shape]()
    assert "inspect" == detect(path)
    ((_, asked, answer, result, last),) = _samples(path)
    assert isinstance(asked, e.UserMessage)
    assert isinstance(answer, e.AssistantMessage)
    assert isinstance(result, e.ToolResult)
    assert isinstance(last, e.AssistantMessage)
    assert [("bash", {"cmd": "cat a"})] == [(c.name, c.arguments) for c in answer.tool_calls]
    assert ("4.0", "a long text") == (result.call_id, result.content)


def test_samples_of_several_runs(tmp_path: Path) -> None:
    """The numbers of samples are those of their run; what tells again is passed over, and told."""
    with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
        for run in ("e1", "e2"):
            log = {"eval": {**ABOUT, "eval_id": run}, "status": "success"}
            both = {"samples__1": sample(1), "samples__2": sample(2)}
            path = archive(tmp_path / f"{run}.eval", header=log, **both)
            report = load(store, read_transcripts(path))
            assert ([], 2) == (report.failures, len(report.ids))
            assert {"event of a sample": 4} == report.left_out.passed_over
            assert 0 == load(store, read_transcripts(path)).events_added
        titles = [row.title for row in Views(store).conversations()]
        assert ["ctf: 1/1", "ctf: 1/1", "ctf: 2/1", "ctf: 2/1"] == sorted(map(str, titles))


def test_a_sample_that_names_a_text_again_and_again_is_reported(write: Write) -> None:
    """A small file cannot fill the memory."""
    bomb = sample(1) | {"attachments": {DIGEST: "y" * 1_000_000}}
    bomb["messages"][3]["content"] = f"attachment://{DIGEST}" * 10_000
    transcripts, failures = found(
        write({"eval": ABOUT, "status": "ok", "samples": [bomb, sample(2)]})
    )
    assert 1 == len(transcripts)
    assert ["sample 1/1 names attachments of more than 67,108,864 characters"] == [
        reason.partition(": ")[2] for reason in failures
    ]


def test_a_sample_that_expands_without_bound_is_reported(tmp_path: Path) -> None:
    """An archive of 260 KB took 256 MB, and several times that once it was decoded."""
    bomb = json.dumps(sample(1))[:-1] + " " * 64 * 1024 * 1024 + "}"
    transcripts, failures = found(
        archive(tmp_path / "a.eval", samples__1=bomb, samples__2=sample(2))
    )
    assert 1 == len(transcripts)
    reason = "samples/1.json has more than 67,108,864 bytes: convert the log to JSON"
    assert [f"None: {reason}"] == failures


def test_bad_samples_are_reported(tmp_path: Path) -> None:
    """They hide no other."""
    bad = {"samples__1": "{", "samples__2": {"id": 2}, "samples__3": sample(3)}
    bad["samples__4"] = {**sample(4), "messages": [7]}
    transcripts, failures = found(archive(tmp_path / "a.eval", **bad))
    assert 1 == len(transcripts)
    assert ["samples/1.json: the text is not JSON", "a sample has no list", "message 1 is not"] == [
        reason.partition(": ")[2][: len(told)]
        for reason, told in zip(
            failures,
            ["samples/1.json: the text is not JSON", "a sample has no list", "message 1 is not"],
            strict=True,
        )
    ]


def test_a_log_without_samples_is_reported(write: Write) -> None:
    """Inspect keeps headers alone, too."""
    transcripts, failures = found(write({"version": 2, "status": "error", "eval": ABOUT}))
    assert ([], ["1: there is no sample with messages"]) == (transcripts, failures)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    """A file that is compressed is no log for that."""
    transcripts, failures = found(archive(tmp_path / "a.zip", other=[]))
    assert ([], 1) == (transcripts, len(failures))
    assert "compressed with zip" in failures[0]


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    """Wherever a byte is wrong, what can be read is, and nothing but a report is raised."""
    whole = archive(tmp_path / "a.eval", header={"eval": ABOUT}, samples__1_epoch_1=sample(1))
    content, seen = whole.read_bytes(), set[tuple[int, int]]()
    for place in range(0, len(content), 5):
        damaged = tmp_path / "damaged.eval"
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        transcripts, failures = found(damaged)
        assert transcripts or failures
        seen.add((len(transcripts), len(failures)))
    assert {(1, 0), (0, 1)} < seen


@pytest.mark.parametrize("method", [ZIP_DEFLATED, ZIP_BZIP2, ZIP_LZMA, 93])
def test_a_member_that_cannot_be_decompressed_is_told(tmp_path: Path, method: int) -> None:
    """Each compression raises its own errors; Zstandard (93) since Python 3.14, or is unknown."""
    path = tmp_path / "a.eval"
    with ZipFile(path, "w") as log:
        log.writestr("samples/1_epoch_1.json", b"no compressed text" * 9)
    content = path.read_bytes()
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        head, found_mark, rest = content.partition(mark)
        rest = rest[: place - 4] + method.to_bytes(2, "little") + rest[place - 2 :]
        content = head + found_mark + rest
    path.write_bytes(content)
    transcripts, failures = found(path)
    assert ([], 1) == (transcripts, len(failures))
    assert "samples/1_epoch_1.json cannot be read" in failures[0]


def test_an_archive_of_a_newer_version_is_told(tmp_path: Path) -> None:
    """An archive that asks for more than is known of archives is reported."""
    whole = archive(tmp_path / "a.eval", samples__1_epoch_1=sample(1))
    content = bytearray(whole.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 6] = 0xA0
    whole.write_bytes(content)
    assert ([], 1) == ((told := found(whole))[0], len(told[1]))


def test_what_is_not_read_of_an_archive_is_told(tmp_path: Path) -> None:
    """A header that is broken, and a sample that stands twice, are reported; the last is read."""
    path = archive(tmp_path / "a.eval", header="{", samples__1_epoch_1=sample(1))
    with warnings.catch_warnings(action="ignore"), ZipFile(path, "a") as more:
        again = {**sample(1), "messages": [{"role": "user", "content": "Again."}]}
        more.writestr("samples/1_epoch_1.json", json.dumps(again))
    transcripts, failures = found(path)
    assert [2] == [len(each.events) for each in transcripts]
    assert 2 == len(failures)
    assert "1 names occur twice in the archive: the last is read" in failures[0]
    assert "header.json" in failures[1]
