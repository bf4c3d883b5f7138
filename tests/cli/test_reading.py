"""The commands that read, as text and as JSON, on both databases."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from rich.cells import cell_len

from agent_eventstore.conversation import Conversation
from eventstore import EventStore
from projections.models.totals import UsageBy
from tests.checkers import check_openai_messages
from tests.cli.program import run
from tests.cli.samples import CHINESE, HOSTILE, WEATHER, conversation_with

pytestmark = pytest.mark.exhaustive_when("postgresql")

COMMANDS = (
    ("list",),
    ("events", "CID"),
    ("timeline", "CID"),
    ("timeline", "CID", "--full"),
    ("context", "CID"),
    ("context", "CID", "--explain"),
    ("usage",),
    ("tools",),
    ("tools", "CID"),
    ("verify",),
    ("verify", "CID"),
    ("projections", "status"),
    ("db", "current"),
)

find = cache(conversation_with)
"""The stores of these tests stay as they are, and so do the ids in them."""

show = cache(run)
"""Runs a command whose text several tests look at."""


@pytest.fixture
def weather(imported: str) -> str:
    """Id of the conversation on the weather."""
    return find(imported, "How is the weather")


@pytest.fixture
def meeting(imported: str) -> str:
    """Id of the conversation with Chinese and hostile text."""
    return find(imported, CHINESE[:8])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_json_is_one_document(imported: str, weather: str, command: tuple[str, ...]) -> None:
    """With ``--json`` stdout is one JSON document, and stderr stays empty."""
    arguments = [weather if each == "CID" else each for each in command]
    done = run(*arguments, "--json", url=imported)
    assert (0, "") == (done.status, done.err)
    assert json.loads(done.out) is not None


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_text_fits_80_columns(imported: str, meeting: str, command: tuple[str, ...]) -> None:
    """No line is wider than 80 cells, Chinese included; sentences alone may be."""
    arguments = [meeting if each == "CID" else each for each in command]
    done = show(*arguments, url=imported)
    lines = [line for line in done.out.splitlines() if not line.endswith("dropped")]
    assert 0 == done.status
    assert [] == [line for line in lines if cell_len(line.rstrip()) > 80]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_text_is_harmless(imported: str, meeting: str, command: tuple[str, ...]) -> None:
    """No control character reaches the terminal, whatever a model wrote."""
    arguments = [meeting if each == "CID" else each for each in command]
    done = show(*arguments, url=imported)
    assert set() == set(done.out) & set(HOSTILE) & set("\x1b\x00\u202e")


def test_markup_of_users_is_text(imported: str, meeting: str) -> None:
    """Square brackets are shown as they were written, and control characters as escapes."""
    shown = run("timeline", meeting, "--full", url=imported, environment={"COLUMNS": "200"}).out
    assert r"[bold]not markup[/bold] \x1b[31mnot red\x1b[0m \x00 \u202eright to left" in shown


def test_json_keeps_text_unchanged(imported: str, meeting: str) -> None:
    """JSON has what was written, control characters included."""
    items = run("timeline", meeting, "--json", url=imported).document
    assert HOSTILE in [each["text"] for each in items]


def test_list_shows_whole_ids_and_owners(imported: str, weather: str, meeting: str) -> None:
    """The list shows each conversation's whole id, to be copied, and its user."""
    shown = run("list", url=imported).out
    assert [True] * 3 == [each in shown for each in (weather, meeting, "ada")]


def test_list_by_user(imported: str) -> None:
    """Only the conversations of the user that is asked for are listed."""
    assert [] == run("list", "--user-id", "bob", "--json", url=imported).document
    assert 2 == len(run("list", "--user-id", "ada", "--json", url=imported).document)


def test_list_tells_that_there_are_more(imported: str) -> None:
    """What the limit hides is told of on stderr."""
    done = run("list", "--limit", "1", url=imported)
    assert "there are more conversations: raise --limit\n" == done.err


