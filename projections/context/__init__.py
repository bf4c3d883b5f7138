"""The messages[] view: a fold stores rows, and a builder makes requests from them.

``fold`` turns events into ``rows``, and ``source`` reads these. ``plans`` groups them, newest
first, and defines budgets; ``planning`` chooses what fits, at which level of ``detail``.
``formats`` writes the plan for a provider, ``view`` accounts for it, ``system_part`` composes the
messages in front, ``settings`` has the limits, ``builder`` combines all of these, and ``requests``
restores sent requests. ``prompts`` has every text that replaces missing content.
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
