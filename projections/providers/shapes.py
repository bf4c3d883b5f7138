"""Shapes of JSON values, and values reduced to what a shape has.

A provider rejects a request for a field that it does not know, that it misses, or whose value has
another type, at any depth. What a server has sent is therefore fitted to the shape of an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Misfit", "ObjectShape", "Shape", "fitted", "texts", "typed"]

Json = dict[str, Any]

Shape = Any
"""A type, None, a set of texts, a list of one shape, a tuple of alternatives, or an object."""


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """The fields of an object: those it must have, and those it may have."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]

    def __contains__(self, field: str) -> bool:
        """Whether the object may have a field."""
        return field in self.required or field in self.optional


class Misfit(ValueError):
    """A value has another shape."""


def fitted(value: Any, shape: Shape) -> Any:
    """Return a value without the fields that its shape lacks, and without optional misfits.

    Raises:
        Misfit: It has another shape.
    """
    if isinstance(shape, ObjectShape):
        return _object(value, shape)
    if isinstance(shape, tuple):
        return _any_of(value, shape)
    if isinstance(shape, list) and type(value) is list:
        return [fitted(each, shape[0]) for each in value]
    if isinstance(shape, frozenset):
        fits = isinstance(value, str) and value in shape
    else:
        fits = shape is object or (value is None if shape is None else type(value) is shape)
    if not fits:
        raise Misfit
    return value


def _any_of(value: Any, shapes: Sequence[Shape]) -> Any:
    for shape in shapes:
        try:
            return fitted(value, shape)
        except Misfit:
            continue
    raise Misfit


def _object(value: Any, shape: ObjectShape) -> Json:
    if not isinstance(value, dict) or not shape.required.keys() <= value.keys():
        raise Misfit
    found = {}
    for key, each in value.items():
        if key in shape.required:
            found[key] = fitted(each, shape.required[key])
        elif key in shape.optional:
            try:
                found[key] = fitted(each, shape.optional[key])
            except Misfit:
                continue
    return found


def typed(kind: str, required: Mapping[str, Shape], **optional: Shape) -> ObjectShape:
    """Return the shape of an object with this ``type``."""
    return ObjectShape({"type": frozenset({kind}), **required}, optional)


def texts(names: str) -> dict[str, Shape]:
    """Return fields that are texts."""
    return dict.fromkeys(names.split(), str)
