"""``erase``: a conversation or single events of it, what goes along, and what is said of it."""

from __future__ import annotations

import json
import os

import pytest

from eventstore import EventStore, Meta, NewEvent, new_id
from eventstore import events as e
from tests.cli.program import call, run
from tests.cli.samples import conversation_with

ASKED = "my account number is DE02120300000000202051"
WHY = ("--reason", "asked to", "--yes")


def quoted(url: str) -> str:
    """Write a conversation in which the second event is copied and quoted; return its id."""
    cid = new_id()
    with EventStore.open(url) as store:
        store.append(
            cid,
            [
                NewEvent(e.TurnStart(input=ASKED), meta=Meta(turn=1)),
                NewEvent(e.UserMessage.text(ASKED), meta=Meta(turn=1)),
                e.LlmRequest(llm_call_id="a", versions=(e.VersionRange(first=2, last=2),)),
                e.AssistantMessage.of("I shall look for it.", llm_call_id="a"),
                e.AssistantMessage.of(f"You said: {ASKED}", llm_call_id="b"),
                e.UserMessage.text("fine"),
            ],
        )
    return str(cid)


def erased(url: str, cid: str) -> set[int]:
    """Return the versions that say nothing any more."""
    listed = run("events", cid, "--json", url=url).document
    return {each["version"] for each in listed if each["erased"]}


def test_erase_leaves_a_receipt(own_anywhere: str) -> None:
    """Erased events show no text any more, and the store still verifies."""
    cid = conversation_with(own_anywhere, "How is the weather")
    arguments = ("--reason", "asked to", "--requested-by", "ada", "--yes", "--json")
    receipt = run("erase", cid, *arguments, url=own_anywhere).document
    events = run("events", cid, "--json", url=own_anywhere).document
    assert (cid, "asked to", 11) == (
        receipt["conversation_id"],
        receipt["reason"],
        receipt["version"],
    )
    assert {True, False} == {each["erased"] for each in events}
    assert "(erased)" in run("events", cid, url=own_anywhere).out
    assert "Oslo" not in run("timeline", cid, "--full", url=own_anywhere).out
    assert 0 == run("verify", url=own_anywhere).status


def test_erase_in_words(own: str) -> None:
    """Without ``--json`` a sentence tells what was erased, and another what is kept."""
    cid = conversation_with(own, "How is the weather")
    done = run("erase", cid, "--reason", "asked to", "--yes", url=own)
    said = f"erased 9 events of {cid}; the receipt is event 11\n"
    assert f"{said}the usage of 3 model calls is kept\n" == done.out
    done = run("erase", cid, "--reason", "asked to", "--yes", "--no-usage", url=own)
    assert f"erased 1 event of {cid}; the receipt is event 12\n" == done.out


@pytest.mark.parametrize(
    "arguments", [("--reason", "asked to"), ("--yes",), ("--reason", " ", "--yes")]
)
def test_erase_needs_a_reason_and_a_yes(own: str, arguments: tuple[str, ...]) -> None:
    """Without a reason, or with nobody to say yes, nothing is erased."""
    cid = conversation_with(own, "How is the weather")
    done = run("erase", cid, *arguments, url=own)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert not any(each["erased"] for each in run("events", cid, "--json", url=own).document)


@pytest.mark.parametrize(
    ("answer", "status", "chosen", "question"),
    [
        ("n", 2, (), "the 9 events of {cid}"),
        ("y", 0, (), "the 9 events of {cid}"),
        ("n", 2, ("--version", "2-3"), "2 events of {cid} and their copies"),
        ("y", 0, ("--version", "2", "--no-derived"), "1 event of {cid}"),
    ],
)
def test_erase_asks(
    own: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    status: int,
    chosen: tuple[str, ...],
    question: str,
) -> None:
    """At a terminal it asks, and erases only after a yes."""
    cid = conversation_with(own, "How is the weather")
    controller, terminal = os.openpty()
    os.write(controller, f"{answer}\n".encode())
    with open(terminal, encoding="utf-8") as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        done = call("erase", cid, "--reason", "asked to", *chosen, url=own)
    os.close(controller)
    erased = [each["erased"] for each in run("events", cid, "--json", url=own).document]
    assert (status, status == 0) == (done, any(erased))
    assert f"Erase {question.format(cid=cid)} for good?" in capsys.readouterr().err


def test_single_events_go_with_their_copies(own_anywhere: str) -> None:
    """The receipt names the copies that went along, and what quotes them still."""
    cid = quoted(own_anywhere)
    receipt = run("erase", cid, "--version", "2", *WHY, "--json", url=own_anywhere).document
    assert [1, 2, 3] == receipt["versions"]
    assert [
        {"what": "input", "versions": [{"first": 1, "last": 1}]},
        {"what": "request", "versions": [{"first": 3, "last": 3}]},
    ] == receipt["derived"]
    assert [{"what": "quotation", "versions": [{"first": 5, "last": 5}]}] == receipt["quoted_by"]
    assert receipt["log_emptied"] is True
    assert {1, 2, 3} == erased(own_anywhere, cid)


def test_what_went_along_in_words(own: str) -> None:
    """A line for the copies, a line for what is left."""
    cid = quoted(own)
    first, *rest = run("erase", cid, "--version", "2", *WHY, url=own).out.splitlines()
    assert f"erased 3 events of {cid}; the receipt is event 8" == first
    assert [
        "the usage of 1 model call is kept",
        "of these, as copies: input 1; request 3",
        "not erased, although they contain the same text: quotation 5",
    ] == rest


