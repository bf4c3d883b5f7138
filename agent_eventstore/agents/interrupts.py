"""The tasks of a tool that interrupts: one that answers, and one that delivers the answer.

All ids are derived from the call's own key, so that a scheduler that was killed in between plans
the same tasks again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from uuid import UUID

from agent_eventstore.agents.conversation_tools import CREATE, SEND, Create, Send, payload, refused
from agent_eventstore.agents.function_tools import ToolRefused
from agent_eventstore.agents.queue import Closure, Members, TaskPlan
from eventstore.events import JsonObject, TextPart
from eventstore.ids import DerivedId, derived_id
from projections.models.open_items import OpenToolCall

__all__ = ["INTERRUPTING", "Interrupts", "Opening"]


INTERRUPTING = (CREATE, SEND)
"""The tools that interrupt."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A conversation to create first, and its parent."""

    conversation_id: UUID
    parent: UUID
    base_instructions: str | None
    request: Create


class Interrupts:
    """Validates a call and makes its tasks.

    Args:
        root: The root conversation.
        members: The existing conversations.
        directory: The directory of instruction files.
        most: Maximum number of tasks that may enqueue one another.
    """

    def __init__(self, root: UUID, members: Members, directory: Path, most: int) -> None:
        self._root, self._members, self._directory, self._most = root, members, directory, most

    def look_at(self, request: Create | Send, depth: int) -> tuple[UUID | None, str | None]:
        """Return the target conversation, if it exists, and a new one's instructions.

        Raises:
            ToolRefused: The call cannot be carried out.
        """
        request.parts()
        if depth > self._most:
            raise refused(f"max_interrupt_chain_depth is {self._most}: finish without interrupting")
        if isinstance(request, Create):
            return None, self._instructions(request)
        target = self._members.find(request.conversation_id)
        if target is None:
            raise refused("conversation not found")
        return target, None

    def _instructions(self, request: Create) -> str | None:
        name = request.base_instruction_file
        if name is None:
            return request.base_instruction_text
        if request.base_instruction_text is not None:
            raise refused("hand in base_instruction_text or base_instruction_file, not both")
        try:
            return read_instructions(self._directory, name)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise refused(f"cannot read base_instruction_file {name!r}: {why}") from error

    def plans(
        self, caller: UUID, call: OpenToolCall, depth: int
    ) -> tuple[Opening | None, list[TaskPlan]]:
        """Return the conversation to create first, and the tasks of a call.

        If the call has become impossible in the meantime, its result says so.
        """
        back = TaskPlan(
            conversation_id=caller,
            closure=Closure(call.call_id, call.name),
            task_id=self.task_id(call, "result"),
        )
        try:
            request = request_of(call.name, call.arguments)
            target, instructions = self.look_at(request, depth)
        except ToolRefused as refused:
            return None, [replace(back, input_items=refused.content)]
        opening = None
        if isinstance(request, Create):
            target = DerivedId.of(self._root, "conversation", _key(call))
            opening = Opening(target, caller, instructions, request)
        ask = TaskPlan(
            conversation_id=target or caller,
            input_items=request.parts(),
            task_id=self.task_id(call, "target"),
        )
        return opening, [ask, back]

    def task_id(self, call: OpenToolCall, which: Literal["target", "result"]) -> str:
        """Return the id of one of the two tasks of a call."""
        return str(derived_id(self._root, "task", _key(call), which))


def request_of(name: str, arguments: JsonObject | None) -> Create | Send:
    """Return the arguments of a call that interrupts.

    Raises:
        ToolRefused: The arguments do not match the declaration.
    """
    return (Create if name == CREATE else Send).of(arguments or {})


def answered(call: OpenToolCall, conversation_id: str, answer: str | None) -> str:
    """Return the result of a call whose task is complete."""
    result: JsonObject = {"conversation_id": conversation_id}
    if call.name == CREATE:
        request = Create.of(call.arguments or {})
        texts = [part.text for part in request.parts() if isinstance(part, TextPart)]
        if texts:
            result["first_user_message"] = "\n".join(texts)
        if request.items:
            result["first_items_count"] = len(request.items)
    return payload({**result, "last_assistant_message": answer or ""})


def _key(call: OpenToolCall) -> str:
    return call.idempotency_key or call.call_id


MOST_BYTES = 256 * 1024
"""Maximum size of an instruction file, in bytes."""


def read_instructions(directory: Path, name: str) -> str:
    """Return the text of a file within a directory.

    A name that leads out of the directory, by ``..``, as an absolute path or through a link, is
    refused, and so is anything other than a plain file.

    Raises:
        ValueError: The file is not in the directory, is too large, or is not text.
        OSError: It cannot be read.
    """
    root = directory.resolve(strict=True)
    if "\0" in name or not name.strip() or Path(name).is_absolute():
        raise ValueError("name a file by its path relative to the working directory")
    path = (root / name).resolve(strict=True)
    if not path.is_relative_to(root) or not path.is_file():
        raise ValueError("it is not a file in the working directory")
    with os.fdopen(_opened(root, path.relative_to(root).parts), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES // 1024} KB")
    return content.decode("utf-8")


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Open a file step by step, so that a link created in the meantime is not followed."""
    *folders, last = parts
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
