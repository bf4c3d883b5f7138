"""OpenAI messages arrays to events: shapes of files, mapping, ids, bad records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_eventstore.transcripts import export_messages_json, export_openai, load
from agent_eventstore.transcripts.openai_wire import message_of
from eventstore import EventStore
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    ImagePart,
    SystemInstruction,
    TextPart,
    ToolResult,
    UnknownEvent,
    UserMessage,
)
from tests.pairing import leaked, unpaired_blocks
from tests.sdk_types import refused_by_sdk
from tests.unit.context.log import Log
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import TAU_BENCH, found, only, payloads
from tests.unit.streams import handmade_anthropic as claude

HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}


def _call(call_id: str, name: str = "search", arguments: Any = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _exported(messages: list[dict[str, Any]], write: Write) -> list[Any]:
    events = only(write(messages), "openai").events
    return [message_of(event.data, version) for version, event in enumerate(events, 1)][1:]


class TestMessagesOfAnthropic:
    """Content blocks are understood, and given back as they were."""

    SAID: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": "Compare a and b."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Both.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 9, "output_tokens": 5, "cache_read_input_tokens": 2},
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "no",
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"},
                {"type": "text", "text": "And c?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "They differ."}]},
    )

    def test_calls_and_results_are_paired(self, write: Write) -> None:
        """Results of several tools, and what a person says beside them, are events of their own."""
        found: list[Any] = [
            event.data for event in only(write(list(self.SAID)), "openai").events[1:]
        ]
        _, answer, second, first, said, last = found
        assert ["reasoning", "text"] == [part.kind for part in answer.parts]
        assert [("read", {"path": "a"}), ("read", {"path": "b"})] == [
            (call.name, call.arguments) for call in answer.tool_calls
        ]
        assert (11, 5) == (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        assert [("3.1", "failed", "no"), ("3.0", "success", "x")] == [
            (each.call_id, each.status, each.content) for each in (second, first)
        ]
        assert (TextPart(text="And c?"),) == said.parts
        assert "They differ." == last.parts[0].text

    @pytest.mark.parametrize("name", claude.BLOCKS)
    def test_what_anthropic_made_goes_back_to_it(self, write: Write, name: str) -> None:
        """Thinking and server tools are blocks again for Anthropic, and words for the others."""
        blocks = claude.BLOCKS[name]
        said = [HELLO, {"role": "assistant", "content": blocks}, HELLO]
        log = Log(payloads(only(write(said), "openai")))
        sent = log.view(format="anthropic_messages", provider="anthropic").messages
        [answer] = [message["content"] for message in sent if message["role"] == "assistant"]
        assert [] == refused_by_sdk("anthropic_messages", {"messages": sent})
        assert [] == unpaired_blocks(sent)
        made = {block["type"] for block in blocks} - {"text", "tool_use"}
        assert made & {"thinking", "server_tool_use"} <= {block["type"] for block in answer}
        assert [] == leaked({"messages": log.view(format="openai_chat").messages}, blocks)

    def test_they_come_back(self, write: Write, tmp_path: Path) -> None:
        """An export has the messages as they were, each once; other formats what they say."""
        with EventStore.open(f"sqlite:///{tmp_path}/store.db") as store:
            (cid,) = load(store, [only(write(list(self.SAID)), "openai")]).ids
            assert list(self.SAID) == export_openai(store, cid)
            written = export_messages_json(store, cid)
        roles = ["user", "assistant", "tool", "tool", "user", "assistant"]
        assert roles == [each["role"] for each in written]
        assert ["read", "read"] == [call["function"]["name"] for call in written[1]["tool_calls"]]

    def test_a_request_has_instructions_beside_them(self, write: Write) -> None:
        """As a text, or as blocks."""
        for system in ("Be brief.", [{"type": "text", "text": "Be brief."}]):
            request = {"system": system, "messages": list(self.SAID)}
            start: Any = only(write(request), "openai").events[0].data
            assert "Be brief." == start.base_instructions

    def test_a_document_that_is_text_is_a_file(self, write: Write) -> None:
        """Its text is not lost on models of other providers."""
        source = {"type": "text", "media_type": "text/plain", "data": "Grüße"}
        block = {"type": "document", "source": source, "title": "a.txt"}
        said: Any = only(write([{"role": "user", "content": [block]}])).events[1].data
        told = "data:text/plain;base64,R3LDvMOfZQ=="
        assert [("a.txt", told)] == [(part.name, part.url) for part in said.parts]


class TestShapesOfFiles:
    """Where conversations are looked for."""

    @pytest.mark.parametrize(
        ("document", "expected"),
        [
            ([HELLO, ANSWER], [2]),
            ([[HELLO], [HELLO, ANSWER]], [1, 2]),
            ({"messages": [HELLO]}, [1]),
            ({"traj": [HELLO, ANSWER]}, [2]),
            ([{"messages": [HELLO]}, {"traj": [ANSWER, HELLO]}], [1, 2]),
            ({"messages": []}, [0]),
            ([], []),
        ],
    )
    def test_a_document_holds_one_or_many(
        self, write: Write, document: Any, expected: list[int]
    ) -> None:
        """An array of messages, a list of arrays, objects with one: each is understood."""
        for indent in (None, 2):
            transcripts, failures = found(write(json.dumps(document, indent=indent)), "openai")
            assert ([], expected) == (failures, [len(t.events) - 1 for t in transcripts])

    def test_json_lines_hold_one_on_each_line(self, write_lines: Write) -> None:
        """Objects and arrays may be mixed on the lines."""
        transcripts, failures = found(write_lines({"messages": [HELLO]}, [HELLO, ANSWER]))
        assert ([], [1, 2]) == (failures, [len(t.events) - 1 for t in transcripts])

    def test_what_else_an_object_holds_is_kept(self, write: Write) -> None:
        """The start of the conversation keeps everything around the messages."""
        record = {"task_id": 3, "title": "T", "info": {"a": None}, "messages": [HELLO]}
        transcript = only(write(record))
        expected = ConversationStart(
            title="T", raw={"task_id": 3, "title": "T", "info": {"a": None}}
        )
        assert (expected, "T") == (transcript.events[0].data, transcript.title)


class TestMapping:
    """What becomes of each message."""

    def test_roles_become_payloads(self, write: Write) -> None:
        """System, user, assistant and tool messages have payloads of their own, without raw."""
        messages = [
            {"role": "system", "content": "S"},
            {"role": "developer", "content": "D", "name": "n"},
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [_call("x")]},
            {"role": "tool", "tool_call_id": "x", "content": "R", "name": "search"},
        ]
        got = payloads(only(write(messages)))
        assert [
            SystemInstruction(text="S"),
            SystemInstruction(text="D", role="developer", name="n", continues=True),
            UserMessage.text("hello"),
            ToolResult(call_id="5.0", content="R", name="search", provider_id="x"),
        ] == [got[0], got[1], got[2], got[4]]
        assert isinstance(got[3], AssistantMessage)
        assert ((), None, {}) == (got[3].parts, got[3].raw, got[3].tool_calls[0].arguments)

    def test_parts_are_told_apart(self, write: Write) -> None:
        """Text and images in a content list have parts of their own."""
        content = [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        ]
        got = payloads(only(write([{"role": "user", "content": content}])))
        parts = (TextPart(text="look"), ImagePart(url="https://x/y.png", detail="low"))
        assert [UserMessage(parts=parts)] == got

    @pytest.mark.parametrize(
        "arguments",
        [
            "",
            "{",
            "[1]",
            '{"a": NaN}',
            '{"a": 1e999}',
            "[" * 9_999,
            '{"a":' * 150 + "1" + "}" * 150,
        ],
    )
    def test_arguments_that_are_no_object_say_why(self, write: Write, arguments: str) -> None:
        """The text is kept to the byte, and a reason stands in place of the parsed form."""
        message = {"role": "assistant", "content": None, "tool_calls": [_call("x", "t", arguments)]}
        got = payloads(only(write([message])))[0]
        assert isinstance(got, AssistantMessage)
        request = got.tool_calls[0]
        assert (arguments, None) == (request.arguments_text, request.arguments)
        assert request.parse_error

    def test_turns_and_steps_are_counted(self, write: Write) -> None:
        """A user message begins a turn, an assistant message a step; a result shares its step."""
        tool = {"role": "tool", "tool_call_id": "x", "content": "R"}
        calling = {"role": "assistant", "content": None, "tool_calls": [_call("x")]}
        messages = [{"role": "system", "content": "S"}, HELLO, calling, tool, ANSWER, HELLO, ANSWER]
        events = only(write(messages)).events[1:]
        expected = [(None, None), (1, None), (1, 0), (1, 0), (1, 1), (2, None), (2, 0)]
        assert expected == [(event.meta.turn, event.meta.step) for event in events]

    @pytest.mark.parametrize(
        "told",
        ["2024-05-10T12:00:00Z", "2024-05-10T14:00:00+02:00", "2024-05-10 12:00:00", 1715342400],
    )
    def test_times_are_taken_over(self, write: Write, told: Any) -> None:
        """A message's own time is when it happened, in UTC."""
        event = only(write([{**HELLO, "created_at": told}])).events[1]
        assert datetime(2024, 5, 10, 12, tzinfo=UTC) == event.meta.occurred_at

    def test_an_unknown_role_is_a_fact_that_nobody_interprets(self, write: Write) -> None:
        """The message is kept, as an event of a type that no class has."""
        message = {"role": "narrator", "content": "once"}
        got = payloads(only(write([HELLO, message])))
        assert UnknownEvent("imported_message", 1, {"openai_message": message}) == got[1]


