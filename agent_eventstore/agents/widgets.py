"""Widgets: the parts of an agent's screen, and the tools that change them (document 004).

The content of the widgets is added to the newest input or tool result when it is written, so the
log has what the agent saw. Their state is in the log too, and is restored when a session is opened
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agent_eventstore.agents.function_tools import FunctionTool
from agent_eventstore.conversation import Conversation
from agent_eventstore.inputs import UserInput, message_of
from eventstore.events import JsonObject, Notebook, Sections
from eventstore.events.content import LIVE_SCREEN, with_live_section

__all__ = [
    "MemoryNotebook",
    "Widget",
    "live_screen",
    "screen_section",
    "widget_tools",
    "with_screen",
]


class Widget:
    """A part of the screen; the base class for your product's widgets.

    Attributes:
        tools: The tools with which the agent can use it.
    """

    tools: Sequence[FunctionTool] = ()

    def open(self, conversation: Conversation) -> None:
        """Load the state from the conversation's log; called once, before anything else."""

    def render_live_screen(self) -> str | None:
        """Return the content to show, as text or Markdown; None for nothing."""
        return None

    def execute(self, tool: str, arguments: JsonObject) -> Any:
        """Run one of the tools; it must record its changes in the log.

        Raises:
            ValueError: The arguments do not match the declaration.
        """
        return next(each for each in self.tools if each.name == tool).run(arguments)


class MemoryNotebook(Widget):
    """A notebook that the agent rewrites as a whole, with the tool ``memory_notebook_replace``.

    Each version is a ``notebook`` event that is not part of the context: the screen shows it.
    """

    def __init__(self) -> None:
        self.text = ""
        self._conversation: Conversation | None = None
        self.tools = (
            FunctionTool.of(self.replace, name="memory_notebook_replace", idempotent=True),
        )

    def open(self, conversation: Conversation) -> None:
        """Load the notebook from the log."""
        self._conversation = conversation
        self.text = conversation.views.run_state(conversation.id).notebook or ""

    def render_live_screen(self) -> str | None:
        """Return the notebook under its heading; None while it is empty."""
        return f"## [Memory Notebook]\n\n{self.text}" if self.text else None

    def replace(self, text: str) -> str:
        """Replace the memory notebook by this text, which stands before your eyes from then on."""
        if self._conversation is not None:
            self._conversation.append(Notebook(text=text), in_context=False)
        self.text = text
        return "The notebook is replaced."


def live_screen(widgets: Iterable[Widget]) -> str | None:
    """Return the screen; None if nothing is shown."""
    shown = (widget.render_live_screen() for widget in widgets)
    fragments = [each.rstrip() for each in shown if each and each.strip()]
    return "\n\n".join(["# [Live Screen]", *fragments]) if fragments else None


def with_screen(message: UserInput, screen: str | None) -> UserInput:
    """Return an input with the screen added to its live sections."""
    if screen is None:
        return message
    user_message = message_of(message)
    return user_message.model_copy(
        update={"sections": screen_section(user_message.sections, screen)}
    )


def screen_section(sections: Sections | None, screen: str) -> Sections:
    """Return sections with the screen added to the live ones."""
    return with_live_section(sections or Sections(live=()), LIVE_SCREEN, screen)


def widget_tools(widgets: Iterable[Widget]) -> list[FunctionTool]:
    """Return the tools of widgets, which run through their widgets."""
    return [_through(widget, tool) for widget in widgets for tool in widget.tools]


def _through(widget: Widget, tool: FunctionTool) -> FunctionTool:
    def run(**arguments: Any) -> Any:
        return widget.execute(tool.name, arguments)

    return replace(tool, function=run)