def test_events_have_the_whole_envelope(imported: str, weather: str) -> None:
    """An event in JSON has its payload and everything around it."""
    events = run("events", weather, "--json", url=imported).document
    assert list(range(1, len(events) + 1)) == [each["version"] for each in events]
    assert {
        "conversation_id", "version", "event_id", "position", "type", "schema_version",
        "recorded_at", "occurred_at", "data", "meta", "data_digest", "chain", "erased",
    } == set(events[0])  # fmt: skip


def test_events_of_a_type_after_a_version(imported: str, weather: str) -> None:
    """Events can be narrowed down by type and version."""
    arguments = ("--type", "assistant_message", "--after", "5", "--limit", "1", "--json")
    [event] = run("events", weather, *arguments, url=imported).document
    assert "assistant_message" == event["type"]
    assert "Snow in Oslo, and sun in Rome." == event["data"]["parts"][0]["text"]


def test_events_as_text_tell_what_happened(imported: str, weather: str) -> None:
    """The list of events shows calls and results in short."""
    shown = run("events", weather, url=imported, environment={"COLUMNS": "160"}).out
    assert "→ weather(place='Oslo') → weather(place='Rome')" in shown
    assert "4.0 success: snow" in shown


def test_timeline_shows_calls_and_results(imported: str, weather: str) -> None:
    """The timeline shows a call with what came of it."""
    lines = run("timeline", weather, url=imported).out.splitlines()
    place = next(number for number, line in enumerate(lines) if "weather(place='Rome')" in line)
    assert "success" in lines[place]
    assert "sun" == lines[place + 1].strip()


def test_timeline_tells_of_alternatives(sqlite_url: str) -> None:
    """Below the items stands which of several messages is shown."""
    with EventStore.open(sqlite_url) as store, Conversation.start(store) as conversation:
        with conversation.turn("one?"):
            said = conversation.version
        with conversation.edit(said, "two?"):
            pass
    out = run("timeline", str(conversation.id), url=sqlite_url).out
    assert "one?" not in out
    assert f"message after version 0: 2 of 2 is shown, of {said - 1}, [" in out


def test_context_is_what_was_said(imported: str, weather: str) -> None:
    """Without a budget the view holds every message, valid for the provider."""
    view = run("context", weather, "--json", url=imported).document
    assert WEATHER == view["messages"]
    assert [] == check_openai_messages(view["messages"])


def test_context_within_a_budget(imported: str, weather: str) -> None:
    """Within a budget older messages are dropped, and the account says so."""
    view = run("context", weather, "--max-tokens", "45", "--json", url=imported).document
    assert view["tokens"]["tokens"] <= 45
    assert "dropped" in [each["level"] for each in view["ledger"]]


def test_context_explained(imported: str, weather: str) -> None:
    """``--explain`` adds the account as a table."""
    shown = run("context", weather, "--max-messages", "4", "--explain", url=imported).out
    assert "mandatory: system part" in shown
    assert "over max_messages" in shown
    assert "4 messages, " in shown


def test_impossible_budget(imported: str, weather: str) -> None:
    """A budget that cannot hold what must be sent is wrong use, told in one line."""
    done = run("context", weather, "--max-tokens", "5", url=imported)
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))
    assert "system part" in done.err


@pytest.mark.parametrize("by", get_args(UsageBy))
def test_usage_by_everything(imported: str, by: str) -> None:
    """Usage adds up to the same number of calls whatever it is grouped by."""
    totals = run("usage", "--by", by, "--json", url=imported).document
    assert 4 == sum(each["calls"] for each in totals)
    assert by in run("usage", "--by", by, url=imported).out.splitlines()[0]


def test_usage_of_one_conversation(imported: str, weather: str) -> None:
    """Turns of one conversation are shown by their numbers, in order."""
    arguments = ("usage", "--by", "turn", "--conversation", weather)
    rows = run(*arguments, url=imported).out.splitlines()[2:]
    assert [["1", "2"], ["2", "1"]] == [line.split()[:2] for line in rows]


def test_estimated_usage_is_marked(imported: str) -> None:
    """Tokens that nobody reported are shown with a mark."""
    assert "~" in run("usage", url=imported).out


