"""Errors of the read side; `agent_eventstore.errors` draws the whole tree."""

from __future__ import annotations

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
