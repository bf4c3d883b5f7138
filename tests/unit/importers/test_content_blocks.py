"""Content blocks in the dialects of providers and frameworks."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from eventstore.events import FilePart, ImagePart, OtherPart, RefusalPart, TextPart
from projections.provider_actions import legible
from projections.providers.content_blocks import content_part

PNG = b64encode(b"\x89PNG\r\n\x1a\n123456").decode()
PICTURE = ImagePart(url=f"data:image/png;base64,{PNG}", media_type="image/png")
PDF = FilePart(url="data:application/pdf;base64,JVBERi0=", media_type="application/pdf")
SOUND = OtherPart(raw={"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})


class TestImages:
    """One image, whoever wrote it."""

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "image_url", "image_url": {"url": PICTURE.url}},
            {"type": "image_url", "image_url": PICTURE.url},
            {"type": "input_image", "image_url": PICTURE.url},
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
            {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PNG},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "image", "image": PNG, "mediaType": "image/png"},
            {"type": "image", "image": {"type": "Buffer", "data": [*b"\x89PNG\r\n\x1a\n123456"]}},
            {"type": "image-data", "data": PNG, "mediaType": "image/png"},
            {"type": "media", "data": PNG, "mediaType": "image/png"},
            {"type": "file", "data": PNG, "mediaType": "image/png"},
            {"type": "resource", "resource": {"mimeType": "image/png", "blob": PNG, "uri": "a:b"}},
            {"type": "non_standard", "value": {"type": "image", "base64": PNG}},
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
            {"inline_data": {"mime_type": "image/png", "data": PNG}},
            {"image": {"format": "png", "source": {"bytes": PNG}}},
            {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n123456"}}},
        ],
    )
    def test_every_dialect_gives_the_same_image(self, block: dict[str, Any]) -> None:
        """No dialect's image is read as something else, or as text with its base64."""
        found = content_part(block)
        assert isinstance(found, ImagePart)
        assert found.url == PICTURE.url
        assert found.media_type in (None, "image/png")  # None: only its data say so

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "image", "url": "https://example.com/a"},
            {"type": "image", "source_type": "url", "url": "https://example.com/a"},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a"}},
            {"type": "image", "image": "https://example.com/a"},
            {"type": "image-url", "url": "https://example.com/a"},
        ],
    )
    def test_an_image_by_address(self, block: dict[str, Any]) -> None:
        """An address is not taken for base64."""
        assert content_part(block) == ImagePart(url="https://example.com/a")


class TestFiles:
    """Documents, sound and files by id."""

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf"},
            {"type": "file", "file": {"file_data": PDF.url}},
            {"type": "input_file", "file_data": PDF.url},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            },
            {"document": {"format": "pdf", "source": {"bytes": "JVBERi0="}}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        ],
    )
    def test_every_dialect_gives_the_same_file(self, block: dict[str, Any]) -> None:
        """A file is a file with its bytes, whoever wrote it."""
        found = content_part(block)
        assert isinstance(found, FilePart)
        assert found.url == PDF.url
        assert found.media_type in (None, "application/pdf")

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "audio", "base64": "UklGRg==", "mime_type": "audio/wav"},
            {
                "type": "audio",
                "source_type": "base64",
                "data": "UklGRg==",
                "mime_type": "audio/wav",
            },
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
            {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
            SOUND.raw,
        ],
    )
    def test_sound_is_stored_as_chat_completions_take_it(self, block: dict[str, Any]) -> None:
        """Every dialect's sound reaches the models that hear."""
        assert content_part(block) == SOUND

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "file_id": "file-1"},
            {"type": "input_image", "file_id": "file-1"},
            {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
            {"type": "file", "source_type": "id", "id": "file-1"},
        ],
    )
    def test_a_file_by_id(self, block: dict[str, Any]) -> None:
        """The id of a file at its provider is found under each of its names."""
        assert content_part(block) == FilePart(file_id="file-1")

    def test_an_address_that_no_model_reads_is_a_file(self) -> None:
        """An image in a bucket is no URL that OpenAI or Anthropic fetches."""
        found = content_part({"type": "media", "mime_type": "image/png", "file_uri": "gs://a/b"})
        assert found == FilePart(url="gs://a/b", media_type="image/png")


class TestTexts:
    """Texts, and blocks that consist of texts."""

    @pytest.mark.parametrize(
        ("block", "text"),
        [
            ("hello", "hello"),
            ({"type": "text", "text": "hello"}, "hello"),
            ({"type": "input_text", "text": "hello"}, "hello"),
            ({"type": "text-plain", "text": "hello", "mime_type": "text/plain"}, "hello"),
            ({"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}, "hello"),
            (
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "text", "text": "hello"}]},
                },
                "hello",
            ),
            (
                {
                    "type": "search_result",
                    "title": "T",
                    "source": "https://example.com",
                    "content": [{"type": "text", "text": "hello"}],
                },
                "T\nhttps://example.com\nhello",
            ),
            ({"text": "hello"}, "hello"),
        ],
    )
    def test_text(self, block: Any, text: str) -> None:
        """What is text in any dialect is text to every model."""
        assert content_part(block) == TextPart(text=text)

    def test_a_refusal(self) -> None:
        """A refusal stays one."""
        assert content_part({"type": "refusal", "refusal": "no"}) == RefusalPart(text="no")

    @pytest.mark.parametrize(
        "block",
        [
            None,
            7,
            {},
            {"type": 7},
            {"type": "image"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {}},
            {"type": "thinking", "thinking": "hm"},
            {"type": "something_new", "data": PNG},
            {"type": "non_standard", "value": {"type": "non_standard", "value": {}}},
            {"type": "image", "image": {"type": "Buffer", "data": [-1]}},
            {"type": "image", "source": {"source": {"source": {}}}},
        ],
    )
    def test_what_is_no_content_is_left_to_the_caller(self, block: Any) -> None:
        """Calls, reasoning, unknown and damaged blocks are not guessed at."""
        assert content_part(block) is None


class TestUnknownBlocks:
    """A block of no known dialect goes to a model as text."""

    def test_data_are_left_out(self) -> None:
        """300 KB of base64 in an unknown block once cost 273,105 tokens."""
        data = b64encode(bytes(range(256)) * 40).decode()
        block = {"type": "hologram", "frames": [data, "seen from above"], "n": 2}
        assert legible(block) == {
            "type": "hologram",
            "frames": [f"[{len(data)} characters of data]", "seen from above"],
            "n": 2,
        }