class TestNothingIsLost:
    """Every message comes back as it was."""

    @pytest.mark.parametrize(
        "message",
        [
            HELLO,
            {"role": "user"},
            {"role": "user", "content": None},
            {"role": "user", "content": ""},
            {"role": "user", "content": []},
            {"role": "user", "content": [None, "a", {"type": "text", "text": "b"}]},
            {"role": "user", "content": [{"type": "text", "text": "only"}]},
            {"role": "user", "content": {"odd": 1.0}},
            {"role": "user", "content": "\ud800\x00"},
            {"role": "assistant", "content": "no", "refusal": None, "annotations": []},
            {"role": "assistant", "content": None, "refusal": "I cannot"},
            {"role": "assistant", "content": "a", "reasoning_content": "b"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": "{}"},
            },
            {"role": "assistant", "content": None, "tool_calls": None},
            {"role": "assistant", "content": "x", "tool_calls": []},
            {"role": "assistant", "tool_calls": [_call("x", "t", ' {"a" :1}\u00e9')]},
            {"role": "assistant", "content": None, "tool_calls": [_call("x", "t", {"a": None})]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [7, {"type": "custom", "custom": {}}],
            },
            {"role": "tool", "content": "no id"},
            {"role": "tool", "tool_call_id": None, "content": None},
            {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "a"}]},
            {"role": "function", "name": "f", "content": "r"},
            {"role": "system", "content": [{"type": "text", "text": "a"}]},
            {"role": "system", "content": None},
            {"role": ["list"], "content": 1},
            {"content": "no role"},
            {},
        ],
    )
    def test_a_message_comes_back_as_it_was(self, write: Write, message: dict[str, Any]) -> None:
        """Whatever its shape, exporting an imported message gives the message."""
        assert json.dumps([HELLO, message], sort_keys=True) == json.dumps(
            _exported([HELLO, message], write), sort_keys=True
        )

    def test_a_text_is_not_kept_twice(self, write: Write) -> None:
        """The original of an odd message leaves out the text that the payload holds."""
        got = payloads(only(write([{**HELLO, "odd": 1}])))[0]
        expected = {"openai_message": {"role": "user", "content": None, "odd": 1}}
        assert UserMessage.text("hello", raw=expected) == got

    def test_real_transcripts_come_back_as_they_were(self) -> None:
        """All 2,526 messages of 100 real conversations survive, and none needs its original."""
        originals = [record["traj"] for record in json.loads(TAU_BENCH.read_text("utf-8"))]
        transcripts, failures = found(TAU_BENCH)
        exported = [
            [message_of(event.data, version) for version, event in enumerate(t.events, 1)][1:]
            for t in transcripts
        ]
        assert ([], originals) == (failures, exported)
        kept = [data for t in transcripts for data in payloads(t) if getattr(data, "raw", None)]
        assert [] == kept

    def test_every_result_in_real_transcripts_has_a_call_of_its_own(self) -> None:
        """Although a third of them use an id twice, no two results share a call."""
        for transcript in found(TAU_BENCH)[0]:
            results = [d.call_id for d in payloads(transcript) if isinstance(d, ToolResult)]
            calls = [
                f"{version}.{index}"
                for version, data in enumerate(payloads(transcript), start=2)
                if isinstance(data, AssistantMessage)
                for index in range(len(data.tool_calls))
            ]
            assert sorted(calls) == sorted(results)