def test_tools_by_name_and_status(imported: str, weather: str) -> None:
    """The audit can be narrowed down by tool, status and conversation."""
    found = run(
        "tools", weather, "--tool", "weather", "--status", "success", "--json", url=imported
    )
    assert ["sun", "snow"] == [each["result_text"] for each in found.document]
    assert [] == run("tools", "--tool", "other", "--json", url=imported).document
    assert [] == run("tools", "--status", "failed", "--json", url=imported).document


def test_tools_of_all_conversations_name_theirs(imported: str, weather: str) -> None:
    """Across conversations each row shows how its conversation's id begins."""
    assert weather[:8] in run("tools", url=imported).out


@pytest.mark.parametrize("length", [12, 36])
def test_conversation_by_beginning_of_id(imported: str, weather: str, length: int) -> None:
    """A conversation is found by its whole id and by a unique beginning of it."""
    events = run("events", weather[:length].upper(), "--json", url=imported).document
    assert {weather} == {each["conversation_id"] for each in events}


@pytest.mark.parametrize(
    "cid", ["xyz", "", "00000000-0000-7000-8000-000000000000", "0" * 33], ids=repr
)
def test_wrong_conversation(imported: str, cid: str) -> None:
    """What names no conversation is told in one line."""
    done = run("events", cid, url=imported)
    assert (2, "", 1) == (done.status, done.out, len(done.err.splitlines()))


def test_ambiguous_beginning(sqlite_url: str, tmp_path: Path) -> None:
    """A beginning that fits several conversations names them."""
    path = tmp_path / "many.json"
    said = [[{"role": "user", "content": str(number)}] for number in range(40)]
    path.write_text(json.dumps(said), encoding="utf-8")
    run("import", str(path), url=sqlite_url)
    ids = sorted(each["conversation_id"] for each in run("list", "--json", url=sqlite_url).document)
    shared = next(a[0] for a, b in pairwise(ids) if a[0] == b[0])
    done = run("events", shared, url=sqlite_url)
    assert 2 == done.status
    assert next(each for each in ids if each.startswith(shared)) in done.err


def test_usage_of_a_time(imported: str) -> None:
    """Calls from ``--since`` on and before ``--until``; without a time zone in UTC."""
    counts = [
        sum(each["calls"] for each in run("usage", *words, "--json", url=imported).document)
        for words in (
            ("--since", "2001-01-01"),
            ("--until", "2001-01-01T00:00+02:00"),
            ("--since", "2999-01-01"),
        )
    ]
    assert counts[0] > 0
    assert [0, 0] == counts[1:]
    wrong = run("usage", "--since", "yesterday", url=imported)
    assert (2, True) == (wrong.status, "'yesterday' is no date or time" in wrong.err)


def test_timeline_of_the_past(imported: str, weather: str) -> None:
    """``--at`` shows a conversation as of that version, and refuses one that does not exist."""
    now = run("timeline", weather, "--json", url=imported).document
    past = run("timeline", weather, "--at", "2", "--json", url=imported).document
    assert {1, 2} >= {each["version"] for each in past}
    assert 0 < len(past) < len(now)
    wrong = run("timeline", weather, "--at", "99999", url=imported)
    assert (2, True) == (wrong.status, "--at 99999 does not exist yet" in wrong.err)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("list", "--user-id", "nobody"), "no conversations found"),
        (("events", "CID", "--after", "9999"), "no events found"),
        (("timeline", "CID", "--after", "9999"), "no items found"),
        (("search", "xyzzyplugh"), "no messages found"),
        (("usage", "--user-id", "nobody"), "no model calls found"),
        (("tools", "--tool", "none"), "no calls found"),
    ],
    ids=" ".join,
)
def test_nothing_found(imported: str, weather: str, command: tuple[str, ...], message: str) -> None:
    """A list without rows says on stderr that there are none."""
    done = run(*(weather if each == "CID" else each for each in command), url=imported)
    assert (0, f"{message}\n") == (done.status, done.err)
