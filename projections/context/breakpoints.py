"""Prompt cache breakpoints, and the other parameters of a call in addition to its messages.

Anthropic, guide "Prompt caching" (2025): at most four breakpoints a request; none on thinking, nor
on an empty text. The cache reuses the longest prefix that ends at a breakpoint, so breakpoints
follow the parts that change least: the tools, the system part, the part that the last step left
unchanged, and the whole history. OpenAI, guide "Prompt caching" (2025): prefixes are detected
without breakpoints, and requests with the same ``prompt_cache_key`` go to the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from projections.context.edits import managed
from projections.context.plans import Plan
from projections.context.settings import ContextSettings
from projections.context.view import ContextView
from projections.providers.request_formats import Wire

__all__ = ["with_marks", "with_parameters"]

_MARK = {"cache_control": {"type": "ephemeral"}}
_MARKED = frozenset({"text", "image", "document", "tool_use", "tool_result"})
_Json = dict[str, Any]


def with_parameters(
    view: ContextView, settings: ContextSettings, write: Callable[[Plan], Wire]
) -> ContextView:
    """Return the view with the breakpoints and call parameters that its settings ask for.

    Args:
        view: The view.
        settings: The view's settings.
        write: Writes the system part and a plan in the view's format.
    """
    parameters = managed(view.format, settings.context_management)
    if view.format.startswith("openai") and settings.prompt_cache_key is not None:
        parameters["prompt_cache_key"] = settings.prompt_cache_key
    if view.format == "anthropic_messages" and settings.cache_breakpoints:
        view = _with_breakpoints(view, write)
    return replace(view, parameters=view.parameters | parameters) if parameters else view


def _with_breakpoints(view: ContextView, write: Callable[[Plan], Wire]) -> ContextView:
    ends = {len(_blocks(view.messages))}
    history = view.account.history
    if history.step is not None:
        frozen = tuple(each for each in history.groups if each.group.key <= history.step)
        ends.add(_shared(view.messages, write(replace(history, groups=frozen)).messages))
    parameters: _Json = {}
    if view.tools and all(map(_is_declaration, view.tools)):
        *others, last = view.tools
        parameters["tools"] = [*others, {**last, **_MARK}]
    if view.system:
        parameters["system"] = [{"type": "text", "text": view.system, **_MARK}]
    return replace(
        view,
        messages=with_marks(view.messages, ends),
        account=replace(view.account, breakpoints=True),
        parameters=parameters,
    )


def _is_declaration(tool: Any) -> bool:
    """Whether a tool is declared in Anthropic's format."""
    return isinstance(tool, Mapping) and ("input_schema" in tool or "type" in tool)


def _blocks(messages: Sequence[_Json]) -> list[tuple[str, _Json]]:
    return [(message["role"], block) for message in messages for block in message["content"]]


def _shared(messages: Sequence[_Json], front: Sequence[_Json]) -> int:
    """Return how many blocks at the beginning of both lists are equal."""
    pairs = zip(_blocks(messages), _blocks(front), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def with_marks(messages: Sequence[_Json], ends: Collection[int]) -> tuple[_Json, ...]:
    """Return messages with a breakpoint on the last block before each end that may have one."""
    able = [block["type"] in _MARKED for _, block in _blocks(messages)]
    places = {max((n for n in range(end) if able[n]), default=-1) for end in ends}
    number, marked = 0, list[_Json]()
    for message in messages:
        blocks = message["content"]
        content = [
            {**block, **_MARK} if number + n in places else block for n, block in enumerate(blocks)
        ]
        number += len(blocks)
        marked.append({**message, "content": content})
    return tuple(marked)
