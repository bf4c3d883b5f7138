"""What frameworks that run tools by themselves send and get, in each provider's own form.

`Wire` makes the answers of a provider that wants tools run, and the messages that a framework adds
to its next request: the answer again, and what came of each tool.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["WIRES", "Anthropic", "Call", "Chat", "Responses", "Wire"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as a provider names it."""

    id: str
    name: str = "search"
    arguments: str = "{}"


class Chat:
    """OpenAI's chat completions, and the many servers that speak the same."""

    specification = "openai_chat"
    said = ({"role": "user", "content": "hello"},)

    def answer(self, *calls: Call, text: str | None = None) -> dict[str, Any]:
        """Return a whole answer."""
        message = {"role": "assistant", "content": text}
        if calls:
            message |= self.repeated(*calls)[0]
        reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "finish_reason": reason, "message": message}
        common = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return {**common, "choices": [choice]}

    def repeated(self, *calls: Call) -> list[dict[str, Any]]:
        """Return the answer as the next request holds it."""
        listed = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
        return [{"role": "assistant", "tool_calls": listed}]

    def result(self, call: Call, content: Any, *, failed: bool = False) -> dict[str, Any]:
        """Return what came of a call as the next request holds it."""
        return {"role": "tool", "tool_call_id": call.id, "content": content}


class Responses:
    """OpenAI's Responses."""

    specification = "openai_responses"
    said = ({"role": "user", "content": "hello"},)

    def answer(self, *calls: Call, text: str | None = None) -> dict[str, Any]:
        """Return a whole answer."""
        part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        output = [*self.repeated(*calls), *([{**message, "content": [part]}] if text else [])]
        common = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
        return {**common, "status": "completed", "output": output}

    def repeated(self, *calls: Call) -> list[dict[str, Any]]:
        """Return the answer as the next request holds it."""
        return [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
            for call in calls
        ]

    def result(self, call: Call, content: Any, *, failed: bool = False) -> dict[str, Any]:
        """Return what came of a call as the next request holds it."""
        return {"type": "function_call_output", "call_id": call.id, "output": content}


class Anthropic:
    """Anthropic's Messages."""

    specification = "anthropic_messages"
    said = ({"role": "user", "content": "hello"},)

    def answer(self, *calls: Call, text: str | None = None) -> dict[str, Any]:
        """Return a whole answer."""
        spoken: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content = [*spoken, *(self._block(call) for call in calls)]
        common = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        reason = "tool_use" if calls else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        end = {"stop_reason": reason, "stop_sequence": None}
        return {**common, "content": content, "usage": usage, **end}

    def repeated(self, *calls: Call) -> list[dict[str, Any]]:
        """Return the answer as the next request holds it."""
        return [{"role": "assistant", "content": [self._block(call) for call in calls]}]

    def result(self, call: Call, content: Any, *, failed: bool = False) -> dict[str, Any]:
        """Return what came of a call as the next request holds it."""
        block = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        return {"role": "user", "content": [block | ({"is_error": True} if failed else {})]}

    def _block(self, call: Call) -> dict[str, Any]:
        arguments = json.loads(call.arguments)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


Wire = Chat | Responses | Anthropic
WIRES: dict[str, Wire] = {wire.specification: wire for wire in (Chat(), Responses(), Anthropic())}
