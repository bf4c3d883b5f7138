"""What the read side refuses or fails at; the whole tree is drawn in `agent_eventstore.errors`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from eventstore.errors import EventStoreError

if TYPE_CHECKING:
    pass


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
    """A projection of a product's own cannot be made as it is declared; ``reason`` says why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"projection {name!r}: {reason}")


class UnknownProjection(EventStoreError, LookupError):
    """No projection has this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"there is no projection {name!r}: choose from {', '.join(choices)}")


class EncodingNotBundled(EventStoreError, LookupError):
    """The tokenizer's ranks are not carried along, and nothing is downloaded at run time."""

    def __init__(self, encoding: str, choices: tuple[str, ...]) -> None:
        self.encoding = encoding
        self.choices = choices
        super().__init__(f"encoding {encoding!r} is not bundled: choose {' or '.join(choices)}")


class UnknownStrategy(EventStoreError, LookupError):
    """There is no compression strategy of this name."""

    def __init__(self, name: str, choices: tuple[str, ...]) -> None:
        self.name = name
        self.choices = choices
        super().__init__(f"there is no strategy {name!r}: choose from {', '.join(choices)}")


class EmbeddingFailed(EventStoreError):
    """A product's embedding callable raised, or did not give a vector for each text."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the embedding callable failed: {reason}")


class RequestNotReproducible(EventStoreError):
    """The log no longer gives the messages that were sent with a request."""

    def __init__(self, conversation_id: UUID, version: int, reason: str) -> None:
        self.conversation_id = conversation_id
        self.version = version
        self.reason = reason
        super().__init__(
            f"the messages of the request at version {version} of conversation {conversation_id} "
            f"cannot be given back: {reason}"
        )


class BudgetInfeasible(EventStoreError):
    """The messages that must be sent are larger than the budget."""

    def __init__(self, max_tokens: int, mandatory: dict[str, int]) -> None:
        self.max_tokens = max_tokens
        self.mandatory = mandatory
        sizes = ", ".join(f"{name}: {tokens}" for name, tokens in mandatory.items())
        super().__init__(
            f"the budget of {max_tokens} tokens cannot hold what must be sent "
            f"({sum(mandatory.values())} tokens: {sizes}): raise it or shorten these"
        )


class InvalidSettings(EventStoreError, ValueError):
    """Settings are unknown, out of range, or contradict each other; ``problems`` has one a line."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(f"invalid settings: {'; '.join(problems)}")


class InvalidPrompt(EventStoreError, ValueError):
    """A text of the product's for the system part cannot be read; ``source`` says which."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"prompt text {source}: {reason}")


class ProjectionFailed(EventStoreError):
    """A fold raised, or an event could not be read; nothing of the conversation was written."""

    def __init__(self, projection: str, conversation_id: UUID, version: int) -> None:
        self.projection = projection
        self.conversation_id = conversation_id
        self.version = version
        super().__init__(
            f"projection {projection} failed on conversation {conversation_id} at version {version}"
        )

    def __str__(self) -> str:
        """Name the cause's class too; what the cause says may quote the conversation."""
        cause = self.__cause__
        return super().__str__() + (f": {type(cause).__name__}" if cause else "")


class GenerationGone(EventStoreError):
    """A cut-over has replaced the generation that was in use: look again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a rebuild has replaced the tables in use: read again ({reason})")
