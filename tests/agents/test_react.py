"""The ReAct protocol: what is read of a reply, whole and while it streams, and what is sent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore import AgentSession, EventStore, ModelRequest
from agent_eventstore.agents.agent_turns import Protocol
from agent_eventstore.agents.react import ReactStream, parse_reply
from eventstore.events import AssistantMessage, LlmError
from tests.agents.scripted import Scripted, Wanted, read, reply

Read = tuple[str | None, str | None, str | None, str | None]

REPLIES: dict[str, tuple[str, Read]] = {
    "an action": (
        '<thought>Look.</thought>\n<action tool="read">a.md</action>',
        ("Look.", "read", "a.md", None),
    ),
    "an answer": (
        "<thought>Easy.</thought><final>\nIt is 4.\n</final>",
        ("Easy.", None, None, "It is 4."),
    ),
    "no tags": ("It is 4.", (None, None, None, "It is 4.")),
    "a thought alone": ("<thought>Hm.</thought>", ("Hm.", None, None, None)),
    "a thought that is not closed": (
        '<thought>Look.\n<action tool="read">a.md</action>',
        ("Look.", "read", "a.md", None),
    ),
    "an answer that is not closed": ("<final>It is", (None, None, None, "It is")),
    "an action that is cut off": ('<action tool="read">a.m', (None, "read", "a.m", None)),
    "single quotes and spaces": (
        "<Action tool = 'read' >a.md</Action >",
        (None, "read", "a.md", None),
    ),
    "no quotes": ("<action tool=read>a.md</action>", (None, "read", "a.md", None)),
    "an empty element": ('<action tool="list"/>', (None, "list", "", None)),
    "what the model made up behind its action": (
        '<action tool="read">a</action><observation>x</observation><final>y</final>',
        (None, "read", "a", None),
    ),
    "tags in backticks": (
        "<thought>I write `<final>` at the end.</thought><final>Use `</final>` so.</final>",
        ("I write `<final>` at the end.", None, None, "Use `</final>` so."),
    ),
    "tags in a fence": (
        "<final>So:\n```xml\n<final>x</final>\n```\nThat is it.</final>",
        (None, None, None, "So:\n```xml\n<final>x</final>\n```\nThat is it."),
    ),
    "all of it in a fence": (
        '```xml\n<action tool="read">a.md</action>\n```',
        (None, "read", "a.md", None),
    ),
    "a backtick alone": (
        "<thought>The ` is odd.</thought><final>It`s 4.</final>",
        ("The ` is odd.", None, None, "It`s 4."),
    ),
    "less-than signs": (
        "<final>a < b and <b>bold</b></final>",
        (None, None, None, "a < b and <b>bold</b>"),
    ),
    "JSON": (
        '<action tool="write">{"path": "a", "text": "`</action>`"}</action>',
        (None, "write", '{"path": "a", "text": "`</action>`"}', None),
    ),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_read_as_it_was_meant(name: str) -> None:
    """Thought, tool, input and answer of whole and of broken replies."""
    text, expected = REPLIES[name]

    said = parse_reply(text)

    assert expected == (said.of(said.thought), said.tool, said.of(said.action), said.of(said.final))


@given(
    st.lists(
        st.sampled_from(
            [
                *("<thought>", "</thought>", "<final>", "</final>", '<action tool="x">'),
                *("</action>", "<observation>", "</observation>"),
                *("`", "```", "\n", "a", "<", "b < c"),
            ]
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 60)),
)
def test_a_stream_tells_the_same_however_it_is_cut(pieces: list[str], cuts: list[int]) -> None:
    """What is shown depends on the text alone, and nothing of a reply makes it fail."""
    text = "".join(pieces)

    def shown(parts: list[str]) -> dict[str, str]:
        stream, told = ReactStream(), {"thought": "", "text": ""}
        for kind, piece in [*(e for part in parts for e in stream.feed(part)), *stream.end()]:
            told[kind] += piece
        return told

    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    cut_up = [text[a:b] for a, b in pairwise(places)]

    assert shown([text]) == shown(cut_up) == shown(list(text))
    parse_reply(text)


def test_what_streams_is_what_is_read() -> None:
    """The thought and the answer are shown without their tags, as they come."""
    stream = ReactStream()
    text = "<thought>Look.</thought><final>It is `<b>` < 4.</final>"

    told = [each for character in text for each in stream.feed(character)] + stream.end()

    assert "Look." == "".join(text for kind, text in told if kind == "thought")
    assert "It is `<b>` < 4." == "".join(text for kind, text in told if kind == "text")
    assert len(told) > 10


def test_an_agent_speaks_in_tags(store: EventStore) -> None:
    """Actions run, observations come back as user messages, and the log has every part."""
    action = '<thought>Look.</thought><action tool="read">a.md</action>'
    model = Scripted(action, "<final>A title.</final>", "<final>Still.</final>")
    with AgentSession.create(store, model=model, tools=[read], protocol="react") as session:
        result = session.run_turn("What is in a.md?")
        session.run_turn("And now?")

    step = result.steps[0]
    assert ("A title.", "ok") == (result.final_text, result.status)
    assert (action, None, "# a.md") == (step.assistant_text, step.parsed_final, step.observation)
    sent = [(m["role"], m["content"]) for m in model.asked[2].messages]
    assert "- read(path): Return the text of a file." in sent[0][1]
    assert [
        ("user", "What is in a.md?"),
        ("assistant", action),
        ("user", '<observation tool="read">\n# a.md\n</observation>'),
        ("assistant", "<final>A title.</final>"),
        ("user", "And now?"),
    ] == sent[-5:]
    assert () == model.asked[0].tools
    first, *_, last = [
        e.data for e in store.read(session.id) if isinstance(e.data, AssistantMessage)
    ]
    assert [("read", {"path": "a.md"})] == [(c.name, c.arguments) for c in first.tool_calls]
    assert last.ui is not None
    assert {"protocol": "react", "final": [7, 13]} == last.ui.widget


def test_a_conversation_may_change_the_protocol(store: EventStore) -> None:
    """Calls that were made by the provider's API are told in tags."""
    first_model = Scripted(reply("Let me look.", Wanted("read", path="a.md")), "A title.")
    with AgentSession.create(store, model=first_model, tools=[read]) as first:
        first.run_turn("What is in a.md?")
    model = Scripted("<final>Yes.</final>")
    with AgentSession.open(store, first.id, model=model, protocol="react") as second:
        second.run_turn("Sure?")

    sent = [m["content"] for m in model.asked[0].messages]
    assert 'Let me look.\n<action tool="read">{"path": "a.md"}</action>' == sent[-4]
    assert '<observation tool="read">\n# a.md\n</observation>' == sent[-3]


