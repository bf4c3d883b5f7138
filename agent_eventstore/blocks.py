"""What may be done when: a turn, a model call and a tool call are used within their block.

What is done outside of it would be recorded in the wrong place or not at all, so it is refused,
where it is done and before anything is sent or executed.
"""

from __future__ import annotations

import threading
import weakref
from typing import ClassVar, Literal
from uuid import UUID

from agent_eventstore.scripts import CallFacts
from eventstore.errors import BlockNotOpen, TurnStillOpen

__all__ = ["Block", "CallBlock", "OneTurn"]


class Block:
    """A block that is entered once, and used until it is left.

    Attributes:
        form: How a product enters it, for who has not.
    """

    form: ClassVar[str] = ""
    _state: Literal["new", "open", "over"] = "new"

    def _enter_once(self) -> None:
        """Refuse to be entered again.

        Raises:
            BlockNotOpen: It has been entered; a failed attempt does not count.
        """
        if self._state != "new":
            entered = "is open already" if self._state == "open" else "is over"
            raise BlockNotOpen(f"this block {entered}: make another, `{self.form}`")

    def _within(self, what: str) -> None:
        """Refuse what is done outside of the block.

        Raises:
            BlockNotOpen: It has not been entered, or has been left.
        """
        if self._state != "open":
            when = "has not been entered" if self._state == "new" else "has been left"
            raise BlockNotOpen(f"{what}: its block {when}; use it within `{self.form}`")


class CallBlock(CallFacts, Block):
    """A model call's block, which takes an answer until it has one."""

    def _taking(self, what: str) -> None:
        """Refuse what comes before the request is recorded, or after the answer's end.

        Raises:
            BlockNotOpen: The call has not been entered, or has its answer.
        """
        self._within(what)
        if self.answer is not None or self.error is not None:
            raise BlockNotOpen(f"{what}: this call has its answer already; make another one")


class OneTurn:
    """Which turn of a conversation is open; one that was dropped without being left is not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[weakref.ref[object], int] | None = None

    def take(self, turn: object, number: int, conversation_id: UUID) -> None:
        """Let a turn be the open one.

        Raises:
            TurnStillOpen: Another one is.
        """
        with self._lock:
            if self._open is not None and self._open[0]() not in (None, turn):
                raise TurnStillOpen(conversation_id, self._open[1], number)
            self._open = (weakref.ref(turn), number)

    def leave(self, turn: object) -> None:
        """Let the next turn be opened."""
        with self._lock:
            if self._open is not None and self._open[0]() in (None, turn):
                self._open = None
