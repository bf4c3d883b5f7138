"""A product's own event types, in addition to the catalogue: registered by class or entry point.

A registered class is written and read like those of the catalogue. A process that does
not know it reads its events as `UnknownEvent`, with the JSON unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from types import MappingProxyType
from typing import TypeVar

from eventstore.errors import InvalidEvent
from eventstore.events.base import JsonObject, Payload
from eventstore.events.registry import EVENT_TYPES, REGISTRY, UPCASTERS
from eventstore.telemetry.log import get_logger

__all__ = [
    "ENTRY_POINTS",
    "READ_BACK",
    "UNINTERPRETED",
    "Upcaster",
    "class_of",
    "is_own",
    "register_event",
    "tell_of_unknown",
    "upcaster_of",
]

ENTRY_POINTS = "eventstore.events"
"""The group of entry points: each names an event class, or a module that registers several."""

UNINTERPRETED = frozenset({"imported_message", "session_event"})
"""Types of imported data that is kept verbatim and never interpreted; they never get a class."""

Upcaster = Callable[[JsonObject], JsonObject]
"""Converts the JSON of a payload to the next version."""

P = TypeVar("P", bound=Payload)

READ_BACK: set[type[Payload]] = {*REGISTRY.values()}
"""Classes whose events are known to be readable; an append reads back each event of others."""

_TYPE = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+")
_LONGEST = 128
_MOST_LOGGED = 100
_NO_UPCASTERS: Mapping[int, Upcaster] = MappingProxyType({})

_log = get_logger("eventstore.events")
_own: dict[str, type[Payload]] = {}
_upcasters: dict[tuple[str, int], Upcaster] = {}
_logged: set[str] = set()
_loading = RLock()
_entry_points: list[EntryPoint] | None = None


def register_event(cls: type[P], *, upcasters: Mapping[int, Upcaster] = _NO_UPCASTERS) -> type[P]:
    """Register your own event class in this process, and return it; also works as a decorator.

    Registering a class again changes nothing; a class that was imported again replaces itself.

    Args:
        cls: A subclass of `Payload` with a type such as ``acme.ticket_opened``: a namespace, a dot
            and a name, in lowercase letters, digits and underscores, up to 128 characters.
        upcasters: For each version before ``cls.schema_version``: the function that converts a
            payload's JSON to the next version.

    Raises:
        InvalidEvent: The class is not an event class, the type is malformed or belongs to another
            class, or the upcasters do not match the earlier versions.
    """
    if (problem := _problem(cls, upcasters)) is not None:
        raise InvalidEvent(f"{cls!r} cannot be registered as an event: {problem}")
    _upcasters.update({(cls.type, version): made for version, made in upcasters.items()})
    _own[cls.type] = cls
    return cls


def is_own(type_name: str) -> bool:
    """Whether a type is a product's own, registered or not: the catalogue's types have no dot."""
    return "." in type_name


def class_of(type_name: str) -> type[Payload] | None:
    """Return the class of a type, or None; an unknown type first imports the entry points."""
    known = REGISTRY.get(type_name) or _own.get(type_name)
    if known is None and is_own(type_name):
        _load_entry_points()
        known = _own.get(type_name)
    return known


def tell_of_unknown(type_name: str) -> None:
    """Log, once for each type, that events of it are read as unknown."""
    if type_name in UNINTERPRETED or type_name in _logged or len(_logged) >= _MOST_LOGGED:
        return
    _logged.add(type_name)
    advice = "upgrade the package"
    if is_own(type_name):
        advice = f"register its class, or name it in the entry points {ENTRY_POINTS}"
    _log.warning("event_type_not_registered", type=type_name, read_as="unknown", advice=advice)


def upcaster_of(type_name: str, version: int) -> Upcaster:
    """Return the upcaster from a version to the next one.

    Raises:
        LookupError: There is no such upcaster.
    """
    return (_upcasters if is_own(type_name) else UPCASTERS)[type_name, version]


def _problem(cls: type[Payload], upcasters: Mapping[int, Upcaster]) -> str | None:
    if not isinstance(cls, type) or not issubclass(cls, Payload):
        return "it must extend eventstore.events.Payload"
    if issubclass(cls, EVENT_TYPES):
        return "it must extend Payload itself, not a class of the catalogue"
    name, version = getattr(cls, "type", None), cls.schema_version
    if not isinstance(name, str) or not _TYPE.fullmatch(name) or len(name) > _LONGEST:
        return (
            f"its type is {name!r}, but must be a namespace, a dot and a name, such as "
            f"acme.ticket_opened, of up to {_LONGEST} characters"
        )
    if type(version) is not int or not 0 < version < 2**31:
        return f"its schema_version must be an integer from 1, not {version!r}"
    if sorted(upcasters) != list(range(1, version)):
        return f"it is at version {version}, and needs an upcaster from each earlier version"
    other = _own.get(name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        return f"its type {name!r} belongs to {other.__module__}.{other.__qualname__}"
    return None


def _load_entry_points() -> None:
    """Import the entry points once; concurrent callers wait for it."""
    global _entry_points
    with _loading:
        if _entry_points is not None:
            return
        _entry_points = list(entry_points(group=ENTRY_POINTS))
        for entry in _entry_points:
            try:
                found = entry.load()
                if isinstance(found, type) and _own.get(getattr(found, "type", "")) is not found:
                    register_event(found)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                _log.warning("entry_point_failed", name=entry.name, value=entry.value, error=reason)
