"""A request holds what must be sent and the newest whole groups, and accounts for the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore.events import (
    AssistantMessage,
    SystemInstruction,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import ContextRow, ContextView, build
from projections.errors import BudgetInfeasible
from projections.tokens import count_messages, tokenizer_for
from tests.list_row_source import ListRowSource
from tests.unit.context.log import Log

CALL = AssistantMessage(tool_calls=(ToolCallRequest(name="f", arguments_text="{}"),) * 2)


def conversation() -> Log:
    """Return a conversation of three turns, the second with two parallel calls."""
    return Log(
        [
            SystemInstruction(text="rules"),
            UserMessage.text("task"),
            AssistantMessage.of("old answer"),
            UserMessage.text("second"),
            CALL,
            ToolResult(call_id="5.0", content="r0"),
            ToolResult(call_id="5.1", content="r1", alias="@state/x"),
            UserMessage.text("third"),
            AssistantMessage.of("newest"),
        ]
    )


def contents(view: ContextView) -> list[str | None]:
    """Return the contents of the messages."""
    return [message["content"] for message in view.messages]


def test_without_a_budget_everything_is_sent_in_order() -> None:
    """Nothing is dropped unless a limit asks for it."""
    view = conversation().view()
    expected = ["rules", "task", "old answer", "second", None, "r0", "r1", "third", "newest"]
    assert contents(view) == expected
    assert view.complete is True


def test_the_tokens_are_those_of_the_request() -> None:
    """The sum of the stored counts equals a fresh count of what is sent."""
    view = conversation().view()
    assert view.tokens == count_messages(view.messages, tokenizer_for("gpt-4o"))


def test_the_window_ends_before_the_first_group_that_does_not_fit() -> None:
    """Calls and results go together; what is older is not looked at, however small."""
    view = conversation().view(max_messages=6)
    assert contents(view) == ["rules", "task", "third", "newest"]


def test_the_ledger_tells_what_became_of_everything() -> None:
    """What is beyond the limit, and what is kept."""
    view = conversation().view(max_messages=6)
    assert [(entry.version, entry.level, entry.reason) for entry in view.ledger] == [
        (None, "dropped", "older than version 9: over max_messages"),
        (1, "full", "mandatory: system part"),
        (2, "full", "mandatory: first user message"),
        (8, "full", "mandatory: latest user message"),
        (9, "full", "fits whole"),
    ]
    whole = next(entry for entry in conversation().view().ledger if entry.version == 5)
    assert whole.full_aliases == ("@state/x",)
    assert whole.source_versions == (5, 6, 7)


def test_an_impossible_budget_names_what_must_be_sent() -> None:
    """The sizes tell what to shorten."""
    with pytest.raises(BudgetInfeasible, match=r"system part \(version 1\)") as caught:
        conversation().view(max_tokens=10)
    view = conversation().view(max_tokens=sum(caught.value.mandatory.values()))
    assert contents(view) == ["rules", "task", "third"]


def test_an_impossible_number_of_messages_is_named_as_such() -> None:
    """The limit that is too small is the one in the text."""
    with pytest.raises(BudgetInfeasible, match="max_messages=2"):
        conversation().view(max_messages=2)


def test_another_encoding_is_counted_afresh() -> None:
    """Stored counts serve only the encoding that they were made with."""
    log = Log([UserMessage.text("数据库里的事件" * 9)])
    view = log.view(model="gpt-4")
    assert view.encoding == "cl100k_base"
    assert view.tokens == count_messages(view.messages, tokenizer_for("gpt-4"))
    assert view.tokens.tokens != log.view().tokens.tokens


def test_an_estimated_model_says_so() -> None:
    """Counts of models without a public tokenizer have a margin."""
    view = conversation().view(model="claude-sonnet-4")
    expected = count_messages(view.messages, tokenizer_for("claude-sonnet-4"))
    assert (view.tokens.tokens, view.tokens.exact) == (expected.tokens, False)
    assert view.tokens.margin == pytest.approx(expected.margin)


def test_an_empty_conversation_is_an_empty_request() -> None:
    """There is nothing to send, and nothing to account for."""
    view = Log().view(max_tokens=3)
    assert (view.messages, view.ledger, view.versions) == ((), (), ())


def test_no_more_rows_are_read_than_the_window_needs() -> None:
    """The cost is that of the window, not of the conversation."""
    log = Log(AssistantMessage.of(f"answer {n}") for n in range(500))
    read: list[ContextRow] = []

    class Counting(ListRowSource):
        def newest(self, page: int) -> Iterator[ContextRow]:
            for row in super().newest(page):
                read.append(row)
                yield row

    view = build(Counting(log.rows()), max_messages=5)
    assert (len(view.messages), len(read)) == (5, 6)
