"""The history files of sessions: document 001's lines, failing sinks, and killed processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest

from agent_eventstore import AgentSession, EventStore, JsonlHistorySink, LegacyXmlSink
from eventstore.events import AssistantMessage, ToolCall, TurnEnd
from tests.agents.killable_session import ACTION, FINAL, QUESTION, options
from tests.agents.scripted import Scripted, Wanted, read, reply
from tests.killable_processes import KILLED, killable_processes

ROOT = Path(__file__).parents[2]

DOCUMENT = r"""
{"ts":"2024-05-10T12:00:00Z","session_id":"sess_x","type":"session_start","meta":{"mode":"interactive","model":"deepseek-chat","tokenizer":"cl100k_base"}}
{"ts":"2024-05-10T12:00:05Z","session_id":"sess_x","turn":1,"type":"turn_start","content":"帮我读 README","meta":{"tokens":{"prompt":12}}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"assistant","content":"<thought>需要 read...</thought><action tool=\"read\">...","meta":{"tokens":{"prompt":120,"completion":35,"total":155}}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"action","meta":{"tool":"read","input":"/repo/README.md"}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"observation","meta":{"tool":"read"},"content":"(文件片段)"}
{"ts":"2024-05-10T12:00:08Z","session_id":"sess_x","turn":1,"step":1,"type":"final","content":"README 摘要...","meta":{"tokens":{"completion":28}}}
{"ts":"2024-05-10T12:00:08Z","session_id":"sess_x","turn":1,"type":"turn_end","meta":{"status":"ok","stepCount":2,"durationMs":3000,"tokens":{"prompt":132,"completion":63,"total":195}}}
{"ts":"2024-05-10T12:05:00Z","session_id":"sess_x","type":"session_end"}
"""  # noqa: E501
"""The example of document 001, as it stands there."""

Line = dict[str, Any]


def lines_of(text: str) -> list[Line]:
    """Return the lines of a file."""
    return [json.loads(line) for line in text.strip().splitlines()]


def elements(path: Path) -> ElementTree.Element:
    """Return the root of a file of XML."""
    return ElementTree.parse(path).getroot()  # noqa: S314 - we wrote it


def but_for_numbers(line: Line) -> Line:
    """Return a line without ids, times and token counts; the example cuts its reply short.

    And it leaves out the configuration, which the document's text asks for.
    """
    left_out = ("config", "tokens", "durationMs")
    meta = {k: v for k, v in line.get("meta", {}).items() if k not in left_out}
    rest = {k: v for k, v in line.items() if k not in ("ts", "session_id", "meta")}
    if line["type"] == "assistant":
        rest["content"] = line["content"].partition('tool="read">')[0]
    return {**rest, "meta": meta}


def test_the_lines_of_the_document_come_out_of_a_session(store: EventStore, tmp_path: Path) -> None:
    """Line for line, and each is in the file before the next thing happens."""
    seen: list[int] = []
    told = options(tmp_path, ACTION, FINAL)

    def lines() -> list[Line]:
        return lines_of((tmp_path / f"history/{session.session_id}.jsonl").read_text("utf-8"))

    told["listener"] = lambda kind, text: seen.append(len(lines()))
    with AgentSession.create(store, **told) as session:
        result = session.run_turn(QUESTION)

    written = lines()
    expected = lines_of(DOCUMENT)
    assert [but_for_numbers(line) for line in expected] == [but_for_numbers(x) for x in written]
    assert ("README 摘要...", 2) == (result.final_text, len(result.steps))
    assert sorted(seen) == seen
    assert {2, 3, 5} <= {*seen}
    assert {session.session_id} == {line["session_id"] for line in written}


def test_token_counts_are_estimated_where_nobody_reports_them(
    store: EventStore, tmp_path: Path
) -> None:
    """The input's, the turn's and the session's; those of calls say that they are estimates."""
    told = options(tmp_path)
    told["model"] = lambda request: FINAL
    with AgentSession.create(store, **told) as session:
        session.run_turn(QUESTION)

    by_type = {
        line["type"]: line.get("meta", {}).get("tokens")
        for line in lines_of((tmp_path / f"history/{session.session_id}.jsonl").read_text("utf-8"))
    }
    assert by_type["turn_start"]["prompt"] > 0
    assert by_type["turn_end"] == by_type["session_end"]
    assert by_type["session_end"]["estimated"]
    assert by_type["session_end"]["total"] > by_type["final"]["completion"] > 0


def test_a_failed_tool_and_a_product_s_config_are_told(store: EventStore, tmp_path: Path) -> None:
    """What the example does not show has a place: a status, a config, whole outputs."""
    model = Scripted(
        reply("Look.", Wanted("read", path="a"), Wanted("big")),
        reply("", Wanted("nothing")),
        "Done.",
    )

    def big() -> str:
        return "x" * 100_000

    with AgentSession.create(
        store,
        model=model,
        tools=[read, big],
        sinks=[JsonlHistorySink(tmp_path)],
        config={"temperature": 0.5},
    ) as session:
        session.run_turn("Go.")

    written = lines_of((tmp_path / f"{session.session_id}.jsonl").read_text("utf-8"))
    observed = [line for line in written if line["type"] == "observation"]
    assert 0.5 == written[0]["meta"]["config"]["temperature"]
    assert [None, None, "failed"] == [line["meta"].get("status") for line in observed]
    assert 100_000 == len(observed[1]["content"])
    assert ["assistant", "assistant", "final"] == [
        line["type"] for line in written if line["type"] in ("assistant", "final")
    ]


