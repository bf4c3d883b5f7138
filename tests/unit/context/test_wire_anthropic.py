"""The rules of Anthropic's Messages, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Invocation,
    LlmError,
    OtherPart,
    Payload,
    ReasoningPart,
    RefusalPart,
    Summary,
    SystemInstruction,
    TextPart,
    ToolResult,
    UserMessage,
    VersionRange,
)
from projections.providers import request_base
from tests.unit.context.wires import CLAUDE, GPT, call, responded, thinking, written

HI = UserMessage.text("hi")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "signed"}


def turns(*events: Payload, provider: str | None = None) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return role and blocks of each message."""
    wire = written("anthropic_messages", *events, provider=provider)
    return [(message["role"], message["content"]) for message in wire.messages]


def said(text: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": text}


def test_the_system_part_goes_apart() -> None:
    """No message has the role system."""
    wire = written("anthropic_messages", SystemInstruction(text="Be kind."), HI)
    assert wire.body == {
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [said("hi")]}],
    }


def test_neighbours_of_one_role_become_one_message() -> None:
    """Turns alternate, whoever wrote twice in a row."""
    events = (HI, HI, AssistantMessage.of("a"), AssistantMessage.of("b"), HI)
    assert turns(*events) == [
        ("user", [said("hi"), said("hi")]),
        ("assistant", [said("a"), said("b")]),
        ("user", [said("hi")]),
    ]


def test_results_of_one_turn_stand_first_in_the_next() -> None:
    """Parallel calls are answered together, before what the user says."""
    asked = AssistantMessage(tool_calls=(call(provider_id="a"), call(provider_id="b")))
    results = (ToolResult(call_id="2.1", content="2"), ToolResult(call_id="2.0", content="1"))
    assert turns(HI, asked, *results, HI)[-1] == (
        "user",
        [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "2"},
            said("hi"),
        ],
    )


@pytest.mark.parametrize("status", ["failed", "denied", "skipped", "outcome_unknown"])
def test_a_result_that_is_no_success_is_an_error(status: Any) -> None:
    """Whatever its words are."""
    result = ToolResult(call_id="2.0", status=status, content="error: denied, skipped, unknown")
    assert turns(HI, AssistantMessage(tool_calls=(call(),)), result)[-1][1][0]["is_error"] is True


def test_a_missing_result_is_an_error() -> None:
    """A placeholder stands for it."""
    block = turns(HI, AssistantMessage(tool_calls=(call(),)))[-1][1][0]
    assert block["is_error"] is True


def test_an_empty_result_is_told_in_words() -> None:
    """An empty text would be refused."""
    asked = AssistantMessage(tool_calls=(call(),))
    result = ToolResult(call_id="2.0", content=" ")
    [block] = turns(HI, asked, result)[-1][1]
    assert "TOOL_SUCCEEDED\nThe tool ran and returned no output." == block["content"]


