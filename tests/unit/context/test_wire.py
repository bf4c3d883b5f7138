"""Ids are unique within a request, whatever providers have sent."""

from __future__ import annotations

from eventstore.events import AssistantMessage, ToolCallRequest
from tests.checkers import check_openai_messages
from tests.unit.context.log import Log


def wire_ids(*provider_ids: str | None) -> list[str]:
    """Return the ids that calls get, one assistant message each."""
    log = Log(
        AssistantMessage(
            tool_calls=(ToolCallRequest(name="f", arguments_text="{}", provider_id=one),)
        )
        for one in provider_ids
    )
    messages = log.view().messages
    assert check_openai_messages(messages) == []
    return [call["id"] for message in messages for call in message.get("tool_calls", [])]


def test_provider_ids_are_kept() -> None:
    """What was sent once is sent again to the byte."""
    assert wire_ids("call_a", "toolu-B") == ["call_a", "toolu-B"]


def test_a_repeated_id_is_used_once() -> None:
    """The first call keeps it; later ones are named by their place."""
    assert wire_ids("x", "x", "x") == ["x", "call_2_0", "call_3_0"]


def test_unusable_ids_are_replaced() -> None:
    """Missing, too long, or with characters that providers refuse."""
    assert wire_ids(None, "", "y" * 41, "a b", "z\n") == [f"call_{n}_0" for n in range(1, 6)]


def test_an_id_that_looks_like_ours_does_no_harm() -> None:
    """A provider may well have chosen the name that we would give."""
    assert wire_ids("call_2_0", None, "call_2_0_2") == ["call_2_0", "call_2_0_2", "call_3_0"]
