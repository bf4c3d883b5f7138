"""Structured logging through the standard library's loggers.

A library must not print: events go to the logger of this name, rendered as ``key=value``, and are
seen where the product configures logging. Messages carry ids, versions and durations, and never
payloads or passwords.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

__all__ = ["get_logger"]


def get_logger(name: str) -> Any:
    """Return a structlog logger on top of ``logging.getLogger(name)``."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
