"""Token counts of texts, messages and whole requests, always offline.

OpenAI models are counted with the ranks that tiktoken uses, kept here as package data; every other
model gets an estimate with a stated margin. Nothing in this package reads the network, tiktoken's
plugin registry, or the database.
"""

from projections.tokens.requests import count_message, count_messages, count_tools
from projections.tokens.text import Count, Tokenizer, count_text, tokenizer_for

__all__ = [
    "Count",
    "Tokenizer",
    "count_message",
    "count_messages",
    "count_text",
    "count_tools",
    "tokenizer_for",
]
