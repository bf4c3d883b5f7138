"""The rules of OpenAI's Responses, one by one."""

from __future__ import annotations

from typing import Any

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Payload,
    Summary,
    SystemInstruction,
    TextPart,
    ToolResult,
    UserMessage,
    VersionRange,
)
from tests.unit.context.wires import call, responded, thinking, written

HI = UserMessage.text("hi")
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abcd"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
}
ASKED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "id",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}


def items(*events: Payload, provider: str | None = None) -> list[dict[str, Any]]:
    """Return the input items."""
    return list(written("openai_responses", *events, provider=provider).messages)


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Return a message as an input item."""
    return {"type": "message", "role": role, "content": content, **fields}


def test_the_system_part_goes_as_instructions() -> None:
    """It is not an item."""
    wire = written("openai_responses", SystemInstruction(text="Be kind."), HI)
    assert wire.body == {"instructions": "Be kind.", "input": [message("user", "hi")]}


def test_calls_and_outputs_are_items() -> None:
    """Tied by their id, outputs after all calls of the message."""
    calls = (call(arguments='{ "a":1}', provider_id="a"), call(provider_id="a"))
    result = ToolResult(call_id="2.1", content="42")
    first = {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{ "a":1}'}
    found = items(HI, AssistantMessage.of("so", tool_calls=calls), result)
    assert found[1:3] == [message("assistant", "so"), first]
    assert [item.get("call_id") for item in found[3:]] == ["call_2_1", "a", "call_2_1"]
    assert found[-1] == {"type": "function_call_output", "call_id": "call_2_1", "output": "42"}


def test_encrypted_reasoning_goes_back_with_its_response() -> None:
    """Ids included, as the guide on conversation state has it."""
    found = items(HI, responded(REASONING, SAID, ASKED, text="yes", calls=[call()]))
    assert found[1:4] == [
        REASONING,
        SAID,
        {**ASKED, "call_id": "id"},
    ]


def test_reasoning_that_only_the_server_knows_is_left_out_with_all_ids() -> None:
    """An id alone would be looked up, and not found where nothing was stored."""
    bare: dict[str, Any] = {**REASONING, "encrypted_content": None}
    found = items(HI, responded(bare, {**SAID, "phase": "final_answer"}, text="yes"))
    assert found[1:] == [message("assistant", "yes", phase="final_answer")]


def test_a_response_that_stands_twice_keeps_its_ids_once() -> None:
    """An item id may not repeat in a request."""
    found = items(
        HI, responded(REASONING, SAID, text="yes"), responded(REASONING, SAID, text="yes")
    )
    assert found[1:] == [REASONING, SAID, message("assistant", "yes")]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    """The endpoint wants the item that follows it."""
    later = {**REASONING, "id": "rs_2"}
    assert items(HI, responded(REASONING, SAID, later, text="yes"))[1:] == [REASONING, SAID]


def test_the_reasoning_of_another_seller_is_left_out() -> None:
    """Nobody else can decrypt it."""
    found = items(HI, responded(REASONING, SAID, text="yes"), provider="x-ai")
    assert found[1:] == [message("assistant", "yes")]


def test_calls_that_contradict_their_items_win() -> None:
    """What the log says was called is what gets results."""
    other = call(provider_id="else")
    found = items(HI, responded(REASONING, ASKED, calls=[other]))
    assert [item["type"] for item in found[1:]] == ["function_call", "function_call_output"]


def test_a_custom_tools_input_stays_text() -> None:
    """Its output answers it in kind."""
    asked = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "id", "name": "f", "input": "x"}
    found = items(HI, responded(asked, calls=[call(arguments="x")]))
    assert found[1] == {**asked}
    assert found[2]["type"] == "custom_tool_call_output"


def test_claudes_thinking_is_left_out() -> None:
    """A history of one provider goes on with another."""
    assert items(HI, thinking())[1:] == [message("assistant", "Let me see.")]


def test_a_summary_is_a_system_item() -> None:
    """It stands where its sources stood."""
    summary = Summary(text="They met.", versions=(VersionRange(first=1, last=1),))
    expected = message("system", "CONVERSATION_SUMMARY\nThey met.")
    assert items(HI, summary) == [expected]


def test_parts_take_the_forms_of_input() -> None:
    """Text, images and files have types of their own here."""
    parts = (
        TextPart(text="see"),
        ImagePart(url="https://x/y.png"),
        FilePart(file_id="file-1"),
        FilePart(name="a.pdf", url="data:application/pdf;base64,JVBERi0="),
    )
    assert items(UserMessage(parts=parts, name="Ann")) == [
        message(
            "user",
            [
                {"type": "input_text", "text": "Ann:"},
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
                {"type": "input_file", "file_id": "file-1"},
                {
                    "type": "input_file",
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,JVBERi0=",
                },
            ],
        )
    ]


def test_an_empty_conversation_has_an_item() -> None:
    """An empty input is refused."""
    assert len(items()) == 1
