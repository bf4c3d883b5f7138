"""The ReAct protocol of document 001: how a model's replies use tags, and what the model is sent.

A reply is ``<thought>``, then one ``<action tool="...">`` or a ``<final>``. The tool's result is
returned as a user message, ``<observation>``. Tags within code, in fences or backticks, are text.
The parser is lenient: an unclosed element ends where the next begins or at the end of the reply,
and a reply without tags is the final answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_eventstore.agents.function_tools import FunctionTool
from eventstore.events import JsonObject, Ui

__all__ = [
    "INSTRUCTIONS",
    "ParsedReply",
    "ReactStream",
    "Span",
    "in_tags",
    "parse_reply",
    "react_instructions",
]

Span = tuple[int, int]

INSTRUCTIONS = """\
Answer in XML tags, and in nothing else. Each reply begins with <thought>, your reasoning in a few
words, and then has exactly one of these:

<action tool="NAME">INPUT</action> to use a tool. INPUT is a JSON object with the tool's arguments,
or the bare text where the tool takes one. Then stop: its result comes as <observation>.
<final>ANSWER</final> to answer the user. ANSWER is all that the user sees.

Tools:
"""

_NAMES = "thought|action|observation|final"
_OPEN = rf"<(?P<name>{_NAMES})\b(?P<attributes>[^<>]*?)(?P<empty>/)?>"
_CODE = r"(?P<code>```.*?```|`[^`\n]+`)"
_TOOL = re.compile(r"""\b(?:tool|name)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/]+))""", re.I)
_ENDS_ITSELF = frozenset({"thought", "observation"})
"""Elements that the next element ends, whether they were closed or not."""

_FENCE = "```"
_MARK = re.compile("[<`]")
_TAG = re.compile(rf"<(?P<slash>/)?(?P<name>{_NAMES})\b[^<>]{{0,200}}>", re.I)
_INLINE = re.compile(r"`[^`\n]+`")
_LONGEST_TAG = 240


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A parsed reply; spans are half-open ranges of characters in its text.

    Attributes:
        text: The reply verbatim.
        tool: The tool that it calls; None if it calls none.
        thought: Span of the thought.
        action: Span of the tool's input.
        final: Span of the answer.
        end: End of the relevant text: text that a model invents after its action is not sent back.
        closed: Whether the action or the answer was closed by its tag.
    """

    text: str
    tool: str | None = None
    thought: Span | None = None
    action: Span | None = None
    final: Span | None = None
    end: int = 0
    closed: bool = False

    def of(self, span: Span | None) -> str | None:
        """Return the text of a span."""
        return None if span is None else self.text[span[0] : span[1]]

    @property
    def ui(self) -> Ui:
        """The spans of the parts in the text, which the log stores with the text."""
        spans = {"thought": self.thought, "action": self.action, "final": self.final}
        known = {name: list(span) for name, span in spans.items() if span is not None}
        return Ui(widget={"protocol": "react", **known})


def parse_reply(text: str) -> ParsedReply:
    """Parse a whole reply: its first action or answer, whichever comes first.

    >>> reply = parse_reply('<thought>Look.</thought><action tool="read">README.md</action>')
    >>> reply.tool, reply.of(reply.action)
    ('read', 'README.md')
    """
    with_code = _parsed(text, code=True)
    if with_code.closed:
        return with_code
    # The whole reply may be in a fence, or an unpaired backtick may precede a tag.
    without = _parsed(text, code=False)
    return without if without.closed else with_code


def _parsed(text: str, *, code: bool) -> ParsedReply:
    found: dict[str, Span] = {}
    at = 0
    while (opened := _search(_OPEN, text, at, code)) is not None:
        name, start = opened["name"].lower(), opened.end()
        close = rf"</{name}\s*>"
        ended = None if opened["empty"] else _search(_either(name, close), text, start, code)
        end = start if opened["empty"] else len(text) if ended is None else ended.start()
        at = end if ended is None or ended["close"] is None else ended.end()
        span = _stripped(text, start, end)
        if name in ("action", "final"):
            tool = _tool_of(opened["attributes"]) if name == "action" else None
            return ParsedReply(
                text,
                tool=tool,
                thought=found.get("thought"),
                action=span if name == "action" else None,
                final=span if name == "final" else None,
                end=at,
                closed=ended is not None or bool(opened["empty"]),
            )
        found.setdefault(name, span)
        if at <= opened.start():
            break
    whole = _stripped(text, 0, len(text))
    final = None if "thought" in found and _outside(text, found["thought"]) == "" else whole
    return ParsedReply(text, thought=found.get("thought"), final=final, end=len(text))


def _either(name: str, close: str) -> str:
    return rf"(?P<close>{close})|{_OPEN}" if name in _ENDS_ITSELF else rf"(?P<close>{close})"


def _search(pattern: str, text: str, at: int, code: bool) -> re.Match[str] | None:
    """Return the first match outside code."""
    full = re.compile(rf"{_CODE}|{pattern}" if code else pattern, re.I | re.S)
    for match in full.finditer(text, at):
        if not code or match["code"] is None:
            return match
    return None


