"""What providers refuse is never sent: thinking alone, arguments that are no object, bad images."""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any

import pytest

from eventstore.events import (
    AssistantMessage,
    FilePart,
    ImagePart,
    OtherPart,
    ReasoningPart,
    TextPart,
    ToolCallRequest,
    ToolResult,
    UserMessage,
)
from projections.context import payload_messages
from projections.providers.provider_limits import LIMITS
from tests.checkers import CHECKERS
from tests.unit.context.log import Log
from tests.unit.context.wires import CLAUDE, call, responded, written

ASK = UserMessage.text("hi")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
)
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffd9")
GIF = b"GIF89a" + struct.pack("<HH", 3, 2) + bytes(8)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f" + bytes(13)
THOUGHT = ReasoningPart(text="hm", signature="signed")
REDACTED = ReasoningPart(text="", raw={"type": "redacted_thinking", "data": "secret"})


def inline(media: str, raw: bytes) -> str:
    """Return a ``data:`` URL."""
    return f"data:{media};base64,{base64.b64encode(raw).decode()}"


def sized(width: int, height: int) -> bytes:
    """Return the dot as a picture that claims another size."""
    return PNG[:16] + struct.pack(">II", width, height) + PNG[24:]


def images_in(sent: Any) -> list[str]:
    """Return the media types of the images in messages."""
    text = json.dumps([*sent])
    data = re.findall(r'"data:(image/[a-z]+);', text)
    return data + re.findall(r'"media_type": "(image/[a-z]+)"', text)


@pytest.mark.parametrize(
    "parts",
    [
        (THOUGHT,),
        (REDACTED,),
        (THOUGHT, TextPart(text=" \n")),
        (TextPart(text="So."), THOUGHT),
        (TextPart(text="So."), THOUGHT, REDACTED),
    ],
)
@pytest.mark.parametrize("then", [(ASK,), (), (AssistantMessage.of("More."), ASK)])
def test_thinking_is_not_the_last_block_of_a_message(parts: Any, then: Any) -> None:
    """An answer that was cut off while thinking made every later request fail."""
    written("anthropic_messages", ASK, AssistantMessage(parts=parts, invocation=CLAUDE), *then)


def test_thinking_goes_back_if_the_next_answer_continues_its_message() -> None:
    """Answers without a user's message between them are one message."""
    thought = AssistantMessage(parts=(THOUGHT,), invocation=CLAUDE)
    sent = written("anthropic_messages", ASK, thought, AssistantMessage.of("So."), ASK).messages
    assert [block["type"] for block in sent[1]["content"]] == ["thinking", "text"]


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize(
    "came",
    [
        '{"a": "b',
        "null",
        '"{\\"a\\":1}"',
        '{}{"a":1}',
        "[1]",
        "3",
        '{"a": NaN}',
        "print(1)",
        "\x00",
    ],
)
def test_arguments_that_are_no_object_are_sent_in_words(name: str, came: str) -> None:
    """The wire needs an object; the model reads in it what it had written."""
    call = ToolCallRequest(name="f", arguments_text=came, provider_id="c1")
    sent = written(name, ASK, AssistantMessage(tool_calls=(call,)), ASK).messages
    found = json.dumps(sent[1], ensure_ascii=False)
    within = json.dumps({payload_messages.INVALID: came}, ensure_ascii=False)
    assert within in found or json.dumps(within, ensure_ascii=False)[1:-1] in found


@pytest.mark.parametrize("name", CHECKERS)
def test_arguments_in_a_code_block_are_sent_as_they_ran(name: str) -> None:
    """They were parsed with a warning, and the tool ran with them."""
    call = ToolCallRequest(
        name="f",
        arguments_text='```json\n{"a": "z"}\n```',
        arguments={"a": "z"},
        parse_warning="the arguments stood in a block of code",
        provider_id="c1",
    )
    sent = written(name, ASK, AssistantMessage(tool_calls=(call,)), ASK).messages
    assert "```" not in json.dumps(sent)


