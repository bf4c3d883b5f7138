"""Columns hold a message at every level of detail, and no level is larger than the one above."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.events import (
    AssistantMessage,
    Invocation,
    ReasoningPart,
    Retraction,
    Section,
    Sections,
    TextPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.context import ContextSettings
from projections.context.detail import GroupItem, digest, plain, shortened, without_result
from projections.context.levels import Lower, lower
from projections.context.plans import Group
from projections.tokens import count_message, tokenizer_for
from tests.unit.context.log import Log

TOKENIZER = tokenizer_for("gpt-4o")
ORDERS = [{"order_id": f"#W23781{n}", "status": "delivered"} for n in range(9)]
LONG = {"role": "tool", "content": json.dumps(ORDERS)}


def tokens(message: dict[str, Any]) -> int:
    """Return the tokens of a message."""
    return count_message(message, TOKENIZER).tokens


def called(content: str, **options: Any) -> Log:
    """Return a log with a call and its result."""
    call = ToolCallRequest(name="find_orders", arguments_text='{"user": "mia_li_3668"}')
    log = Log([UserMessage.text("task"), AssistantMessage(tool_calls=(call,))])
    log.add(ToolResult(call_id="2.0", content=content, **options))
    return log


def test_a_message_that_cannot_be_shorter_has_no_lower_level() -> None:
    """Its facts are all that is kept beside it."""
    found = lower(Log([UserMessage.text("Hi, I am mia_li_3668.")]).row(1))
    assert (None, None) == (found.shortened, found.tokens)
    assert ["mia_li_3668"] == [fact.text for fact in found.facts]


def test_a_shorter_form_is_counted() -> None:
    """And it is shorter."""
    row = called(json.dumps(ORDERS)).row(2, 1)
    found = lower(row)
    assert found.shortened is not None
    assert found.tokens is not None
    assert tokens(found.shortened) == found.tokens < row.tokens


def test_every_fact_is_in_the_shorter_form() -> None:
    """So a lower level never tells what a higher one does not."""
    found = lower(called(json.dumps(ORDERS)).row(2, 1))
    facts = [fact.text for fact in found.facts]
    assert "#W237815" in facts
    assert found.shortened is not None
    assert [] == [fact for fact in facts if fact not in found.shortened["content"]]


def test_sections_go_before_what_is_made_here() -> None:
    """The product knows best what matters."""
    sections = Sections(
        live=(Section(text="all"),),
        summary=(Section(key="result", text="Nine orders."),),
        gist=(Section(text="9 orders"),),
    )
    row = called(json.dumps(ORDERS), sections=sections).row(2, 1)
    assert {"role": "tool", "content": "Nine orders."} == lower(row).shortened
    assert "9 orders" == GroupItem(Group((row,), row.tokens), TOKENIZER).digest_text


def test_a_section_that_is_longer_than_the_message_is_not_used() -> None:
    """A lower level is never larger."""
    sections = Sections(live=(), summary=(Section(text="much longer " * 30),))
    message = UserMessage(parts=(TextPart(text="short"),), sections=sections)
    assert None is lower(Log([message]).row(1)).shortened


def test_plain_columns_have_no_lower_level() -> None:
    """What is sent as it is, or not at all, holds nothing of the columns for it."""
    assert {"message": LONG, "given": None, "result": None} == plain(LONG)


def test_a_placeholder_has_no_lower_level() -> None:
    """It stands for a result that nobody has."""
    log = called(json.dumps(ORDERS))
    log.add(Retraction(versions=(VersionRange(first=3, last=3),)))
    assert Lower() == lower(log.row(2, 1))


def test_a_shortened_row_is_the_shorter_message() -> None:
    """With its tokens, and without what belongs to the whole one."""
    row = called(json.dumps(ORDERS)).row(2, 1)
    short = shortened(row)
    assert (*lower(row)[:2], None) == (short.message, short.tokens, short.native)


def test_a_shortened_row_is_not_shortened_again() -> None:
    """What its whole one has left in a digest, it has too; of nested records it could lose more."""
    row = called(json.dumps([ORDERS] * 4)).row(2, 1)
    short = shortened(row)
    assert row is not short
    assert short is shortened(short)
    assert lower(row).facts == lower(short).facts


def test_a_row_without_a_shorter_form_stays() -> None:
    """The very same one."""
    row = called("fine").row(1)
    assert row is shortened(row)


def test_a_result_that_is_not_shown_leaves_nothing() -> None:
    """Neither facts nor a shorter form of it; other rows stay."""
    log = called(json.dumps(ORDERS), alias="@state/x")
    row = without_result(log.row(2, 1))
    assert tokens(row.message) == row.tokens
    assert (Lower(), True) == (lower(row), row.sealed)
    assert log.row(1) == without_result(log.row(1))


class TestGroupItem:
    """A group as a strategy sees it."""

    def test_it_has_the_sizes_and_facts_of_all_its_rows(self) -> None:
        """Of the call and of its result."""
        rows = tuple(called(json.dumps(ORDERS)).rows()[1:])
        item = GroupItem(Group(rows, sum(row.tokens for row in rows)), TOKENIZER)
        assert sum(lower(row).tokens or row.tokens for row in rows) == item.shorter_tokens
        assert ["mia_li_3668", "#W237810"] == [fact.text for fact in item.facts[:2]]
        assert "2 find_orders" == item.label
        assert item.shorter is not None
        assert (rows[0].message, lower(rows[1]).shortened) == item.shorter

    def test_another_encoding_is_counted(self) -> None:
        """Stored sizes serve the encoding that they were made with."""
        other = tokenizer_for("gpt-4")
        rows = tuple(called(json.dumps(ORDERS)).rows()[1:])
        whole = sum(count_message(row.message, other).tokens for row in rows)
        item = GroupItem(Group(rows, whole), other)
        expected = sum(
            count_message(lower(row).shortened or row.message, other).tokens for row in rows
        )
        assert expected == item.shorter_tokens

    def test_thoughts_of_a_row_that_is_not_shortened_are_paid_for(self) -> None:
        """They are sent with the shortened results, and once they were not counted."""
        thought = ReasoningPart(text="hm " * 50, signature="signed")
        call = ToolCallRequest(name="find", arguments_text="{}")
        claude = Invocation(provider="anthropic", specification="anthropic_messages")
        answer = AssistantMessage(
            parts=(thought, TextPart(text="x")), tool_calls=(call,), invocation=claude
        )
        log = Log([UserMessage.text("task"), answer])
        log.add(ToolResult(call_id="2.0", content=json.dumps(ORDERS * 3)))
        log.add(UserMessage.text("thanks"))
        settings = ContextSettings(steps=False, tool_tables=False)
        options = {"format": "anthropic_messages", "settings": settings}
        whole = log.view(**options).tokens.tokens
        view = log.view(max_tokens=whole - 20, **options)
        [entry] = [entry for entry in view.ledger if entry.level == "shortened"]
        rows = log.rows()[1:3]
        short = sum(lower(row).tokens or row.tokens for row in rows)
        assert short + rows[0].native_tokens == entry.tokens_after


@given(
    lines=st.lists(st.text(max_size=40)), encoding=st.sampled_from(["o200k_base", "cl100k_base"])
)
def test_a_digest_has_as_many_tokens_as_its_text(lines: list[str], encoding: str) -> None:
    """Each line is counted by itself, whatever stands in it, and once."""
    text = "\n".join(f"{number} {line}\n{line}" for number, line in enumerate(lines))
    message = {"role": "system", "content": text}
    assert digest(text, tokenizer_for(encoding)) == count_message(message, tokenizer_for(encoding))


@pytest.mark.parametrize("odd", ["\ud83d", "x" * 5_000, " " * 5_000, "\r\n7", "\n\n\n7 ", "/\n7"])
def test_a_digest_of_odd_lines_has_as_many_tokens_as_its_text(odd: str) -> None:
    """What is cut elsewhere too is counted as a whole, with the same margin."""
    text = f"said\n1 user: {odd}\n2 {odd} user:\n{odd}"
    message = {"role": "system", "content": text}
    for tokenizer in map(tokenizer_for, ("o200k_base", "cl100k_base", "claude-sonnet-4")):
        assert digest(text, tokenizer) == count_message(message, tokenizer)
