"""`ToolArgumentParser`: what tools and adapters read arguments with (document 004)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from agent_eventstore.formats.openai_wire import arguments_in
from eventstore.events import JsonObject

__all__ = ["ToolArgumentParser"]

T = TypeVar("T")


class ToolArgumentParser:
    """Reads the arguments of a tool call; what is wrong is said in words for the model.

    Args:
        arguments: As the model gave them, parsed.

    >>> given = ToolArgumentParser({"path": "a.md", "lines": "3, 4"})
    >>> given.get_required("path", str), given.parse_list("lines")
    ('a.md', ['3', '4'])
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    @classmethod
    def of(cls, text: str) -> Self:
        """Make one of the text that a model wrote.

        Raises:
            ValueError: It is no JSON object.
        """
        arguments, error, _ = cls.parse_json_safely(text)
        if arguments is None:
            raise ValueError(error)
        return cls(arguments)

    @staticmethod
    def parse_json_safely(text: str) -> tuple[JsonObject | None, str | None, str | None]:
        """Return the JSON object of a text, or why there is none, and what is odd about it."""
        return arguments_in(text)

    def get_required(self, name: str, kind: type[T]) -> T:
        """Return an argument of this type.

        Raises:
            ValueError: It is missing, or of another type.
        """
        if name not in self.arguments:
            raise ValueError(f"the argument {name!r} is missing")
        return self._of_kind(name, kind)

    def get(self, name: str, kind: type[T], default: T) -> T:
        """Return an argument of this type, or the default where it is missing or null.

        Raises:
            ValueError: It is of another type.
        """
        return default if self.arguments.get(name) is None else self._of_kind(name, kind)

    def parse_list(self, name: str) -> list[str]:
        """Return a list of texts, also where the model gave them as one text with commas."""
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
