"""What holds for each format alike: it is understood, in the docs, cut anywhere, and repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore import EventStore, Views
from agent_eventstore.transcripts import (
    FORMATS,
    PROJECT,
    coverage,
    detect,
    export_session_jsonl,
    load,
    read_transcripts,
)
from agent_eventstore.transcripts.aider import FILE as AIDER_FILE
from agent_eventstore.transcripts.cline import FILE as CLINE_FILE
from eventstore import events as e
from eventstore.events import TextPart, UserMessage
from projections.context.view import ContextView
from tests.checkers import CHECKERS
from tests.integration.test_ui_messages import CHAT
from tests.properties.test_fuzz_importers import DOCUMENTS
from tests.unit.importers.format_table import table, write_example
from tests.unit.importers.test_aider import HISTORY
from tests.unit.importers.test_cline import MESSAGES
from tests.unit.importers.test_inspect_log import ABOUT, sample

DOCS = Path(__file__).parents[3] / "docs" / "import-export.md"
LIVE = ("claude-code", "codex", "copilot-cli", "cursor", "pi")
OTHERS: dict[str, tuple[str, str]] = {
    "aider": (AIDER_FILE, HISTORY),
    "cline": (f"tasks/7f/{CLINE_FILE}", json.dumps(MESSAGES)),
    "inspect": (
        "a.json",
        json.dumps({"version": 2, "status": "success", "eval": ABOUT, "samples": [sample(1)]}),
    ),
    "ui-messages": ("a.json", json.dumps(CHAT)),
}
"""Examples that are more than JSON of any name: the name of the file, and its text."""
ELSEWHERE = {PROJECT, *OTHERS}
"""A directory, and formats whose examples stand in tests of their own."""
EVERY = (*DOCUMENTS, *OTHERS)
WORDS = ("system", "user", "reasoning", "assistant", "tool", "summary", "error")


def example(directory: Path, name: str) -> Path:
    """Write a format's example."""
    if name in DOCUMENTS:
        return write_example(directory, name)
    named, text = OTHERS[name]
    path = directory / named
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_each_format_has_an_example_and_a_row() -> None:
    """A new reader comes with both."""
    assert {*FORMATS} == {*DOCUMENTS} | ELSEWHERE
    rows = DOCS.read_text("utf-8")
    assert [] == [name for name in FORMATS if f"| `{name}` |" not in rows]


def test_the_docs_say_what_is_kept() -> None:
    """If this fails: python -m tests.unit.importers.format_table."""
    assert table() in DOCS.read_text("utf-8")


@pytest.mark.parametrize("name", EVERY)
def test_an_example_is_detected_and_understood(tmp_path: Path, name: str) -> None:
    """Of no kind of texts is more than half missing from the events."""
    path = example(tmp_path, name)
    assert name == detect(path)
    found = coverage(path, name)
    assert found is None or found.is_certain, str(found)


@pytest.mark.parametrize("name", EVERY)
def test_a_second_import_adds_nothing(tmp_path: Path, name: str) -> None:
    """Whatever identifies a conversation of the format identifies it again."""
    path = example(tmp_path, name)
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store:
        first = load(store, read_transcripts(path, name))
        again = load(store, read_transcripts(path, name))
    assert (True, 0, 0) == (first.events_added > 0, first.failed, again.events_added)


def body_of(view: ContextView) -> dict[str, Any]:
    """Return a request's body, as far as its checker reads it."""
    messages = "input" if view.format == "openai_responses" else "messages"
    return {messages: [*view.messages]} | ({} if view.system is None else {"system": view.system})


@pytest.mark.parametrize("name", EVERY)
def test_every_later_request_is_valid(tmp_path: Path, name: str) -> None:
    """In each provider's format, whatever the version after which somebody asks on."""
    path = example(tmp_path, name)
    with EventStore.open(f"sqlite:///{tmp_path / 'a.db'}", synchronous="OFF") as store:
        load(store, read_transcripts(path, name))
        views, wrong = Views(store), []
        asked = UserMessage(parts=(TextPart(text="And now?"),))
        for entry in views.conversations(limit=1_000):
            for version in range(1, (entry.event_count or 0) + 1):
                fork = store.fork(entry.conversation_id, before=version + 1, events=[asked])
                for form, check in CHECKERS.items():
                    request = views.context(fork.conversation_id, format=form)
                    wrong += [(version, form, each) for each in check(body_of(request))]
    assert [] == wrong


