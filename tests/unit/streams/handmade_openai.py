"""Streams of every kind of item that OpenAI's Responses send, in the wire's own form.

Made from the SDK's event types; the recorded streams have few of these kinds.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

CIPHER = "gAAAAABo" + "x7Kq" * 20
_EMPTY: Json = {"content": [], "arguments": "", "input": "", "code": ""}
USAGE = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}


def responses(*items: Json, streamed: bool = True) -> list[Json]:
    """Return the events of a response with these output items, text and arguments in pieces."""
    common = {"id": "resp_0a63f40a2632b743", "object": "response", "model": "gpt-5.2"}
    events: list[Json] = [
        {"type": "response.created", "response": {**common, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(items):
        place = {"output_index": index, "item_id": item.get("id")}
        bare = {**item, "status": "in_progress"}
        pieces = list(_pieces(item, place)) if streamed else []
        bare |= {key: empty for key, empty in _EMPTY.items() if pieces and key in item}
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": bare},
            *pieces,
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    body = {**common, "status": "completed", "output": list(items), "usage": USAGE}
    events.append({"type": "response.completed", "response": body})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _pieces(item: Json, place: Json) -> list[Json]:
    match item["type"]:
        case "message":
            text = item["content"][0]["text"]
            where = {**place, "content_index": 0}
            half = len(text) // 2
            return [
                {"type": "response.output_text.delta", **where, "delta": text[:half]},
                {"type": "response.output_text.delta", **where, "delta": text[half:]},
                {"type": "response.output_text.done", **where, "text": text},
            ]
        case "function_call" | "mcp_call" as kind:
            stem = {"mcp_call": "mcp_call_arguments"}.get(kind, "function_call_arguments")
            given = item["arguments"]
            return [
                {"type": f"response.{stem}.delta", **place, "delta": given[:2]},
                {"type": f"response.{stem}.delta", **place, "delta": given[2:]},
                {"type": f"response.{stem}.done", **place, "arguments": given},
            ]
        case "code_interpreter_call":
            stem = "response.code_interpreter_call_code"
            return [
                {"type": f"{stem}.delta", **place, "delta": item["code"]},
                {"type": f"{stem}.done", **place, "code": item["code"]},
                {"type": "response.code_interpreter_call.completed", **place},
            ]
        case "web_search_call" | "file_search_call" | "image_generation_call" as kind:
            return [
                {"type": f"response.{kind}.in_progress", **place},
                {"type": f"response.{kind}.completed", **place},
            ]
    return []


def said(text: str = "Here is what I found.", **fields: Any) -> Json:
    """Return a message."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    common = {"type": "message", "id": "msg_0a63f40a2632b74300", "role": "assistant"}
    return {**common, "status": "completed", "content": [part], **fields}


def thought(encrypted: bool = True) -> Json:
    """Return reasoning."""
    summary = [{"type": "summary_text", "text": "**Looking** it up."}]
    sealed = CIPHER if encrypted else None
    return {
        "type": "reasoning",
        "id": "rs_0a63f40a2632b74301",
        "summary": summary,
        "encrypted_content": sealed,
        "status": None,
    }