def test_the_text_of_a_custom_tool_is_an_input() -> None:
    """Whoever takes only functions gets one whose input is the text, even if it looks like JSON."""
    call = ToolCallRequest(name="f", arguments_text="{}", provider_id="c", raw={"type": "custom"})
    sent = written("openai_chat", ASK, AssistantMessage(tool_calls=(call,)), ASK).messages
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"input": "{}"}'


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("within", ["user", "result"])
@pytest.mark.parametrize(
    ("url", "media"),
    [
        (inline("image/png", PNG), "image/png"),
        (inline("image/png", JPEG), "image/jpeg"),
        (inline("image/jpg", JPEG), "image/jpeg"),
        (inline("IMAGE/JPEG", JPEG), "image/jpeg"),
        (inline("application/octet-stream", GIF), "image/gif"),
        (inline("", WEBP), "image/webp"),
        (inline("image/jpeg", WEBP), "image/webp"),
    ],
)
def test_the_media_type_of_an_image_is_that_of_its_bytes(
    name: str, within: str, url: str, media: str
) -> None:
    """A wrong one made every later request fail."""
    if name == "openai_chat" and within == "result":
        return  # There, results are text.
    assert images_in(written(name, *shown(within, ImagePart(url=url))).messages) == [media]


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("within", ["user", "result"])
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64,A=AA", "damaged"),
        ("data:image/png;base64,%%%", "damaged"),
        (inline("image/png", b"no picture"), "no image"),
        (inline("image/png", PNG[:30]), "incomplete"),
        (inline("image/png", PNG[:8]), "incomplete"),
        (inline("image/png", sized(0, 1)), "incomplete"),
        (inline("image/gif", GIF[:9]), "incomplete"),
        (inline("image/tiff", b"II*\x00" + bytes(20)), "TIFF"),
        (inline("image/bmp", b"BM" + bytes(20)), "BMP"),
        (inline("image/png", b"<svg xmlns='x'/>"), "SVG"),
        (inline("image/heic", bytes(4) + b"ftypheic" + bytes(9)), "HEIC"),
        ("file:///tmp/a.png", "file:///tmp/a.png"),
        ("blob:https://x/1", "blob:https://x/1"),
    ],
)
def test_an_image_that_no_provider_decodes_is_described(
    name: str, within: str, url: str, why: str
) -> None:
    """The model reads that there was one, and why it does not see it."""
    sent = written(name, *shown(within, ImagePart(url=url))).messages
    if name == "openai_chat" and within == "result":
        assert "[image" in json.dumps(sent)
    else:
        assert images_in(sent) == []
        assert why in json.dumps(sent)


def test_an_image_in_the_form_of_the_api_is_checked_too() -> None:
    """An import keeps a part that it has no name for."""
    part = OtherPart(raw={"type": "image_url", "image_url": {"url": inline("image/png", JPEG)}})
    assert images_in(written("openai_chat", *shown("user", part)).messages) == ["image/jpeg"]


@pytest.mark.parametrize(
    ("picture", "others", "why"),
    [
        (PNG + bytes(5 * 1024 * 1024) + PNG[-12:], 0, "bytes"),
        (sized(8001, 1), 0, "pixels"),
        (sized(1, 2001), 20, "pixels"),
    ],
    ids=["bytes", "side", "side beside many"],
)
def test_an_image_beyond_the_limits_of_anthropic_is_described(
    picture: bytes, others: int, why: str
) -> None:
    """OpenAI takes it all the same."""
    many = tuple(ImagePart(url=inline("image/png", PNG)) for _ in range(others))
    log = (UserMessage(parts=(ImagePart(url=inline("image/png", picture)), *many)),)
    sent = written("anthropic_messages", *log).messages
    assert (len(images_in(sent)), why in json.dumps(sent)) == (others, True)
    assert len(images_in(written("openai_chat", *log).messages)) == others + 1


