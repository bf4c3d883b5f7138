"""The list of conversations."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from eventstore import events as e
from projections.models.directory import DIRECTORY, DirectoryEntry
from tests.unit.projections.history import CONVERSATION, START, Entry, rows


def entry(*entries: Entry) -> dict[str, Any]:
    """Return the conversation's row after the entries."""
    return rows(DIRECTORY, "directory", *entries)[0]


def test_a_title_that_was_given_stands() -> None:
    """What the user wrote does not replace it."""
    row = entry(e.ConversationStart(title="Invoices"), e.UserMessage.text("hello"))
    assert ("Invoices", "hello") == (row["title"], row["last_user_text"])


def test_the_first_user_message_is_the_title_otherwise() -> None:
    """The title is its start, on one line."""
    row = entry(
        e.ConversationStart(), e.UserMessage.text("a\nb" + "x" * 99), e.UserMessage.text("c")
    )
    assert "a b" + "x" * 77 == row["title"]


def test_a_title_given_later_replaces_the_first_message() -> None:
    """A stand-in gives way to a real title, whatever the order."""
    assert "T" == entry(e.UserMessage.text("hello"), e.ConversationStart(title="T"))["title"]


def test_a_withdrawn_message_is_neither_title_nor_preview() -> None:
    """The first message that is left gives the title, the last one the preview."""
    ask = e.UserMessage.text
    first = e.Retraction(versions=(e.VersionRange(first=1, last=1),))
    last = e.Retraction(versions=(e.VersionRange(first=3, last=3),))
    row = entry(ask("a secret"), ask("hello"), ask("another"), first, last)
    assert ("hello", "hello", "hello") == (
        row["title"],
        row["last_user_text"],
        row["last_message_text"],
    )


def test_a_long_rewind_leaves_a_preview() -> None:
    """It is the latest user message that the state remembers, or else the first."""
    ask, answer = e.UserMessage.text, e.AssistantMessage.of
    gone = e.Retraction(versions=(e.VersionRange(first=3, last=30),))
    answers = [answer(f"step {n}") for n in range(20)]
    row = entry(ask("first"), ask("second"), *answers, gone)
    assert ("second", "second", 2, "user") == (
        row["last_user_text"],
        row["last_message_text"],
        row["last_message_version"],
        row["last_message_role"],
    )
    row = entry(ask("first"), answer("a"), *[ask(f"more {n}") for n in range(20)], gone)
    assert ("first", "first", 1) == (
        row["last_user_text"],
        row["last_message_text"],
        row["last_message_version"],
    )
    everything = e.Retraction(versions=(e.VersionRange(first=1, last=30),))
    row = entry(ask("first"), *answers, everything)
    assert (None, None) == (row["last_user_text"], row["last_message_text"])


def test_the_first_message_returns_with_its_branch() -> None:
    """A switch away and back leaves the preview as it was."""
    ask = e.UserMessage.text
    all_of_it = (e.VersionRange(first=1, last=12),)
    left = e.BranchSwitch(reason="edit", kind="message", left=1, turn=1, withdrawn=all_of_it)
    back = e.BranchSwitch(
        reason="switch",
        kind="message",
        left=14,
        turn=1,
        withdrawn=(e.VersionRange(first=14, last=14),),
        taken=1,
        restored=all_of_it,
    )
    gone = e.Retraction(versions=(e.VersionRange(first=2, last=12),))
    asked = [ask(f"message {n}") for n in range(1, 13)]
    row = entry(*asked, left, ask("other"), back, gone)
    assert ("message 1", 1) == (row["last_message_text"], row["last_message_version"])


def test_messages_turns_calls_and_errors_are_counted() -> None:
    """Each count has its own meaning."""
    request = e.ToolCallRequest(name="f", arguments_text="{}")
    row = entry(
        e.TurnStart(),
        e.UserMessage.text("hello"),
        e.LlmError(kind="timeout", message=""),
        e.AssistantMessage.of(None, tool_calls=(request, request)),
        e.ToolResult(call_id="4.0", status="failed"),
        e.ToolResult(call_id="4.1"),
    )
    counts = {name: value for name, value in row.items() if name.endswith("_count")}
    assert {
        "event_count": 6,
        "message_count": 4,
        "user_message_count": 1,
        "turn_count": 1,
        "tool_call_count": 2,
        "error_count": 2,
    } == counts


def test_turns_are_numbered_by_their_events() -> None:
    """An import that begins at turn 7 has seven turns."""
    assert 7 == entry((e.UserMessage.text("hello"), e.Meta(turn=7)))["turn_count"]


def test_erased_messages_count_and_tell_nothing() -> None:
    """The counts stay true; the title comes from what can still be read."""
    row = entry("conversation_start", "user_message", e.UserMessage.text("still here"))
    assert ("still here", 2, 3) == (row["title"], row["user_message_count"], row["event_count"])


def test_the_end_is_a_status() -> None:
    """A conversation that was put away can be left out of the list."""
    assert "open" == entry(e.ConversationStart())["status"]
    assert (
        "archived" == entry(e.ConversationStart(), e.ConversationEnd(reason="archived"))["status"]
    )


def test_activity_is_the_latest_time_and_not_the_last_event() -> None:
    """Facts recorded late do not make a conversation older, nor does an erasure refresh it."""
    old = e.Meta(occurred_at=START - timedelta(days=9))
    erasure = e.Erasure(erasure_id="x", reason="asked", versions=(1,), event_count=1)
    row = entry(e.UserMessage.text("hello"), (e.UserMessage.text("older"), old), erasure)
    assert START + timedelta(seconds=1) == row["last_activity_at"]


def test_until_it_is_told_the_mode_is_that_of_the_events() -> None:
    """Imported conversations have no mode switch, but events that carry a mode."""
    assert "agent" == entry((e.UserMessage.text("hello"), e.Meta(mode="agent")))["mode"]


def test_a_fork_names_its_parent() -> None:
    """The list can show where a conversation came from."""
    row = entry(e.ConversationStart(parent_conversation_id="p", parent_version=4))
    assert ("p", 4) == (row["parent_conversation_id"], row["parent_version"])


def test_an_entry_comes_back_from_its_row() -> None:
    """The class and the table have the same columns."""
    row = {**entry(e.ConversationStart(title="T")), "conversation_id": CONVERSATION}
    assert ("T", 1) == (
        DirectoryEntry.from_row(row).title,
        DirectoryEntry.from_row(row).event_count,
    )