BY_PROGRAM = {"type": "program", "caller_id": "call_prog_1"}
ASKED: Json = {
    "type": "function_call",
    "id": "fc_0a63f40a2632b74302",
    "call_id": "call_9hC2kQ",
    "name": "weather",
    "arguments": '{"city": "Rome"}',
    "status": "completed",
}
TOOL = {
    "type": "function",
    "name": "send_mail",
    "description": "Sends a mail.",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
    "defer_loading": True,
}
PROGRAM: Json = {
    "type": "program",
    "id": "prog_0a63f40a2632b7430",
    "call_id": "call_prog_1",
    "code": "const w = await tools.weather({city: 'Rome'});",
    "fingerprint": "fp_0a63f40a2632b74303",
}
SHELL: Json = {
    "type": "shell_call",
    "id": "sh_0a63f40a2632b74304",
    "call_id": "call_sh_1",
    "action": {"commands": ["ls -la"], "max_output_length": 4096, "timeout_ms": None},
    "status": "completed",
    "created_by": None,
}
CONTAINER = {"type": "container_reference", "container_id": "cntr_0a63f40a2632b743"}
HOSTED: dict[str, list[Json]] = {
    "web-search": [
        {
            "type": "web_search_call",
            "id": "ws_0a63f40a2632b74305",
            "status": "completed",
            "action": {"type": "search", "query": "rome weather", "queries": ["rome weather"]},
        },
        {
            "type": "web_search_call",
            "id": "ws_0a63f40a2632b74306",
            "status": "completed",
            "action": {"type": "open_page", "url": "https://weather.example/rome"},
        },
        {
            "type": "web_search_call",
            "id": "ws_0a63f40a2632b74307",
            "status": "completed",
            "action": {"type": "find_in_page", "url": "https://w.example", "pattern": "rain"},
        },
    ],
    "file-search": [
        {
            "type": "file_search_call",
            "id": "fs_0a63f40a2632b74308",
            "queries": ["rain in rome"],
            "status": "completed",
            "results": None,
        }
    ],
    "code-interpreter": [
        {
            "type": "code_interpreter_call",
            "id": "ci_0a63f40a2632b74309",
            "code": "print(6 * 7)",
            "container_id": "cntr_0a63f40a2632b743",
            "outputs": [{"type": "logs", "logs": "42\n"}],
            "status": "completed",
        },
        {
            "type": "code_interpreter_call",
            "id": "ci_0a63f40a2632b74310",
            "code": "x = 1",
            "container_id": "cntr_0a63f40a2632b743",
            "outputs": None,
            "status": "completed",
        },
    ],
    "image": [
        {
            "type": "image_generation_call",
            "id": "ig_0a63f40a2632b74311",
            "status": "completed",
            "result": "iVBORw0KGgoAAAANSUhEUg==",
            "revised_prompt": "A cat in Rome",
            "output_format": "png",
            "quality": "low",
            "size": "1024x1024",
            "background": "opaque",
        }
    ],
    "mcp": [
        {
            "type": "mcp_list_tools",
            "id": "mcpl_0a63f40a2632b74312",
            "server_label": "wiki",
            "tools": [
                {
                    "name": "ask",
                    "description": "Asks.",
                    "input_schema": {"type": "object"},
                    "annotations": None,
                }
            ],
            "error": None,
        },
        {
            "type": "mcp_call",
            "id": "mcp_0a63f40a2632b74313",
            "approval_request_id": None,
            "arguments": '{"q": "Rome"}',
            "error": None,
            "name": "ask",
            "output": "Rome is a city.",
            "server_label": "wiki",
            "status": "completed",
        },
    ],
    "shell-hosted": [
        {**SHELL, "environment": CONTAINER},
        {
            "type": "shell_call_output",
            "id": "sho_0a63f40a2632b74314",
            "call_id": "call_sh_1",
            "output": [
                {
                    "stdout": "a.txt\n",
                    "stderr": "",
                    "outcome": {"type": "exit", "exit_code": 0},
                    "created_by": None,
                }
            ],
            "max_output_length": 4096,
            "status": "completed",
        },
    ],
    "tool-search-hosted": [
        {
            "type": "tool_search_call",
            "id": "tsc_0a63f40a2632b74315",
            "call_id": None,
            "execution": "server",
            "arguments": {"paths": ["mail"]},
            "status": "completed",
        },
        {
            "type": "tool_search_output",
            "id": "tso_0a63f40a2632b74316",
            "call_id": None,
            "execution": "server",
            "tools": [TOOL],
            "status": "completed",
        },
    ],
    "program": [
        PROGRAM,
        {
            "type": "program_output",
            "id": "po_0a63f40a2632b74317",
            "call_id": "call_prog_1",
            "result": "sunny",
            "status": "completed",
        },
    ],
    "compaction": [
        {
            "type": "compaction",
            "id": "cmp_0a63f40a2632b74318",
            "encrypted_content": CIPHER[::-1],
            "created_by": None,
        }
    ],
}
"""What OpenAI's own tools did, whole within one response."""

ASKING: dict[str, list[Json]] = {
    "function": [ASKED],
    "custom": [
        {
            "type": "custom_tool_call",
            "id": "ctc_0a63f40a2632b74319",
            "call_id": "call_sql_1",
            "name": "sql",
            "input": "SELECT 1",
            "status": "completed",
        }
    ],
    "program-waiting": [PROGRAM, {**ASKED, "caller": BY_PROGRAM}],
    "shell-local": [{**SHELL, "environment": {"type": "local"}}],
    "local-shell": [
        {
            "type": "local_shell_call",
            "id": "lsh_0a63f40a2632b74320",
            "call_id": "call_lsh_1",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
            "status": "completed",
        }
    ],
    "apply-patch": [
        {
            "type": "apply_patch_call",
            "id": "apc_0a63f40a2632b74321",
            "call_id": "call_ap_1",
            "operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b\n"},
            "status": "completed",
        }
    ],
    "computer": [
        {
            "type": "computer_call",
            "id": "cu_0a63f40a2632b74322",
            "call_id": "call_cu_1",
            "action": {"type": "click", "button": "left", "x": 1, "y": 2},
            "pending_safety_checks": [],
            "status": "completed",
        }
    ],
    "tool-search-client": [
        {
            "type": "tool_search_call",
            "id": "tsc_0a63f40a2632b74323",
            "call_id": "call_ts_1",
            "execution": "client",
            "arguments": {"goal": "send a mail"},
            "status": "completed",
        }
    ],
    "mcp-approval": [
        {
            "type": "mcp_approval_request",
            "id": "mcpr_0a63f40a2632b74324",
            "arguments": "{}",
            "name": "ask",
            "server_label": "wiki",
        }
    ],
}
"""What OpenAI's models ask the product to do."""
