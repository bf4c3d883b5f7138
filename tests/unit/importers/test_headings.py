"""The SUMMARY class: what is one, and what is left below its heading."""

from __future__ import annotations

import pytest

from agent_eventstore.transcripts.openai_wire import summary_in, text_with_heading

TEXT = "They met."


@pytest.mark.parametrize(
    "heading",
    [
        "SUMMARY\n",
        "SUMMARY: ",
        "SUMMARY ",
        "CONVERSATION_SUMMARY\n\n",
        "\nSUMMARY:\n",
        "SUMMARY\uff1a",
    ],
)
def test_a_heading_is_kept_apart(heading: str) -> None:
    """messages[] writes its own; export gives back the one that was there."""
    found = summary_in(heading + TEXT)
    assert found is not None
    assert (TEXT, heading + TEXT) == (found.text, text_with_heading(found))


@pytest.mark.parametrize(
    "text", ["SUMMARIZE what they say", "SUMMARY_STYLE: short", "Summary: x", "A SUMMARY", ""]
)
def test_other_system_messages_are_none(text: str) -> None:
    """A prompt that asks for summaries was none, and must stay an instruction."""
    assert summary_in(text) is None