def test_ranges_and_no_copies(own: str) -> None:
    """What was named goes, and nothing else; what copies it is named."""
    cid = quoted(own)
    chosen = ("--version", "2", "--version", "4-5", "--no-derived")
    receipt = run("erase", cid, *chosen, *WHY, "--json", url=own).document
    assert {2, 4, 5} == set(receipt["versions"]) == erased(own, cid)
    assert [] == receipt["derived"]
    assert ["input", "request"] == [each["what"] for each in receipt["quoted_by"]]


def test_what_was_erased_before_is_said(own: str) -> None:
    """Of what was asked for, and has no payload to lose."""
    cid = quoted(own)
    run("erase", cid, "--version", "4-5", *WHY, url=own)
    done = run("erase", cid, "--version", "4-7", *WHY, url=own)
    assert 0 == done.status
    assert "erased 1 event of" in done.out
    assert "not erased: 4-5, 7 (already erased, or a receipt or kept usage)\n" == done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--version", "7"), "there is no event 7: the newest of"),
        (("--version", "2", "--version", f"5-{2**53}"), f"there is no event {2**53}"),
        (("--version", "3-"), "'' is not a valid integer"),
        (("--version", "0"), "0 is not in the range"),
        (("--version", "4-2"), "'4-2' ends before it begins"),
        (("--version", "two"), "'two' is not a valid integer"),
        (("--no-derived",), "--no-derived requires --version"),
    ],
)
def test_versions_that_are_none(own: str, arguments: tuple[str, ...], said: str) -> None:
    """Refused in one line, and nothing is erased."""
    cid = quoted(own)
    done = run("erase", cid, *arguments, *WHY, url=own)
    assert 2 == done.status
    assert said in done.err
    assert set() == erased(own, cid)


def test_a_reader_that_keeps_the_pages_is_said(own: str) -> None:
    """The files hold what was erased as long as it reads: in a warning, and as JSON."""
    cid = quoted(own)
    with EventStore.open(own) as reader, reader.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM events")
        done = run("erase", cid, *WHY, "--json", url=own)
    assert 0 == done.status
    assert json.loads(done.out)["log_emptied"] is False
    assert "still in the file or its log: a reader holds them" in done.err


def test_all_of_a_user(own_anywhere: str) -> None:
    """One after another, each with a receipt; again, and nothing is left to do."""
    with EventStore.open(own_anywhere) as store:
        for _ in range(2):
            store.append(new_id(), [e.UserMessage.text(ASKED)], user_id="ada")
    done = run("erase", "--user", "ada", *WHY, url=own_anywhere).out
    assert "erased 2 events of 2 conversations of 'ada'\n" == done
    again = run("erase", "--user", "ada", *WHY, "--json", url=own_anywhere).document
    assert ([], 2) == (again["conversations"], again["erased_before"])


@pytest.mark.parametrize(
    "arguments",
    [(), ("abc", "--user", "ada"), ("abc", "--tenant-id", "t"), ("--user", "a", "--version", "1")],
)
def test_a_user_or_a_conversation(own: str, arguments: tuple[str, ...]) -> None:
    """One of the two, and what goes with it."""
    done = run("erase", *arguments, *WHY, url=own)
    assert (2, 1) == (done.status, len(done.err.splitlines()))


def test_purge_leaves_a_receipt_alone(own_anywhere: str) -> None:
    """The conversation is unknown then; the rest verifies."""
    cid = conversation_with(own_anywhere, "How is the weather")
    asked = run("purge", cid, "--reason", "asked to", url=own_anywhere)
    assert (2, 1) == (asked.status, len(asked.err.splitlines())), "nobody is there to say yes"
    done = run("purge", cid, *WHY, "--json", url=own_anywhere).document
    assert (cid, 9, []) == (done["conversation_id"], done["event_count"], done["forks"])
    assert 2 == run("timeline", cid, url=own_anywhere).status
    assert 0 == run("verify", url=own_anywhere).status


def test_a_purge_is_repeated(own: str) -> None:
    """One killed after its commit left keys and files, and could not find the conversation."""
    with EventStore.open(own) as store:
        store.append("chat/7", e.UserMessage.text(ASKED), tenant_id="acme")
        cid = str(store.stream("chat/7", tenant_id="acme"))
        receipt = store.purge("chat/7", reason="asked to", tenant_id="acme").purge_id
    for name in (cid, "acme/chat/7"):
        done = run("purge", name, *WHY, url=own)
        assert (0, f"purged 1 event of {cid}; the receipt is {receipt}\n") == (
            done.status,
            done.out,
        )
    for name in (str(new_id()), "chat/7", cid[:8], "", "/"):
        assert "there is no conversation" in run("purge", name, *WHY, url=own).err


def test_purge_names_the_forks(own: str) -> None:
    """And takes them too where that is asked for."""
    cid = quoted(own)
    with EventStore.open(own) as store:
        fork = store.fork(cid).conversation_id
    done = run("purge", cid, *WHY, url=own)
    assert 2 == done.status
    assert str(fork) in done.err
    said = run("purge", cid, *WHY, "--forks", url=own).out
    assert f"purged 7 events of {cid} and 1 fork; the receipt is " in said