def test_the_xml_is_well_formed_after_each_event(store: EventStore, tmp_path: Path) -> None:
    """Elements stand for the same events, whatever was said."""
    model = Scripted("<b>\x00\n]]> & 'so' \"so\"")
    with AgentSession.create(store, model=model, sinks=[LegacyXmlSink(tmp_path)]) as session:
        session.run_turn("a < b & c\nd")
        root = elements(tmp_path / f"{session.session_id}.xml")

    assert ["session_start", "turn_start", "final", "turn_end"] == [each.tag for each in root]
    assert ["a < b & c\nd", "<b>\ufffd\n]]> & 'so' \"so\""] == [each.text for each in root[1:3]]


class Broken:
    """A sink that fails at its third line, as a full disk would make it."""

    def __init__(self) -> None:
        self.told = 0

    def append(self, event: Line) -> None:
        """Take a line, or fail."""
        self.told += 1
        if self.told == 3:
            raise OSError(28, "No space left on device")

    def flush(self) -> None:
        """Do nothing."""


def test_a_sink_that_fails_fails_no_turn(store: EventStore, tmp_path: Path) -> None:
    """It is said once, it is told no more, and the other sinks are."""
    notes: list[str] = []
    broken, kept = Broken(), JsonlHistorySink(tmp_path)
    with AgentSession.create(
        store,
        model=Scripted("One.", "Two."),
        sinks=[broken, kept],
        listener=lambda kind, text: notes.append(text) if kind == "note" else None,
    ) as session:
        results = [session.run_turn("One?"), session.run_turn("Two?")]

    assert ["One.", "Two."] == [each.final_text for each in results]
    assert 3 == broken.told
    assert [
        "Broken failed (OSError: [Errno 28] No space left on device): it receives nothing more"
    ] == [*notes]
    assert 8 == kept.count(session.session_id)


def test_what_a_failing_sink_missed_is_written_at_the_next_opening(
    store: EventStore, tmp_path: Path
) -> None:
    """A line that was cut off is taken away, and all that is missing follows."""
    sink = JsonlHistorySink(tmp_path)
    with AgentSession.create(store, model=Scripted("One."), sinks=[sink]) as session:
        session.run_turn("One?")
    path = sink.path(session.session_id)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    AgentSession.open(store, session.id, model=Scripted(), sinks=[sink]).close()

    assert whole == path.read_bytes()


@pytest.fixture(scope="module")
def live() -> Iterator[Callable[..., int]]:
    """Give a function that runs a session in a process of its own, and returns how that ended."""
    with killable_processes("tests.agents.killable_session") as run:
        yield run


@pytest.mark.exhaustive_when("postgresql")
def test_a_session_that_is_killed_at_any_event_completes(
    store: EventStore, database_url: str, tmp_path: Path, live: Callable[..., int]
) -> None:
    """Opened again it goes on to an answer, and the dead session's files end as the log does."""
    after, status = 0, KILLED
    while status == KILLED:
        after += 1
        folder = tmp_path / str(after)
        folder.mkdir()
        cid = uuid4()
        status = live(database_url, str(cid), str(folder), after)
        if status == KILLED:
            check_completes(store, cid, folder)
    assert 0 == status
    assert after > 8


def check_completes(store: EventStore, cid: Any, folder: Path) -> None:
    """Open what a killed process left, and see it through."""
    acted = [e for e in store.read(cid) if isinstance(e.data, ToolCall)]
    ended = [e for e in store.read(cid) if isinstance(e.data, TurnEnd)]
    asked = [e for e in store.read(cid) if e.type == "user_message"]
    dead = next(e.meta.session_id for e in store.read(cid) if e.type == "session_start")
    told = options(folder, *([] if acted else [ACTION]), FINAL)
    told["conversation"] = {"if_busy": "take_over"}
    with AgentSession.open(store, cid, **told) as session:
        answered = [
            e for e in store.read(cid) if isinstance(e.data, AssistantMessage) and e.data.final
        ]
        result = session.go_on() if asked else session.run_turn(QUESTION)
        again = session.go_on()

    assert (result is None) == bool(answered or ended)
    assert result is None or "README 摘要..." == result.final_text
    assert again is None
    sessions = [e.meta.session_id for e in store.read(cid) if e.type == "session_start"]
    for session_id in sessions:
        written = lines_of((folder / f"history/{session_id}.jsonl").read_text("utf-8"))
        assert ("session_start", "session_end") == (written[0]["type"], written[-1]["type"])
        root = elements(folder / f"history/{session_id}.xml")
        assert [line["type"] for line in written] == [each.tag for each in root]
    assert dead == sessions[0]
