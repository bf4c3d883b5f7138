"""Conversations of ChatGPT's export in the log, on both databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent_eventstore.transcripts import ImportReport, detect, load, read_transcripts
from eventstore import EventStore
from eventstore import events as e
from projections import Views
from tests.unit.importers.reading import found

pytestmark = pytest.mark.exhaustive_when("postgresql")


class Chat:
    """A conversation of an export in the making: each message follows the one before."""

    def __init__(self) -> None:
        self.mapping: dict[str, Any] = {}
        self.last: str | None = None
        self.node(None)

    def node(self, message: Any, after: str | None = None) -> str:
        """Add a node behind the last one, or another; return its id."""
        named, parent = f"n{len(self.mapping)}", after or self.last
        self.mapping[named] = {"id": named, "message": message, "parent": parent, "children": []}
        if parent is not None:
            self.mapping[parent]["children"].append(named)
        self.last = named
        return named

    def say(
        self,
        role: str,
        content: Any,
        after: str | None = None,
        name: str | None = None,
        **more: Any,
    ) -> str:
        """Add a message: a text, or the content as it stands."""
        if isinstance(content, str):
            content = {"content_type": "text", "parts": [content]}
        return self.node(
            {
                "id": f"n{len(self.mapping)}",
                "author": {"role": role, "name": name, "metadata": {}},
                "create_time": 1_763_800_000.5 + len(self.mapping),
                "content": content,
                "status": "finished_successfully",
                "weight": 1.0,
                "metadata": {"model_slug": "gpt-5"} if role == "assistant" else {},
                "recipient": "all",
                **more,
            },
            after,
        )

    def exported(self, current: str | None = None, **more: Any) -> dict[str, Any]:
        """Return the conversation as it stands in the file."""
        return {
            "title": "Warm cities",
            "create_time": 1_763_800_000.25,
            "mapping": self.mapping,
            "current_node": current or self.last,
            "conversation_id": "c-1",
            "default_model_slug": "gpt-5",
            **more,
        }


def spoken() -> Chat:
    """Return a conversation with a tool, and thoughts."""
    chat = Chat()
    chat.say("system", "")
    told = {"user_profile": "I am Ada.", "user_instructions": "Be brief."}
    chat.say("user", {"content_type": "user_editable_context", **told})
    chat.say("user", "How warm is it?")
    thought = {"summary": "Looking it up", "content": "I ask Python."}
    chat.say("assistant", {"content_type": "thoughts", "thoughts": [thought]})
    code = {"content_type": "code", "language": "python", "text": "print(18)"}
    chat.say("assistant", code, recipient="python")
    chat.say("tool", {"content_type": "execution_output", "text": "18"}, name="python")
    chat.say("assistant", {"content_type": "reasoning_recap", "content": "Thought for 5 s"})
    done = {"model_slug": "gpt-5", "finish_details": {"type": "stop"}}
    chat.say("assistant", "18 degrees.", metadata=done)
    return chat


@pytest.fixture
def store(alone: EventStore) -> EventStore:
    """Give an empty store."""
    return alone


def written(tmp_path: Path, *conversations: Any) -> Path:
    """Return an export of conversations."""
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(conversations), "utf-8")
    return path


def imported(store: EventStore, path: Path) -> tuple[ImportReport, UUID]:
    """Import a file, of which nothing is missed; return the first of its conversations."""
    assert "chatgpt" == detect(path)
    report = load(store, read_transcripts(path), strict=True)
    assert 0 == load(store, read_transcripts(path)).events_added
    return report, report.ids[0]


def payloads(store: EventStore, conversation_id: UUID) -> list[Any]:
    """Return what its events say, after the first."""
    return [event.data for event in store.read(conversation_id)][1:]


def test_messages_become_events(store: EventStore, tmp_path: Path) -> None:
    """Thoughts and a call are one answer; the result names the call; instructions lead."""
    report, cid = imported(store, written(tmp_path, spoken().exported()))
    told, asked, answer, result, last = payloads(store, cid)
    assert e.SystemInstruction(text="I am Ada.\nBe brief.", raw=told.raw) == told
    assert (e.TextPart(text="How warm is it?"),) == asked.parts
    assert (e.ReasoningPart(text="Looking it up\nI ask Python."),) == answer.parts
    assert [("python", "print(18)")] == [(c.name, c.arguments_text) for c in answer.tool_calls]
    assert ("4.0", "18", "success") == (result.call_id, result.content, result.status)
    assert ("stop", "gpt-5", True) == (last.finish_reason, last.invocation.model, last.final)
    assert {
        "text of system without content": 1,
        "reasoning_recap of assistant without content": 1,
    } == report.left_out.passed_over
    assert not report.left_out.unknown
    assert not report.left_out.uninterpreted


def test_the_views_of_it(store: EventStore, tmp_path: Path) -> None:
    """Title, times, timeline, tools and a request are there, and the chain holds."""
    _, cid = imported(store, written(tmp_path, spoken().exported()))
    views = Views(store)
    assert "Warm cities" == next(iter(views.conversations())).title
    said = [(item.kind, item.text) for item in views.timeline(cid)]
    assert ("user", "How warm is it?") in said
    assert ("assistant", "18 degrees.") in said
    assert [("python", "success")] == [(row.name, row.status) for row in views.tool_calls()]
    roles = [each["role"] for each in views.context(cid).messages]
    assert ["user", "assistant", "tool", "assistant"] == roles[-4:]
    assert 1_763_800_003.5 == list(store.read(cid))[2].meta.occurred_at.timestamp()  # type: ignore[union-attr]
    store.verify(cid)


def test_every_message_is_kept(store: EventStore, tmp_path: Path) -> None:
    """With its text, where the event has it, and as a whole otherwise."""
    chat = spoken()
    _, cid = imported(store, written(tmp_path, chat.exported(gizmo_id="g")))
    start, *rest = [event.data for event in store.read(cid)]
    assert isinstance(start, e.ConversationStart)
    assert ("g", "c-1") == (start.raw["gizmo_id"], start.raw["conversation_id"])
    kept: dict[str, Any] = {}
    for data in rest:
        held = data.raw["chatgpt_message"]  # type: ignore[union-attr]
        for message in held if isinstance(held, list) else [held]:
            kept[message["id"]] = message
    for node in chat.mapping.values():
        message = node["message"]
        if message is None or message["id"] not in kept:
            continue
        there = kept[message["id"]]
        assert {**message, "content": None} == {**there, "content": None}
        for key, value in message["content"].items():
            assert there["content"][key] in (value, None)
    assert {"n2", "n3", "n4", "n5", "n6", "n8"} == set(kept)


def test_messages_in_other_words(store: EventStore, tmp_path: Path) -> None:
    """Each stays as an alternative with all that followed it; the current one is active."""
    chat = Chat()
    start = chat.last
    first = chat.say("user", "one")
    chat.say("assistant", "to one")
    deep = chat.say("user", "deeper")
    chat.say("assistant", "to deeper")
    still = chat.say("user", "deeper still", after=chat.mapping[deep]["parent"])
    leaf = chat.say("assistant", "to deeper still")
    second = chat.say("user", "two", after=start)
    chat.say("assistant", "to two")
    _, cid = imported(store, written(tmp_path, chat.exported(leaf)))
    views = Views(store)
    said = [item.text for item in views.timeline(cid) if item.kind in ("user", "assistant")]
    assert ["one", "to one", "deeper still", "to deeper still"] == said
    assert [2, 2] == [len(point.alternatives) for point in views.branches(cid)]
    asked = [data for data in payloads(store, cid) if isinstance(data, e.UserMessage)]
    kept = [data.raw["chatgpt_message"]["id"] for data in asked]
    assert [second, first, deep, still] == kept


def test_an_answer_that_was_made_again(store: EventStore, tmp_path: Path) -> None:
    """The one that is not current stays as an alternative, and a request has the current one."""
    chat = Chat()
    asked = chat.say("user", "How warm?")
    current = chat.say("assistant", "18 degrees.")
    chat.say("assistant", "Warm.", after=asked)
    chat.say("user", "Sure?")
    chat.say("assistant", "Yes.")
    _, cid = imported(store, written(tmp_path, chat.exported(current)))
    views = Views(store)
    [point] = views.branches(cid)
    assert ("answer", 2) == (point.kind, len(point.alternatives))
    told = [each["content"] for each in views.context(cid).messages]
    assert ["How warm?", "18 degrees."] == told[-2:]
    assert "Warm." not in told


def test_a_greeting_that_was_made_again(store: EventStore, tmp_path: Path) -> None:
    """Alternatives that stand ahead of all turns are of none: this could not be imported."""
    chat = Chat()
    start = chat.last
    chat.say("assistant", "Hello.")
    chat.say("assistant", "Hi!", after=start)
    chat.say("user", "How warm?")
    _, cid = imported(store, written(tmp_path, chat.exported()))
    said = [each["content"] for each in Views(store).context(cid).messages]
    assert ["Hi!", "How warm?"] == said[-2:]
    assert "Hello." not in said
    assert [2] == [len(point.alternatives) for point in Views(store).branches(cid)]


def test_one_that_has_grown(store: EventStore, tmp_path: Path) -> None:
    """Another export adds what was said since, and what was said in other words."""
    chat = spoken()
    _, cid = imported(store, written(tmp_path, chat.exported()))
    end = chat.last
    chat.say("user", "And tomorrow?")
    chat.say("assistant", "20.")
    assert 2 == load(store, read_transcripts(written(tmp_path, chat.exported()))).events_added
    chat.say("user", "And on Sunday?", after=end)
    again = load(store, read_transcripts(written(tmp_path, chat.exported(title="Renamed"))))
    assert ([cid], 2, []) == (again.ids, again.events_added, again.failures)
    assert "And on Sunday?" == Views(store).context(cid).messages[-1]["content"]


def test_an_answer_that_has_grown(store: EventStore, tmp_path: Path) -> None:
    """An export between two messages of one answer was refused from then on."""
    chat = Chat()
    chat.say("user", "Count.")
    chat.say("assistant", "One.")
    _, cid = imported(store, written(tmp_path, chat.exported()))
    for added, text in ((1, "Two."), (0, None), (1, "Three.")):
        if text is not None:
            chat.say("assistant", text)
        again = load(store, read_transcripts(written(tmp_path, chat.exported())))
        assert ([], added) == (again.failures, again.events_added)
    said = Views(store).context(cid).messages
    assert ["One.", "Two.", "Three."] == [each["content"] for each in said[1:]]


def test_pictures_speech_and_what_nobody_knows(store: EventStore, tmp_path: Path) -> None:
    """Files are named, speech is told, and content of another type is kept and counted."""
    chat = Chat()
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"}
    speech = {"content_type": "audio_transcription", "text": "Hello?", "direction": "in"}
    hologram = {"content_type": "hologram", "light": 3}
    parts = ["See:", picture, speech, hologram]
    chat.say("user", {"content_type": "multimodal_text", "parts": parts})
    chat.say("assistant", {"content_type": "smell", "of": "roses"})
    chat.say("tool", {"content_type": "system_error", "name": "Timeout", "text": "late"})
    chat.say("critic", "Well said.")
    report, cid = imported(store, written(tmp_path, chat.exported()))
    asked, answer, result, other = payloads(store, cid)
    assert e.FilePart(path="file-service://file-1") == asked.parts[1]
    assert "Hello?" == asked.parts[2].text
    assert [hologram, {"of": "roses"}] == [
        {key: value for key, value in part.raw.items() if key != "type"}
        | ({"content_type": "hologram"} if "light" in part.raw else {})
        for part in (asked.parts[3], *answer.parts)
        if part.raw.pop("content_type")
    ]
    assert ("failed", "Timeout\nlate", "0.0") == (result.status, result.content, result.call_id)
    assert "Well said." == other.raw["chatgpt_message"]["content"]["parts"][0]
    assert {
        "content of type hologram": 1,
        "content of type smell": 1,
        "message of no type": 1,
        "result without a call before it": 1,
    } == report.left_out.uninterpreted


@pytest.mark.parametrize(
    ("conversation", "reason"),
    [
        ({"title": "no mapping"}, "a conversation must be an object with a mapping"),
        ([], "a conversation must be an object with a mapping"),
        ({"mapping": {"a": 3}}, "node 'a' of the mapping is not an object"),
        (
            {"mapping": {"a": {"message": None, "parent": "b"}, "b": {"parent": "a"}}},
            "the mapping is not a tree: a node is its own ancestor",
        ),
    ],
)
def test_what_is_no_tree_is_reported(tmp_path: Path, conversation: Any, reason: str) -> None:
    """The others of the file are read."""
    path = written(tmp_path, spoken().exported(), conversation)
    transcripts, failures = found(path, "chatgpt")
    assert 1 == len(transcripts)
    assert [f"1: {reason}"] == failures
