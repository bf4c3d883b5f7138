"""The demo's screen: what an agent does, as it does it, and the headings between."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from agent_eventstore.cli.tables import cell
from agent_eventstore.cli.text import one_line

__all__ = ["Narrator", "heading"]


class Narrator:
    """Writes what happens, a line each; answers and calls when they are complete, or cut short."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._who, self._text = "", ""

    def tell(self, kind: str, text: str) -> None:
        """Show what an agent tells; see `agent_eventstore.demo.agent.Listener`."""
        if kind == "text":
            self._who, self._text = "model", self._text + text
        elif kind == "user":
            self.line("you", text, "bold")
        elif kind == "call":
            self._who, self._text = "tool", f"{one_line(text, 40)} → "
        elif kind == "result":
            style = "yellow" if text.startswith("success") else "red"
            self.line("tool", one_line(self._text + text, self._console.width - 9), style)
            self._text = ""
        else:
            self._end("cyan")
            if kind == "error":
                self.line("", f"({text}; the call is made again)", "red")

    def cut_short(self, why: str) -> None:
        """Show what was being told when it ended, and why nothing more came."""
        self._end("cyan" if self._who == "model" else "yellow")
        self.line("", why, "red")

    def _end(self, style: str) -> None:
        if self._text:
            self.line(self._who, self._text, style)
        self._text = ""

    def line(self, who: str, text: str, style: str = "") -> None:
        """Show a text, and who says it; a long one goes on below."""
        shown = cell(text, style)
        shown.overflow = "fold"
        for number, line in enumerate(shown.wrap(self._console, self._console.width - 8)):
            self._console.print(Text(f"{who if number == 0 else '':>6}  ", style="dim") + line)


def heading(console: Console, title: str, why: str) -> None:
    """Begin a part of the demo."""
    console.print()
    console.print(Text.assemble((title, "bold underline"), (f"  {why}", "dim")))
