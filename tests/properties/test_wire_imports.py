"""Whatever an importer reads, in every format: no provider refuses it, whole or cut by a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.transcripts import Transcript, read_transcripts
from eventstore.events import NewEvent
from projections.providers.request_formats import FORMATS
from tests.checkers import CHECKERS
from tests.integration.test_ui_messages import CHAT
from tests.properties.hostile import changed_json
from tests.properties.promises import STRATEGIES, Request, ask, refused, tokens_of
from tests.properties.test_fuzz_importers import BY_LINE, DOCUMENTS, written
from tests.properties.test_wire import chosen
from tests.scaled_settings import scaled_settings
from tests.unit.context.log import Log
from tests.unit.importers.test_inspect_log import sample
from tests.unit.importers.test_openhands_sdk import EVENTS as OPENHANDS_SDK

ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": "q"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                    }
                ],
            },
            {"type": "text", "text": "and?"},
        ],
    },
]
RESPONSES = [
    {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "r"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "p", "input": "*** B"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
    },
]
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "audio/ogg", "data": "AA=="}}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two calls.", "thought": True},
                {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "g", "args": {}}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
    ],
}
EXAMPLES: dict[str, tuple[str, Any]] = {
    **{name: (name, document) for name, document in DOCUMENTS.items()},
    "ui-messages": ("ui-messages", CHAT),
    "inspect": ("inspect", sample(1)),
    "openhands-sdk": ("openhands", OPENHANDS_SDK),
    "anthropic": ("openai", ANTHROPIC),
    "responses": ("openai", RESPONSES),
    "gemini": ("openai", GEMINI),
}
"""A document of each importer, and the format by which it is read."""


def read(format: str, document: Any) -> list[list[NewEvent]]:
    """Return the events of each conversation in a document."""
    lines = document if isinstance(document, list) else [document]
    text = "\n".join(map(json.dumps, lines)) if format in BY_LINE else json.dumps(document)
    with written(text.encode()) as path:
        found = [each for each in read_transcripts(path, format) if isinstance(each, Transcript)]
        return [
            list(each.events)
            if each.stream is None
            else [event for event in each.stream.read({}) if isinstance(event, NewEvent)]
            for each in found
        ]


def check_all(log: Log, questions: Iterable[tuple[int, str, bool]]) -> None:
    """Check the whole of a log in every format for every maker, and its cuts by budgets."""
    whole, rows = chosen(log), log.rows()
    for format, check in CHECKERS.items():
        # A server with fields of its own in the chat format takes these too; OpenAI does not.
        others = () if format == "openai_chat" else ("anthropic", "google")
        for provider in (None, "openai", *others):
            body = FORMATS[format](whole, provider=provider).body
            assert not whole or check(body) == []
        for share, strategy, steps in questions:
            budget = tokens_of(rows) * share // 100
            view = ask(rows, Request(strategy, format, steps, max_tokens=budget))
            assert view is None or not view.messages or refused(view) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_provider_refuses_what_was_imported(name: str) -> None:
    """Up to every event of it, and the whole under budgets by all strategies."""
    conversations = read(*EXAMPLES[name])
    assert conversations
    for events in conversations:
        log = Log()
        for event in events:
            log.add(event)
            check_all(log, ())
        check_all(log, [*product((20, 40, 60, 80, 95), STRATEGIES, (True, False))])


@scaled_settings(60)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_no_provider_refuses_what_was_imported_damaged(name: str, data: st.DataObject) -> None:
    """Any value of a file may be any other: a name, an id, arguments, an image, a signature."""
    format, document = EXAMPLES[name]
    strategy, share = data.draw(st.sampled_from(STRATEGIES)), data.draw(st.integers(10, 100))
    for events in read(format, data.draw(changed_json(document))):
        check_all(Log(events), [(share, strategy, True)])
