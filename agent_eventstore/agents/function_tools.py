"""Plain Python functions as tools of an agent: their declarations, and their arguments.

The declaration is made from the function's name, docstring and annotations. The model's arguments
are validated against it before the function runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError, validate_call

from eventstore.events import JsonObject
from projections.providers.answer import arguments_in

__all__ = [
    "FunctionTool",
    "OnToolError",
    "ToolArgumentParser",
    "ToolRefused",
    "tools_by_name",
    "wrong_in",
]


OnToolError = Literal["continue", "stop", "retry"]
"""What happens if a tool fails: the model sees the error, the turn ends, or the tool is retried."""


class ToolRefused(Exception):
    """A tool refuses a call, with its own text for the model.

    Attributes:
        content: The text that the model sees.
    """

    def __init__(self, content: str) -> None:
        self.content = content
        super().__init__(content)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that the model may call.

    Attributes:
        name: Its name for the model.
        description: Its description for the model.
        parameters: The JSON Schema of its arguments.
        function: The function; in an event loop it may be a coroutine function.
        idempotent: Whether running it twice does no harm, so that recovery may offer it.
        on_error: What happens if it fails, in place of the session's policy.
    """

    name: str
    description: str
    parameters: JsonObject
    function: Callable[..., Any] = field(repr=False)
    idempotent: bool = False
    on_error: OnToolError | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown policy.

        Raises:
            ValueError: ``on_error`` is not one of the three.
        """
        if self.on_error not in (None, *get_args(OnToolError)):
            known = " or ".join(get_args(OnToolError))
            raise ValueError(f"on_error must be {known}, not {self.on_error!r}")

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        idempotent: bool = False,
        on_error: OnToolError | None = None,
    ) -> Self:
        """Make a tool from a function's name, docstring and annotations.

        Raises:
            TypeError: The annotations cannot be expressed as a schema.
        """
        named = name or str(getattr(function, "__name__", type(function).__name__))
        try:
            callable_type: Any = function
            schema = TypeAdapter(callable_type).json_schema()
        except Exception as error:  # pydantic raises several kinds, internal ones included
            raise TypeError(f"the tool {named!r} cannot be declared: {error}") from error
        if schema.get("type") != "object":
            schema = {"type": "object", "properties": {}}
        docstring = inspect.getdoc(function) or ""
        return cls(named, description or docstring, schema, function, idempotent, on_error)

    def declaration(self, format: str = "openai_chat") -> JsonObject:
        """Return the declaration for OpenAI's chat completions or Anthropic's Messages."""
        named = {"name": self.name, "description": self.description}
        if format == "anthropic_messages":
            return {**named, "input_schema": self.parameters}
        return {"type": "function", "function": {**named, "parameters": self.parameters}}

    def arguments_of(self, text: str) -> JsonObject:
        """Return the arguments in a text: a JSON object, or the first parameter.

        >>> def read(path: str) -> str: ...
        >>> FunctionTool.of(read).arguments_of("README.md")
        {'path': 'README.md'}
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        first = next(iter(self.parameters.get("properties", {})), None)
        return {first: text} if first is not None and text else {}

    def run(self, arguments: JsonObject) -> Any:
        """Check the arguments and run the function.

        Raises:
            ValueError: The arguments do not match the declaration; the message is for the model.
        """
        try:
            return validate_call(self.function)(**arguments)
        except ValidationError as error:
            raise ValueError(
                f"the arguments of {self.name} are wrong: {wrong_in(error)}"
            ) from error


def wrong_in(error: ValidationError) -> str:
    """Return what is wrong with the arguments, in words for the model."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )


def tools_by_name(
    tools: Iterable[FunctionTool | Callable[..., Any]],
) -> dict[str, FunctionTool]:
    """Return tools by their names.

    Raises:
        ValueError: Two of them have the same name.
    """
    found: dict[str, FunctionTool] = {}
    for each in tools:
        tool = each if isinstance(each, FunctionTool) else FunctionTool.of(each)
        if tool.name in found:
            raise ValueError(f"two tools have the name {tool.name!r}: rename one")
        found[tool.name] = tool
    return found


T = TypeVar("T")


class ToolArgumentParser:
    """Parses the arguments of a tool call; errors are described in words for the model.

    Args:
        arguments: The model's arguments, decoded.

    >>> arguments = ToolArgumentParser({"path": "a.md", "lines": "3, 4"})
    >>> arguments.get_required("path", str), arguments.parse_list("lines")
    ('a.md', ['3', '4'])
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    @classmethod
    def of(cls, text: str) -> Self:
        """Make a parser for the text that a model wrote.

        Raises:
            ValueError: The text is not a JSON object.
        """
        arguments, error, _ = cls.parse_json_safely(text)
        if arguments is None:
            raise ValueError(f"the arguments are not a JSON object: {error}")
        return cls(arguments)

    @staticmethod
    def parse_json_safely(text: str) -> tuple[JsonObject | None, str | None, str | None]:
        """Return the JSON object in a text, the error if there is none, and a warning, if any."""
        return arguments_in(text)

    def get_required(self, name: str, kind: type[T]) -> T:
        """Return an argument with this type.

        Raises:
            ValueError: It is missing, or has another type.
        """
        if name not in self.arguments:
            raise ValueError(f"the argument {name!r} is missing")
        return self._of_kind(name, kind)

    def get(self, name: str, kind: type[T], default: T) -> T:
        """Return an argument with this type, or the default if it is missing or null.

        Raises:
            ValueError: It has another type.
        """
        return default if self.arguments.get(name) is None else self._of_kind(name, kind)

    def parse_list(self, name: str) -> list[str]:
        """Return a list of texts, even if the model gave one text separated by commas."""
        value = self.arguments.get(name)
        if isinstance(value, str):
            value = [each.strip() for each in value.split(",")]
        return [str(each) for each in value or () if each != ""]

    def _of_kind(self, name: str, kind: type[T]) -> T:
        value = self.arguments[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(
                f"the argument {name!r} is a {kind.__name__}, not {type(value).__name__}"
            )
        return value
