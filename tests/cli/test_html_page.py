"""``export --format html``: one file with a whole conversation, which can do no harm."""

from __future__ import annotations

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent_eventstore import Conversation, EventStore
from agent_eventstore.cli import program
from eventstore import events as e
from tests.cli.program import run

PIXEL = "data:image/png;base64,iVBORw0KGgo="
EVIL = (
    '</pre></style></title><script>alert(1)</script><img src=x onerror="alert(1)">'
    "<iframe src=https://evil.example></iframe> ![pixel](https://evil.example/p.png) "
    "[link](javascript:alert(1)) <svg/onload=alert(1)> {{ 7*7 }} \x1b[31m\u202e"
)
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "style"}
NEVER = {
    "script", "iframe", "object", "embed", "link", "base", "form", "svg", "video", "audio", "source"
}  # fmt: skip


class _Reader(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Note it."""
        self.text += data


def page(store: EventStore, url: str, path: Path, text: str) -> _Reader:
    """Export a conversation in which everything is this text."""
    with Conversation.start(store, title=text, user_id=text.replace("\x1b", "")) as conversation:
        image = e.ImagePart(url=PIXEL)
        far = e.ImagePart(url="https://evil.example/p.png")
        message = e.UserMessage(parts=(e.TextPart(text=text), image, far))
        with conversation.turn(message) as turn:
            with turn.llm_call() as call:
                arguments = {"x": text}
                asked = [{"name": "grep", "arguments": arguments, "id": "1"}]
                call.message(text=text, reasoning=text, tool_calls=asked)
            with turn.tool(call.tool_calls[0]) as tool:
                tool.fail(text)
            with turn.llm_call() as call:
                call.text("long " * 20_000 + "its end")
    done = run("export", str(conversation.id), "--format", "html", "-o", str(path), url=url)
    assert (0, "", "") == (done.status, done.out, done.err)
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    return reader


@pytest.fixture
def reader(store: EventStore, database_url: str, tmp_path: Path) -> _Reader:
    """Give the page of a conversation full of markup."""
    return page(store, database_url, tmp_path / "page.html", EVIL)


@pytest.fixture
def store(database_url: str):  # type: ignore[no-untyped-def]
    """Give a store."""
    with EventStore.open(database_url) as opened:
        yield opened


def test_nothing_runs_and_nothing_is_loaded(reader: _Reader) -> None:
    """No tag or attribute is from a text, and no address but that of a link leads elsewhere."""
    assert [] == [tag for tag, _ in reader.tags if tag in NEVER]
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")]
        loaded = {name: value for name, value in attributes.items() if name in LOADING}
        assert loaded in ({}, {"src": PIXEL}), tag
        assert not str(attributes.get("href", "https:")).startswith("javascript")
    assert 1 == [tag for tag, _ in reader.tags].count("img")
    [policy] = [
        attributes["content"]
        for tag, attributes in reader.tags
        if attributes.get("http-equiv") == "content-security-policy"
    ]
    assert str(policy).startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_everything_is_there(reader: _Reader) -> None:
    """Texts are whole, and what cannot be seen is shown as an escape."""
    assert "long " * 20_000 + "its end" in reader.text
    assert reader.text.count("<script>alert(1)</script>") >= 5
    assert "{{ 7*7 }}" in reader.text
    assert "\\x1b[31m" in reader.text
    assert not re.search("[\x1b\u202e]", reader.text)
    assert "failed" in reader.text


def test_without_the_extra(
    store: EventStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names what is missing."""
    with Conversation.start(store) as conversation:
        pass
    found = importlib.util.find_spec
    monkeypatch.setattr(program, "find_spec", lambda name: None if name == "nh3" else found(name))
    done = run("export", str(conversation.id), "--format", "html", url=database_url)
    assert (2, 1) == (done.status, len(done.err.splitlines()))
    assert "nh3 is not installed: --format html needs the extra, pip install" in done.err
