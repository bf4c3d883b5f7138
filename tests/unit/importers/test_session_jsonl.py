"""Session JSONL of document 001: mapping of lines, pairing, nothing lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from agent_eventstore.transcripts.openai_wire import restored
from agent_eventstore.transcripts.session_import import original_payload
from eventstore.events import (
    AssistantMessage,
    ConversationStart,
    SessionEnd,
    SessionStart,
    TokenUsage,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from tests.unit.importers.conftest import Write
from tests.unit.importers.reading import found, only, payloads

# The example of document 001.
EXAMPLE = [
    json.loads(line)
    for line in """
{"ts":"2024-05-10T12:00:00Z","session_id":"sess_x","type":"session_start","meta":{"mode":"interactive","model":"deepseek-chat","tokenizer":"cl100k_base"}}
{"ts":"2024-05-10T12:00:05Z","session_id":"sess_x","turn":1,"type":"turn_start","content":"帮我读 README","meta":{"tokens":{"prompt":12}}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"assistant","content":"<thought>需要 read...</thought><action tool=\\"read\\">...","meta":{"tokens":{"prompt":120,"completion":35,"total":155}}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"action","meta":{"tool":"read","input":"/repo/README.md"}}
{"ts":"2024-05-10T12:00:06Z","session_id":"sess_x","turn":1,"step":0,"type":"observation","meta":{"tool":"read"},"content":"(文件片段)"}
{"ts":"2024-05-10T12:00:08Z","session_id":"sess_x","turn":1,"step":1,"type":"final","content":"README 摘要...","meta":{"tokens":{"completion":28}}}
{"ts":"2024-05-10T12:00:08Z","session_id":"sess_x","turn":1,"type":"turn_end","meta":{"status":"ok","stepCount":2,"durationMs":3000,"tokens":{"prompt":132,"completion":63,"total":195}}}
{"ts":"2024-05-10T12:05:00Z","session_id":"sess_x","type":"session_end"}
""".strip().splitlines()  # noqa: E501 - lines of JSON as document 001 has them
]


def _line(kind: str, **fields: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn": 1, "step": 0, "type": kind, **fields}


def _action(tool: str, given: Any = "{}", **meta: Any) -> dict[str, Any]:
    return _line("action", meta={"tool": tool, "input": given, **meta})


def _observation(tool: str, content: str, **meta: Any) -> dict[str, Any]:
    return _line("observation", content=content, meta={"tool": tool, **meta})


def _lines_kept(path: Any) -> list[Any]:
    """Return the lines that a file's events keep, but for actions, whose requests keep them."""
    transcript = only(path, "session-jsonl")
    pairs = ((event.data, original_payload(event.data)[1]) for event in transcript.events)
    return [restored(line, data) for data, line in pairs if line is not None]