def _outside(text: str, span: Span) -> str:
    return re.sub(rf"</?(?:{_NAMES})\b[^<>]*>", "", text[: span[0]] + text[span[1] :]).strip()


def _stripped(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    begin = start + len(piece) - len(piece.lstrip())
    return begin, max(begin, start + len(piece.rstrip()))


def _tool_of(attributes: str) -> str:
    found = _TOOL.search(attributes)
    return "" if found is None else next((each for each in found.groups() if each), "")


class ReactStream:
    """Returns the parts of a reply to show while it streams: ``thought`` and ``text``, in pieces.

    The parts do not depend on how the stream is split; for the whole reply they are those of
    `parse_reply`.
    """

    def __init__(self) -> None:
        self._text, self._at, self._inside, self._fence = "", 0, "", False

    @property
    def text(self) -> str:
        """The reply so far."""
        return self._text

    def feed(self, piece: str) -> list[tuple[str, str]]:
        """Process a piece of the reply; return what can be shown, as kind and text."""
        self._text += piece
        return self._tell(final=False)

    def end(self) -> list[tuple[str, str]]:
        """Return the text that was held back because it could have begun a tag."""
        return self._tell(final=True)

    def _tell(self, *, final: bool) -> list[tuple[str, str]]:
        pieces: list[tuple[str, str]] = []
        seen = self._at
        while (mark := _MARK.search(self._text, seen)) is not None:
            end = self._end_of_mark(mark.start(), final=final)
            if end is None:
                break
            seen = end
            if (tag := _TAG.fullmatch(self._text, mark.start(), end)) is not None:
                self._take(pieces, tag)
            elif end - mark.start() == len(_FENCE) and self._text.startswith(_FENCE, mark.start()):
                self._fence = not self._fence
        self._show(pieces, len(self._text) if mark is None else mark.start())
        return pieces

    def _end_of_mark(self, at: int, *, final: bool) -> int | None:
        """Return the end of a tag, of code or of a plain character; None if it is not known yet."""
        text = self._text
        open_end = not final and len(text) - at < _LONGEST_TAG
        if text[at] == "<":
            if (tag := _TAG.match(text, at)) is not None:
                return tag.end()
            return None if open_end and re.search("[<>]", text[at + 1 :]) is None else at + 1
        if text.startswith(_FENCE, at):
            return at + len(_FENCE)
        if self._fence or (code := _INLINE.match(text, at)) is None:
            rest = text[at + 1 :]
            undecided = not rest.strip("`") if self._fence else not re.search("[`\n]", rest[1:])
            return None if open_end and undecided else at + 1
        return code.end()

    def _take(self, pieces: list[tuple[str, str]], tag: re.Match[str]) -> None:
        name = tag["name"].lower()
        if self._fence:
            return
        if tag["slash"]:
            if name != self._inside:
                return
            inside = "after" if name in ("action", "final") else ""
        elif self._inside in ("", *_ENDS_ITSELF):
            inside = name
        else:
            return
        self._show(pieces, tag.start())
        self._inside, self._at = inside, tag.end()

    def _show(self, pieces: list[tuple[str, str]], until: int) -> None:
        kind = {"thought": "thought", "final": "text"}.get(self._inside)
        if until > self._at:
            if kind is not None:
                pieces.append((kind, self._text[self._at : until]))
            self._at = until


def react_instructions(tools: Iterable[FunctionTool]) -> str:
    """Return the instructions for the model: the protocol and its tools."""
    lines = [
        f"- {tool.name}({', '.join(tool.parameters.get('properties', {}))}): "
        f"{' '.join(tool.description.split())}"
        for tool in tools
    ]
    return INSTRUCTIONS + "\n".join(lines or ["(none)"])


def in_tags(messages: Sequence[JsonObject], instructions: str) -> list[JsonObject]:
    """Return OpenAI's messages in the protocol's form: tags instead of calls and results.

    The instructions are at the end of the system message, which is created if there is none.
    """
    names: dict[str, str] = {}
    rendered = [_in_tags(message, names) for message in messages]
    system = next((m for m in rendered if m["role"] in ("system", "developer")), None)
    if system is None:
        return [{"role": "system", "content": instructions}, *rendered]
    system["content"] = f"{_words(system.get('content'))}\n\n{instructions}"
    return rendered


def _in_tags(message: JsonObject, names: dict[str, str]) -> JsonObject:
    if message["role"] == "tool":
        tool = names.get(message.get("tool_call_id", ""), "")
        observation = (
            f'<observation tool="{tool}">\n{_words(message.get("content"))}\n</observation>'
        )
        return {"role": "user", "content": observation}
    calls = message.get("tool_calls") or ()
    if message["role"] != "assistant" or not calls:
        return dict(message)
    wanted = [call["function"] for call in calls]
    names.update((call["id"], call["function"]["name"]) for call in calls)
    text = _words(message.get("content"))
    reply = parse_reply(text)
    if reply.tool is not None:
        return {"role": "assistant", "content": text[: reply.end]}
    actions = (f'<action tool="{each["name"]}">{each["arguments"]}</action>' for each in wanted)
    return {"role": "assistant", "content": "\n".join(filter(None, (text, *actions)))}


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
