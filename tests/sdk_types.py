"""Requests against the input types of the providers' own SDKs, with nothing beside their fields.

The SDKs' parameters are typed dicts whose lists are any iterables, which pydantic takes on trust,
and to which any field may be added. Here lists are lists, and no field is unknown.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from anthropic.types.beta import BetaMessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict, get_type_hints, is_typeddict

__all__ = ["refused_by_sdk"]

_ITEMS: dict[str, tuple[str, Any]] = {
    "anthropic_messages": ("messages", BetaMessageParam),
    "openai_chat": ("messages", ChatCompletionMessageParam),
    "openai_responses": ("input", ResponseInputItemParam),
}
_TYPED_DICT: Any = TypedDict  # Of fields that are known at run time, which mypy takes for an error.
_LISTS = (list, Iterable, Sequence, get_origin(Iterable[int]), get_origin(Sequence[int]))


def refused_by_sdk(specification: str, body: Mapping[str, Any]) -> list[str]:
    """Return what the SDK's types have against the items of a request body, one sentence each."""
    field, _ = _ITEMS[specification]
    problems = []
    for place, item in enumerate(body[field]):
        try:
            _adapter(specification).validate_python(item, strict=True)
        except ValidationError as error:
            kind = item.get("type") or item.get("role")
            own = [each for each in error.errors() if _is_about(each["loc"], str(kind))]
            found = own or error.errors()
            told = "; ".join(f"{each['loc'][-3:]}: {each['msg']}" for each in found[:4])
            problems.append(f"item {place} ({kind}): {told}")
    return problems


def _is_about(place: tuple[Any, ...], kind: str) -> bool:
    words = kind.replace("_", "")
    return any(words in str(each).lower() for each in place[:1])


@cache
def _adapter(specification: str) -> TypeAdapter[Any]:
    made: dict[Any, Any] = {}
    return TypeAdapter(_strict(_ITEMS[specification][1], made))


def _strict(kind: Any, made: dict[Any, Any]) -> Any:
    """Return a type whose typed dicts have no fields but their own, and whose lists are lists."""
    if is_typeddict(kind):
        if kind not in made:
            hints = get_type_hints(kind, include_extras=True)
            fields = {name: _field(kind, name, hint, made) for name, hint in hints.items()}
            made[kind] = _TYPED_DICT(kind.__name__, fields)
            made[kind].__pydantic_config__ = ConfigDict(extra="forbid")
        return made[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _strict(inner[0], made)
    if origin in (Union, types.UnionType):
        return Union[tuple(_strict(each, made) for each in inner)]  # noqa: UP007 - made of a list
    if origin in _LISTS and inner:
        return list[_strict(inner[0], made)]  # type: ignore[misc]
    # Files and paths are for calls of the SDK; a request that was stored has texts.
    return kind if origin in (Literal, dict, None) and kind is not os.PathLike else bytes


def _field(kind: Any, name: str, hint: Any, made: dict[Any, Any]) -> Any:
    required = name in kind.__required_keys__
    while get_origin(hint) in (Required, NotRequired):
        required = get_origin(hint) is Required
        hint = get_args(hint)[0]
    strict = _strict(hint, made)
    return Required[strict] if required else NotRequired[strict]
