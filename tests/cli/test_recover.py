"""``recover``."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from agent_eventstore import Conversation
from eventstore import EventStore, new_id
from eventstore import events as e
from tests.cli.program import run
from tests.conftest import Beginning
from tests.raw_events import insert_raw_event

REQUESTS = tuple(
    e.ToolCallRequest(name=name, arguments_text="{}", arguments={"place": "Oslo"})
    for name in ("weather", "book")
)
CRASHED: tuple[e.Payload, ...] = (
    e.TurnStart(),
    e.UserMessage.text("book a flight"),
    e.AssistantMessage.of(None, tool_calls=REQUESTS),
    e.ToolCall(call_id="3.1", name="book", idempotency_key="key", idempotent=True),
    e.LlmRequest(llm_call_id="a"),
    e.AssistantChunk(llm_call_id="a", index=0, text="I have [bold]boo\x1b[31m"),
)


@pytest.fixture
def beginning() -> Beginning:
    """Have databases begin with the tables of all projections, which no test here asks about."""
    return "installed"


def write(url: str, *payloads: e.Payload) -> UUID:
    """Append a conversation, and return its id."""
    cid = new_id()
    with EventStore.open(url) as store:
        store.append(cid, payloads, meta=e.Meta(turn=1, step=0))
    return cid


@pytest.fixture
def crashed(database_url: str) -> UUID:
    """Give a conversation that was left open, once on each backend."""
    return write(database_url, *CRASHED)


def test_recover_shows_what_it_sealed(database_url: str, crashed: UUID) -> None:
    """One line for each piece of open work: where, what, and as what it was ended."""
    done = run("recover", str(crashed), url=database_url)
    lines = done.out.splitlines()
    assert (0, f"{crashed} at version 6: ended by 4 events") == (done.status, lines[0])
    assert [
        ["1.0", "model", "call", "interrupted"],
        ["1.0", "tool", "call", "not_started"],
        ["1.0", "tool", "call", "outcome_unknown"],
        ["1.0", "turn", "1", "step", "aborted"],
    ] == [_short(line) for line in lines[3:7]]
    assert (
        "call 3.1 was declared idempotent: it may be executed again under the key key" in done.out
    )


def _short(line: str) -> list[str]:
    words = line.split()
    return [words[0], *words[1:3], words[-1]] if "call" in words else words


def test_recover_shows_hostile_text_harmlessly(database_url: str, crashed: UUID) -> None:
    """What a model wrote is neither markup nor control characters."""
    done = run("recover", str(crashed), url=database_url)
    assert "I have [bold]boo\\x1b[31m" in done.out


def test_recover_again_finds_nothing(database_url: str, crashed: UUID) -> None:
    """Nothing is sealed twice."""
    run("recover", str(crashed), url=database_url)
    done = run("recover", str(crashed), url=database_url)
    assert (0, "nothing was left open\n") == (done.status, done.out)


def test_dry_run_changes_nothing(database_url: str, crashed: UUID) -> None:
    """It tells what would be done, with status 1, until it is done."""
    done = run("recover", "--dry-run", url=database_url)
    assert (1, True) == (done.status, "would be ended by 4 events" in done.out)
    assert 6 == len(run("events", str(crashed), "--json", url=database_url).document)
    assert 0 == run("recover", url=database_url).status
    assert 0 == run("recover", "--dry-run", url=database_url).status


def test_recover_in_json(database_url: str, crashed: UUID) -> None:
    """The document holds the sealing events whole, and the calls that may run again."""
    [found] = run("recover", "--json", url=database_url).document
    assert (str(crashed), 6, 10) == (
        found["conversation_id"],
        found["version_before"],
        found["version_after"],
    )
    assert ["llm_error", "tool_result", "tool_result", "turn_end"] == [
        event["type"] for event in found["sealed"]
    ]
    assert "I have [bold]boo\x1b[31m" == found["sealed"][0]["data"]["partial_text"]
    assert {"turn": 1, "step": 0} | {"actor": "recovery", "in_context": True} == found["sealed"][0][
        "meta"
    ]
    assert [{"call_id": "3.1", "name": "book"}] == [
        {name: call[name] for name in ("call_id", "name")} for call in found["re_executable"]
    ]


def test_recover_of_all(own: str) -> None:
    """Without an id every conversation with open work is recovered, and no other."""
    ids = sorted(str(write(own, *CRASHED)) for _ in range(3))
    found = run("recover", "--json", url=own).document
    assert ids == [each["conversation_id"] for each in found]
    assert [] == run("recover", "--json", url=own).document


def test_a_conversation_that_cannot_be_recovered_is_reported(own: str) -> None:
    """The others are recovered, and the exit status is 1."""
    whole, damaged = write(own, *CRASHED), write(own, *CRASHED)
    with EventStore.open(own) as store:
        insert_raw_event(store, damaged, "user_message", "{}", meta="[1]")

    done = run("recover", url=own)
    assert (1, True) == (done.status, f"{whole} at version 6: ended by 4 events" in done.out)
    assert f"conversation {damaged} cannot be recovered: " in done.out

    again = run("recover", "--json", url=own)
    assert (1, [str(damaged)]) == (again.status, [e["conversation_id"] for e in again.document])
    assert "at version 7" in again.document[0]["error"]


def test_an_idle_session_is_only_closed_by_name(sqlite_url: str) -> None:
    """A process that waits for its user is not shut out by a recovery of all."""
    cid = write(sqlite_url, e.SessionStart())
    assert 0 == run("recover", "--dry-run", url=sqlite_url).status
    assert [] == run("recover", "--json", url=sqlite_url).document
    [found] = run("recover", str(cid), "--json", url=sqlite_url).document
    assert ["session_end"] == [event["type"] for event in found["sealed"]]


def test_read_only(own: str) -> None:
    """A dry run needs no right to write; a recovery does."""
    write(own, *CRASHED)
    assert 1 == run("--read-only", "recover", "--dry-run", url=own).status
    done = run("--read-only", "recover", url=own)
    assert (2, 1, True) == (done.status, len(done.err.splitlines()), "--read-only" in done.err)


@pytest.mark.parametrize("arguments", [("recover",), ("recover", "00"), ("recover", "--dry-run")])
def test_missing_file_is_told_and_not_created(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """There is nothing to recover, and nothing is made."""
    done = run(*arguments, url=f"sqlite:///{tmp_path / 'none.db'}")
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))
    assert [] == list(tmp_path.iterdir())


def test_unknown_conversation(own: str) -> None:
    """An id that is nobody's is told in one line."""
    done = run("recover", "ffffffff", url=own)
    assert (2, "", True) == (done.status, done.out, "there is no conversation" in done.err)


def test_what_a_living_session_has_open_is_left_to_it(database_url: str) -> None:
    """The refusal names the option of the command, which then ends it."""
    with EventStore.open(database_url) as store:
        conversation = Conversation.start(store)
        turn = conversation.turn("hi")
        turn.__enter__()
        refused = run("recover", str(conversation.id), url=database_url)
        assert (2, True, False) == (
            refused.status,
            "end its open work with --take-over" in refused.err,
            "if_busy" in refused.err,
        )
        of_all = run("recover", url=database_url)
        assert (0, "nothing to end: all open work is in use\n") == (of_all.status, of_all.out)
        assert "left to its writer" in of_all.err
        taken = run("recover", str(conversation.id), "--take-over", "--json", url=database_url)
        assert (0, 1) == (taken.status, len(taken.document))