@pytest.mark.parametrize("name", CHECKERS)
def test_no_more_images_than_the_format_takes(name: str) -> None:
    """The newest stay; the older ones go in large steps, so that prefixes last."""
    most = LIMITS[name].images
    picture = ImagePart(url="https://x/1.png")

    def shown(number: int) -> int:
        text = json.dumps(written(name, UserMessage(parts=(picture,) * number)).messages)
        return number - text.count("not shown")

    assert [shown(most), shown(most + 1), shown(most + 2)] == [most, most // 2, most // 2 + 1]


@pytest.mark.parametrize("name", CHECKERS)
def test_no_message_is_empty(name: str) -> None:
    """An empty text of a user is named as such, and an empty instruction is left out."""
    assert "[empty message]" in json.dumps(written(name, UserMessage.text("")).messages)


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize(
    ("first", "second"), [("工具", "查询"), ("a" * 64 + "b", "a" * 64 + "c"), ("größe", "grüße")]
)
def test_different_tools_have_different_names(name: str, first: str, second: str) -> None:
    """Letters that no provider takes are lost, so a digest stands for them."""
    calls = tuple(
        ToolCallRequest(name=tool, arguments_text="{}", provider_id=tool)
        for tool in (first, second)
    )
    written(name, ASK, AssistantMessage(tool_calls=calls), ASK)
    assert payload_messages.wire_name(first) != payload_messages.wire_name(second)


def shown(within: str, part: Any) -> list[Any]:
    """Return a log in which a user, or a tool, shows a part."""
    if within == "user":
        return [UserMessage(parts=(TextPart(text="see"), part))]
    call = ToolCallRequest(name="f", arguments_text="{}", provider_id="c1")
    result = ToolResult(call_id="2.0", content=(TextPart(text="see"), part))
    return [ASK, AssistantMessage(tool_calls=(call,)), result]


PDF_BYTES = b"%PDF-1.7\n%%EOF"


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize(
    ("file", "sent"),
    [
        (FilePart(name="a.pdf", url=inline("application/pdf", PDF_BYTES)), "data"),
        (FilePart(url=inline("application/octet-stream", PDF_BYTES)), "data"),
        (FilePart(name="a.md", url=inline("text/markdown", "# Größe".encode())), "# Größe"),
        (FilePart(name="a.json", url=inline("application/json", b'{"key": 1}')), '{"key"'),
        (FilePart(name="a.py", url=inline("application/octet-stream", b"print(1)")), "print(1)"),
        (FilePart(name="a.pdf", url=inline("application/pdf", b"no such")), "[file: a.pdf"),
        (FilePart(name="a.pdf", url=inline("application/pdf", b"")), "[file: a.pdf"),
        (FilePart(name="a.pdf", url="data:application/pdf;base64,A=A"), "[file: a.pdf"),
        (FilePart(name="a.txt", url=inline("text/plain", b"a\0b")), "[file: a.txt"),
        (FilePart(name="a.txt", url=inline("text/plain", b" \n")), "[file: a.txt"),
        (FilePart(name="a.zip", url=inline("application/zip", b"PK\x03\x04")), "[file: a.zip"),
        (FilePart(name="a.mp4", url=inline("video/mp4", bytes(9))), "[file: a.mp4"),
        (FilePart(name="a.png", url=inline("image/png", PNG)), "image"),
        (FilePart(file_id="file_011CNha8iCJcU1wXNR6q4V8w"), "file_011CNha8"),
    ],
)
def test_files_are_sent_in_a_form_that_the_provider_takes(
    name: str, file: FilePart, sent: str
) -> None:
    """PDF and text as files or texts, an image as an image, and anything else in words."""
    found = json.dumps([*written(name, *shown("user", file)).messages], ensure_ascii=False)
    text = re.escape(json.dumps(sent, ensure_ascii=False)[1:-1])
    as_data = base64.b64encode(sent.encode()).decode()[:4]  # A Responses file of text.
    assert re.search(text, found) or as_data in found


@pytest.mark.parametrize("name", CHECKERS)
def test_an_office_document_is_sent_to_whoever_takes_it(name: str) -> None:
    """Only Responses reads them; others have its name."""
    media = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    file = FilePart(name="a.docx", url=inline(media, b"PK\x03\x04 and so on"))
    found = json.dumps([*written(name, *shown("user", file)).messages])
    assert ("[file: a.docx" in found) == (name != "openai_responses")


def test_the_text_of_a_file_is_counted() -> None:
    """A file of text costs its text, in whatever form it is sent."""
    file = FilePart(name="a.txt", url=inline("text/plain", b"word " * 9_000))
    assert Log([UserMessage(parts=(file,))]).rows()[0].tokens > 8_000


ANIMATED = (
    b"GIF89a" + struct.pack("<HH", 1, 1) + b"\x80\x00\x00" + bytes(6)
    + b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
    + (b"\x21\xf9\x04\x00\x0a\x00\x00\x00\x2c" + struct.pack("<HHHH", 0, 0, 1, 1)
       + b"\x00\x02\x02\x44\x01\x00") * 3 + b"\x3b"
)  # fmt: skip


@pytest.mark.parametrize("name", CHECKERS)
def test_of_an_animated_gif_the_first_picture_is_sent(name: str) -> None:
    """OpenAI refuses the whole; one picture of it is a valid GIF."""
    image = ImagePart(url=inline("image/gif", ANIMATED))
    found = json.dumps([*written(name, *shown("user", image)).messages])
    (data,) = re.findall(r"R0lGOD[A-Za-z0-9+/=]*", found)
    raw = base64.b64decode(data)
    assert (raw.count(b"\x21\xf9"), raw[-1:], raw.startswith(ANIMATED[:19])) == (1, b"\x3b", True)


def test_the_size_of_an_image_for_anthropic_is_that_of_its_base64() -> None:
    """4 MB of bytes are more than the 5 MB that its endpoint counts."""
    picture = PNG + bytes(4 * 1024 * 1024) + PNG[-12:]
    log = (UserMessage(parts=(ImagePart(url=inline("image/png", picture)),)),)
    assert images_in(written("anthropic_messages", *log).messages) == []
    assert len(images_in(written("openai_chat", *log).messages)) == 1


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("within", ["user", "result"])
@pytest.mark.parametrize("form", ["wav", "mp3", "flac", "damaged"])
def test_audio_goes_to_chat_completions_and_to_others_in_words(
    name: str, within: str, form: str
) -> None:
    """Never as the text of its base64."""
    data = "%%" if form == "damaged" else base64.b64encode(b"RIFFsound" * 9).decode()
    audio = {"data": data, "format": "wav" if form == "damaged" else form}
    part = OtherPart(raw={"type": "input_audio", "input_audio": audio})
    sent = json.dumps([*written(name, *shown(within, part)).messages])
    if (name, within) == ("openai_chat", "user") and form in ("wav", "mp3"):
        assert json.dumps({"type": "input_audio", "input_audio": audio}) in sent
    else:
        assert "[audio]" in sent
        assert data not in sent


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("number", [128, 129, 300])
def test_many_calls_of_one_message_are_sent(name: str, number: int) -> None:
    """Chat completions take 128 in a message, so that more are in several."""
    calls = tuple(
        ToolCallRequest(name="f", arguments_text=f'{{"n": {n}}}', provider_id=f"c{n}")
        for n in range(number)
    )
    results = [ToolResult(call_id=f"2.{n}", content=f"r{n}") for n in range(number)]
    sent = json.dumps(
        [*written(name, ASK, AssistantMessage.of("", tool_calls=calls), *results).messages]
    )
    assert all(f'"r{n}"' in sent for n in range(number))


@pytest.mark.parametrize("made", ["item_1", "chatcmpl-1", "msg_" + "x" * 80, "019f-ä", "rs_1"])
def test_items_with_ids_of_another_server_are_sent_without_them(made: str) -> None:
    """OpenAI refuses an id that does not begin with the letters of its type."""
    output = (
        {"type": "reasoning", "id": made, "summary": [], "encrypted_content": "abcd"},
        {
            "type": "message",
            "id": f"{made}2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "So.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": f"{made}3",
            "call_id": "id",
            "name": "f",
            "arguments": "{}",
        },
    )
    answer = responded(*output, text="So.", calls=[call()])
    items = written("openai_responses", ASK, answer, ASK, provider="openai").messages
    kinds = [item["type"] for item in items]
    assert kinds[1:5] == ["reasoning", "message", "function_call", "function_call_output"]
    assert items[1]["encrypted_content"] == "abcd"