@pytest.mark.parametrize("name", EVERY)
def test_it_goes_through_the_format_that_is_exported(tmp_path: Path, name: str) -> None:
    """As session JSONL and back, what was said, called and answered is the same, and is sent."""
    path = example(tmp_path, name)
    with (
        EventStore.open(f"sqlite:///{tmp_path / 'a.db'}", synchronous="OFF") as store,
        EventStore.open(f"sqlite:///{tmp_path / 'b.db'}", synchronous="OFF") as other,
    ):
        load(store, read_transcripts(path, name))
        for number, entry in enumerate(Views(store).conversations()):
            exported = tmp_path / f"{number}.jsonl"
            lines = export_session_jsonl(store, entry.conversation_id)
            exported.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
            [came_back] = load(other, read_transcripts(exported), strict=True).ids
            before, after = (
                (
                    [
                        (item.kind, item.text, item.arguments)
                        for item in views.timeline(stream)
                        if item.kind in WORDS and (item.text or item.arguments)
                    ],
                    [(each["role"], each["content"]) for each in views.context(stream).messages],
                )
                for views, stream in (
                    (Views(store), entry.conversation_id),
                    (Views(other), came_back),
                )
            )
            assert before == after


@pytest.mark.parametrize("name", LIVE)
def test_a_live_file_cut_at_any_line(tmp_path: Path, name: str) -> None:
    """Imported after each line that is written, it shows what the whole file shows."""
    with (
        EventStore.open(f"sqlite:///{tmp_path / 'a.db'}", synchronous="OFF") as grown,
        EventStore.open(f"sqlite:///{tmp_path / 'b.db'}", synchronous="OFF") as whole,
    ):
        for length in range(1, len(DOCUMENTS[name]) + 1):
            load(grown, read_transcripts(write_example(tmp_path, name, length), name, force=True))
        load(whole, read_transcripts(write_example(tmp_path, name), name), strict=True)
        views = Views(whole), Views(grown)
        streams = [entry.conversation_id for entry in views[0].conversations()]
        assert streams
        for stream in streams:
            expected, found = (
                [
                    (item.kind, item.text, item.arguments)
                    for item in each.timeline(stream)
                    if item.text or item.arguments  # a part of an answer may have calls alone
                ]
                for each in views
            )
            assert expected == found


def test_versions_that_events_name_are_those_they_have_now(tmp_path: Path) -> None:
    """A switch of branches, and a retraction whose messages are recorded again behind it."""

    def message(text: str) -> UserMessage:
        return UserMessage(parts=(TextPart(text=text),))

    def runs(*pairs: tuple[int, int]) -> tuple[e.VersionRange, ...]:
        return e.VersionRange.of(pairs)

    with (
        EventStore.open(f"sqlite:///{tmp_path / 'a.db'}") as store,
        EventStore.open(f"sqlite:///{tmp_path / 'b.db'}") as other,
    ):
        store.append("k", [e.ConversationStart(), message("a"), message("b"), message("c")])
        switch = e.BranchSwitch(
            reason="edit", kind="message", after=3, left=4, withdrawn=runs((4, 4))
        )
        again = e.Retraction(versions=runs((2, 2)), replaced_by=runs((8, 8)))
        store.append("k", [switch, message("d"), again, message("a")])
        lines = [*export_session_jsonl(store, store.stream("k"))]
        path = tmp_path / "k.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        [came_back] = load(other, read_transcripts(path), strict=True).ids
        found = {event.version: event.data for event in other.read(came_back)}
    texts = {
        version: data.parts[0].text
        for version, data in found.items()
        if isinstance(data, UserMessage) and isinstance(data.parts[0], TextPart)
    }
    [switched] = [each for each in found.values() if isinstance(each, e.BranchSwitch)]
    [retracted] = [each for each in found.values() if isinstance(each, e.Retraction)]
    named = [
        *(switched.after, switched.left, switched.withdrawn[0].first),
        *(retracted.versions[0].first, retracted.replaced_by[0].last),
    ]
    assert [*"bccaa"] == [texts[version] for version in named if version is not None]