@pytest.mark.parametrize("answer", [None, 5, {"answer": "x"}])
def test_an_answer_in_tags_that_is_none(store: EventStore, answer: Any) -> None:
    """It was taken for a connection that broke, and the model was asked again."""
    asked: list[ModelRequest] = []

    def model(request: ModelRequest) -> Any:
        asked.append(request)
        return answer

    with AgentSession.create(store, model=model, protocol="react") as session:
        result = session.run_turn("Hello?")

    [error] = [e.data for e in store.read(session.id) if isinstance(e.data, LlmError)]
    assert (1, "error", "invalid") == (len(asked), result.status, error.kind)
    assert "is not a known response" in (result.error or "")


_CHUNK = {"object": "chat.completion.chunk", "model": "gpt-4o"}


@pytest.mark.parametrize("protocol", get_args(Protocol))
@pytest.mark.parametrize(
    ("told", "kind", "retryable"),
    [
        ({"type": "insufficient_quota", "message": "Spent."}, "rate_limit", False),
        ({"type": "server_error", "message": "Sorry."}, "provider", True),
        ({"message": "No."}, "provider", True),
    ],
)
def test_an_error_within_a_stream_keeps_its_kind(
    store: EventStore, protocol: Protocol, told: dict[str, str], kind: str, retryable: bool
) -> None:
    """ReAct recorded each as a network error without its object, and always asked again."""
    said = {"choices": [{"index": 0, "delta": {"content": "<final>So"}, "finish_reason": None}]}
    chunks = [_CHUNK | said, {"error": told}]
    with AgentSession.create(
        store, model=lambda request: iter(chunks), protocol=protocol, attempts=1
    ) as session:
        result = session.run_turn("Hello?")

    [error] = [e.data for e in store.read(session.id) if isinstance(e.data, LlmError)]
    assert (kind, retryable, "<final>So") == (error.kind, error.retryable, error.partial_text)
    assert ({"error": told}, told["message"]) == (error.raw, error.message)
    assert "error" == result.status
