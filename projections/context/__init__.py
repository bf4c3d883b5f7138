"""The messages[] view: rows that a fold writes, and requests that a builder makes from them.

``fold`` turns events into ``rows``; ``source`` reads the rows. ``plans`` defines groups, budgets
and plans; ``planning`` chooses which groups fit, and at which level of ``detail``. ``formats``
writes the messages for a provider, ``view`` returns them with the ledger, ``system_part`` composes
the system part, ``settings`` holds the limits, and ``builder`` combines all of these. ``requests``
reads back how a recorded request was built. ``prompts`` holds all texts for missing, broken or
shortened content.
"""

from projections.context.builder import build
from projections.context.fold import CONTEXT, ContextProjection
from projections.context.output_paths import READ_OUTPUT
from projections.context.plans import Budget, Group
from projections.context.prompts import Injection, PromptTexts, compose
from projections.context.rows import CONTEXT_MESSAGES, ContextRow
from projections.context.settings import ContextSettings
from projections.context.source import ContextHead, RowSource
from projections.context.view import ContextView, LedgerEntry
from projections.providers.request_formats import openai_chat

__all__ = [
    "CONTEXT",
    "CONTEXT_MESSAGES",
    "READ_OUTPUT",
    "Budget",
    "ContextHead",
    "ContextProjection",
    "ContextRow",
    "ContextSettings",
    "ContextView",
    "Group",
    "Injection",
    "LedgerEntry",
    "PromptTexts",
    "RowSource",
    "build",
    "compose",
    "openai_chat",
]
