"""The messages[] view: rows that a fold keeps, and requests that a builder makes of them.

``fold`` turns events into ``rows``, and ``source`` reads these. ``plans`` groups them, newest
first, and says what a budget allows; ``planning`` chooses what fits, at which level of ``detail``.
``formats`` writes it for a provider, ``view`` accounts for it, ``system_part`` composes what stands
in front, ``settings`` has the limits, ``builder`` puts all of that together, and ``requests`` gives
back what was sent. Every text that stands for something missing is in ``prompts``.
"""

from projections.context.builder import build
from projections.context.fold import CONTEXT, ContextProjection
from projections.context.formats import openai_chat
from projections.context.output_paths import READ_OUTPUT
from projections.context.plans import Budget, Group
from projections.context.prompt_texts import PromptTexts
from projections.context.rows import CONTEXT_MESSAGES, ContextRow
from projections.context.settings import ContextSettings
from projections.context.source import ContextHead, RowSource
from projections.context.system_part import Injection, compose
from projections.context.view import ContextView, LedgerEntry

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
