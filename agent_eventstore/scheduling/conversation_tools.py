"""The tools by which a model works with several conversations, as document 003 declares them.

Their names, parameters, payloads and order are the document's. What a tool cannot do it says as
``{"ok": false, "reason": ...}``, and the model goes on; ``conv.create`` and ``conv.send`` interrupt
the task that calls them, which is the scheduler's business.
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

__all__ = ["CREATE", "SEND", "Create", "Send", "declared", "payload", "refusal"]

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
"""Which tools the document's preferences stand for."""


class _Given(BaseModel):
    """What a model gives a tool."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def of(cls, arguments: JsonObject) -> Self:
        """Return a model's arguments.

        Raises:
            ToolRefused: They are not those that were declared.
        """
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            raise ToolRefused(refusal(wrong_in(error))) from error


class InputItem(_Given):
    """A part of an input: a text, or an image by its URL."""

    type: Literal["text", "image"]
    text: str | None = None
    image_url: str | None = None

    def part(self) -> ContentPart:
        """Return the part of a message that it stands for.

        Raises:
            ToolRefused: It has neither text nor image.
        """
        if self.type == "image" and self.image_url:
            if not self.image_url.startswith(("data:", "http://", "https://")):
                raise ToolRefused(refusal("image_url begins with data:, http:// or https://"))
            return ImagePart(url=self.image_url)
        if self.type == "text" and self.text is not None:
            return TextPart(text=self.text)
        raise ToolRefused(refusal("an item has a text, or an image_url, as its type says"))


class InternalTools(_Given):
    """Which of the product's own tools a conversation has; what is not said stays as it is."""

    include_plan_tool: bool | None = None
    include_apply_patch_tool: bool | None = None
    web_search_request: bool | None = None
    use_streamable_shell_tool: bool | None = None

    def switches(self) -> dict[str, bool]:
        """Return the same by the names of the tools."""
        told = self.model_dump(exclude_none=True)
        return {tool: on for name, on in told.items() for tool in _SWITCHES[name]}


class Create(_Given):
    """What ``conv.create`` takes."""

    base_instruction_text: str | None = Field(None, description="Instructions of the new one.")
    base_instruction_file: str | None = Field(
        None, description="A file with them, relative to the working directory."
    )
    user_instruction: str | None = Field(None, description="What is said to it first.")
    items: list[InputItem] | None = Field(None, description="What is said first, with images.")
    mcp_allowlist: list[str] | None = Field(None, description="The only MCP servers it may use.")
    internal_tools: InternalTools | None = None

    def parts(self) -> tuple[ContentPart, ...]:
        """Return what is said first.

        Raises:
            ToolRefused: Nothing is.
        """
        return _parts(self.user_instruction, self.items, "user_instruction")

    def policy(self) -> ToolPolicy | None:
        """Return what it may use of what its parent may."""
        if self.mcp_allowlist is None and self.internal_tools is None:
            return None
        allowed = self.mcp_allowlist
        return ToolPolicy(
            mcp_allowlist=None if allowed is None else tuple(allowed),
            internal_tools={} if self.internal_tools is None else self.internal_tools.switches(),
        )


class Send(_Given):
    """What ``conv.send`` takes."""

    conversation_id: str
    text: str | None = None
    items: list[InputItem] | None = None

    def parts(self) -> tuple[ContentPart, ...]:
        """Return what is said.

        Raises:
            ToolRefused: Nothing is.
        """
        return _parts(self.text, self.items, "text")


class List(_Given):
    """What ``conv.list`` takes: nothing."""


class History(_Given):
    """What ``conv.history`` takes."""

    conversation_id: str
    limit: int | None = Field(None, ge=1, description="Only so many of the latest messages.")


class Destroy(_Given):
    """What ``conv.destroy`` takes."""

    conversation_id: str


def _parts(text: str | None, items: list[InputItem] | None, name: str) -> tuple[ContentPart, ...]:
    if not text and not items:
        raise ToolRefused(refusal(f"{name} or items is required"))
    said = (TextPart(text=text),) if text else ()
    return (*said, *(item.part() for item in items or ()))


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    takes: type[_Given]
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
        run: Given a tool's name and what it takes, returns its payload.
    """
    return [_tool(each, run) for each in _TOOLS]


def _tool(each: _Declared, run: Callable[[str, Any], JsonObject]) -> FunctionTool:
    def function(**arguments: Any) -> str:
        return payload(run(each.name, each.takes.of(arguments)))

    return FunctionTool(each.name, each.description, json.loads(_schema(each.takes)), function)


# Pydantic takes milliseconds for each, and every session declares all.
@cache
def _schema(takes: type[_Given]) -> str:
    schema = takes.model_json_schema()
    return json.dumps(_plain(schema, schema.pop("$defs", {})))


def _plain(schema: Any, named: JsonObject) -> Any:
    """Return a JSON Schema without references, titles and unions with null: for every provider."""
    if isinstance(schema, list):
        return [_plain(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        (one,) = (each for each in schema["anyOf"] if each.get("type") != "null")
        told = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _plain({**one, **told}, named)
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
    """Return what a tool returns, as the text that the model is told."""
    return json.dumps(value, ensure_ascii=False)


def refusal(reason: str) -> str:
    """Return what a model is told of what cannot be done."""
    return payload({"ok": False, "reason": reason})
