"""Who sells a model, where its name alone tells.

Prices depend on the seller, and many servers offer the same models, so a name that several of them
use tells nothing: no seller is better than a wrong one.
"""

from __future__ import annotations

import re

__all__ = ["seller_of"]

_NAMES = (
    ("deepseek", re.compile(r"deepseek-(chat|reasoner)\b")),
    ("x-ai", re.compile(r"grok-")),
    ("openai", re.compile(r"(chatgpt|codex|computer-use|gpt|o\d)-|o\d$")),
)
_OPEN_WEIGHTS = "gpt-oss"


def seller_of(model: str | None) -> str | None:
    """Return the seller whose models alone go by such a name."""
    if model is None or model.startswith(_OPEN_WEIGHTS):
        return None
    return next((seller for seller, name in _NAMES if name.match(model)), None)
