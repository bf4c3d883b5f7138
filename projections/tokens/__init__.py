"""Token counts of texts, messages and whole requests, always offline.

OpenAI models are counted with tiktoken's ranks, which are bundled as package data. Every other
model gets an estimate with a stated margin. Counting never reads the network or tiktoken's plugin
registry; only `projections.tokens.counts` and `calibration` read the database.
"""

from projections.tokens.request_counts import count_message, count_messages, count_tools
from projections.tokens.text import Count, Tokenizer, count_text, require_tokenizer, tokenizer_for

__all__ = [
    "Count",
    "Tokenizer",
    "count_message",
    "count_messages",
    "count_text",
    "count_tools",
    "require_tokenizer",
    "tokenizer_for",
]