class TestMapping:
    """What becomes of the lines."""

    def test_the_example_becomes_a_conversation(self, write_lines: Write) -> None:
        """Every line has its event; the turn's start brings the user's message as well."""
        events = only(write_lines(*EXAMPLE)).events
        kinds = [
            ConversationStart,
            SessionStart,
            TurnStart,
            UserMessage,
            AssistantMessage,
            ToolCall,
            ToolResult,
            AssistantMessage,
            TurnEnd,
            SessionEnd,
        ]
        assert kinds == [type(event.data) for event in events]
        places = [(e.meta.turn, e.meta.step) for e in events]
        assert [(None, None)] * 2 + [(1, None)] * 2 + [(1, 0)] * 3 + [(1, 1), (1, None)] == (
            places[:-1]
        )
        assert datetime(2024, 5, 10, 12, tzinfo=UTC) == events[0].meta.occurred_at
        assert {"sess_x"} == {event.meta.session_id for event in events}

    def test_calls_and_results_are_paired(self, write_lines: Write) -> None:
        """The assistant's message has the call that its step's action carried out."""
        got = payloads(only(write_lines(*EXAMPLE)))
        message, call, result = got[3:6]
        assert isinstance(message, AssistantMessage)
        assert isinstance(call, ToolCall)
        assert isinstance(result, ToolResult)
        asked = message.tool_calls[0]
        assert ("read", "/repo/README.md", None) == (
            asked.name,
            asked.arguments_text,
            asked.arguments,
        )
        assert ("5.0", "5.0", "(文件片段)") == (call.call_id, result.call_id, result.content)

    def test_session_and_turn_are_told(self, write_lines: Write) -> None:
        """Configuration, status, steps, time and tokens are taken over."""
        got = payloads(only(write_lines(*EXAMPLE)))
        start, end = got[0], got[7]
        assert isinstance(start, SessionStart)
        assert isinstance(end, TurnEnd)
        assert {"model": "deepseek-chat", "tokenizer": "cl100k_base"} == start.config
        usage = TokenUsage(
            prompt_tokens=132, completion_tokens=63, total_tokens=195, reported=False
        )
        assert ("ok", 2, 3000, usage) == (end.status, end.step_count, end.duration_ms, end.tokens)

    def test_actions_of_one_step_are_paired_by_tool(self, write_lines: Write) -> None:
        """Results in another order find the calls of their tools."""
        lines = [
            _line("assistant", content="x"),
            _action("a", {"p": 1}),
            _action("b"),
            _observation("b", "B"),
            _observation("a", "A"),
        ]
        got = payloads(only(write_lines(*lines)))
        message = got[0]
        assert isinstance(message, AssistantMessage)
        assert [{"p": 1}, {}] == [request.arguments for request in message.tool_calls]
        results = {d.content: d.call_id for d in got if isinstance(d, ToolResult)}
        assert {"B": "2.1", "A": "2.0"} == results

    def test_an_action_that_no_message_asked_for_has_a_message(self, write_lines: Write) -> None:
        """Its call would otherwise belong to nothing."""
        got = payloads(only(write_lines(_action("a"), _observation("a", "A"))))
        assert [AssistantMessage, ToolCall, ToolResult] == [type(data) for data in got]
        assert "2.0" == getattr(got[2], "call_id", None)

    def test_a_final_answer_is_read_once(self, write_lines: Write) -> None:
        """The line that wraps the final answer is kept out of the context, and counted once."""
        tokens = {"tokens": {"completion": 5}}
        path = write_lines(
            _line("assistant", content="<final>done</final>", meta=tokens),
            _line("final", content="done", meta=tokens),
        )
        raw, final = only(path).events[1:]
        assert (False, True) == (raw.meta.in_context, final.meta.in_context)
        assert isinstance(final.data, AssistantMessage)
        assert (True, None) == (final.data.final, final.data.usage)

    def test_status_and_error_of_a_tool_are_taken_over(self, write_lines: Write) -> None:
        """A failed execution is a failed result."""
        line = _observation("a", "", status="failed", error="boom", durationMs=3)
        got = payloads(only(write_lines(_action("a"), line)))[2]
        assert isinstance(got, ToolResult)
        assert ("failed", "boom", 3) == (got.status, got.error, got.duration_ms)

    def test_sessions_of_one_file_are_conversations(self, write_lines: Write) -> None:
        """Lines of two sessions may alternate."""
        lines = [{**line, "session_id": s} for line in EXAMPLE[:3] for s in ("a", "b")]
        transcripts, failures = found(write_lines(*lines))
        assert ([], [5, 5]) == (failures, [len(t.events) for t in transcripts])

    def test_a_session_that_grows_keeps_its_beginning(self, write_lines: Write) -> None:
        """The session's id tells which conversation it is."""
        short = only(write_lines(*EXAMPLE[:7], name="one"))
        long = only(write_lines(*EXAMPLE, name="two"))
        assert short.events == long.events[: len(short.events)]

    def test_broken_lines_are_reported(self, write_lines: Write) -> None:
        """What is not a JSON object with a type costs itself only."""
        path = write_lines(EXAMPLE[0], "{", 7, {"session_id": "sess_x"}, EXAMPLE[1])
        transcripts, failures = found(path)
        assert ([4], ["2", "3", "4"]) == (
            [len(t.events) for t in transcripts],
            [failure[0] for failure in failures],
        )


class TestNothingIsLost:
    """Every line is kept as it was."""

    def test_lines_are_kept(self, write_lines: Write) -> None:
        """All lines come back, the action's from the request that it carries out."""
        got = _lines_kept(write_lines(*EXAMPLE))
        assert [line for line in EXAMPLE if line["type"] != "action"] == got
        message = payloads(only(write_lines(*EXAMPLE)))[3]
        assert isinstance(message, AssistantMessage)
        assert {"session_line": EXAMPLE[3]} == message.tool_calls[0].raw

    def test_odd_lines_are_kept(self, write_lines: Write) -> None:
        """Unknown types, fields of a wrong kind and missing contents come back as they were."""
        lines = [
            _line("mystery", content={"a": None}),
            _line("turn_start", content=None),
            _line("turn_start", content={"odd": 1}),
            _line("turn_end", meta={"status": "exploded"}),
            _line("session_start", meta={"mode": "sideways"}),
            _line("assistant"),
            _line("assistant", content="", meta=[1]),
            _line("observation", content=["x"], meta=None),
            _line("final", content=None, turn="one", step=-1, ts="never"),
            _line("session_end", session_id=None, extra="\ud800\x00"),
        ]
        assert lines == _lines_kept(write_lines(*lines))

    def test_what_no_payload_can_express_is_not_interpreted(self, write_lines: Write) -> None:
        """An unknown type or status is a fact that nobody interprets."""
        got = payloads(only(write_lines(_line("turn_end", meta={})), "session-jsonl"))[0]
        assert UnknownEvent("session_event", 1, {"session_line": _line("turn_end", meta={})}) == got