def test_images_of_tools_are_shown() -> None:
    """What OpenAI's chat can only mention."""
    parts = (TextPart(text="see"), ImagePart(url="https://x/y.png"))
    asked = AssistantMessage(tool_calls=(call(),))
    block = turns(HI, asked, ToolResult(call_id="2.0", content=parts))[-1][1][0]
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    assert block["content"] == [said("see"), image]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("{broken", {"invalid_arguments": "{broken"}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ('{"a": NaN}', {"invalid_arguments": '{"a": NaN}'}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_arguments_are_an_object(text: str, given: dict[str, Any]) -> None:
    """Text that is none is kept as it is, under a name that says so."""
    asked = AssistantMessage(tool_calls=(call(arguments=text),))
    assert turns(HI, asked)[1][1][0]["input"] == given


def test_thinking_goes_back_before_its_calls() -> None:
    """Unmodified, signature and all."""
    use = {"type": "tool_use", "id": "id", "name": "f", "input": {}}
    assert turns(HI, thinking(call()))[1][1] == [THOUGHT, said("Let me see."), use]


def test_interleaved_blocks_keep_their_order() -> None:
    """The text between two thoughts stays between them."""
    redacted = {"type": "redacted_thinking", "data": "secret"}
    message = AssistantMessage(
        parts=(
            ReasoningPart(text="", raw=redacted),
            TextPart(text="So."),
            ReasoningPart(text="hm", signature="signed"),
        ),
        invocation=CLAUDE,
    )
    ends = (*message.parts, TextPart(text="Done."))
    message = message.model_copy(update={"parts": ends})
    assert turns(HI, message, HI)[1][1] == [redacted, said("So."), THOUGHT, said("Done.")]


@pytest.mark.parametrize(
    "made",
    [GPT, Invocation(provider="z-ai", specification="anthropic_messages")],
)
def test_the_thoughts_of_others_never_go_as_thinking(made: Invocation) -> None:
    """Their signature, if there is one, means nothing here."""
    message = thinking().model_copy(update={"invocation": made})
    assert turns(HI, message, HI, provider="anthropic")[1][1] == [said("Let me see.")]


def test_thinking_of_claude_may_move_between_its_sellers() -> None:
    """Anthropic says that signatures are compatible across platforms."""
    assert turns(HI, thinking(), HI, provider="bedrock")[1][1][0] == THOUGHT


def test_thinking_without_a_signature_is_left_out() -> None:
    """A stream that broke off, or an import, has none."""
    assert turns(HI, thinking(signature=None), HI)[1][1] == [said("Let me see.")]


def test_a_repeated_id_is_rewritten_in_native_blocks_too() -> None:
    """Thinking does not exempt a call from having an id of its own."""
    messages = turns(HI, thinking(call()), thinking(call()))
    assert [b["id"] for _, blocks in messages for b in blocks if b["type"] == "tool_use"] == [
        "id",
        "call_3_0",
    ]


def test_an_empty_conversation_says_so() -> None:
    """There must be a message, and it must be true."""
    assert turns() == [("user", [said(request_base.NOTHING_YET)])]


def test_the_user_comes_first_and_last() -> None:
    """A conversation that the assistant began, and that it ended."""
    assert turns(AssistantMessage.of("Hello ")) == [
        ("user", [said(request_base.NO_USER)]),
        ("assistant", [said("Hello ")]),
        ("user", [said(request_base.CLOSING)]),
    ]


def test_what_is_added_is_told() -> None:
    """So that it can be counted."""
    wire = written("anthropic_messages", AssistantMessage.of("Hello"))
    assert wire.added == (request_base.NO_USER, request_base.CLOSING)


def test_a_summary_is_a_note_of_the_user_turn() -> None:
    """It stands where its sources stood, and is not an instruction."""
    summary = Summary(text="They met.", versions=(VersionRange(first=1, last=2),))
    note = "<system_note>\nCONVERSATION_SUMMARY\nThey met.\n</system_note>"
    events = (HI, AssistantMessage.of("yes"), summary, UserMessage.text("and?"))
    assert turns(*events) == [("user", [said(note), said("and?")])]


def test_a_failed_call_is_told_in_the_user_turn() -> None:
    """The model must not take the account of an error for its own words."""
    error = LlmError(kind="network", message="reset", partial_text="The ans")
    ((role, blocks),) = turns(HI, error)
    assert role == "user"
    assert "The ans\n\nLLM_ERROR" in blocks[1]["text"]


def test_a_refusal_is_text() -> None:
    """There is no field for it."""
    message = AssistantMessage(parts=(RefusalPart(text="no"),))
    assert turns(HI, message, HI)[1][1] == [said("no")]


def test_an_empty_answer_makes_no_turn() -> None:
    """It says nothing, and empty text is refused."""
    assert turns(HI, AssistantMessage(), HI) == [("user", [said("hi"), said("hi")])]


def test_an_empty_user_message_is_told() -> None:
    """Something was sent, and nothing was in it."""
    assert turns(UserMessage.text(" \n")) == [("user", [said(request_base.EMPTY_USER)])]


def test_a_users_name_stands_before_the_text() -> None:
    """The format has no field for names."""
    assert turns(UserMessage.text("hi", name="Ann")) == [("user", [said("Ann: hi")])]


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
JPEG = "/9j/4AAQSkZJRgABAQAAAQABAAD/2Q=="
PNG = {"type": "base64", "media_type": "image/png", "data": DOT}
JPG = {"type": "base64", "media_type": "image/jpeg", "data": JPEG}
WORDS = "[image: not shown: its base64 is damaged]"
TEXT = {"type": "text", "media_type": "text/plain", "data": "hello"}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            ImagePart(url=f"data:image/png;base64,{DOT[:8]}\n{DOT[8:]}"),
            {"type": "image", "source": PNG},
        ),
        (ImagePart(url=f"data:image/jpg;base64,{JPEG[:-2]}%3D="), {"type": "image", "source": JPG}),
        (ImagePart(url=f"data:image/png;base64,{JPEG[:-2]}"), {"type": "image", "source": JPG}),
        (
            ImagePart(url=f"data:image/png;base64,{DOT.replace('+', '%2B').replace('/', '%2F')}"),
            {"type": "image", "source": PNG},
        ),
        (ImagePart(url="data:image/png;base64,A=AA"), said(WORDS)),
        (ImagePart(url="data:image/png;base64,AAAAA"), said(WORDS)),
        (ImagePart(url="data:image/png;base64,"), said("[image: not shown: it is empty]")),
        (
            ImagePart(url="data:image/png;base64,AAAA"),
            said("[image: not shown: its data are no image]"),
        ),
        (
            ImagePart(url="data:image/tiff;base64,SUkqAAgAAAA="),
            said("[image: not shown: TIFF is not accepted]"),
        ),
        (ImagePart(url="file:///x.png"), said("[image: file:///x.png]")),
        (ImagePart(url="http://x/y.png"), said("[image: http://x/y.png]")),
        (
            FilePart(name="a.pdf", url="data:application/pdf;base64,JVBERi0="),
            {"type": "document", "source": PDF, "title": "a.pdf"},
        ),
        (
            FilePart(name="a.txt", url="data:text/markdown,hello"),
            {"type": "document", "source": TEXT, "title": "a.txt"},
        ),
        (
            FilePart(name="a.zip", url="data:application/zip;base64,AAAA"),
            said("[file: a.zip, not shown: application/zip is not accepted]"),
        ),
        (FilePart(file_id="file-1"), said("[file: file-1]")),
        (
            OtherPart(raw={"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}}),
            said("[audio]"),
        ),
    ],
)
def test_parts_become_blocks_or_words(part: Any, block: dict[str, Any]) -> None:
    """What Anthropic takes is sent; anything else is named."""
    assert turns(UserMessage(parts=(part, TextPart(text=" ")))) == [("user", [block])]


def test_openais_items_are_plain_words_here() -> None:
    """A history of one provider goes on with another."""
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "abcd"}
    assert turns(HI, responded(reasoning, text="yes"), HI)[1][1] == [said("yes")]
