"""Cache parameters of a request, in addition to its messages.

Anthropic, guide "Prompt caching" (2025): at most four breakpoints per request; none on thinking or
on an empty text. A prompt is read from the longest cached prefix that ends at a breakpoint, so they
are placed after the parts that change least: tools, system part, the part frozen by the last step,
and the whole request. OpenAI, guide "Prompt caching" (2025): prefixes are found without marks, and
requests with the same ``prompt_cache_key`` are routed to the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from projections.context.edits import managed
from projections.context.formats import Wire
from projections.context.plans import Plan
from projections.context.settings import ContextSettings
from projections.context.view import ContextView

__all__ = ["with_marks", "with_parameters"]

_MARK = {"cache_control": {"type": "ephemeral"}}
_MARKED = frozenset({"text", "image", "document", "tool_use", "tool_result"})
_Json = dict[str, Any]


def with_parameters(
    view: ContextView, settings: ContextSettings, write: Callable[[Plan], Wire]
) -> ContextView:
    """Return a view with the request parameters that its settings add to the messages.

    Args:
        view: A view.
        settings: Its settings.
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
    if view.tools and all("input_schema" in each or "type" in each for each in view.tools):
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


def _blocks(messages: Sequence[_Json]) -> list[tuple[str, _Json]]:
    return [(message["role"], block) for message in messages for block in message["content"]]


def _shared(messages: Sequence[_Json], front: Sequence[_Json]) -> int:
    """Return the number of equal blocks at the beginning."""
    pairs = zip(_blocks(messages), _blocks(front), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def with_marks(messages: Sequence[_Json], ends: Collection[int]) -> tuple[_Json, ...]:
    """Return messages with a mark on the last block before each end that allows one."""
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
