"""Metadata that identifies somebody, kept with the payload: committed to and erased with it.

What an event's ``meta`` column has stays for ever, since the chain covers it as it is. So who
caused an event, and the product's own ids of causes, stand in the ``data`` column before the
payload: ``{"$meta":{"actor":"..."},...payload...}``.
"""

from __future__ import annotations

from json import JSONDecoder

__all__ = ["PRIVATE", "unwrapped", "wrapped"]

PRIVATE = {"actor", "causation_id", "correlation_id"}
"""The fields of metadata that are kept so."""

_START = '{"$meta":'
_VALUE = '"$value":'  # before a payload that is no object, or could be taken for one of these
_decode = JSONDecoder().raw_decode


def wrapped(payload: str, private: str) -> str:
    """Return what is stored of a payload and its private metadata, JSON texts; ``""`` is none."""
    if not private and not payload.startswith(_START):
        return payload
    start = f"{_START}{private or '{}'}"
    if not payload.startswith("{") or payload.startswith("{" + _VALUE):
        return f"{start},{_VALUE}{payload}}}"
    return f"{start}{'' if payload == '{}' else ','}{payload[1:]}"


def unwrapped(stored: str) -> tuple[str, str]:
    """Return the payload's JSON text, and that of its private metadata or ``""``.

    Raises:
        ValueError: It is no JSON.
    """
    if not stored.startswith(_START):
        return stored, ""
    _, end = _decode(stored, len(_START))
    rest, private = stored[end:].removeprefix(","), stored[len(_START) : end]
    if rest.startswith(_VALUE):
        return rest[len(_VALUE) : -1], private
    return "{" + rest, private
