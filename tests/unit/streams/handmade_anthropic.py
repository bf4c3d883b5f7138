"""Streams of every kind of block that Anthropic's Messages send, in the wire's own form.

Made from the SDK's event types; the recorded streams have few of these kinds.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

CIPHER = "gAAAAABo" + "x7Kq" * 20


def messages(*blocks: Json, stop: str = "end_turn") -> list[Json]:
    """Return the events of a message of Anthropic's with these blocks."""
    start: Json = {"id": "msg_01A2B3C4D5E6F7", "type": "message", "role": "assistant"}
    start |= {"model": "claude-opus-4-8", "content": [], "stop_reason": None}
    start |= {"usage": {"input_tokens": 9, "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        bare, deltas = dict(block), []
        if block["type"] == "text":
            bare["text"] = ""
            deltas = [{"type": "text_delta", "text": block["text"]}]
            deltas += [
                {"type": "citations_delta", "citation": each} for each in block.get("citations", ())
            ]
            bare.pop("citations", None)
        elif block["type"] == "thinking":
            bare |= {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif "input" in block:
            bare["input"] = {}
            whole = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in ("", whole[:3], whole[3:])
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": bare})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 30}})
    return [*events, {"type": "message_stop"}]


def text(words: str = "Here it is.", **fields: Any) -> Json:
    """Return a block of text."""
    return {"type": "text", "text": words, **fields}


def use(name: str, given: Json, number: int = 1, **fields: Any) -> Json:
    """Return the use of a tool of the server's."""
    wire_id = f"srvtoolu_01A2B3C4D5E6F7G{number}"
    return {"type": "server_tool_use", "id": wire_id, "name": name, "input": given, **fields}


def result(kind: str, content: Any, number: int = 1, **fields: Any) -> Json:
    """Return the result of a tool of the server's."""
    wire_id = f"srvtoolu_01A2B3C4D5E6F7G{number}"
    return {"type": f"{kind}_tool_result", "tool_use_id": wire_id, "content": content, **fields}


def client_use(number: int = 1, **fields: Any) -> Json:
    """Return the use of a tool of the product's."""
    wire_id = f"toolu_01A2B3C4D5E6F7G8H{number}"
    given = {"city": "Rome"}
    return {"type": "tool_use", "id": wire_id, "name": "weather", "input": given, **fields}


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "EqQBCgIYAh" + "IkZ9" * 12}
FOUND = {
    "type": "web_search_result",
    "title": "Weather in Rome",
    "url": "https://weather.example/rome",
    "encrypted_content": CIPHER,
    "page_age": None,
}
CITED = {
    "type": "web_search_result_location",
    "url": "https://weather.example/rome",
    "title": "Weather in Rome",
    "encrypted_index": CIPHER[:40],
    "cited_text": "Sunny.",
}
FROM_CODE = {"type": "code_execution_20260120", "tool_id": "srvtoolu_01A2B3C4D5E6F7G1"}
RAN = {
    "type": "code_execution_result",
    "stdout": "42\n",
    "stderr": "",
    "return_code": 0,
    "content": [],
}
MCP_USE = {
    "type": "mcp_tool_use",
    "id": "mcptoolu_01A2B3C4D5E6F7G8",
    "name": "ask",
    "server_name": "wiki",
    "input": {"q": "Rome"},
}
MCP_RESULT = {
    "type": "mcp_tool_result",
    "tool_use_id": "mcptoolu_01A2B3C4D5E6F7G8",
    "is_error": False,
    "content": [{"type": "text", "text": "Rome is a city.", "citations": None}],
}
REFERENCE = {"type": "tool_reference", "tool_name": "weather"}
SEARCHED = {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]}
FETCHED = {
    "type": "web_fetch_result",
    "url": "https://weather.example/rome",
    "retrieved_at": "2026-01-01T00:00:00Z",
    "content": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Sunny."},
        "title": "Weather",
        "citations": {"enabled": True},
    },
}
BLOCKS: dict[str, list[Json]] = {
    "web-search": [
        THINKING,
        use("web_search", {"query": "rome"}),
        result("web_search", [FOUND], caller={"type": "direct"}),
        text("Sunny.", citations=[CITED]),
    ],
    "web-search-failed": [
        use("web_search", {"query": "rome"}),
        result(
            "web_search",
            {"type": "web_search_tool_result_error", "error_code": "unavailable"},
        ),
        text(),
    ],
    "web-fetch": [
        use("web_fetch", {"url": "https://weather.example/rome"}),
        result("web_fetch", FETCHED),
        text(),
    ],
    "code-execution": [
        use("code_execution", {"code": "print(42)"}),
        result("code_execution", RAN),
        text(),
    ],
    "bash": [
        use("bash_code_execution", {"command": "ls"}),
        result(
            "bash_code_execution",
            {
                "type": "bash_code_execution_result",
                "stdout": "a\n",
                "stderr": "",
                "return_code": 0,
                "content": [{"type": "bash_code_execution_output", "file_id": "file_01A2B3C4D5"}],
            },
        ),
        text(),
    ],
    "text-editor": [
        use("text_editor_code_execution", {"command": "create", "path": "a", "file_text": "x"}),
        result(
            "text_editor_code_execution",
            {"type": "text_editor_code_execution_create_result", "is_file_update": False},
        ),
        text(),
    ],
    "tool-search": [
        use("tool_search_tool_bm25", {"query": "weather"}),
        result("tool_search", SEARCHED),
        text(),
    ],
    "mcp": [text("Let me ask."), MCP_USE, MCP_RESULT, text()],
    "searched-by-code": [
        use("code_execution", {"code": "search()"}),
        use("web_search", {"query": "rome"}, 2, caller=FROM_CODE),
        result("web_search", [FOUND], 2, caller=FROM_CODE),
        result("code_execution", RAN),
        text(),
    ],
    "cited-file": [
        text(
            "Sunny.",
            citations=[
                {
                    "type": "char_location",
                    "cited_text": "Sunny",
                    "document_index": 0,
                    "document_title": "Weather",
                    "start_char_index": 0,
                    "end_char_index": 5,
                    "file_id": None,
                }
            ],
        )
    ],
    "container-upload": [
        text(),
        {"type": "container_upload", "file_id": "file_01A2B3C4D5E6"},
    ],
    "compaction": [
        {"type": "compaction", "content": "They spoke of Rome.", "encrypted_content": None},
        text(),
    ],
    "of-tomorrow": [{"type": "dream", "content": {"encrypted_content": CIPHER}}, text()],
}
"""What a turn of Claude's holds that ends with it."""

WAITING: dict[str, list[Json]] = {
    "client": [THINKING, text(), client_use(caller={"type": "direct"})],
    "search-beside-client": [use("tool_search_tool_regex", {"pattern": "mail"}), client_use()],
    "web-search-beside-client": [text(), client_use(), use("web_search", {"query": "rome"})],
    "called-by-code": [
        use("code_execution", {"code": "weather()"}),
        client_use(caller=FROM_CODE),
    ],
    "mcp-and-client": [MCP_USE, MCP_RESULT, client_use()],
}
"""What a turn of Claude's holds that waits for results."""