class TestOrigins:
    """The same content is the same conversation."""

    def test_the_files_name_does_not_matter(self, write: Write) -> None:
        """A file that was renamed holds the same events."""
        one, two = (only(write([HELLO], name)) for name in ("one.json", "sub/two.txt"))
        assert (one.events, one.origin) == (two.events, two.origin)

    def test_the_files_layout_does_not_matter(self, write: Write) -> None:
        """Whitespace and key order are not content."""
        one = only(write('[{"role":"user","content":"hello"}]', "one"))
        two = only(write('[\n {"content": "hello", "role": "user"}\n]', "two"))
        assert (one.events, one.origin) == (two.events, two.origin)

    def test_equal_records_of_a_file_are_different_conversations(self, write: Write) -> None:
        """Two conversations that say the same are told apart by their place."""
        one, two = found(write([[HELLO], [HELLO]]))[0]
        assert one.origin.digest(None, None) != two.origin.digest(None, None)

    @pytest.mark.parametrize("key", ["conversationId", "session_id", "id"])
    def test_a_record_that_states_its_id_may_grow(self, write: Write, key: str) -> None:
        """With an id of its own, a longer record begins with the events of the shorter one."""
        short = only(write({key: "c1", "messages": [HELLO], "updated": 1}, "one"))
        long = only(write({key: "c1", "messages": [HELLO, ANSWER], "updated": 2}, "two"))
        assert short.origin == long.origin
        assert payloads(short) == payloads(long)[:1]


