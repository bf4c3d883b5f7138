"""The registry: one explicit list of types, each with a name that is never reused."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from eventstore import events
from eventstore.events import EVENT_TYPES, Payload, RetainedUsage
from eventstore.events.registry import REGISTRY

CATALOGUE = {
    *(
        "conversation_start",
        "conversation_fork",
        "conversation_update",
        "conversation_end",
        "session_start",
        "session_end",
        "mode_switch",
        "mode_state",
    ),
    *("turn_start", "turn_end", "user_message", "llm_request", "assistant_chunk"),
    *("assistant_message", "llm_error", "tool_call", "tool_result", "run_start", "run_end"),
    *("run_step_start", "run_step_end", "task_enqueue", "task_start", "task_end", "summary"),
    *("system_instruction", "notebook", "retraction", "branch_switch", "erasure", "kept_usage"),
}


def test_the_catalogue_is_complete() -> None:
    """A type that was ever written stays; adding one means adding it here."""
    assert CATALOGUE == set(REGISTRY)


def test_names_are_unique() -> None:
    """Two classes cannot share a type."""
    assert len(EVENT_TYPES) == len(REGISTRY)


@pytest.mark.parametrize("cls", EVENT_TYPES)
def test_type_is_the_snake_case_of_the_class(cls: type[Payload]) -> None:
    """Who knows the class knows the type, and the other way round; one was written before."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    assert ("kept_usage" if cls is RetainedUsage else snake) == cls.type


@pytest.mark.parametrize("cls", EVENT_TYPES)
def test_class_is_public(cls: type[Payload]) -> None:
    """Every payload class is exported from ``eventstore.events`` under its own name."""
    assert cls is getattr(events, cls.__name__)


@pytest.mark.parametrize("cls", EVENT_TYPES)
def test_class_is_documented(cls: type[Payload]) -> None:
    """A payload says what fact it stands for."""
    assert cls.__doc__ != Payload.__doc__
    assert (cls.__doc__ or "").strip()


def test_payloads_are_frozen() -> None:
    """A fact cannot be changed once it was made."""
    message = events.UserMessage.text("hello")

    with pytest.raises(ValidationError, match="frozen"):
        message.name = "other"
