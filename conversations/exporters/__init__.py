"""Conversations to foreign formats: OpenAI messages, and the session JSONL of document 001."""

from .openai_messages import export_openai
from .session_jsonl import export_session_jsonl

__all__ = ["FORMATS", "export_openai", "export_session_jsonl"]

FORMATS = ("openai", "session-jsonl")
"""The names of the formats that can be written."""