class TestBadRecords:
    """A bad record is reported with its line, and the rest goes on."""

    def test_records_of_a_wrong_shape_are_reported(self, write: Write) -> None:
        """Elements that hold no messages are named, and the others are read."""
        text = '[\n{"messages": [{"role": "user"}]},\n{"oops": 1},\n7,\n[{"role": "user"}]\n]'
        transcripts, failures = found(write(text), "openai")
        assert (2, [3, 4]) == (len(transcripts), [int(f.split(":")[0]) for f in failures])

    def test_a_conversation_with_a_broken_message_is_one_bad_record(self, write: Write) -> None:
        """A message that is not an object spoils its conversation, and no other."""
        transcripts, failures = found(write([[HELLO, 7], [HELLO]]), "openai")
        assert (1, ["1: message 2 is not an object"]) == (len(transcripts), failures)

    def test_a_messages_array_with_a_broken_message_is_reported_by_line(self, write: Write) -> None:
        """In a file of one conversation the message's own line is named."""
        transcripts, failures = found(write('[{"role": "user"},\n7,\n{"role": "user"}]'))
        assert ([], ["2: a message must be an object"]) == (transcripts, failures)

    def test_broken_lines_are_reported(self, write_lines: Write) -> None:
        """A line that is not JSON, or holds NaN, costs its own conversation only."""
        path = write_lines([HELLO], "[{", '[{"role": "user", "x": NaN}]', [ANSWER])
        transcripts, failures = found(path, "openai")
        assert (2, [2, 3]) == (len(transcripts), [int(f.split(":")[0]) for f in failures])

    def test_records_before_a_break_are_read(self, write: Write) -> None:
        """A JSON array that is cut off gives what stands before the cut."""
        transcripts, failures = found(write('[[{"role": "user"}],\n[{"role": "us'), "openai")
        assert (1, 1) == (len(transcripts), len(failures))
        assert failures[0].startswith("2: ")

    def test_a_missing_file_is_reported(self, write: Write) -> None:
        """A file that cannot be opened is a failure without a line."""
        transcripts, failures = found(write("").with_name("missing"))
        assert ([], ["None: the file cannot be read: No such file or directory"]) == (
            transcripts,
            failures,
        )
