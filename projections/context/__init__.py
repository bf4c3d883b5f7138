"""The messages[] view: rows that a fold keeps, and requests that a builder makes of them.

``fold`` turns events into rows (`rows`), ``source`` reads them, ``budget`` chooses whole groups,
``wire`` writes them in a provider's format, ``ledger`` accounts for it, ``builder`` puts all of
that together. Every text that stands for something missing is in ``prompts``.
"""

from projections.context.budget import Group, Selection, select
from projections.context.builder import POLICY, ContextView, Injection, build
from projections.context.fold import CONTEXT, ContextProjection
from projections.context.ledger import LedgerEntry
from projections.context.rows import CONTEXT_MESSAGES, ContextRow
from projections.context.source import Head, ListRowSource, RowSource
from projections.context.wire import openai_chat

__all__ = [
    "CONTEXT",
    "CONTEXT_MESSAGES",
    "POLICY",
    "ContextProjection",
    "ContextRow",
    "ContextView",
    "Group",
    "Head",
    "Injection",
    "LedgerEntry",
    "ListRowSource",
    "RowSource",
    "Selection",
    "build",
    "openai_chat",
    "select",
]
