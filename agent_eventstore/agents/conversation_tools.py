"""The tools with which a model works with several conversations, as document 003 declares them.

Their names, parameters, payloads and order are the document's. A call that cannot be carried out
returns ``{"ok": false, "reason": ...}``, and the model continues. ``conv.create`` and ``conv.send``
interrupt the task that calls them; the scheduler handles that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_eventstore.agents.function_tools import FunctionTool, ToolRefused, wrong_in
from eventstore.events import ContentPart, ImagePart, JsonObject, TextPart, ToolPolicy

__all__ = ["CREATE", "SEND", "Create", "Send", "declared", "payload", "refusal", "refused"]

CREATE, SEND, LIST, HISTORY, DESTROY = (
    "conv.create",
    "conv.send",
    "conv.list",
    "conv.history",
    "conv.destroy",
)

_SWITCHES: dict[str, tuple[str, ...]] = {
    "include_plan_tool": ("update_plan",),
    "include_apply_patch_tool": ("apply_patch",),
    "web_search_request": ("web_search",),
    "use_streamable_shell_tool": ("exec_command", "write_stdin"),
}
"""The tools that the document's preferences switch."""


class _ToolArguments(BaseModel):
    """The arguments of a tool call."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def of(cls, arguments: JsonObject) -> Self:
        """Return validated arguments.

        Raises:
            ToolRefused: The arguments do not match the declaration.
        """
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            raise refused(wrong_in(error)) from error


class InputItem(_ToolArguments):
    """A part of an input: a text, or an image by its URL."""

    type: Literal["text", "image"]
    text: str | None = None
    image_url: str | None = None

    def part(self) -> ContentPart:
        """Return the item as a part of a message.

        Raises:
            ToolRefused: The item has neither text nor image.
        """
        if self.type == "image" and self.image_url:
            if not self.image_url.startswith(("data:", "http://", "https://")):
                raise refused("image_url begins with data:, http:// or https://")
            return ImagePart(url=self.image_url)
        if self.type == "text" and self.text:
            return TextPart(text=self.text)
        raise refused("an item has a text, or an image_url, as its type says")


class InternalTools(_ToolArguments):
    """Which of your product's tools a conversation has; omitted switches stay unchanged."""

    include_plan_tool: bool | None = None
    include_apply_patch_tool: bool | None = None
    web_search_request: bool | None = None
    use_streamable_shell_tool: bool | None = None

    def switches(self) -> dict[str, bool]:
        """Return the switches by the names of the tools."""
        preferences = self.model_dump(exclude_none=True)
        return {tool: on for name, on in preferences.items() for tool in _SWITCHES[name]}


class Create(_ToolArguments):
    """The arguments of ``conv.create``."""

    base_instruction_text: str | None = Field(None, description="Instructions of the new one.")
    base_instruction_file: str | None = Field(
        None, description="A file with them, relative to the working directory."
    )
    user_instruction: str | None = Field(None, description="What is said to it first.")
    items: list[InputItem] | None = Field(None, description="What is said first, with images.")
    mcp_allowlist: list[str] | None = Field(None, description="The only MCP servers it may use.")
    internal_tools: InternalTools | None = None

    def parts(self) -> tuple[ContentPart, ...]:
        """Return the first message.

        Raises:
            ToolRefused: There is no message.
        """
        return _parts(self.user_instruction, self.items, "user_instruction")

    def policy(self) -> ToolPolicy | None:
        """Return the restrictions that are added to its parent's policy."""
        if self.mcp_allowlist is None and self.internal_tools is None:
            return None
        allowed = self.mcp_allowlist
        return ToolPolicy(
            mcp_allowlist=None if allowed is None else tuple(allowed),
            internal_tools={} if self.internal_tools is None else self.internal_tools.switches(),
        )


class Send(_ToolArguments):
    """The arguments of ``conv.send``."""

    conversation_id: str
    text: str | None = None
    items: list[InputItem] | None = None

    def parts(self) -> tuple[ContentPart, ...]:
        """Return the message.

        Raises:
            ToolRefused: There is no message.
        """
        return _parts(self.text, self.items, "text")


class List(_ToolArguments):
    """The arguments of ``conv.list``: none."""


class History(_ToolArguments):
    """The arguments of ``conv.history``."""

    conversation_id: str
    limit: int | None = Field(None, ge=1, description="Only so many of the latest messages.")


class Destroy(_ToolArguments):
    """The arguments of ``conv.destroy``."""

    conversation_id: str


def _parts(text: str | None, items: list[InputItem] | None, name: str) -> tuple[ContentPart, ...]:
    if not text and not items:
        raise refused(f"{name} or items is required")
    texts = (TextPart(text=text),) if text else ()
    return (*texts, *(item.part() for item in items or ()))


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    takes: type[_ToolArguments]
    description: str


_TOOLS = (
    _Declared(
        CREATE,
        Create,
        "Open a new conversation and hand it a task. Interrupts: this task ends at once, the new "
        "conversation answers, and you go on with its answer as the result of this call.",
    ),
    _Declared(
        SEND,
        Send,
        "Send a message to a conversation. Interrupts: this task ends at once, that conversation "
        "answers, and you go on with its answer as the result of this call.",
    ),
    _Declared(LIST, List, "List the conversations that exist. Does not interrupt."),
    _Declared(
        HISTORY, History, "Return the messages of a conversation, no tools. Does not interrupt."
    ),
    _Declared(
        DESTROY,
        Destroy,
        "Destroy a conversation; the root cannot be destroyed. Does not interrupt, unless it is "
        "the one that runs.",
    ),
)


def declared(run: Callable[[str, Any], JsonObject]) -> list[FunctionTool]:
    """Return the five tools in the document's order.

    Args:
        run: Takes a tool's name and its arguments, and returns its payload.
    """
    return [_tool(each, run) for each in _TOOLS]


def _tool(each: _Declared, run: Callable[[str, Any], JsonObject]) -> FunctionTool:
    def function(**arguments: Any) -> str:
        return payload(run(each.name, each.takes.of(arguments)))

    return FunctionTool(each.name, each.description, json.loads(_schema(each.takes)), function)


# Pydantic needs milliseconds for each, and every session declares all of them.
@cache
def _schema(takes: type[_ToolArguments]) -> str:
    schema = takes.model_json_schema()
    return json.dumps(_plain(schema, schema.pop("$defs", {})))


def _plain(schema: Any, named: JsonObject) -> Any:
    """Return a JSON Schema without references, titles and unions with null, for all providers."""
    if isinstance(schema, list):
        return [_plain(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        (one,) = (each for each in schema["anyOf"] if each.get("type") != "null")
        siblings = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _plain({**one, **siblings}, named)
    left = {key: value for key, value in schema.items() if key not in ("title", "description")}
    if isinstance(schema.get("description"), str) and "properties" not in schema:
        left["description"] = schema["description"]
    return {
        key: {name: _plain(each, named) for name, each in value.items()}
        if key == "properties"
        else _plain(value, named)
        for key, value in left.items()
    }


def payload(value: JsonObject) -> str:
    """Return a tool's result as the text that the model sees."""
    return json.dumps(value, ensure_ascii=False)


def refusal(reason: str) -> str:
    """Return the result, for the model, of a call that cannot be carried out."""
    return payload({"ok": False, "reason": reason})


def refused(reason: str) -> ToolRefused:
    """Return the exception with which a tool refuses a call."""
    return ToolRefused(refusal(reason))
