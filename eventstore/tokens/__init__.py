"""Token counts of texts, messages and whole requests, always offline.

OpenAI models are counted with the ranks that tiktoken uses, kept here as package data; every other
model gets an estimate with a stated margin. Nothing in this package reads the network, tiktoken's
plugin registry, or the database.
"""

from eventstore.tokens.count import Count
from eventstore.tokens.requests import count_message, count_messages
from eventstore.tokens.text import Tokenizer, count_text, tokenizer_for
from eventstore.tokens.tools import count_tools

__all__ = [
    "Count",
    "Tokenizer",
    "count_message",
    "count_messages",
    "count_text",
    "count_tools",
    "tokenizer_for",
]
