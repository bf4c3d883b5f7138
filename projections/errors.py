"""Errors of the read side; `agent_eventstore.errors` draws the whole tree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from eventstore.errors import EventStoreError

__all__ = [
    "BudgetInfeasible",
    "EmbeddingFailed",
    "EncodingNotBundled",
    "GenerationGone",
    "InvalidProjection",
    "InvalidPrompt",
    "InvalidSettings",
    "ProjectionFailed",
    "RequestNotReproducible",
    "UnknownProjection",
    "UnknownResponse",
    "UnknownStrategy",
]


class InvalidProjection(EventStoreError, ValueError):
    """A product's projection is declared incorrectly; ``reason`` says how."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"projection {name!r}: {reason}")


class UnknownProjection(EventStoreError, LookupError):
    """No projection has this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"unknown projection {name!r}: choose from {', '.join(choices)}")


class EncodingNotBundled(EventStoreError, LookupError):
    """The tokenizer's ranks are not bundled, and nothing is downloaded at run time."""

    def __init__(self, encoding: str, choices: tuple[str, ...]) -> None:
        self.encoding = encoding
        self.choices = choices
        super().__init__(f"encoding {encoding!r} is not bundled: choose {' or '.join(choices)}")


class UnknownStrategy(EventStoreError, LookupError):
    """No compression strategy has this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"unknown strategy {name!r}: choose from {', '.join(choices)}")


class EmbeddingFailed(EventStoreError):
    """A product's embedding callable raised, or did not return a vector for each text."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the embedding callable failed: {reason}")


class RequestNotReproducible(EventStoreError):
    """The messages that a request sent can no longer be reproduced from the log."""

    def __init__(self, conversation_id: UUID, version: int, reason: str) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self.reason = reason
        super().__init__(
            f"the messages of the request at version {version} of conversation {conversation_id} "
            f"cannot be reproduced: {reason}"
        )


class BudgetInfeasible(EventStoreError):
    """The mandatory messages do not fit into the budget."""

    def __init__(self, max_tokens: int, mandatory: dict[str, int]) -> None:
        self.max_tokens = max_tokens
        self.mandatory = mandatory
        sizes = ", ".join(f"{name}: {tokens}" for name, tokens in mandatory.items())
        super().__init__(
            f"the budget of {max_tokens} tokens cannot hold what must be sent "
            f"({sum(mandatory.values())} tokens: {sizes}): raise it or shorten these"
        )


class InvalidSettings(EventStoreError, ValueError):
    """Settings are unknown, out of range or contradictory; ``problems`` lists each problem."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"invalid settings: {'; '.join(problems)}")


class InvalidPrompt(EventStoreError, ValueError):
    """The product's text for the system part cannot be used; ``source`` says which text."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"prompt text {source}: {reason}")


class ProjectionFailed(EventStoreError):
    """A fold raised or an event could not be read; none of the conversation's rows were written."""

    def __init__(self, projection: str, conversation_id: UUID, version: int) -> None:
        self.projection = projection
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"projection {projection} failed on conversation {conversation_id} at version {version}"
        )

    def __str__(self) -> str:
        """Add only the cause's class: its message may quote the conversation."""
        cause = self.__cause__
        return super().__str__() + (f": {type(cause).__name__}" if cause else "")


class GenerationGone(EventStoreError):
    """A cut-over has replaced the generation in use: read again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a rebuild has replaced the tables in use: read again ({reason})")


INSTEAD = {
    "response": (
        "pass the whole answer of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock, as an "
        "object or a dict, and each chunk of a stream to call.feed(chunk); for any other "
        "SDK use call.text('...'), "
        "or call.message(text=..., tool_calls=..., usage=..., finish_reason=...)"
    ),
    "chunk": (
        "pass the chunks of OpenAI, Anthropic, Gemini, Ollama, Cohere or Bedrock one by one, as "
        "objects or dicts; for any other SDK use call.delta('...') for each piece of text"
    ),
    "tool call": "pass {'name': ..., 'arguments': ..., 'id': ...}",
    "usage": "pass {'prompt_tokens': ..., 'completion_tokens': ...}",
}


_NAMED = 8


def seen(value: Any) -> str:
    """Return the type of a value, and for a dictionary the names of its fields."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if not issubclass(kind, dict):  # not isinstance: a caller's object may fake its __class__
        return name
    fields = [repr(key)[:40] for key in list(value)[:_NAMED]]
    return f"a dict with {', '.join(fields)}" if fields else "an empty dict"


class UnknownResponse(EventStoreError, ValueError):
    """A value passed as a model's answer has an unknown format; nothing was recorded.

    Attributes:
        seen: The value's type, with the names of its fields, if any.
        what: What the value was passed as: ``response``, ``chunk``, ``tool call``, ``usage`` ...
    """

    def __init__(self, value: Any, what: str = "response", why: str = "") -> None:
        self.seen, self.what = seen(value), what
        known = INSTEAD.get(what, "pass a text")
        super().__init__(f"{self.seen} is not a known {what}{why}: {known}")
